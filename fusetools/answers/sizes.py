"""Mean size of the data that requests moved."""

from __future__ import annotations

from fusetools import core
from fusetools.answers.catalogue import needed
from fusetools.answers.filters import Filters
from fusetools.answers.requests import column
from fusetools.answers.source import Source

# Bytes of headers in the length of a request (fuse_in_header and fuse_write_in) and of a reply
# (fuse_out_header), include/uapi/linux/fuse.h.
WRITTEN = {"write": 80}
READ = {"read": 16, "readdir": 16, "readdirplus": 16}


def sizes(source: Source) -> dict[str, float]:
    """Return the mean bytes of data by operation that moves data, if the kernel reports them."""
    catalogue = needed(source.catalogue, source.events)
    answer = source.query(core.native.stories, catalogue, source.core_filters(Filters()))
    raw = answer["stories"]
    operations = [answer["operations"][code] for code in raw["operation"]]
    errors = column(raw["error"], "i")
    found: dict[str, list[int]] = {}
    for lengths, headers in ((raw["request_bytes"], WRITTEN), (raw["reply_bytes"], READ)):
        for operation, length, error in zip(operations, column(lengths, "Q"), errors):
            header = headers.get(operation)
            if header is not None and length >= header and not error:
                found.setdefault(operation, []).append(length - header)
    return {operation: sum(own) / len(own) for operation, own in found.items()}
