"""fusetools report."""

from __future__ import annotations

from pathlib import Path

import click

from fusetools.cli.options import say, write


@click.command()
@click.argument("paths", nargs=-1, metavar="[RECORDING | SWEEP]...")
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Write to FILE; - prints it.",
)
def command(paths: tuple[str, ...], output: str) -> None:
    """Write one HTML page about recordings or sweeps.

    The page shows what the other commands print, with pictures; several recordings or sweeps are
    also compared. Defaults to perf.data. Self-contained; readable without JavaScript.
    """
    from fusetools.figures import size
    from fusetools.output import Output
    from fusetools.printable import printable
    from fusetools.render.html.page import render
    from fusetools.report import report

    with Output(output) as target:
        write(target, render(report([Path(path) for path in paths or ("perf.data",)])))
        if not target.printed:
            say(f"{printable(output)}: {size(target.size())}\n")
