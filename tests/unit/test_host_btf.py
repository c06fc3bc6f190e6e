"""BTF, built here by the format's documentation; tests/vm reads the running kernels' own."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fusetools.core import native
from fusetools.host.btf import read_fuse

MAGIC = 0xEB9F


class Maker:
    """Types one after the other, as pahole writes them."""

    def __init__(self, first: int = 1, string_base: int = 0) -> None:
        self.strings = b"\0"
        self.types = b""
        self.next = first
        self.base = string_base

    def name(self, text: str) -> int:
        if not text:
            return 0
        self.strings += text.encode() + b"\0"
        return self.base + len(self.strings) - len(text) - 1

    def add(
        self, kind: int, name: str, third: int, *rest: int, vlen: int = 0, flag: int = 0
    ) -> int:
        info = flag << 31 | kind << 24 | vlen
        self.types += struct.pack(f"<{3 + len(rest)}I", self.name(name), info, third, *rest)
        self.next += 1
        return self.next - 1

    def structure(self, name: str, size: int, *members: tuple[str, int, int], flag: int = 0) -> int:
        rest = [x for member, kind, at in members for x in (self.name(member), kind, at)]
        return self.add(4, name, size, *rest, vlen=len(members), flag=flag)

    def function(self, name: str, *parameters: int) -> None:
        rest = [x for kind in parameters for x in (0, kind)]
        proto = self.add(13, "", 0, *rest, vlen=len(parameters))
        self.add(12, name, proto)

    def bytes(self) -> bytes:
        sizes = (24, 0, len(self.types), len(self.types), len(self.strings))
        return struct.pack("<HBBIIIII", MAGIC, 1, 0, *sizes) + self.types + self.strings


def kernel(maker: Maker, u64: int) -> None:
    header = maker.structure("fuse_in_header", 40, ("len", u64, 0), ("unique", u64, 64))
    nameless = maker.structure("", 40, ("h", header, 0))
    request = maker.structure("fuse_req", 104, ("list", u64, 0), ("in", nameless, 56 * 8))
    pointer = maker.add(2, "", request)
    union = maker.add(5, "", 8, maker.name("req"), pointer, 0, vlen=1)
    state = maker.structure(
        "fuse_copy_state", 72, ("", union, 64), ("write", u64, 1 << 24 | 513), flag=1
    )
    maker.function("fuse_request_end", pointer)
    maker.function("fuse_copy_args", maker.add(2, "", state), u64)
    maker.function("fuse_trace", u64, maker.add(2, "", maker.add(10, "", request)))  # const
    maker.function("other", u64)


def arguments(maker: Maker, number: int) -> None:
    """Two arrays of structures, one of pointers."""
    argument = maker.structure("fuse_in_arg", 16, ("size", number, 0), ("value", number, 64))
    named = maker.add(8, "in_arg", argument)
    three = maker.add(3, "", 0, named, number, 3)
    none = maker.add(3, "", 0, number, number, 0)
    pointers = maker.add(3, "", 0, maker.add(2, "", argument), number, 2)
    members = (("nodeid", number, 0), ("in_args", three, 192), ("more", pointers, 576))
    maker.structure("fuse_args", 88, *members, ("empty", none, 704))


CARRIERS = ["fuse_req", "fuse_copy_state"]


def test_members_of_an_array_s_elements() -> None:
    maker = Maker()
    arguments(maker, maker.add(1, "long", 8, 64))
    there = [f"fuse_args.in_args[{number}].value" for number in range(3)]
    not_there = ["in_args[3].value", "in_args.value", "in_args[].value", "in_args[-1].value"]
    not_there += ["more[0].value", "nodeid[0].value", "empty[0].value", f"in_args[{1 << 32}].value"]
    asked = [*there, *(f"fuse_args.{path}" for path in not_there)]
    members, _ = native.btf(maker.bytes(), None, asked, [])
    assert members == {path: (24 + 16 * n + 8, 0, 0) for n, path in enumerate(there)}


def test_members_and_functions() -> None:
    maker = Maker()
    kernel(maker, maker.add(8, "u64", maker.add(1, "long", 8, 64)))
    request = ("fuse_req.in.h.unique", "fuse_req.in.h.nothing", "fuse_req.list.h", "nothing.list")
    state = ("fuse_copy_state.req", "fuse_copy_state.write")
    members, functions = native.btf(maker.bytes(), None, [*request, *state], CARRIERS)
    assert members == {
        "fuse_req.in.h.unique": (64, 0, 0),
        "fuse_copy_state.req": (8, 0, 0),  # of a nameless union
        "fuse_copy_state.write": (64, 1, 1),
    }
    assert functions == {
        "fuse_request_end": ["fuse_req"],
        "fuse_copy_args": ["fuse_copy_state", ""],
        "fuse_trace": ["", "fuse_req"],
    }


def test_a_module_s_types_go_on_where_the_kernel_s_end() -> None:
    base = Maker()
    u64 = base.add(1, "u64", 8, 64)
    base.structure("list_head", 16, ("next", u64, 0))
    module = Maker(first=base.next, string_base=len(base.strings))
    kernel(module, u64)
    members, functions = read_fuse(base.bytes(), module.bytes())
    assert ("fuse_req.in.h.unique", 64, 0, 0) in members
    assert functions == (
        ("fuse_copy_args", ("fuse_copy_state", "")),
        ("fuse_request_end", ("fuse_req",)),
        ("fuse_trace", ("", "fuse_req")),
    )
    assert read_fuse(base.bytes(), None) == ((), ())
    assert read_fuse(None, None) == ((), ())


def test_damaged_files_are_refused_or_read_without_harm() -> None:
    maker = Maker()
    kernel(maker, maker.add(1, "u64", 8, 64))
    good = maker.bytes()
    for length in range(len(good)):
        with pytest.raises(ValueError):
            native.btf(good[:length], None, [], [])
        assert read_fuse(good[:length], None) == ((), ())
    for at in range(len(good)):
        for value in (0x00, 0x7F, 0xFF):
            damaged = good[:at] + bytes([value]) + good[at + 1 :]
            read_fuse(damaged, None)
            read_fuse(good, damaged)
    with pytest.raises(ValueError, match="no BTF"):
        native.btf(b"\xeb\x9f" + good[2:], None, [], [])  # the other byte order


def test_a_type_that_holds_itself_ends() -> None:
    maker = Maker()
    loop = maker.add(8, "a", 2)
    maker.add(8, "b", loop)
    maker.structure("fuse_req", 8, ("in", loop, 0), *[("", maker.next, 0)] * 100)
    assert native.btf(maker.bytes(), None, ["fuse_req.in.h", "fuse_req.no"], []) == ({}, {})


def test_this_kernel() -> None:
    """Compared with itself: fuse_in_header is a part of the kernel's ABI."""
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("this kernel has no BTF")
    header = {"opcode": 4, "unique": 8, "pid": 32}  # include/uapi/linux/fuse.h
    wanted = ["list_head.prev", *(f"fuse_in_header.{name}" for name in header)]
    members, _ = native.btf(path.read_bytes(), None, wanted, [])
    assert members.pop("list_head.prev") == (8, 0, 0)
    if members:  # FUSE is no module
        assert members == {f"fuse_in_header.{name}": (at, 0, 0) for name, at in header.items()}
