"""fusetools flame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusetools.cli.options import filters, opened, recording_options, say, write
from fusetools.errors import Error
from fusetools.output import Output

if TYPE_CHECKING:
    from fusetools.results.flame import Stacks


@click.command()
@click.argument("operations", nargs=-1, metavar="[OPERATION|GLOB]...")
@click.option(
    "--offcpu",
    "graph",
    flag_value="off-cpu",
    help="What was waited for: by the callers of requests, and by the daemon for them.",
)
@click.option(
    "--offwake",
    "graph",
    flag_value="off-wake",
    help="The same, with the stack of who ended the wait on top.",
)
@click.option(
    "--requests",
    "graph",
    flag_value="requests",
    help="What callers waited for: their stack, the request, and what the daemon did for it.",
)
@click.option("--graph", "graph", flag_value="graph", help="The kernel's functions, by wall time.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also what lies outside of requests, and what is of others.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["blocked", "runnable", "preempted"]),
    help="Only waits, or parts of them, of this state; may be given again.",
)
@click.option(
    "--diff",
    "before",
    metavar="FILE",
    help="The difference to this recording: red where it grew since, blue where it shrank.",
)
@click.option("--normalise", is_flag=True, help="With --diff: as if both took the same time.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The picture: .html, .svg, .folded, .speedscope.json or .firefox.json; - for folded "
    "stacks on the terminal.  [default: flame.html]",
)
@click.option("--inverted", is_flag=True, help="The root at the top.")
@click.option("--reversed", is_flag=True, help="Merged from the innermost frames on.")
@click.option(
    "--kallsyms",
    metavar="FILE",
    help="Name kernel functions by FILE, a copy of the recorded kernel's /proc/kallsyms.  "
    "[default: by the recording]",
)
@click.option(
    "--symfs",
    metavar="DIR",
    help="Name user functions by the programs' files below DIR; / is this host.  [default: by the "
    "recording]",
)
@recording_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, times in ns; no picture but with -o."
)
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
    **options: Any,
) -> None:
    """Draw a flame graph: what ran, what was waited for, or both across requests.

    Without an option: samples of what the workload and the daemon ran. With operations (lookup,
    'read*'): only what happened for these; with --graph they are functions of the kernel.
    """
    graph = graph or "on-cpu"
    if states and graph != "off-cpu":
        raise click.UsageError("--state is of --offcpu")
    if normalise and not before:
        raise click.UsageError("--normalise is of --diff")
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
    shown = stacks(path)
    earlier = stacks(before) if before else None
    from fusetools.render.text import flame as text

    if not shown.stacks:
        what, why, mend = text.nothing(shown, bool(operations or layers or any(options.values())))
        raise Error(what, why, mend)
    if target is not None:
        from fusetools.render.picture import picture

        with target:
            write(target, picture(shown, earlier, target.path, normalise, inverted, reversed))
    if as_json:
        from fusetools.render.json.flame import render as to_json

        say(to_json(shown, earlier))
    elif output != "-":
        say(text.render(shown, earlier, str(Path(output or ""))))
