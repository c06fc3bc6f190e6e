"""fusetools stuck."""

from __future__ import annotations

import os
import time

import click

from fusetools.cli.options import say
from fusetools.errors import Error

# The exit status if a mount is stuck or its state is unknown; 1 and 2 are for errors and wrong
# options
STUCK = 3
PAUSE = 2.0  # seconds between two looks of --watch


@click.command()
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="PATH",
    help="Look at the FUSE file system that is mounted on PATH (repeatable).  [default: all]",
)
@click.option("--watch", is_flag=True, help="Look again every 2 s until Ctrl-C.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; with --watch a line for each look."
)
@click.pass_context
def command(ctx: click.Context, mounts: tuple[str, ...], watch: bool, as_json: bool) -> None:
    """Show which FUSE mounts hang, who waits there, and why.

    Reads /proc only: needs no recording and never touches a mount. Root sees everything.
    Exit status 0 if nothing is stuck, 3 if something is or if that cannot be known.
    """
    from fusetools.host.files import absolute
    from fusetools.stuck import machine
    from fusetools.stuck.diagnosis import stuck

    # The path is compared, not looked at: even to resolve a link in it may hang.
    paths = [absolute(path) for path in mounts]
    while True:
        moment = machine.read(asked=paths)
        known = {p for c in moment.connections for p in (c.path, *c.also)}
        being_mounted = {mounter.path for mounter in moment.mounting}
        for path in paths:
            if path not in known | being_mounted:
                there = ", ".join(sorted(known)[:5])
                raise Error(
                    f"no FUSE file system is mounted on {path}",
                    f"mounted: {there}" if there else "none is mounted here",
                    "fusetools stuck",
                )
        result = stuck(moment, paths)
        if as_json:
            from fusetools.render.json.answer import render as to_json

            say(to_json("stuck", result, compact=watch))
        else:
            from fusetools.render.text.stuck import render

            if watch and os.isatty(1):
                click.clear()
            say(render(result))
            if not moment.root and not result.unknown:
                say(
                    "Only processes of this user could be looked at; as root: "
                    "sudo fusetools stuck\n"
                )
        if not watch:
            ctx.exit(STUCK if result.stuck or result.unknown else 0)
        time.sleep(PAUSE)
