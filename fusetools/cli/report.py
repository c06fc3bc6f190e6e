"""fusetools report."""

from __future__ import annotations

from pathlib import Path

import click

from fusetools.cli.options import write


@click.command()
@click.argument("paths", nargs=-1, metavar="[RECORDING | SWEEP]...")
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The page; -: print it.",
)
def command(paths: tuple[str, ...], output: str) -> None:
    """Write one page about recordings or sweeps, for a mailing list or a ticket.

    It holds what the other commands answer, in words, figures and pictures; of several recordings,
    or several folders of fusetools sweep, also what compare says of them. Without an argument: of
    perf.data. The page needs no network, and no script to be read.
    """
    from fusetools.output import Output
    from fusetools.printable import printable
    from fusetools.render.html.page import render
    from fusetools.render.text.figures import size
    from fusetools.report import report

    with Output(output) as target:
        write(target, render(report([Path(path) for path in paths or ("perf.data",)])))
        if not target.printed:
            click.echo(f"{printable(output)}: {size(target.size())}")
