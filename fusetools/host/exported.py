"""The callbacks in the table of operations that a daemon's library has made in its memory.

CernVM-FS's library exports one variable, a pointer to a structure. The structure holds the table
(struct fuse_lowlevel_ops of libfuse) through which the loader calls the callbacks.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from fusetools.core import native
from fusetools.host.memory import Memory
from fusetools.host.processes import Code

# Members of struct fuse_lowlevel_ops in libfuse 2.9 to 3.x (include/fuse_lowlevel.h), without the
# last ones, in which these versions differ.
MEMBERS = (
    *("init", "destroy", "lookup", "forget", "getattr", "setattr", "readlink", "mknod", "mkdir"),
    *("unlink", "rmdir", "symlink", "rename", "link", "open", "read", "write", "flush", "release"),
    *("fsync", "opendir", "readdir", "releasedir", "fsyncdir", "statfs", "setxattr", "getxattr"),
    *("listxattr", "removexattr", "access", "create", "getlk", "setlk", "bmap", "ioctl", "poll"),
    *("write_buf", "retrieve_reply", "forget_multi", "flock", "fallocate"),
)
# Members that each table has: a file system without them shows no file.
NEEDED = frozenset(("init", "lookup", "forget", "getattr", "open", "read", "release"))
LIBFUSE_ITSELF = frozenset(("init", "destroy"))  # called without a request
MOST = 1024  # bytes of the structure that are looked at

# A callback: member, virtual address, size, place of a probe as an offset in the file.
Callback = tuple[str, int, int, int]


def callbacks(
    memory: Memory, code: Sequence[Code], path: str, variable: str, known: Collection[str]
) -> list[Callback]:
    """Return the callbacks of a library; empty unless the table is certain.

    ``code``: where the library is mapped; ``path``: a name that opens its file; ``variable``: the
    exported pointer; ``known``: the members that the library may set. The table is certain if just
    one place in the structure fits: no other member is set, those that are needed are, and each is
    the start of a function in the file's unwind tables. Raise CoreError for a damaged file.
    """
    loads, address = native.elf_exported(path, variable)
    if address is None:
        return []
    biases = {bias for one in code if (bias := _bias(one, loads)) is not None}
    if len(biases) != 1:
        return []
    (bias,) = biases
    (structure,) = _words(memory.peek(bias + address, 8)) or (0,)
    words = _words(memory.peek(structure, MOST)) if structure % 8 == 0 else ()
    tables = []
    for at in range(len(words) - len(MEMBERS) + 1):
        table = {member: word for member, word in zip(MEMBERS, words[at:]) if word}
        fits = NEEDED <= table.keys() <= LIBFUSE_ITSELF.union(known)
        if fits and all(any(one.start <= w < one.end for one in code) for w in table.values()):
            tables.append({member: word - bias for member, word in table.items()})
    if len(tables) != 1:
        return []
    table = tables[0]
    rows = native.elf_starts(path, list(table.values()))
    starts = {start: (size, place) for start, size, place in rows}
    if len(set(table.values())) < len(table) or not starts.keys() >= set(table.values()):
        return []
    return [
        (member, start, *starts[start])
        for member, start in table.items()
        if member not in LIBFUSE_ITSELF
    ]


def _bias(code: Code, loads: Sequence[tuple[int, int, int]]) -> int | None:
    """Return the difference between addresses in memory and in the file; None: it is unknown."""
    for address, size, offset in loads:
        if offset < code.offset + (code.end - code.start) and code.offset < offset + size:
            return code.start - (code.offset - offset + address)
    return None


def _words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(data) // 8}Q", data[: len(data) // 8 * 8])
