"""fusetools clean."""

from __future__ import annotations

import click

from fusetools.cli.options import say


@click.command()
def command() -> None:
    """Remove what a killed recording left in the kernel."""
    from fusetools.errors import Error
    from fusetools.printable import printable
    from fusetools.record.kept import left
    from fusetools.record.state import Recordings

    with Recordings() as recordings:
        removed = recordings.clean()
        beside = recordings.beside()
        mounted = not removed.left and recordings.unmount()
        kept = left(recordings.place)
    for what in removed.what + (("mount of tracefs",) if mounted else ()):
        say(f"removed {printable(what)}\n")
    if removed.left:
        raise Error(
            "could not remove everything",
            "; ".join(removed.left),
            "end whoever uses it, then again: fusetools clean",
        )
    if not (removed.what or mounted):
        say("nothing was left\n")
    for what in kept:
        say(f"left for root: {printable(what)}\n")
    for what in beside:
        say(f"left alone, as it runs: {printable(what)}\n")
