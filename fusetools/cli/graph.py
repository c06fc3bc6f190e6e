"""fusetools graph."""

from __future__ import annotations

from typing import Any

import click

from fusetools.cli.options import filters, graph_options, opened, say


@click.command()
@click.argument("function", default="")
@graph_options
@click.option("--calls", is_flag=True, help="Each single call with its time.")
@click.option(
    "--unit", type=click.Choice(["ns", "us", "ms"]), help="All times in this unit, not one to fit."
)
@click.option("--json", "as_json", is_flag=True, help="JSON, times in ns.")
def command(
    function: str,
    path: str,
    calls: bool,
    unit: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print what the kernel's FUSE functions call, and the time that each takes.

    FUNCTION (fuse_lookup, 'fuse_dev_*') is then where the trees begin; without one, wherever the
    recording saw a function called that no other one called.
    """
    chosen = filters(options)
    recording = opened(path)
    if calls:
        found = recording.graph_calls(function, filters=chosen)
        if as_json:
            from fusetools.render import json

            parts = json.graph_calls(found)
        else:
            from fusetools.render import text

            parts = text.graph_calls(found, unit or "")
        # One by one: of a long recording there are millions.
        for part in parts:
            say(part)
    else:
        result = recording.graph(function, filters=chosen)
        if as_json:
            from fusetools.render import json

            say(json.graph(result))
        else:
            from fusetools.render import text

            say(text.graph(result, unit or ""))
