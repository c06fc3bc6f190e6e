"""fusetools clean."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Remove what a killed recording left in the kernel."""
    from fusetools.errors import Error
    from fusetools.printable import printable
    from fusetools.record.state import Lock

    with Lock(["fusetools", "clean"]) as lock:
        removed = lock.clean()
    for what in removed.what:
        click.echo(f"removed {printable(what)}")
    if removed.left:
        raise Error(
            "could not remove everything",
            "; ".join(removed.left),
            "end whoever uses it, then again: fusetools clean",
        )
    if not removed.what:
        click.echo("nothing was left")
