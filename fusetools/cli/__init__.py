"""The command line: one module per command, loaded when it is called.

``fusetools.cli.NAME`` holds a click command called ``command``. Errors end here and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import sys
from typing import IO, Any

import click

from fusetools import __version__
from fusetools.errors import Error

REPORT = "  this is a defect: please report it, with what FUSETOOLS_DEBUG=1 fusetools … prints"
WORDS = "fusetools.words"  # of the context: the command and its arguments
DEFECT = 70  # exit status, EX_SOFTWARE of sysexits.h

# In the order in which a user meets them. The one-line help is here so that `fusetools --help`
# imports no command; a test holds it against the first line of the command's own help.
COMMANDS = {
    "doctor": "Show what this host can trace, and how to fix what is missing.",
    "record": "Record a workload on FUSE mounts into one perf.data.",
    "snap": "Have each flight recorder write what it holds now, and print the recording's name.",
    "stuck": "Show which FUSE mounts hang, who waits there, and why the daemon does not answer.",
    "top": "Show which operations, processes and files keep FUSE mounts busy at this moment.",
    "trace": "Print requests as they end: operation, file, caller, time and error.",
    "serve": "Serve the activity on FUSE mounts to Prometheus and OpenTelemetry, always on.",
    "why": "Print why callers waited: one to five findings, most important first.",
    "hist": "Print latency histograms, per operation and layer.",
    "count": "Print how often each function, request and callback was called.",
    "stages": "Print where requests' time goes, stage by stage.",
    "slow": "Print the slowest requests: who made them, on which file, and where the time went.",
    "show": "Print one request's story: what its caller and the daemon did, line by line.",
    "errors": "Print which errors requests were answered with, and how many lookups found nothing.",
    "queue": "Print how many requests wait for the daemon, and whether it is short of threads.",
    "cache": "Print what the kernel's caches save: calls without a request, what is asked or read "
    "again.",
    "whatif": "Print how long callers would wait with more threads or other limits.",
    "graph": "Print what the kernel's FUSE functions call, and the time that each takes.",
    "flame": "Draw a flame graph: what ran, what was waited for, or both across requests.",
    "diff": "Compare two recordings: calls and latency side by side.",
    "compare": "Show whether recordings or sweeps differ by more than noise, and which is best.",
    "sweep": "Run a command over a grid of parameters, recorded or only timed.",
    "overhead": "Measure the overhead of recording a workload, layer by layer.",
    "report": "Write one HTML page about recordings or sweeps.",
    "export": "Write every request, with all known facts, for other programs.",
    "fleet": "Answer a question about the recordings of many hosts, from Parquet files.",
    "script": "Print a shell script that records like record, on a host without Python.",
    "open": "Make a recording of the tar file that such a script left.",
    "merge": "Merge simultaneous perf and trace-cmd recordings.",
    "clean": "Remove what a killed recording left in the kernel.",
}
# Commands that work as root, as `count --live` does: what they inherit must not change them.
BY_ROOT = {
    "doctor",
    "record",
    "snap",
    "stuck",
    "top",
    "trace",
    "serve",
    "sweep",
    "overhead",
    "clean",
}


class Failure(click.ClickException):
    """An Error on its way to the terminal."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.what)
        self.error = error
        self.exit_code = error.status  # type: ignore[misc]

    def show(self, file: IO[str] | None = None) -> None:
        from fusetools.printable import printable
        from fusetools.render.text.footer import ways_out

        name = click.style("fusetools:", fg="red", bold=True)
        lines = [f"{name} {printable(self.error.what)}"]
        if self.error.why:
            lines.append(f"  why: {printable(self.error.why)}")
        lines += ways_out(self.error.fix, "  ")
        color = False if os.environ.get("NO_COLOR") else None
        click.echo("\n".join(lines), file=file, err=True, color=color)


