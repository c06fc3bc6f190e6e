"""fusetools slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    filters,
    min_option,
    opened,
    path_option,
    request_options,
    say,
    whole,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|GLOB]...")
@request_options
@click.option(
    "-n",
    "most",
    type=whole(1, 10_000),
    default=20,
    metavar="N",
    help="Show N requests.  [default: 20]",
)
@min_option
@path_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    patterns: tuple[str, ...],
    path: str,
    most: int,
    least: int,
    glob: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print the slowest requests: who made them, on which file, and where the time went."""
    recording, wanted = opened(path), filters(options)
    result = recording.slowest(*patterns, most=most, least_ns=least, path=glob, filters=wanted)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("slow", result))
    else:
        from fusetools.render.text.slow import render

        say(render(result))
