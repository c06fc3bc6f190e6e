"""Single calls and requests as numpy columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusetools.names import LAYERS
from fusetools.results.rows import Columns


@dataclass(frozen=True, repr=False)
class Calls(Columns):
    """Matched calls as columns of equal length, by start.

    System calls are included if they made a request. ``layer`` and ``function`` are indices into
    ``layers`` and ``functions``. ``start_ns``: on the recording's clock; ``unique``: the FUSE
    request's number, 0 if unknown.
    """

    functions: tuple[str, ...]
    layer: NDArray[np.uint8]
    function: NDArray[np.uint16]
    start_ns: NDArray[np.uint64]
    duration_ns: NDArray[np.uint64]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    unique: NDArray[np.uint64]

    @property
    def layers(self) -> tuple[str, ...]:
        return LAYERS

    def of(self, function: str) -> NDArray[np.bool_]:
        """Return a mask for a function: ``calls.duration_ns[calls.of("cvmfs_lookup")]``."""
        codes = [i for i, name in enumerate(self.functions) if name == function]
        import numpy as np

        return np.isin(self.function, codes)


@dataclass(frozen=True, repr=False)
class RequestColumns(Columns):
    """FUSE requests as columns of equal length, by begin.

    Times are ns on the recording's clock, 0 if not seen. ``callback_start_ns`` and
    ``callback_end_ns``: entry and return of the daemon's callback; ``sent_ns``: the daemon had
    copied the request; ``woken_ns``: the caller ran again. ``pid`` and ``tid``: the caller's.
    ``error``: 0 or -errno.
    """

    connection: NDArray[np.uint64]
    unique: NDArray[np.uint64]
    opcode: NDArray[np.uint32]
    begin_ns: NDArray[np.uint64]
    end_ns: NDArray[np.uint64]
    error: NDArray[np.int32]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    callback_start_ns: NDArray[np.uint64]
    callback_end_ns: NDArray[np.uint64]
    sent_ns: NDArray[np.uint64]
    woken_ns: NDArray[np.uint64]
