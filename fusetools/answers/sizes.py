"""Mean size of the data that requests moved."""

from __future__ import annotations

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source

# Bytes of headers in the length of a request (fuse_in_header and fuse_write_in) and of a reply
# (fuse_out_header), include/uapi/linux/fuse.h.
WRITTEN = {"write": 80}
READ = {"read": 16, "readdir": 16, "readdirplus": 16}


def sizes(source: Source) -> dict[str, float]:
    """Return the mean bytes of data by operation that moves data, if the kernel reports them."""
    catalogue = source.catalogue.requests().rows
    filters = source.core_filters(Filters())
    written, read = source.query(core.native.lengths, catalogue, filters)
    found = {}
    for lengths, headers in ((written, WRITTEN), (read, READ)):
        for operation, (requests, total) in lengths.items():
            if operation in headers:
                found[operation] = max(0.0, total / requests - headers[operation])
    return found
