"""Shared by several commands: options, and the only way to print."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from fusetools.errors import Error
from fusetools.figures import BYTES, NS, UNITS
from fusetools.names import BY, LAYERS

if TYPE_CHECKING:
    from typing_extensions import NotRequired

    from fusetools.answers.filters import Filters
    from fusetools.output import Output
    from fusetools.recording import Recording
    from fusetools.results.groups import Groups

LOST = 4  # exit status: the kernel dropped events
F = TypeVar("F", bound=Callable[..., object])


def span(value: str) -> int:
    """Convert a time since the recording's start to ns: 1.5, 1.5s, 1500ms, 20us."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(s|ms|us|ns|)", value)
    if not match:
        raise click.BadParameter(f"{value!r} is not a time: write seconds (1.5) or 1500ms")
    return round(float(match[1]) * NS[match[2] or "s"])


def length(value: str) -> int:
    """Convert a duration with a unit (10ms, 1.5s) to ns. '10' could mean either unit."""
    if re.fullmatch(r"[\d.]*[1-9][\d.]*", value):
        raise click.BadParameter(f"{value!r} has no unit: write {value}ms or {value}s")
    return span(value)


def seconds(value: str) -> float:
    """Convert to a positive number of seconds."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number of seconds")
    return number


def glob(value: str) -> str:
    """Check a shell pattern."""
    from fusetools.core import matching
    from fusetools.patterns import expression

    try:
        matching(expression(value), [])
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a shell pattern") from error
    return value


def pid(value: str) -> int:
    """Convert to a number that the kernel could have given a process."""
    if not re.fullmatch("[0-9]{1,10}", value) or not 0 < int(value) < 1 << 31:
        raise click.BadParameter(f"{value!r} is not a process ID")
    return int(value)


def size(value: str) -> int:
    """Bytes: 4096, 500M, 2G."""
    match = re.fullmatch(r"(\d{1,12})([kKMGT]?)", value)
    number = int(match[1]) * BYTES[match[2]] if match else 0
    if not 1 << 20 <= number < 1 << 60:
        raise click.BadParameter(f"{value!r} is not a size of 1M or more: write 500M or 2G")
    return number


recording_output = click.option(
    "-o",
    "--output",
    default="perf.data",
    show_default=True,
    metavar="FILE",
    help="Write the recording to FILE; an existing one becomes FILE.old.",
)

_OPTIONS = {
    "input": click.option(
        "-i",
        "--input",
        "path",
        default="perf.data",
        metavar="FILE",
        help="Read this recording; - reads it from the standard input.  [default: perf.data]",
    ),
    "layer": click.option(
        "--layer",
        "layers",
        multiple=True,
        type=click.Choice(LAYERS),
        help="Show only this layer (repeatable).",
    ),
    "pid": click.option(
        "--pid",
        "pids",
        multiple=True,
        type=pid,
        metavar="PID",
        help="Show only this caller (repeatable).",
    ),
    "comm": click.option(
        "--comm",
        "comms",
        multiple=True,
        metavar="NAME",
        help="Show only callers named NAME (repeatable).",
    ),
    "mount": click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH",
        help="Show only this mount (repeatable).",
    ),
    "from": click.option(
        "--from",
        "start",
        type=span,
        metavar="TIME",
        help="Ignore events before TIME (1.5, 1500ms) since the start.",
    ),
    "to": click.option("--to", "end", type=span, metavar="TIME", help="Ignore events after TIME."),
}


# Mounts to trace, for commands that show what happens now.
mounts_option = click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="PATH",
    help="Trace the FUSE file system on PATH (repeatable).  [default: all]",
)
min_option = click.option(
    "--min",
    "least",
    type=length,
    default="0",
    metavar="TIME",
    help="Show only requests that took TIME or longer (10ms, 200us, 1.5s).",
)


path_option = click.option(
    "--path",
    "glob",
    type=glob,
    metavar="GLOB",
    help="Show only files whose path, with the mount point, matches GLOB (* matches / too).",
)


def by_option(*more: str) -> Callable[[F], F]:
    """--by, with further groupings of the command itself."""
    return click.option(
        "--by",
        type=click.Choice([*BY, *more]),
        help="Print a line for each file, directory, process, comm, user, cgroup, job or host"
        + (f"; or, for each operation, a line for each {', '.join(more)}." if more else "."),
    )


def say_groups(command: str, result: Groups, as_json: bool, unit: str | None = None) -> None:
    """Print the answer of --by."""
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json(command, result))
    else:
        from fusetools.render.text.groups import render

        say(render(command, result, unit or ""))


def listed(as_json: bool) -> int:
    """Return how many groups to list: JSON has all of them, within reason."""
    return 10_000 if as_json else 20


unit_option = click.option(
    "--unit", type=click.Choice(UNITS), help="Use this unit for all times.  [default: auto]"
)


corrected_option = click.option(
    "--corrected", is_flag=True, help="Subtract the overhead of recording from each duration."
)


def either(corrected: bool, overhead: bool) -> None:
    """UsageError: subtracted costs are no longer in the durations."""
    if corrected and overhead:
        raise click.UsageError("--corrected excludes --overhead: use one of them")


def recording_options(function: F) -> F:
    """-i/--input and filters."""
    return _with(function, *_OPTIONS)


def request_options(function: F) -> F:
    """Add the same options for single requests, which span all layers."""
    return _with(function, "input", "pid", "comm", "mount", "from", "to")


def graph_options(function: F) -> F:
    """Add the same options for the kernel's calls, whose mounts are not all known."""
    return _with(function, "input", "pid", "comm", "from", "to")


