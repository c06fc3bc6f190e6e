"""fusetools snap."""

from __future__ import annotations

import click

from fusetools.cli.options import say


@click.command()
def command() -> None:
    """Have each flight recorder write what it holds now.

    Prints the recordings' names. The flight recorder (fusetools record --flight SECONDS) continues.
    """
    from fusetools.cli.record import warn
    from fusetools.live.flight import snap
    from fusetools.printable import printable

    for name in snap(warn):
        say(f"{printable(name)}\n")
