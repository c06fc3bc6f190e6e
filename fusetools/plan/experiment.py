"""The definition of a sweep: a command with {parameters}, and the values of each."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import cast

from fusetools.configured import files, tomllib
from fusetools.errors import Error
from fusetools.figures import BYTES, binary
from fusetools.host.files import read_input
from fusetools.plan.options import LimitedOptions, Options, Workload

MOUNT = "mount"  # {mount}: the first traced mount


CACHES = ("drop", "keep")


MOST_POINTS = 1000


MOST_BYTES = 1 << 20  # of a TOML file


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_SIZE = re.compile(r"(\d{1,15})([kKMGT]?)")


Point = Mapping[str, str]


MOST_VALUE = 1e15  # of a published figure


@dataclass(frozen=True)
class Law:
    """A published statement about the points ``at``.

    ``figure``: its figure, as in experiments.named.of_run, such as "lookup" for the number of
    LOOKUP requests. Expected are ``plus`` + ``times`` * the value of the parameter ``per`` /
    ``unit``; up to ``slack`` more are the directory's. With ``between`` instead, the figure is
    expected between these two values; with ``over``, this is the ratio to the figure at the point
    that differs by the values in ``over``.

    ``about``: the law; ``source``: the publication, and the place in it; ``more`` and ``fewer``:
    the change of the kernel since which there are more or fewer, "" if none is known. Values in
    ``at`` and ``over`` may contain parameters.
    """

    about: str
    figure: str
    per: str = ""
    at: Mapping[str, str] = field(default_factory=dict)
    over: Mapping[str, str] = field(default_factory=dict)
    between: tuple[float, ...] = ()
    times: int = 1
    unit: int = 1
    plus: int = 0
    slack: int = 0
    source: str = ""
    more: str = ""
    fewer: str = ""

    def expected(self, point: Point) -> tuple[float, float] | None:
        """Return the range at a point; None: the law says nothing about it."""
        if not matches(self.at, point):
            return None
        if self.between:
            return self.between[0], self.between[1]
        size = amount(point.get(self.per, ""))
        if size is None:
            return None
        least = self.plus + self.times * size // self.unit
        return least, least + self.slack

    @classmethod
    def from_json(cls, data: object) -> Law:
        """Raise ValueError or TypeError if ``data`` is no law."""
        if not isinstance(data, dict):
            raise TypeError("a law makes no sense")
        rows = {key: _conditions(data.get(key, {})) for key in ("at", "over")}
        law = cls(**{**data, **rows, "between": tuple(data.get("between", ()))})
        for text in (law.about, law.figure, law.per, law.source, law.more, law.fewer):
            _text(text)
        for number in (law.times, law.unit, law.plus, law.slack):
            if not isinstance(number, int) or not 0 <= number <= 1 << 40:
                raise ValueError(f"a law has the number {number!r}")
        if not law.unit:
            raise ValueError("a law has the unit 0")
        if law.between and (len(law.between) != 2 or not _ascending(law.between)):
            raise ValueError("a law is between two values")
        if bool(law.between) == bool(law.per):
            raise ValueError("a law needs per or between")
        if law.over and not law.between:
            raise ValueError("a law with over needs between")
        return law


@dataclass(frozen=True)
class Relative:
    """The throughput of all points relative to the points whose parameter ``param`` is ``to``.

    ``to`` may contain parameters. ``classes``: the least relative throughput of each class by its
    name, such as 0.95 for at most 5 % less; the last one's is 0.
    """

    param: str
    to: str
    classes: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    def is_base(self, point: Point) -> bool:
        """Return whether other points are relative to this one."""
        return matches({self.param: self.to}, point)

    def class_of(self, ratio: float) -> str:
        """Return the class of a relative throughput; "" without classes."""
        ordered = sorted(self.classes.items(), key=lambda row: -row[1])
        return next((name for name, least in ordered if ratio >= least), "")

    @classmethod
    def from_json(cls, data: object) -> Relative:
        """Raise ValueError or TypeError if ``data`` does not say what is relative to what."""
        if not isinstance(data, dict):
            raise TypeError("relative makes no sense")
        relative = cls(**{**data, "classes": dict(data.get("classes", {}))})
        for text in (relative.param, relative.to, relative.source, *relative.classes):
            _text(text)
        for least in relative.classes.values():
            if not _ascending((least,)):
                raise ValueError(f"a class begins at {least!r}")
        return relative


@dataclass(frozen=True)
class Published:
    """A published value of a figure at the points ``at``, between ``low`` and ``high``.

    ``series``: the publication's name for the machine or the device; ``source``: the place in the
    publication. ``figure`` as in experiments.named.of_run, or "relative".
    """

    series: str
    at: Mapping[str, str]
    figure: str
    low: float
    high: float
    source: str

    @classmethod
    def from_json(cls, data: object) -> Published:
        """Raise ValueError or TypeError if ``data`` is no published value."""
        if not isinstance(data, dict):
            raise TypeError("a published value makes no sense")
        new = cls(**{**data, "at": _conditions(data.get("at"))})
        for text in (new.series, new.figure, new.source):
            _text(text)
        if not _ascending((new.low, new.high)):
            raise ValueError(f"a published value is from {new.low!r} to {new.high!r}")
        return new


def published(text: str) -> tuple[Published, ...]:
    """Return the published values of a CSV; its other columns are conditions on parameters.

    Raise ValueError or TypeError if it has none of the columns series, figure, low, high, source.
    """
    fixed = ("series", "figure", "low", "high", "source")
    rows = csv.DictReader(text.splitlines(), strict=True)
    if missing := [name for name in fixed if name not in (rows.fieldnames or ())]:
        raise ValueError(f"it has no column {missing[0]}")
    found = []
    try:
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(f"line {rows.line_num} has another number of fields")
            at = {name: value for name, value in row.items() if name not in fixed and value}
            low, high = (float(row[name]) for name in ("low", "high"))
            data = {"series": row["series"], "figure": row["figure"], "source": row["source"]}
            found.append(Published.from_json({**data, "at": at, "low": low, "high": high}))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return tuple(found)


@dataclass(frozen=True)
class Experiment:
    """A command line in which each {name} is a parameter, and the values to run it with.

    ``params``: the values of each parameter in order; a parameter with several is an axis of the
    grid. ``only``: "name=value" -> a shell command that checks whether points with that value can
    run. ``before``, ``after``: shell commands around each run, neither recorded nor timed.
    ``laws``: what is expected of the figures. ``caches``: "drop" empties the kernel's caches
    before each run. ``recording``: options of `fusetools record`, by their names in
    plan.options.Options. ``recorded``: number of rounds that are recorded, 0: all; the others only
    measure the time. ``repeat``: number of rounds, 0: the default. ``relative``: what the
    throughput is relative to; those points are not recorded. ``published``: published values.
    """

    command: tuple[str, ...]
    params: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: Mapping[str, str] = field(default_factory=dict)
    caches: str = "drop"
    trace: bool = True
    recording: LimitedOptions = field(default_factory=LimitedOptions)
    about: str = ""
    before: str = ""
    after: str = ""
    laws: tuple[Law, ...] = ()
    recorded: int = 0
    repeat: int = 0
    relative: Relative | None = None
    published: tuple[Published, ...] = ()

    JSON_HIDDEN = ("published",)

    def records(self, point: Point, n: int) -> bool:
        """Return whether the point's run of round ``n`` is recorded."""
        if self.relative and self.relative.is_base(point):
            return False
        return self.trace and (not self.recorded or n <= self.recorded)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(name for name, values in self.params.items() if len(values) > 1)

    def points(self) -> list[Point]:
        """Return the grid, the last axis changing fastest; {names} in values are filled in."""
        grid = [dict(zip(self.params, values)) for values in product(*self.params.values())]
        return [{name: fill(value, point) for name, value in point.items()} for point in grid]

    def words(self, point: Point) -> tuple[str, ...]:
        """Return the command of a point of the grid."""
        return tuple(fill(word, point) for word in self.command)

    @property
    def shown(self) -> tuple[str, ...]:
        """The command with the parameters that are constant filled in, each word in one line."""
        same = {name: values[0] for name, values in self.params.items() if len(values) == 1}
        return tuple(" ".join(fill(word, same).split()) for word in self.command)

    def label(self, point: Point) -> str:
        """Return a point as text: bs=4k threads=8."""
        return " ".join(f"{name}={point[name]}" for name in self.axes) or "the only point"

    @property
    def needs_mount(self) -> bool:
        return MOUNT not in self.params and any(MOUNT in names(text) for text in self._texts())

    def mounted(self, path: str) -> Experiment:
        """Return the experiment with {mount} replaced by ``path``."""
        point = {MOUNT: path}
        return replace(
            self,
            command=tuple(fill(word, point) for word in self.command),
            params={k: tuple(fill(v, point) for v in values) for k, values in self.params.items()},
            only={k: fill(test, point) for k, test in self.only.items()},
            before=fill(self.before, {MOUNT: shlex.quote(path)}),
            after=fill(self.after, {MOUNT: shlex.quote(path)}),
        )

    def _texts(self) -> Iterator[str]:
        yield from self.command
        for values in self.params.values():
            yield from values
        yield from self.only.values()
        yield from (self.before, self.after)

    def checked(self) -> Experiment:
        """Return the experiment itself. Raise Error if it is invalid."""
        count = 1
        commands = (*self.command, self.before, self.after)
        used = {name for text in commands for name in names(text)}
        for choices in self.params.values():  # a value may contain other parameters
            used |= {name for value in choices for name in names(value)}
        for name, values in self.params.items():
            if not _NAME.fullmatch(name):
                raise _wrong(f"{name!r} is no name for a parameter", "write letters and digits")
            if not values or not all(values):
                raise _wrong(f"the parameter {name} has an empty value", ",".join(values))
            if len(set(values)) < len(values):
                raise _wrong(f"the parameter {name} has a value twice", ",".join(values))
            if name not in used:
                why = f"there is no {{{name}}} in: {shlex.join(self.command)}"
                raise _wrong(f"the parameter {name} is not in the command", why)
            count *= len(values)
        if count > MOST_POINTS:
            raise _wrong(f"{count:,} points are too many", f"at most {MOST_POINTS:,}")
        return self

    def to_json(self) -> object:
        """Return what from_json() reads: lists, no tuples."""
        data: object = json.loads(json.dumps(asdict(self)))
        return data

    @classmethod
    def from_json(cls, data: object) -> Experiment:
        """ValueError, TypeError or KeyError: ``data`` is not an experiment."""
        if not isinstance(data, dict):
            raise TypeError("it is no experiment")
        return cls(
            command=tuple(map(_text, data["command"])),
            params={_text(k): tuple(map(_text, v)) for k, v in data["params"].items()},
            only={_text(k): _text(v) for k, v in data["only"].items()},
            caches=_text(data["caches"]),
            trace=bool(data["trace"]),
            recording=_recording(data["recording"]),
            about=_text(data["about"]),
            before=_text(data.get("before", "")),
            after=_text(data.get("after", "")),
            laws=tuple(map(Law.from_json, data.get("laws", ()))),
            recorded=_count(data.get("recorded", 0)),
            repeat=_count(data.get("repeat", 0)),
            relative=Relative.from_json(data["relative"]) if data.get("relative") else None,
            published=tuple(map(Published.from_json, data.get("published", ()))),
        )


