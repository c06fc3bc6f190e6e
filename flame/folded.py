"""Folded stacks: lines of `root;…;leaf weight`, as of the FlameGraph scripts.

A comparison has a second number in each line: `root;…;leaf before after`.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Union

MAX_DEPTH = 4096
MAX_LINE = 1 << 20

# inferno calculates with 64 bits, and multiplies weights by 150 to colour differences.
MAX_TOTAL = 1 << 55

# Characters that neither a line of text nor XML can hold.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# The FlameGraph scripts parse this as a count.
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_NUMBER_LAST = re.compile(rf" (?={_NUMBER.pattern}$)")


class Error(Exception):
    """A reason why something cannot be drawn, in one line."""


def stack(frames: Iterable[str]) -> str:
    """Return a stack of frames, outermost first; the `;` of a name becomes `:`."""
    return ";".join(frame.replace(";", ":") for frame in frames)


def _clean(stacks: Mapping[str, object]) -> bool:
    """Return whether all stacks can be written unchanged."""
    return not _UNPRINTABLE.search("".join(stacks))


@dataclass(frozen=True)
class Folded:
    """Stacks and their own weights.

    stacks: `root;…;leaf` (see `stack`) to its weight, finite and not negative. Unprintable
    characters in names are replaced by `?`.
    unit: of the weights: `ns`, `us`, `ms`, `s` are shown as times, any other name as a count of
    that.
    order: stacks in the order of time, each with its weight there; () if unknown. It may hold the
    beginning only.
    Raises Error for weights that are negative or not finite, and for stacks deeper than MAX_DEPTH.
    """

    stacks: Mapping[str, float]
    unit: str = "samples"
    order: Sequence[tuple[str, float]] = ()

    def __post_init__(self) -> None:
        if not _clean(self.stacks):
            stacks: dict[str, float] = {}
            for name, weight in self.stacks.items():
                name = _UNPRINTABLE.sub("?", name)
                stacks[name] = stacks.get(name, 0) + weight
            object.__setattr__(self, "stacks", stacks)
        if not _clean(dict(self.order)):
            order = [(_UNPRINTABLE.sub("?", name), weight) for name, weight in self.order]
            object.__setattr__(self, "order", order)
        _check(self.stacks, self.stacks.values())
        _check(*zip(*self.order) if self.order else ((), ()))
        if unknown := next((name for name, _ in self.order if name not in self.stacks), None):
            raise Error(f"in order, but none of the stacks: {unknown[:60]}")

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return sum(self.stacks.values())


@dataclass(frozen=True)
class Diff:
    """Two sets of stacks: each stack's weight before and after.

    normalise: pictures scale the weights before to the total after.
    """

    stacks: Mapping[str, tuple[float, float]]
    unit: str = "samples"
    normalise: bool = False

    def __post_init__(self) -> None:
        if not _clean(self.stacks):
            stacks: dict[str, tuple[float, float]] = {}
            for name, (before, after) in self.stacks.items():
                name = _UNPRINTABLE.sub("?", name)
                b, a = stacks.get(name, (0, 0))
                stacks[name] = b + before, a + after
            object.__setattr__(self, "stacks", stacks)
        _check(self.stacks, (b for b, _ in self.stacks.values()))
        _check(self.stacks, (a for _, a in self.stacks.values()))

    @property
    def before(self) -> Folded:
        """The stacks before, unscaled."""
        return Folded({name: b for name, (b, _) in self.stacks.items() if b}, self.unit)

    @property
    def after(self) -> Folded:
        """The stacks after."""
        return Folded({name: a for name, (_, a) in self.stacks.items() if a}, self.unit)

    @property
    def scale(self) -> float:
        """The factor for the weights before in a picture: 1 unless normalised."""
        if not self.normalise:
            return 1.0
        before = self.before.total
        return self.after.total / before if before else 1.0


Graph = Union[Folded, Diff]


def diff(before: Folded, after: Folded, *, normalise: bool = False) -> Diff:
    """Return the difference of two graphs; Error if their units differ."""
    if before.unit != after.unit:
        raise Error(f"cannot compare {before.unit} with {after.unit}")
    names = dict.fromkeys([*before.stacks, *after.stacks])
    return Diff(
        {name: (before.stacks.get(name, 0), after.stacks.get(name, 0)) for name in names},
        after.unit,
        normalise,
    )


def parse(lines: Iterable[str], *, unit: str = "samples", name: str = "input") -> Graph:
    """Read folded text; a Diff if its lines have two numbers.

    Raises Error, naming `name` and the line: for a line without a number, a number that is
    negative or not finite, a stack deeper than MAX_DEPTH, a line longer than MAX_LINE characters;
    and for text without any stack.
    """
    single: dict[str, float] = {}
    double: dict[str, tuple[float, float]] = {}
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if len(line) > MAX_LINE:
            raise Error(f"{where}: longer than {MAX_LINE:,} characters")
        line = line.strip()
        if not line or line.startswith("# "):
            continue
        frames, _, last = line.rpartition(" ")
        after = _weight(last, where)
        frames = frames.rstrip()
        if not frames:
            raise Error(f"{where}: no stack before the count")
        if frames.count(";") >= MAX_DEPTH:
            raise Error(f"{where}: deeper than {MAX_DEPTH:,} frames")
        rest, _, last = frames.rpartition(" ")
        rest = rest.rstrip()
        if rest and _NUMBER.fullmatch(last):
            if single:
                raise Error(f"{where}: two counts, where the lines before have one")
            b, a = double.get(rest, (0, 0))
            double[rest] = b + _weight(last, where), a + after
        else:
            if double:
                raise Error(f"{where}: one count, where the lines before have two")
            single[frames] = single.get(frames, 0) + after
    if not single and not double:
        raise Error(f"{name}: no stacks in it")
    try:
        graph = Diff(double, unit) if double else Folded(single, unit)
    except Error as error:
        raise Error(f"{name}: {error}") from None
    check_not_empty(graph, name)
    return graph


def read(path: Path, *, unit: str = "samples") -> Graph:
    """Read a file of folded text, `-` for stdin, as `parse`; Error also if it is unreadable."""
    try:
        if str(path) == "-":
            return _read(sys.stdin.buffer, unit, "stdin")
        with path.open("rb") as file:
            return _read(file, unit, str(path))
    except OSError as error:
        raise Error(f"{path}: {error.strerror or error}") from None


def _read(file: BinaryIO, unit: str, name: str) -> Graph:
    # Limits the size of a line that never ends.
    lines = iter(lambda: file.readline(4 * MAX_LINE), b"")
    return parse((line.decode(errors="replace") for line in lines), unit=unit, name=name)


def folded(graph: Graph) -> str:
    """Sorted folded text for flamegraph.pl; a Diff with both numbers, as from difffolded.pl."""
    lines = []
    for name in in_order(graph.stacks):
        weight = graph.stacks[name]
        numbers = weight if isinstance(weight, tuple) else (weight,)
        lines.append(f"{unambiguous(name)} {' '.join(map(_text, numbers))}\n")
    return "".join(lines)


def _turn(name: str) -> str:
    return ";".join(name.split(";")[::-1])


def check_not_empty(graph: Graph, name: str = "input") -> None:
    """Raise Error for a graph without any weight: there is nothing to draw."""
    weights = graph.stacks.values()
    if not any(any(w) if isinstance(w, tuple) else w for w in weights):
        raise Error(f"{name}: " + ("all counts are 0" if graph.stacks else "no stacks in it"))


def in_order(stacks: Iterable[str]) -> list[str]:
    """Sorted by frames, so that callees are side by side (`;` itself sorts after `!` and `(`)."""
    return sorted(stacks, key=lambda name: name.replace(";", "\0"))


def reverse(graph: Graph) -> Graph:
    """Return the same graph with the leaf of each stack first, merged from the leaves."""
    if isinstance(graph, Diff):
        return replace(graph, stacks={_turn(name): w for name, w in graph.stacks.items()})
    order = [(_turn(name), weight) for name, weight in graph.order]
    return replace(graph, stacks={_turn(name): w for name, w in graph.stacks.items()}, order=order)


def unambiguous(name: str) -> str:
    """Return a stack with `_` for blanks that readers would take for a comment or a second
    count."""
    if name == "#" or name.startswith("# "):
        name = "#_" + name[2:]
    return _NUMBER_LAST.sub("_", name.strip() or "_")


def _weight(text: str, where: str) -> float:
    """Return a weight from text: an int if it is whole."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    try:
        weight = float(text) if "_" not in text else math.nan
    except ValueError:
        raise Error(f"{where}: no count at its end") from None
    if not math.isfinite(weight):
        raise Error(f"{where}: the count is not a number")
    if weight < 0:
        raise Error(f"{where}: the count is negative")
    return int(weight) if weight.is_integer() and weight < 1 << 53 else weight


def _check(stacks: Iterable[str], weights: Iterable[float]) -> None:
    total = 0.0
    for name, weight in zip(stacks, weights):
        if not math.isfinite(weight) or weight < 0:
            raise Error(f"weights must be finite and not negative, not {weight}: {name[:60]}")
        if name.count(";") >= MAX_DEPTH:
            raise Error(f"deeper than {MAX_DEPTH:,} frames: {name[:60]}")
        total += weight
    if total > MAX_TOTAL:
        raise Error(f"the weights add up to {total:g}, too much for a picture")


def _text(weight: float) -> str:
    """Return a weight as text, never with an exponent."""
    if weight == int(weight):
        return str(int(weight))
    return f"{weight:.6f}".rstrip("0").rstrip(".")
