"""The definition of a sweep: a command with {parameters}, and the values of each."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import cast

from fusetools.errors import Error
from fusetools.figures import BYTES, binary
from fusetools.host.files import read_input
from fusetools.plan.options import LimitedOptions, Options, Workload

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOUNT = "mount"  # {mount}: the first traced mount


CACHES = ("drop", "keep")


MOST_POINTS = 1000


MOST_BYTES = 1 << 20  # of a TOML file


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_SIZE = re.compile(r"(\d{1,15})([kKMGT]?)")


Point = Mapping[str, str]


@dataclass(frozen=True)
class Law:
    """A published number of requests at the points ``at``.

    Expected are ``plus`` + ``times`` * the value of the parameter ``per`` / ``unit`` requests of
    ``operation``; up to ``slack`` more are the directory's. ``about``: the law; ``more``: what
    makes more requests since which kernel, "" if nothing is known.
    """

    about: str
    operation: str
    per: str
    at: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    unit: int = 1
    plus: int = 0
    slack: int = 0
    more: str = ""

    def expected(self, point: Point) -> int | None:
        """Return the number at a point; None: the law says nothing about it."""
        size = _SIZE.fullmatch(point.get(self.per, ""))
        if size is None or any(point.get(name) != value for name, value in self.at.items()):
            return None
        return self.plus + self.times * int(size[1]) * BYTES[size[2]] // self.unit

    @classmethod
    def from_json(cls, data: object) -> Law:
        """Raise ValueError or TypeError if ``data`` is no law."""
        if not isinstance(data, dict):
            raise TypeError("a law makes no sense")
        law = cls(**{**data, "at": {_text(k): _text(v) for k, v in data.get("at", {}).items()}})
        for text in (law.about, law.operation, law.per, law.more):
            _text(text)
        for number in (law.times, law.unit, law.plus, law.slack):
            if not isinstance(number, int) or not 0 <= number <= 1 << 40:
                raise ValueError(f"a law has the number {number!r}")
        if not law.unit:
            raise ValueError("a law has the unit 0")
        return law


@dataclass(frozen=True)
class Experiment:
    """A command line in which each {name} is a parameter, and the values to run it with.

    ``params``: the values of each parameter in order; a parameter with several is an axis of the
    grid. ``only``: "name=value" -> a shell command that checks whether points with that value can
    run. ``before``, ``after``: shell commands around each run, neither recorded nor timed.
    ``laws``: what is expected of the requests. ``caches``: "drop" empties the kernel's caches
    before each run. ``recording``: options of `fusetools record`, by their names in
    plan.options.Options.
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
        )


def _recording(data: object) -> LimitedOptions:
    """Return the options of a recording. Raise TypeError or ValueError if ``data`` holds none."""
    if not isinstance(data, dict):
        raise TypeError("it has no options of a recording")
    rows = {_text(k): tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    options = cast(LimitedOptions, rows)
    Options(Workload(("true",)), output="", wait=True, **options)
    return options


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
    package = importlib.import_module("fusetools.configs.experiments")
    files = sorted(path for folder in package.__path__ for path in Path(folder).glob("*.toml"))
    return {path.stem: path for path in files}


def about(path: Path) -> str:
    """Return an experiment's purpose, in a line."""
    return str(tomllib.loads(path.read_text(encoding="utf-8")).get("about", ""))


_KEYS = ("about", "command", "fio", "params", "needs", "only", "caches", "before", "after", "laws")


def load(path: Path, given: Mapping[str, tuple[str, ...]]) -> Experiment:
    """Return the experiment of a TOML file, with its parameters overridden by the ``given`` ones.

    The file's ``fio`` is the command where fio is installed; ``needs`` explains the parameters that
    the user must give.
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
        only = {name: _text(test) for name, test in data.get("only", {}).items()}
        caches = _text(data.get("caches", CACHES[0]))
        words = tuple(shlex.split(command))
        before, after = _text(data.get("before", "")), _text(data.get("after", ""))
        laws = tuple(map(Law.from_json, data.get("laws", ())))
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
    known = [*params, *needs, MOUNT]
    for name in given:
        if name not in known:
            raise Error(f"the experiment {path.stem} has no parameter {name}", f"it has {known}")
    # in the file's order, so that the axes keep their author's order
    params = {name: given.get(name, params.get(name, ())) for name in (*params, *needs)}
    texts = (words, (before, after), *params.values())
    used = {n for word in texts for text in word for n in names(text)}
    params = {name: values for name, values in params.items() if name in used}
    chosen = Experiment(
        words, params, only, caches, about=about, before=before, after=after, laws=laws
    )
    return chosen.checked()


def _mistake(path: Path, why: str) -> Error:
    return Error(f"mistake in the experiment {path}", why)


def _wrong(what: str, why: str) -> Error:
    return Error(what, why, "fusetools sweep --param bs=4k,64k -- dd if=FILE of=/dev/null bs={bs}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
