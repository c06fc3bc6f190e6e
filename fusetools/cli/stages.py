"""fusetools stages."""

from __future__ import annotations

from typing import Any

import click

from fusetools.cli.options import filters, opened, say, stages_options


@click.command()
@click.argument("operations", nargs=-1, metavar="[OPERATION|GLOB]...")
@stages_options
@click.option(
    "--by",
    type=click.Choice(["comm", "pid", "daemon-thread", "mount", "size"]),
    help="A line for each caller (comm, pid), daemon's thread, mount, or size in bytes.",
)
@click.option(
    "--unit", type=click.Choice(["ns", "us", "ms"]), help="All times in this unit, not one to fit."
)
@click.option("--overhead", is_flag=True, help="What recording itself took of each stage.")
@click.option("--json", "as_json", is_flag=True, help="JSON, times in ns.")
def command(
    operations: tuple[str, ...],
    path: str,
    by: str | None,
    unit: str | None,
    overhead: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print where requests' time goes, stage by stage.

    Without an operation: a line for each, most time first. With some (lookup, 'read*'): each stage
    of those.
    """
    chosen = filters(options)
    result = opened(path).stages(*operations, by=by or "", filters=chosen)
    if as_json:
        from fusetools.render.json.stages import render as to_json

        say(to_json(result))
    else:
        from fusetools.render.text.stages import render

        say(render(result, unit or "", not operations, overhead))