class Commands(click.Group):
    """Lists its commands without importing them; turns errors into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"fusetools.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta[WORDS] = list(args)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            similar = get_close_matches(args[0], COMMANDS)
            if not similar:
                raise
            more = f"{error.message} Similar commands: {', '.join(similar)}."
            raise click.UsageError(more, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **options: Any) -> Any:
        _open_standard_descriptors()
        if "_FUSETOOLS_COMPLETE" in os.environ:
            from fusetools.cli import completion

            completion.register()
        try:
            super().main(*args, **options)
            status: str | int | None = 0
        except SystemExit as left:
            status = left.code
        except Exception as error:
            if os.environ.get("FUSETOOLS_DEBUG") == "1":
                raise
            status = _unexpected(error)
        _name_left()
        sys.exit(_flushed(status))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (Error, click.UsageError) as error:
            if misplaced := _misplaced(self, ctx):
                raise Failure(misplaced) from error
            if isinstance(error, click.UsageError):
                raise
            if error.instead:
                wrong, right = error.instead
                words = [_replaced(word, wrong, right) for word in ctx.meta.get(WORDS, [])]
                error.fix = shlex.join(["fusetools", *words]) if words else error.fix
            raise Failure(error) from error
        except BrokenPipeError:
            raise  # the reader of a pipe has had enough: click leaves quietly
        except OSError as error:
            where = f"cannot use {error.filename}" if error.filename else "cannot go on"
            raise Failure(Error(where, error.strerror or str(error))) from error
        except KeyboardInterrupt:
            ctx.exit(130)


def _replaced(word: str, wrong: str, right: str) -> str:
    """Return a word of the command line, or an option with its value, with the right value."""
    option, is_option, value = word.partition("=")
    if is_option and option.startswith("-") and value == wrong:
        return f"{option}={right}"
    return right if word == wrong else word


def _misplaced(group: Commands, ctx: click.Context) -> Error | None:
    """Return the error of a recording that was given without -i, as if it were an operation."""
    words: list[str] = ctx.meta.get(WORDS, [])
    command = group.get_command(ctx, words[0]) if words else None
    options = [p for p in command.params if isinstance(p, click.Option)] if command else []
    if not any("--input" in option.opts for option in options):
        return None
    from pathlib import Path

    from fusetools.host.files import answers
    from fusetools.names import PERF_DATA

    valued = {name for option in options if not option.is_flag for name in option.opts}
    for at, word in enumerate(words):
        if words[at - 1] in valued or not (answers(word) and os.path.isfile(word)):
            continue
        with contextlib.suppress(OSError), Path(word).open("rb") as file:
            if file.read(len(PERF_DATA)) == PERF_DATA:
                fix = shlex.join(["fusetools", *words[:at], "-i", *words[at:]])
                return Error(f"{word} is a recording, not an operation", "it needs -i", fix)
    return None


def _name_left() -> None:
    """Print which of our children stay behind: not even SIGKILL ends them."""
    files = sys.modules.get("fusetools.host.files")
    for pid in files.left_behind() if files else ():
        with contextlib.suppress(OSError):
            why = "it waits for a file system that does not answer"
            click.echo(f"fusetools: process {pid} stays behind: {why}", err=True)


def _open_standard_descriptors() -> None:
    """Open closed ones: a file opened under such a number would receive what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _unexpected(error: Exception) -> int:
    """Print an unexpected error in a line; the exit status."""
    from fusetools.printable import printable

    if isinstance(error, OSError):
        what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
        message, status = f"{what}: {error.strerror or error}", 1
    else:
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        message, status = f"unexpected {type(error).__name__} at {at}: {str(error)[:200]}", DEFECT
    with contextlib.suppress(OSError):
        click.echo(f"fusetools: {printable(message)}", err=True)
        if status == DEFECT:
            click.echo(REPORT, err=True)
    return status


def _flushed(status: str | int | None) -> str | int | None:
    """Return the exit status, after flushing the output: the interpreter would complain with a
    traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _close_output()
    except OSError as error:
        _close_output()
        return status or _unexpected(error)
    return status


def _close_output() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: fusetools record -- WORKLOAD; fusetools why",
)
@click.version_option(__version__, prog_name="fusetools", message="%(prog)s %(version)s")
def main() -> None:
    """Trace FUSE file systems: how often each operation is called, and how long it takes,
    in every layer from the system call to the file system's daemon.
    """


def run() -> None:
    """Run the program, and end the process without taking the interpreter down: all is written, and
    that would take a tenth of a short command's time."""
    if os.geteuid() == 0 and ({*sys.argv[1:2]} & BY_ROOT or "--live" in sys.argv):
        from fusetools.host import inherited

        inherited.settle()
    try:
        main(prog_name="fusetools")
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        if sys.stderr is not None:  # it was closed before we began
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
        os._exit(ended.code)
