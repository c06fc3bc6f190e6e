"""fusetools trace."""

from __future__ import annotations

import os
import sys

import click

from fusetools.cli.options import LOST, as_recorded, min_option, mounts_option, path_option, pid

PAUSE = 0.2  # seconds between two looks


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|GLOB]...")
@mounts_option
@click.option(
    "--pid", "pids", multiple=True, type=pid, metavar="PID", help="Only this caller (repeatable)."
)
@click.option(
    "--comm", "comms", multiple=True, metavar="NAME", help="Only callers of NAME (repeatable)."
)
@min_option
@path_option
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each request.")
def command(
    patterns: tuple[str, ...],
    mounts: tuple[str, ...],
    pids: tuple[int, ...],
    comms: tuple[str, ...],
    least: int,
    glob: str | None,
    as_json: bool,
) -> None:
    """Print requests as they end: operation, file, caller, time and error.

    Runs until Ctrl-C. Paths are learned from lookups: what a caller had open before has none yet.
    Exit status 4 if events were lost.
    """
    from fusetools.answers.operations import operations
    from fusetools.now.trace import Trace
    from fusetools.patterns import expression
    from fusetools.plan.request import Stream
    from fusetools.record.streaming import streaming
    from fusetools.render.json.answer import render as to_json
    from fusetools.render.text import trace as render

    wanted = operations(patterns) if patterns else []
    request = Stream(tuple(os.path.abspath(mount) for mount in mounts))
    printed = 0
    with streaming(request, sys.argv[1:]) as stream:
        trace = Trace(
            stream, wanted, least, expression(glob) if glob else None, pids, as_recorded(comms)
        )
        if not as_json:
            click.echo(render.HEAD, nl=False)
            sys.stdout.flush()
        stopped = False
        while not stopped:
            stopped = stream.wait(PAUSE)
            ended = trace.ended()
            printed += len(ended)
            lines = [
                to_json("trace", one, compact=True) if as_json else render.line(one)
                for one in ended
            ]
            click.echo("".join(lines), nl=False)
            sys.stdout.flush()
        requests, dropped, pathless, lost = trace.sums()
    said = f"fusetools: {requests:,} requests ended, {printed:,} printed, {lost:,} events lost"
    if dropped:
        said += f", {dropped:,} not printed: too many at once"
    if pathless:
        said += f", {pathless:,} not looked at: their path is not known, or not whole"
    click.echo(said, err=True)
    if lost or dropped:
        sys.exit(LOST)
