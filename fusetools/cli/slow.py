"""fusetools slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    by_option,
    filters,
    listed,
    min_option,
    opened,
    path_option,
    request_options,
    say,
    say_groups,
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
    metavar="N",
    help="Show N requests, or groups of --by.  [default: 20]",
)
@by_option()
@min_option
@path_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    patterns: tuple[str, ...],
    path: str,
    most: int | None,
    by: str | None,
    least: int,
    glob: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print the slowest requests: whose, which file, where time went."""
    recording, wanted = opened(path), filters(options)
    if by:
        groups = recording.groups(
            by,
            *patterns,
            order="slowest",
            most=most or listed(as_json),
            least_ns=least,
            path=glob,
            filters=wanted,
        )
        say_groups("slow", groups, as_json)
        return
    most = most or 20
    result = recording.slowest(*patterns, most=most, least_ns=least, path=glob, filters=wanted)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("slow", result))
    else:
        from fusetools.render.text.slow import render

        say(render(result))
