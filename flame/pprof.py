"""Profiles for pprof, by the messages of its proto/profile.proto."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from .folded import Diff, Graph, check_not_empty, in_order

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_VARINT, _BYTES = 0, 2  # wire types of Protocol Buffers


def pprof(graph: Graph, *, title: str = "Flame Graph") -> bytes:
    """A gzipped profile for `go tool pprof`, https://pprof.me and the like.

    Times are in ns, other units count as they are, rounded. The stacks before a Diff are its base,
    with negative weights, as of pprof's option -diff_base.
    """
    check_not_empty(graph)
    signed = [(-1, graph.before), (1, graph.after)] if isinstance(graph, Diff) else [(1, graph)]
    strings: dict[str, int] = {"": 0}
    places: dict[str, int] = {}
    scale = _NANOSECONDS.get(graph.unit)
    of, unit = ("time", "nanoseconds") if scale else (graph.unit, graph.unit)

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    value_type = _field(1, text(of)) + _field(2, text(unit))
    parts = [_field(1, value_type)]
    for sign, part in signed:
        for stack in in_order(part.stacks):
            frames = [places.setdefault(frame, len(places) + 1) for frame in stack.split(";")]
            weight = sign * round(part.stacks[stack] * (scale or 1))
            sample = _packed(1, reversed(frames)) + _packed(2, [weight])
            if sign < 0:
                label = _field(1, text("pprof::base")) + _field(2, text("true"))
                sample += _field(3, label)
            parts.append(_field(2, sample))
    for number in places.values():
        line = _field(1, number)
        parts.append(_field(4, _field(1, number) + _field(4, line)))
    for name, number in places.items():
        parts.append(_field(5, _field(1, number) + _field(2, text(name))))
    parts += [_field(11, value_type), _field(12, 1), _field(13, text(title))]
    parts += [_field(6, value.encode("utf-8", "replace")) for value in strings]
    return gzip.compress(b"".join(parts), mtime=0)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative one as its complement of two
    output = bytearray()
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _packed(number: int, values: Iterable[int]) -> bytes:
    return _field(number, b"".join(map(_varint, values)))
