"""fusetools top."""

from __future__ import annotations

import os
import sys

import click

from fusetools.cli.options import LOST, decimal, mounts_option, say, whole
from fusetools.names import TOP_BY, TOP_SORTS


@click.command()
@mounts_option
@click.option(
    "--by",
    type=click.Choice(TOP_BY),
    default="operation",
    show_default=True,
    help="Group requests by this.",
)
@click.option(
    "--sort",
    type=click.Choice(TOP_SORTS),
    default="requests",
    show_default=True,
    help="Sort rows by this, the greatest first.",
)
@click.option(
    "--filter", "contains", default="", metavar="TEXT", help="Show rows whose name contains TEXT."
)
@click.option(
    "--interval",
    type=decimal(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh every SECONDS (0.1 to 60).",
)
@click.option(
    "--older",
    type=decimal(0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Show requests in flight for longer than SECONDS.",
)
@click.option("-n", "most", type=whole(1, 10_000), metavar="N", help="Show N rows.")
@click.option("--once", is_flag=True, help="Print one interval and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each interval.")
def command(
    mounts: tuple[str, ...],
    by: str,
    sort: str,
    contains: str,
    interval: float,
    older: float,
    most: int | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show which operations, processes and files keep mounts busy.

    Refreshes the screen until q or Ctrl-C; prints a line for each interval if stdout is not a
    terminal. Keys: b changes the grouping, s the sort order, / filters, p pauses.
    Exit status 4 if events were lost.
    """
    from fusetools.cli import screen
    from fusetools.host.files import absolute
    from fusetools.live.top import View, Watch
    from fusetools.plan.options import stream as options_of
    from fusetools.record.streaming import streaming
    from fusetools.render.json.answer import render as to_json
    from fusetools.render.text import top as render

    terminal = os.isatty(0) and os.isatty(1) and not (once or as_json)
    view = View(by, sort, most or 40, contains, older)
    options = options_of(tuple(map(absolute, mounts)))
    lost = 0
    with streaming(options, sys.argv[1:]) as stream:
        watch = Watch(stream)
        if terminal:
            lost = screen.run(watch, view, interval, render.lines, most)
        while not terminal:
            # Callers may end soon, and frequent reads keep the number of events small.
            steps = max(round(interval / 0.2), 1)
            for _ in range(steps - 1):
                if stopped := stream.wait(interval / steps):
                    break
                watch.meanwhile(view)
            else:
                stopped = stream.wait(interval / steps)
            top = watch.interval(view)
            lost += top.lost
            if as_json:
                say(to_json("top", top, compact=True))
            elif once:
                say(render.render(top))
            else:
                say(render.line(top))
            if once or stopped:
                break
    if lost:
        sys.exit(LOST)
