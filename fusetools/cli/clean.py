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
    from fusetools.render.text.layout import lines

    with Recordings() as recordings:
        removed = recordings.clean()
        beside = recordings.beside()
        mounted = not removed.left and recordings.unmount()
        kept = left(recordings.place)
    for what in removed.what + (("mount of tracefs",) if mounted else ()):
        say(lines([f"removed {printable(what)}"]))
    if removed.left:
        raise Error(
            "could not remove everything",
            "; ".join(removed.left),
            "stop the process that uses it, then run: fusetools clean",
        )
    if not (removed.what or mounted):
        say(lines(["nothing was left"]))
    say(lines(f"left for root: {printable(what)}" for what in kept))
    say(lines(f"left alone, as it runs: {printable(what)}" for what in beside))