def caller_options(function: F) -> F:
    """Add filters by caller, for commands that show what happens now."""
    return _with(function, "pid", "comm")


def _with(function: F, *names: str) -> F:
    for name in reversed(names):
        function = _OPTIONS[name](function)
    return function


class FilterOptions(TypedDict):
    """Arguments that recording_options() and the like pass to a command besides path and layers."""

    pids: tuple[int, ...]
    comms: tuple[str, ...]
    mounts: NotRequired[tuple[str, ...]]  # not of graph_options()
    start: int | None
    end: int | None


def filters(options: FilterOptions) -> Filters:
    """Return the filters of these options."""
    from fusetools.answers.filters import Filters

    start, end = options["start"], options["end"]
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from is not before --to")
    comms = as_recorded(options["comms"])
    return Filters(options["pids"], comms, options.get("mounts", ()), start, end)


def as_recorded(comms: Iterable[str]) -> tuple[str, ...]:
    """Threads' names as the core decodes those that are not UTF-8."""
    return tuple(os.fsencode(name).decode(errors="replace") for name in comms)


def opened(path: str) -> Recording:
    """Return the recording. ``-``: the standard input, a stream of `perf record -o -` or a file."""
    from fusetools.host.files import standard_input
    from fusetools.recording import open

    return open(standard_input() if path == "-" else path)


def say(text: str) -> None:
    """Print. Colours only on a terminal that wants them; blocks only where they can be encoded."""
    if sys.stdout is None:
        raise Error("cannot write to the standard output", "it is closed")
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(dict.fromkeys(map(ord, "█▉▊▋▌▍▎▏"), "#"))
        text = text.translate(dict(zip(map(ord, "▁▂▃▄▅▆▇…░▒▓"), "__--==#~.:+")))
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    terminal = getattr(sys.stdout, "isatty", None)
    colours = terminal is not None and terminal() and not os.environ.get("NO_COLOR")
    click.echo(coloured(text) if colours else text, nl=False, color=None if colours else False)


def tell(*messages: str) -> None:
    """Print messages to stderr: on a terminal wrapped to its width, elsewhere a line each."""
    from fusetools.render.text.layout import ERR, lines

    color = False if os.environ.get("NO_COLOR") else None
    click.echo(lines(messages, ERR), nl=False, err=True, color=color)


_COLOURS = (
    (re.compile("[█▉▊▋▌▍▎▏▁▂▃▄▅▆▇]+"), "cyan"),
    (re.compile(r"\b[1-9][\d,]* LOST\b|(?<=: )STUCK(?=: )"), "red"),
)


def coloured(text: str) -> str:
    """Colour bars, losses and hanging mounts; other colours are in the text already."""
    for pattern, colour in _COLOURS:
        text = pattern.sub(lambda match, fg=colour: click.style(match[0], fg=fg), text)  # type: ignore[misc]
    return text


def whole(low: int, high: int) -> Callable[[str | int], int]:
    """Return an option's type, without click's own text for its range."""

    def number(value: str | int) -> int:
        value = str(value)  # the default is a number already
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise click.BadParameter(f"{value!r} is not a number from {low} to {high:,}")
        return int(value)

    return number


def decimal(low: float, high: float = math.inf) -> Callable[[str | float], float]:
    """Do the same for decimal numbers."""

    def number(value: str | float) -> float:
        try:
            read = float(value)
        except ValueError:
            read = math.nan
        if not low <= read <= high or math.isinf(read):
            limits = f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
            raise click.BadParameter(f"{str(value)!r} is not a number {limits}")
        return read

    return number


def write(target: Output, text: str | bytes | Iterable[str]) -> None:
    """Write into the file or to the terminal; in parts if it is long."""
    if not target.printed:
        target.write(text)
        return
    assert not isinstance(text, bytes)
    for part in [text] if isinstance(text, str) else text:
        say(part)
