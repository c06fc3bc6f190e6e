"""fusetools stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    by_option,
    corrected_option,
    either,
    filters,
    listed,
    opened,
    request_options,
    say,
    say_groups,
    unit_option,
)
from fusetools.names import given

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Groupings that keep the operations apart.
OF_OPERATION = ("pid", "daemon-thread", "mount", "size")


@click.command()
@click.argument("operations", nargs=-1, metavar="[OPERATION|GLOB]...")
@request_options
@by_option(*OF_OPERATION)
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
    if by and by not in OF_OPERATION:
        if overhead:
            raise click.UsageError(f"--by {by} excludes --overhead")
        most = listed(as_json)
        groups = recording.groups(by, *operations, most=most, filters=chosen, corrected=corrected)
        say_groups("stages", groups, as_json, unit)
        return
    result = recording.stages(*operations, by=by or "", filters=chosen, corrected=corrected)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("stages", result))
    else:
        from fusetools.render.text.stages import render

        asked = ["fusetools", "stages", *given(path)]
        say(render(result, unit or "", not operations, overhead, asked))
