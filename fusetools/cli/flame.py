"""fusetools flame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    filters,
    opened,
    recording_options,
    say,
    tell,
    write,
)
from fusetools.errors import Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.results.flame import Stacks


@click.command()
@click.argument("operations", nargs=-1, metavar="[OPERATION|GLOB]...")
@click.option(
    "--offcpu",
    "graph",
    flag_value="off-cpu",
    help="Draw waits: those of callers of requests, and of the daemon for them.",
)
@click.option(
    "--offwake",
    "graph",
    flag_value="off-wake",
    help="Draw waits, with the waker's stack on top.",
)
@click.option(
    "--requests",
    "graph",
    flag_value="requests",
    help="Draw requests: the caller's stack, the request, and the daemon's work for it.",
)
@click.option(
    "--graph", "graph", flag_value="graph", help="Draw the kernel's functions, by wall time."
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Include waits outside requests and other processes.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["blocked", "runnable", "preempted"]),
    help="Draw only waits in this state (repeatable).",
)
@click.option(
    "--diff",
    "before",
    metavar="FILE",
    help="Draw the difference to FILE: red where time grew, blue where it shrank.",
)
@click.option(
    "--normalise", is_flag=True, help="With --diff, scale both recordings to the same time."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Draw into FILE: .html, .svg, .folded, .speedscope.json, .firefox.json or .pb.gz (pprof); "
    "- prints folded stacks.  [default: flame.html]",
)
@click.option("--inverted", is_flag=True, help="Draw the root at the top.")
@click.option("--reverse", "reversed", is_flag=True, help="Merge stacks from the leaf.")
@click.option(
    "--kallsyms",
    metavar="FILE",
    help="Name kernel functions by FILE, a copy of the recorded kernel's /proc/kallsyms.  "
    "[default: the recording's own]",
)
@click.option(
    "--symfs",
    metavar="DIR",
    help="Name user functions by program files below DIR (/ for this host).  [default: the "
    "recording's own; then debuginfod's, if DEBUGINFOD_URLS is set]",
)
@recording_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; draw nothing without -o.")
def command(
    operations: tuple[str, ...],
    path: str,
    graph: str | None,
    layers: tuple[str, ...],
    everything: bool,
    states: tuple[str, ...],
    before: str | None,
    normalise: bool,
    output: str | None,
    inverted: bool,
    reversed: bool,
    kallsyms: str | None,
    symfs: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Draw a flame graph of what ran, or of what was waited for.

    Without an option, draws samples of what the workload and the daemon ran. Operations (lookup,
    'read*') restrict the picture to them; with --graph they are kernel functions.
    """
    from fusetools.host import debuginfod
    from fusetools.output import Output
    from fusetools.render.text import flame as text

    graph = graph or "on-cpu"
    if states and graph != "off-cpu":
        raise click.UsageError("--state requires --offcpu")
    if normalise and not before:
        raise click.UsageError("--normalise requires --diff")
    chosen = filters(options)

    def stacks(of: str) -> Stacks:
        return opened(of).stacks(
            graph,
            *operations,
            layers=layers,
            filters=chosen,
            states=states,
            everything=everything,
            kallsyms=kallsyms,
            symfs=symfs,
        )

    if output is None and not as_json:
        output = "flame.html"
    target = None if output is None else Output(output)
    if debuginfod.program():
        tell("fusetools: asking debuginfod for the names of functions …")
    shown = stacks(path)
    earlier = stacks(before) if before else None
    if not shown.stacks:
        filtered = bool(operations or layers or states or any(options.values()))
        what, why, fix = text.nothing(shown, filtered, path)
        raise Error(what, why, fix)
    if target is not None:
        from fusetools.render.picture import picture

        with target:
            drawn = picture(
                shown, earlier, target.path, normalise, inverted, reversed, before=before or ""
            )
            write(target, drawn)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        more = {} if earlier is None else {"before": earlier}
        say(to_json("flame", shown, more=more))
    elif output != "-":
        say(text.render(shown, earlier, str(Path(output or "")), before or ""))
