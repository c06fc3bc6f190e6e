"""Offsets of a FUSE request's fields, and parameters of the kernel's functions, from its BTF.

Format: Documentation/bpf/btf.rst. A module's BTF is split: its type ids and string offsets continue
where those of vmlinux end. Only requested types are decoded; all others are skipped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = 0xEB9F
DEPTH = 16  # of typedefs, qualifiers and nested structures that are followed

INT, PTR, ARRAY, STRUCT, UNION, ENUM = 1, 2, 3, 4, 5, 6
TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FUNC_PROTO = 8, 9, 10, 11, 12, 13
VAR, DATASEC, DECL_TAG, TYPE_TAG, ENUM64 = 14, 15, 17, 18, 19
# A type's length in 32-bit words, by kind: (always, for each of its vlen); other kinds: 3
_EXTRA = {
    INT: (4, 0),
    ARRAY: (6, 0),
    STRUCT: (3, 3),
    UNION: (3, 3),
    ENUM: (3, 2),
    FUNC_PROTO: (3, 2),
    VAR: (4, 0),
    DATASEC: (3, 3),
    DECL_TAG: (4, 0),
    ENUM64: (3, 3),
}
SEARCHED = (PTR, STRUCT, CONST, FUNC, FUNC_PROTO)  # kinds whose types are searched
_NAMELESS = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)  # wrappers of another type


class Damaged(ValueError):
    """Not BTF, or incomplete."""


@dataclass(frozen=True)
class Member:
    """Bytes from the structure's begin; for a bit field its first ``bit`` in that byte, and
    ``bits``."""

    offset: int
    bit: int = 0
    bits: int = 0


class Btf:
    """A file of /sys/kernel/btf; a module's requires ``base``, that of vmlinux. Error: Damaged."""

    def __init__(self, data: bytes, base: Btf | None = None) -> None:
        self._base = base
        self._first: int = base._end if base else 1
        self._string_base: int = base._string_end if base else 0
        if len(data) < 24:
            raise Damaged("it is too short")
        magic, version, _, header, types, types_size, strings, strings_size = struct.unpack_from(
            "<HBBIIIII", data
        )
        if magic != MAGIC or version != 1:
            raise Damaged("it is no BTF of this byte order")
        types, strings = types + header, strings + header
        if max(types + types_size, strings + strings_size) > len(data) or types_size % 4:
            raise Damaged("its sections lie outside of it")
        if types % 4:
            raise Damaged("its types are not aligned")
        self._strings = data[strings : strings + strings_size]
        self._words = memoryview(data[types : types + types_size]).cast("I")
        self._string_end: int = self._string_base + strings_size
        self._of: dict[int, list[int]] = {kind: [] for kind in SEARCHED}
        self._at = self._walk()  # where each type begins, in words
        self._end: int = self._first + len(self._at)

    def _walk(self) -> list[int]:
        words, by_kind, extra = self._words, self._of, _EXTRA
        end = len(words)
        nothing = (3, 0)
        at: list[int] = []
        here = 0
        while here + 3 <= end:
            info = words[here + 1]
            kind = info >> 24 & 0x1F
            if kind in by_kind:
                by_kind[kind].append(len(at))
            at.append(here)
            always, each = extra.get(kind, nothing)
            here += always + each * (info & 0xFFFF)
        if here != end:
            raise Damaged("its last type is cut off")
        return at

    def _type(self, number: int) -> tuple[memoryview, int] | None:
        """(words, where in them) of a type."""
        if number < self._first:
            return self._base._type(number) if self._base else None
        index = number - self._first
        return (self._words, self._at[index]) if index < len(self._at) else None

    def _name(self, offset: int) -> str:
        if offset < self._string_base:
            return self._base._name(offset) if self._base else ""
        begin = offset - self._string_base
        end = self._strings.find(b"\0", begin)
        return self._strings[begin : max(begin, end)].decode("utf-8", "replace")

    def _offsets(self, name: str) -> set[int]:
        """The string offsets by which types refer to the name."""
        offsets = set()
        wanted = b"\0" + name.encode() + b"\0"
        at = self._strings.find(wanted)
        while at >= 0:
            offsets.add(at + 1 + self._string_base)
            at = self._strings.find(wanted, at + 1)
        return offsets | (self._base._offsets(name) if self._base else set())

    def structures(self, *names: str) -> dict[str, int]:
        """The type ids of the structures of these names, those of a module before the kernel's."""
        wanted = {offset: name for name in names for offset in self._offsets(name)}
        numbers: dict[str, int] = {}
        words = self._words
        for index in self._of[STRUCT]:
            at = self._at[index]
            name = wanted.get(words[at])
            if name and words[at + 1] & 0xFFFF:
                numbers.setdefault(name, self._first + index)
        left = [name for name in names if name not in numbers]
        return {**(self._base.structures(*left) if self._base and left else {}), **numbers}

    def member(self, structure: int, path: str) -> Member | None:
        """Where a member is, such as "in.h.unique"; members of nameless parts by their own name."""
        offset = bits = 0
        for name in path.split("."):
            place = self._member(structure, name, 0)
            if place is None:
                return None
            offset += place[0]
            bits, structure = place[1:]
        return Member(offset // 8, offset % 8 if bits else 0, bits)

    def _member(self, structure: int, name: str, depth: int) -> tuple[int, int, int] | None:
        """(offset in bits, bits of a bit field or 0, type) of a structure's direct member."""
        place = self._type(self._plain(structure))
        if place is None or depth > DEPTH:
            return None
        words, at = place
        info = words[at + 1]
        if info >> 24 & 0x1F not in (STRUCT, UNION):
            return None
        for entry in range(at + 3, at + 3 + 3 * (info & 0xFFFF), 3):
            offset, width = words[entry + 2], 0
            if info >> 31:
                offset, width = offset & 0xFFFFFF, offset >> 24
            own = self._name(words[entry])
            if own == name:
                return offset, width, words[entry + 1]
            if not own and (inner := self._member(words[entry + 1], name, depth + 1)):
                return offset + inner[0], inner[1], inner[2]
        return None

    def _plain(self, number: int) -> int:
        """The type without typedefs and qualifiers."""
        for _ in range(DEPTH):
            place = self._type(number)
            if place is None or place[0][place[1] + 1] >> 24 & 0x1F not in _NAMELESS:
                break
            number = place[0][place[1] + 2]
        return number

    def functions(self, *structures: str) -> dict[str, tuple[str, ...]]:
        """Functions that take a pointer to one of these structures, with what each parameter
        points to: the structure's name, "" for anything else. A module's BTF has only its own
        functions."""
        numbers = {number: name for name, number in self.structures(*structures).items()}
        words = self._words
        for index in self._of[CONST]:
            name = numbers.get(words[self._at[index] + 2])
            if name:
                numbers[self._first + index] = name
        pointers: dict[int, str] = {}
        for index in self._of[PTR]:
            target = words[self._at[index] + 2]
            name = numbers.get(target)
            if name:
                pointers[self._first + index] = name
        taken: dict[int, tuple[str, ...]] = {}
        for index in self._of[FUNC_PROTO]:
            at = self._at[index]
            info = words[at + 1]
            if info & 0xFFFF:
                ends = at + 3 + 2 * (info & 0xFFFF)
                parameters = tuple(pointers.get(words[i], "") for i in range(at + 4, ends, 2))
                if any(parameters):
                    taken[self._first + index] = parameters
        functions = {}
        for index in self._of[FUNC]:
            at = self._at[index]
            if words[at + 2] in taken:
                functions[self._name(words[at])] = taken[words[at + 2]]
        return functions


# What a kprobe may fetch from a request, as structure and member.
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
)
# A function that takes one of these handles a request.
CARRIERS = ("fuse_req", "fuse_copy_state", "fuse_args")

Members = tuple["tuple[str, int, int, int]", ...]
Functions = tuple["tuple[str, tuple[str, ...]]", ...]


def read_fuse(vmlinux: bytes | None, module: bytes | None) -> tuple[Members, Functions]:
    """((member, offset, bit, bits) of MEMBERS, (function, what its parameters point to) of
    functions that take one of CARRIERS), both sorted; empty if BTF is missing or damaged.
    """
    if vmlinux is None:
        return (), ()
    try:
        btf = Btf(vmlinux)
        if module is not None:
            btf = Btf(module, btf)
        numbers = btf.structures(*(member.partition(".")[0] for member in MEMBERS))
        members = []
        for name in MEMBERS:
            structure, _, path = name.partition(".")
            place = btf.member(numbers[structure], path) if structure in numbers else None
            if place is not None:
                members.append((name, place.offset, place.bit, place.bits))
        return tuple(members), tuple(sorted(btf.functions(*CARRIERS).items()))
    except (Damaged, struct.error, IndexError):
        return (), ()
