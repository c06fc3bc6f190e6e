"""fusetools errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, say

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|GLOB]...")
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    patterns: tuple[str, ...], path: str, as_json: bool, **options: Unpack[FilterOptions]
) -> None:
    """Print which errors requests were answered with, and how many lookups found nothing."""
    result = opened(path).errors(*patterns, filters=filters(options))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("errors", result))
    else:
        from fusetools.render.text.errors import render

        say(render(result))
