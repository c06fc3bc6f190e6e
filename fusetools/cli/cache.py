"""fusetools cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, say

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: str, as_json: bool, **options: Unpack[FilterOptions]) -> None:
    """Print what the kernel's caches save, and what is asked again."""
    result = opened(path).cache(filters=filters(options))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("cache", result))
    else:
        from fusetools.render.text.cache import render

        say(render(result))
