"""fusetools trace."""

from __future__ import annotations

import sys

import click

from fusetools.cli.options import (
    LOST,
    as_recorded,
    caller_options,
    min_option,
    mounts_option,
    path_option,
    say,
    tell,
)

PAUSE = 0.2  # seconds between two looks


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|GLOB]...")
@mounts_option
@caller_options
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
    """Print requests as they end: operation, file, caller, time, error.

    Runs until Ctrl-C. Paths are learned from lookups. Files opened before trace started have no
    path. Exit status 4 if events were lost.
    """
    from fusetools.answers.operations import expressions
    from fusetools.figures import plural
    from fusetools.host.files import absolute
    from fusetools.live.trace import Trace
    from fusetools.patterns import expression
    from fusetools.plan.options import stream as options_of
    from fusetools.record.streaming import streaming
    from fusetools.render.json.answer import render as to_json
    from fusetools.render.text import trace as render
    from fusetools.render.text.layout import lines as joined

    wanted = expressions(patterns)
    options = options_of(tuple(map(absolute, mounts)))
    printed = 0
    with streaming(options, sys.argv[1:]) as stream:
        trace = Trace(
            stream, wanted, least, expression(glob) if glob else None, pids, as_recorded(comms)
        )
        if not as_json:
            say(joined([render.HEAD]))
        stopped = False
        while not stopped:
            stopped = stream.wait(PAUSE)
            ended = trace.ended()
            printed += len(ended)
            lines = [
                to_json("trace", row, compact=True) if as_json else render.line(row)
                for row in ended
            ]
            say("".join(lines))
        requests, dropped, pathless, lost = trace.sums()
    number, dropped_events = plural(requests, "request"), plural(lost, "event")
    summary = f"fusetools: {number} ended, {printed:,} printed, {dropped_events} lost"
    if dropped:
        summary += f", {dropped:,} not printed: too many at once"
    if pathless:
        summary += f", {pathless:,} skipped: path unknown or incomplete"
    tell(summary)
    if lost or dropped:
        sys.exit(LOST)
