"""BTF, made here as the format's document says; the running kernels' own are read in tests/vm."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fusetools.host.btf import MAGIC, Btf, Damaged, Member, read_fuse


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


def test_members_and_functions() -> None:
    maker = Maker()
    kernel(maker, maker.add(8, "u64", maker.add(1, "long", 8, 64)))
    btf = Btf(maker.bytes())
    numbers = btf.structures("fuse_req", "fuse_copy_state", "nothing")
    assert set(numbers) == {"fuse_req", "fuse_copy_state"}
    assert btf.member(numbers["fuse_req"], "in.h.unique") == Member(64)
    assert btf.member(numbers["fuse_req"], "in.h.nothing") is None
    assert btf.member(numbers["fuse_req"], "list.h") is None  # no structure
    assert btf.member(numbers["fuse_copy_state"], "req") == Member(8)  # of a nameless union
    assert btf.member(numbers["fuse_copy_state"], "write") == Member(64, 1, 1)
    assert btf.functions("fuse_req", "fuse_copy_state") == {
        "fuse_request_end": ("fuse_req",),
        "fuse_copy_args": ("fuse_copy_state", ""),
        "fuse_trace": ("", "fuse_req"),
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
        with pytest.raises(Damaged):
            Btf(good[:length])
    for at in range(len(good)):
        for value in (0x00, 0x7F, 0xFF):
            read_fuse(good[:at] + bytes([value]) + good[at + 1 :], None)
    with pytest.raises(Damaged, match="no BTF"):
        Btf(b"\xeb\x9f" + good[2:])  # the other byte order


def test_a_type_that_holds_itself_ends() -> None:
    maker = Maker()
    loop = maker.add(8, "a", 2)
    maker.add(8, "b", loop)
    request = maker.structure("fuse_req", 8, ("in", loop, 0), ("", maker.next, 0))
    btf = Btf(maker.bytes())
    assert btf.member(request, "in.h") is None
    assert btf.member(request, "nothing") is None


def test_this_kernel() -> None:
    """Held against itself: fuse_in_header is part of the kernel's promise to daemons."""
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("this kernel has no BTF")
    btf = Btf(path.read_bytes())
    numbers = btf.structures("fuse_in_header", "task_struct", "list_head")
    assert btf.member(numbers["list_head"], "prev") == Member(8)
    if "fuse_in_header" in numbers:  # include/uapi/linux/fuse.h
        told = [btf.member(numbers["fuse_in_header"], name) for name in ("opcode", "unique", "pid")]
        assert told == [Member(4), Member(8), Member(32)]
