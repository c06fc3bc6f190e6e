"""fusetools graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, graph_options, opened, say, unit_option

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@click.argument("function", default="")
@graph_options
@click.option("--calls", is_flag=True, help="Print each call with its time.")
@unit_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    function: str,
    path: str,
    calls: bool,
    unit: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print the kernel's FUSE functions as a tree, with their times.

    Roots the trees at FUNCTION (fuse_lookup, 'fuse_dev_*'); by default at the outermost functions.
    """
    chosen = filters(options)
    recording = opened(path)
    if calls:
        answer = recording.graph_calls(function, filters=chosen)
        if as_json:
            from fusetools.render.json.graph import render_calls as calls_to_json

            parts = calls_to_json(answer)
        else:
            from fusetools.render.text.graph import render_calls

            parts = render_calls(answer, unit or "")
        # One by one: a long recording has millions.
        for part in parts:
            say(part)
    else:
        result = recording.graph(function, filters=chosen)
        if as_json:
            from fusetools.render.json.answer import render as to_json

            say(to_json("graph", result))
        else:
            from fusetools.render.text.graph import render

            say(render(result, unit or ""))
