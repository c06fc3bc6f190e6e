"""All time stamps and threads of each request, as numpy columns."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from fusetools import core
from fusetools.answers.catalogue import needed
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.results.stories import Stories


def stories(source: Source, filters: Filters) -> Stories:
    """Return all requests' stories as numpy columns."""
    catalogue = needed(source.catalogue, source.events)
    answer = source.query(core.native.stories, catalogue, source.core_filters(filters))
    import numpy as np

    made: dict[str, Any] = {
        name: tuple(answer[name]) for name in ("operations", "fates", "comms", "marks")
    }
    hints = get_type_hints(Stories)
    for name, raw in answer["stories"].items():
        _, dtype = get_args(hints[name])  # of numpy.ndarray
        kind = np.dtype(get_args(dtype)[0]).newbyteorder("<")
        made[name] = np.frombuffer(raw, kind)
    return Stories(**made)
