"""fusetools whatif."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, say

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("settings", metavar="NAME=NUMBER...", nargs=-1, required=True)
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    settings: tuple[str, ...], path: str, as_json: bool, **options: Unpack[FilterOptions]
) -> None:
    """Print how long callers would wait with other threads or limits.

    NAME is threads (of the daemon), max_background (asynchronous requests in flight), or
    attr_timeout, entry_timeout or negative_timeout (in seconds). The recorded requests are replayed
    in a simulation.
    """
    result = opened(path).whatif(settings, filters=filters(options))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("whatif", result))
    else:
        from fusetools.render.text.whatif import render

        say(render(result))
