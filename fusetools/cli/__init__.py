"""The command line: one module per command, loaded when it is called.

``fusetools.cli.NAME`` holds a click command called ``command``. Errors end here and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

from fusetools import __version__
from fusetools.errors import Error

REPORT = "  this is a defect: please report it, with what FUSETOOLS_DEBUG=1 fusetools … prints"
WORDS = "fusetools.words"  # of the context: the command and its arguments
USAGE = 2  # exit status of a wrong command line
DEFECT = 70  # exit status, EX_SOFTWARE of sysexits.h

# By what a user wants to do. The one-line help is here so that `fusetools --help` imports no
# command. Tests hold groups, order and help against the commands' own help, the man page and the
# README.
GROUPS = {
    "Record": {
        "record": "Record a workload on FUSE mounts into one perf.data.",
        "snap": "Have each flight recorder write what it holds now.",
        "script": "Print a shell script that records on a host without Python.",
        "open": "Make a recording of the tar file that such a script left.",
        "merge": "Merge simultaneous perf and trace-cmd recordings.",
    },
    "Find the cause, in a recording": {
        "why": "Print why callers waited, most important cause first.",
        "stages": "Print where requests' time goes, stage by stage.",
        "slow": "Print the slowest requests: whose, which file, where time went.",
        "queue": "Print whether the daemon has enough threads, and what queued.",
        "errors": "Print which errors requests were answered with.",
        "cache": "Print what the kernel's caches save, and what is asked again.",
        "whatif": "Print how long callers would wait with other threads or limits.",
    },
    "Look closer, at a recording": {
        "show": "Print one request's story: what its caller and the daemon did.",
        "hist": "Print latency histograms, per operation and layer.",
        "count": "Print how often each function, request and callback was called.",
        "flame": "Draw a flame graph of what ran, or of what was waited for.",
        "graph": "Print the kernel's FUSE functions as a tree, with their times.",
    },
    "Look at this moment": {
        "stuck": "Show which FUSE mounts hang, who waits there, and why.",
        "top": "Show which operations, processes and files keep mounts busy.",
        "trace": "Print requests as they end: operation, file, caller, time, error.",
        "serve": "Serve the activity on mounts to Prometheus and OpenTelemetry.",
    },
    "Compare and measure": {
        "diff": "Compare two recordings: calls and latency side by side.",
        "compare": "Show whether recordings or sweeps differ by more than noise.",
        "sweep": "Run a command over a grid of parameters, recorded or only timed.",
        "overhead": "Measure the overhead of recording a workload, layer by layer.",
    },
    "Pass on": {
        "report": "Write one HTML page about recordings or sweeps.",
        "export": "Write every request, with all known facts, for other programs.",
        "fleet": "Answer a question about the recordings of many hosts.",
    },
    "This host": {
        "doctor": "Show what this host can trace, and how to fix what is missing.",
        "clean": "Remove what a killed recording left in the kernel.",
    },
}
COMMANDS = {name: help_ for group in GROUPS.values() for name, help_ in group.items()}
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

    def __init__(self, error: Error, status: int | None = None) -> None:
        super().__init__(error.what)
        self.error = error
        self.exit_code = error.status if status is None else status  # type: ignore[misc]

    def show(self, file: IO[str] | None = None) -> None:
        from fusetools.cli.options import tell
        from fusetools.printable import printable
        from fusetools.render.text.footer import ways_out
        from fusetools.render.text.layout import ERR

        name = click.style("fusetools:", fg="red", bold=True)
        messages = [f"{name} {printable(self.error.what)}"]
        if self.error.why:
            messages.append(f"  why: {printable(self.error.why)}")
        tell(*messages, *ways_out(self.error.fix, "  ", ERR))


class Formatter(click.HelpFormatter):
    """Help that is no wider than the terminal."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        columns = min(shutil.get_terminal_size().columns, max_width or 80)
        super().__init__(indent_increment, max(width or columns, 40) - 2)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        room = self.width - self.current_indent
        parts = [(self._broken(term, room), text) for term, text in rows]
        super().write_dl(parts, min(col_max, self.width * 2 // 5), col_spacing)

    def _broken(self, term: str, room: int) -> str:
        """Break a long list of choices."""
        if len(term) <= room:
            return term
        lines = [""]
        for piece in re.findall(r"[^ |]*[ |]|[^ |]+$", term):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > room:
                lines.append(" " * self.indent_increment)
            lines[-1] += piece
        indent = " " * self.current_indent
        return f"\n{indent}".join(line.rstrip() for line in lines)


class Context(click.Context):
    formatter_class = Formatter


class Commands(click.Group):
    """Lists its commands without importing them; turns errors into messages."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"fusetools.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        command.context_class = Context
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **more)
        except click.UsageError as error:
            raise _usage(error, []) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta[WORDS] = list(args)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from fusetools.patterns import similar

            names = similar(args[0], COMMANDS)
            if not names:
                raise
            raise Failure(
                Error(
                    f"there is no command {args[0]!r}",
                    f"similar commands: {', '.join(names)}",
                    shlex.join(["fusetools", names[0], *args[1:]]),
                ),
                USAGE,
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                # All groups have one column of names.
                wide = max(map(len, COMMANDS))
                formatter.write_dl([(f"{name:{wide}}", text) for name, text in commands.items()])

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
                raise _usage(error, ctx.meta.get(WORDS, [])) from error
            if (words := ctx.meta.get(WORDS)) and error.fix.startswith("sudo "):
                asked = shlex.join(["sudo", "fusetools", *words])
                error.fix = error.fix.replace(f"sudo fusetools {words[0]} …", asked)
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


def _usage(error: click.UsageError, words: list[str]) -> click.ClickException:
    """Return the message about a wrong command line: with the command that may have been meant."""
    if error.ctx is None or type(error).__name__ == "NoArgsIsHelpError":
        return error
    path = " ".join(["fusetools", *error.ctx.command_path.split()[1:]])
    fix = f"{path} --help"
    what = error.format_message().rstrip(".")
    why = " ".join(["usage:", path, *error.ctx.command.collect_usage_pieces(error.ctx)])
    if isinstance(error, click.NoSuchOption):
        what, why = f"{path} has no option {error.option_name}", ""
        from fusetools.patterns import similar

        name = error.option_name
        if options := similar(name, error.possibilities or ()):
            fixed = [options[0] + w[len(name) :] if w.split("=")[0] == name else w for w in words]
            why, fix = f"similar: {', '.join(options)}", shlex.join(["fusetools", *fixed])
    return Failure(Error(what, why, fix), USAGE)


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
)
@click.version_option(__version__, prog_name="fusetools", message="%(prog)s %(version)s")
def main() -> None:
    """Tell why a FUSE mount is slow or hangs.

    \b
    It is slow:   sudo fusetools record -- WORKLOAD
                  fusetools why
    It hangs:     sudo fusetools stuck
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
