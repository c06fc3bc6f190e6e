"""fusetools stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    corrected_option,
    either,
    filters,
    opened,
    request_options,
    say,
    unit_option,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("operations", nargs=-1, metavar="[OPERATION|GLOB]...")
@request_options
@click.option(
    "--by",
    type=click.Choice(["comm", "pid", "daemon-thread", "mount", "size"]),
    help="Print a line for each caller (comm, pid), daemon thread, mount, or size in bytes.",
)
@unit_option
@click.option("--overhead", is_flag=True, help="Show the overhead of recording in each stage.")
@corrected_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    operations: tuple[str, ...],
    path: str,
    by: str | None,
    unit: str | None,
    overhead: bool,
    corrected: bool,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print where requests' time goes, stage by stage.

    Without an operation, prints a line for each, most time first. With operations (lookup,
    'read*'), prints each of their stages.
    """
    either(corrected, overhead)
    chosen = filters(options)
    recording = opened(path)
    result = recording.stages(*operations, by=by or "", filters=chosen, corrected=corrected)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("stages", result))
    else:
        from fusetools.render.text.stages import render

        say(render(result, unit or "", not operations, overhead, path))
