"""fusetools sweep."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fusetools.cli.options import say, tell, whole
from fusetools.cli.progress import Progress
from fusetools.cli.record import OF_RECORD, check
from fusetools.cli.record import command as record
from fusetools.errors import Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.experiments.folder import Folder
    from fusetools.plan.options import LimitedOptions

INTERRUPTED = 130


@click.command(options_metavar="[OPTIONS]")
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME | FOLDER | FILE.toml | -- COMMAND]"
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE,...",
    help='Set the values of {NAME}; "4k,16k,...,64M" fills in the progression (repeatable).',
)
@click.option(
    "--repeat",
    type=whole(1, 1000),
    metavar="N",
    help="Run each point N times.  [default: 5, or the experiment's]",
)
@click.option("--no-trace", is_flag=True, help="Time the runs; record nothing.")
@click.option(
    "--caches",
    type=click.Choice(["drop", "keep"]),
    help="Drop or keep the kernel's caches before each run.  [default: drop]",
)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Write results to FOLDER; an existing sweep is resumed.  [default: sweep, or sweep-NAME]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...],
    params: tuple[str, ...],
    repeat: int | None,
    no_trace: bool,
    caches: str | None,
    output: str | None,
    as_json: bool,
    **options: Unpack[LimitedOptions],
) -> None:
    """Run a command over a grid of parameters, recorded or only timed.

    In the command (write it after --), {NAME} stands for a parameter's value, {mount} for the
    mount. NAME is a ready experiment; without an argument, lists them. An interrupted sweep keeps
    its runs: FOLDER, or the same command, resumes it.
    """
    from fusetools.plan import experiment

    if not words:
        if params:
            raise click.UsageError("a COMMAND is missing: fusetools sweep --param … -- COMMAND")
        return _list()
    given = _given(params)
    own = None
    if len(words) == 1:
        from fusetools.experiments.folder import is_sweep

        if is_sweep(Path(words[0])):
            context = click.get_current_context()
            for name in context.params:
                given_here = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
                if given_here and name not in ("words", "repeat", "as_json"):
                    raise click.UsageError("a sweep in a folder goes on as it is: only --repeat")
            return _go_on(Path(words[0]), repeat, as_json)
        own = experiment.ready().get(words[0])
        if own is None and words[0].endswith(".toml"):
            own = Path(words[0])
    if own:
        chosen = experiment.load(own, given)
    else:
        _check_command(words)
        chosen = experiment.Experiment(words, given).checked()
    check(options)
    chosen = replace(chosen, trace=not no_trace, caches=caches or chosen.caches, recording=options)
    if chosen.needs_mount:
        from fusetools.experiments.sweep import the_mount

        chosen = chosen.mounted(the_mount(options["mounts"]))
    from fusetools.experiments.folder import Folder

    path = Path(output or (f"sweep-{own.stem}" if own else "sweep"))
    from fusetools.record.preflight import owner

    rounds = repeat or chosen.repeat or 5
    _run(Folder.create(path, chosen, rounds, owner(options["as_root"])), as_json)


def _given(params: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    from fusetools.plan import experiment

    given: dict[str, tuple[str, ...]] = {}
    for text in params:
        try:
            name, values = experiment.parameter(text)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--param") from error
        if name in given:
            raise click.BadParameter(f"{name} is there twice", param_hint="--param")
        given[name] = values
    return given


def _check_command(words: tuple[str, ...]) -> None:
    from fusetools.host.files import command_problem

    if "{" not in words[0] and command_problem(words[0]):
        from fusetools.plan import experiment

        known = ", ".join(experiment.ready())
        what = "command" if len(words) > 1 else "experiment, sweep or command"
        raise Error(f"there is no {what} {words[0]}", f"experiments: {known}", "fusetools sweep")


def _list() -> None:
    from fusetools.plan import experiment
    from fusetools.render.text.layout import lines, table

    rows = [(name, experiment.about(path)) for name, path in experiment.ready().items()]
    say(lines([*table(rows, "<<"), "", "next: fusetools sweep NAME"]))


def _go_on(path: Path, repeat: int | None, as_json: bool) -> None:
    from fusetools.experiments.folder import Folder

    folder = Folder.open(path)
    folder.repeat = max(repeat or 0, folder.repeat)
    _run(folder, as_json)


def _run(folder: Folder, as_json: bool) -> None:
    from fusetools.experiments import sweep
    from fusetools.printable import printable
    from fusetools.render.text.footer import following
    from fusetools.render.text.layout import ERR

    progress = Progress()
    if folder.to_do():
        try:
            sweep.run(folder, sys.argv[1:], progress)
        except KeyboardInterrupt:
            progress.clear()
            path = printable(shlex.quote(str(folder.path)))
            done = len(folder.runs)
            tell(
                f"fusetools: stopped; {done} of {done + len(folder.to_do())} runs are done",
                *following([f"fusetools sweep {path}"], ERR),
            )
            sys.exit(INTERRUPTED)
        finally:
            progress.clear()
    result = sweep.figures(folder)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("sweep", result))
    else:
        from fusetools.render.text.sweep import render

        say(render(result))


# Most options of record are options of sweep.
command.params[1:1] = [param for param in record.params if param.name not in OF_RECORD]
