"""fusetools errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    by_option,
    filters,
    listed,
    opened,
    request_options,
    say,
    say_groups,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|GLOB]...")
@request_options
@by_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    patterns: tuple[str, ...],
    path: str,
    by: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print which errors requests were answered with."""
    recording, chosen = opened(path), filters(options)
    if by:
        most = listed(as_json)
        groups = recording.groups(by, *patterns, order="errors", most=most, filters=chosen)
        say_groups("errors", groups, as_json)
        return
    result = recording.errors(*patterns, filters=chosen)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("errors", result))
    else:
        from fusetools.render.text.errors import render

        say(render(result))