def _recording(data: object) -> LimitedOptions:
    """Return the options of a recording. Raise TypeError or ValueError if ``data`` holds none."""
    if not isinstance(data, dict):
        raise TypeError("it has no options of a recording")
    rows = {_text(k): tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    options = cast(LimitedOptions, rows)
    Options(Workload(("true",)), output="", wait=True, **options)
    return options


def matches(at: Mapping[str, str], point: Point) -> bool:
    """Return whether the point has these values, in which its parameters are filled in."""
    return all(point.get(name) == fill(value, point) for name, value in at.items())


def amount(value: str) -> int | None:
    """Return a parameter's value as a number, bytes of a size; None: it is none."""
    size = _SIZE.fullmatch(value)
    return int(size[1]) * BYTES[size[2]] if size else None


def names(text: str) -> set[str]:
    """Return the {names} in a text."""
    return set(re.findall(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", text))


def fill(text: str, point: Point) -> str:
    """``text`` with the values of the point; other braces ({}, {print}) stay. A value may contain
    parameters."""

    def value(match: re.Match[str]) -> str:
        return point.get(match[1], match[0])

    for _ in range(3):
        text = re.sub(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text)
    return text


def parameter(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse NAME=VALUE,VALUE…; the dots in 4k,…,64M stand for values between. ValueError: why."""
    name, sign, rest = text.partition("=")
    if not sign or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} is not NAME=VALUE,VALUE, for example bs=4k,64k")
    values = rest.split(",")
    for dots in ("…", "..."):
        if dots in values:
            at = values.index(dots)
            values[at : at + 1] = _between(values[:at], values[at + 1 :])
    if not all(values):
        raise ValueError(f"{text!r} has an empty value")
    return name, tuple(values)


def _between(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the values that dots stand for: they continue the two values before the dots, by the
    same factor or difference, up to the value after the dots."""
    sizes = [_SIZE.fullmatch(value) for value in (*before[-2:], *after[:1])]
    if len(before) < 2 or not after or not all(sizes):
        raise ValueError("the dots stand between sizes: 4k,16k,…,64M")
    first, second, last = (int(m[1]) * BYTES[m[2]] for m in sizes if m)
    if len(before) > 2 and (third := _SIZE.fullmatch(before[-3])):
        before_it = int(third[1]) * BYTES[third[2]]
        grows = first - before_it != second - first
    else:
        grows = first > 0 and second % first == 0
    value = second
    between: list[str] = []
    while second > first and len(between) <= MOST_POINTS:
        following = Fraction(value) * second / first if grows else value + second - first
        if following >= last or following.denominator != 1:
            break
        value = int(following)
        between.append(binary(value))
    reached = value * second == last * first if grows else value + second - first == last
    if not reached:
        raise ValueError(f"{','.join(before)},… does not lead to {after[0]}")
    return between


def ready() -> dict[str, Path]:
    """Return the experiments that come with fusetools, by name."""
    return {path.stem: path for path in files("experiments")}


def about(path: Path) -> str:
    """Return an experiment's purpose, in a line."""
    return str(tomllib.loads(path.read_text(encoding="utf-8")).get("about", ""))


_KEYS = (
    *(
        "about",
        "command",
        "fio",
        "params",
        "needs",
        "optional",
        "only",
        "caches",
        "before",
        "after",
    ),
    *("laws", "recorded", "repeat", "relative", "published"),
)


def load(path: Path, given: Mapping[str, tuple[str, ...]]) -> Experiment:
    """Return the experiment of a TOML file, with its parameters overridden by the ``given`` ones.

    The file's ``fio`` is the command where fio is installed; ``needs`` explains the parameters that
    the user must give, ``optional`` those that the user may give: values with an ``optional``
    parameter that is not given are left out.
    """
    try:
        data = tomllib.loads(read_input(path, MOST_BYTES).decode())
    except OSError as error:
        raise Error(f"cannot read {path}", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _mistake(path, "it is no UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise _mistake(path, f"no TOML: {error}") from error
    for key in data:
        if key not in _KEYS:
            raise _mistake(path, f"unknown key {key}; known: {', '.join(_KEYS)}")
    try:
        about, command = _text(data.get("about", "")), _text(data["command"])
        if "fio" in data and shutil.which("fio"):
            command = _text(data["fio"])
        params = {name: tuple(map(_text, v)) for name, v in data.get("params", {}).items()}
        needs = {name: _text(why) for name, why in data.get("needs", {}).items()}
        optional = {name: _text(why) for name, why in data.get("optional", {}).items()}
        only = {name: _text(test) for name, test in data.get("only", {}).items()}
        caches = _text(data.get("caches", CACHES[0]))
        words = tuple(shlex.split(command))
        before, after = _text(data.get("before", "")), _text(data.get("after", ""))
        laws = tuple(map(Law.from_json, data.get("laws", ())))
        relative = Relative.from_json(data["relative"]) if "relative" in data else None
        recorded, repeat = _count(data.get("recorded", 0)), _count(data.get("repeat", 0))
        points = _text(data.get("published", ""))
    except KeyError as error:
        raise _mistake(path, f"it has no {error.args[0]}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise _mistake(path, str(error)) from error
    if caches not in CACHES:
        raise _mistake(path, f"caches: {caches!r} is neither drop nor keep")
    if not words:
        raise _mistake(path, "command: it is empty")
    own = path.stem if path in ready().values() else shlex.quote(str(path))
    for name, why in needs.items():
        if name not in given:
            raise Error(
                f"the experiment {path.stem} needs {name}: {why}",
                "",
                f"fusetools sweep {own} --param {name}=…",
            )
    known = [*params, *needs, *optional, MOUNT]
    for name in given:
        if name not in known:
            raise Error(f"the experiment {path.stem} has no parameter {name}", f"it has {known}")
    # in the file's order, so that the axes keep their author's order
    for name, values in params.items():
        there = [v for v in values if not names(v) & (optional.keys() - given.keys())]
        params[name] = given.get(name, tuple(there))
    params |= {name: given[name] for name in (*needs, *optional) if name in given}
    texts = (words, (before, after), *params.values())
    used = {n for word in texts for text in word for n in names(text)}
    params = {name: values for name, values in params.items() if name in used}
    chosen = Experiment(
        words,
        params,
        only,
        caches,
        about=about,
        before=before,
        after=after,
        laws=laws,
        recorded=recorded,
        repeat=repeat,
        relative=relative,
        published=_published(path.with_name(points)) if points else (),
    )
    return chosen.checked()


def _published(path: Path) -> tuple[Published, ...]:
    try:
        return published(read_input(path, MOST_BYTES).decode())
    except OSError as error:
        raise Error(f"cannot read {path}", error.strerror or str(error)) from error
    except (ValueError, TypeError) as error:
        raise Error(f"mistake in the published values {path}", str(error)) from error


def _mistake(path: Path, why: str) -> Error:
    return Error(f"mistake in the experiment {path}", why)


def _wrong(what: str, why: str) -> Error:
    return Error(what, why, "fusetools sweep --param bs=4k,64k -- dd if=FILE of=/dev/null bs={bs}")


def _ascending(values: Sequence[object]) -> bool:
    """Return whether the values are numbers from 0 to MOST_VALUE, in ascending order."""
    least: float = 0
    for value in values:
        if not isinstance(value, (int, float)) or not least <= value <= MOST_VALUE:
            return False
        least = value
    return True


def _conditions(data: object) -> dict[str, str]:
    if not isinstance(data, dict):
        raise TypeError("a condition makes no sense")
    return {_text(name): _text(value) for name, value in data.items()}


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= MOST_POINTS:
        raise ValueError(f"{value!r} is no number of rounds")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
