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
            from fusetools.render.json.graph import render_calls as calls_to_json

            parts = calls_to_json(found)
        else:
            from fusetools.render.text.graph import render_calls

            parts = render_calls(found, unit or "")
        # One by one: of a long recording there are millions.
        for part in parts:
            say(part)
    else:
        result = recording.graph(function, filters=chosen)
        if as_json:
            from fusetools.render.json.graph import render as to_json

            say(to_json(result))
        else:
            from fusetools.render.text.graph import render

            say(render(result, unit or ""))
