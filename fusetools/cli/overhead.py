"""fusetools overhead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import say, whole
from fusetools.cli.progress import Progress
from fusetools.cli.record import OF_RECORD, check, warn
from fusetools.cli.record import command as record

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.plan.options import LimitedOptions


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@click.argument("workload", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option(
    "--repeat",
    type=whole(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Run N rounds, each once without and once with each part.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    workload: tuple[str, ...],
    repeat: int,
    as_json: bool,
    **options: Unpack[LimitedOptions],
) -> None:
    """Measure the overhead of recording a workload, layer by layer.

    Runs the workload (write it after --) repeatedly: without a recording, with each layer alone,
    and with all of them. Discards the workload's output.
    """
    import tempfile

    from fusetools.experiments.overhead import overhead
    from fusetools.plan.options import Options, Workload

    check(options)
    progress = Progress()
    with tempfile.TemporaryFile() as log:
        of_run = Options(Workload(workload, log.fileno()), wait=True, **options)
        try:
            result = overhead(of_run, repeat, sys.argv[1:], progress, warn=warn)
        finally:
            progress.clear()
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("overhead", result))
    else:
        from fusetools.render.text.overhead import render

        say(render(result))


# Most options of record are options of overhead.
command.params[1:1] = [param for param in record.params if param.name not in OF_RECORD]
