"""The layout of a FUSE request and the functions that handle requests, from the kernel's BTF."""

from __future__ import annotations

from fusetools.core import native

# Fields of a request that a kprobe may fetch, as structure and member.
MEMBERS = (
    "fuse_req.in.h.unique",
    "fuse_req.in.h.opcode",
    "fuse_req.in.h.nodeid",
    "fuse_req.out.h.error",
    "fuse_req.fm",
    "fuse_req.chan",
    "fuse_mount.fc",
    "fuse_chan.conn",
    "fuse_conn.dev",
    "fuse_copy_state.req",
    "fuse_copy_state.write",
    "fuse_args.opcode",
    "fuse_args.nodeid",
    "fuse_req.args",
    "fuse_args.in_args[0].value",
    "fuse_args.in_args[1].value",
    "fuse_args.out_args[0].value",
)
# Types whose pointer marks a function: it handles a request, or forgets an inode.
CARRIERS = ("fuse_req", "fuse_copy_state", "fuse_args", "fuse_forget_link")
# Other parameter types that lead to the connection.
OWNERS = ("fuse_conn", "fuse_chan")

Members = tuple["tuple[str, int, int, int]", ...]
Functions = tuple["tuple[str, tuple[str, ...]]", ...]


def read_fuse(vmlinux: bytes | None, module: bytes | None) -> tuple[Members, Functions]:
    """Return the members and the functions that matter for FUSE, both sorted.

    Members are (member, offset, bit, bits) of MEMBERS. Functions are (function, which of CARRIERS
    and OWNERS its parameters point to), for functions that take one of CARRIERS. Both are empty if
    BTF is missing or damaged.
    """
    if vmlinux is None:
        return (), ()
    try:
        members, functions = native.btf(vmlinux, module, MEMBERS, (*CARRIERS, *OWNERS))
    except ValueError:
        return (), ()
    places = tuple((name, *members[name]) for name in MEMBERS if name in members)
    carry = ((name, tuple(taken)) for name, taken in sorted(functions.items()))
    return places, tuple(one for one in carry if not set(CARRIERS).isdisjoint(one[1]))
