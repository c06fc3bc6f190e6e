"""fusetools compare."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import click

from fusetools.cli.options import say


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="A B [C...]")
@click.option(
    "--layer",
    type=click.Choice(["request", "daemon"]),
    default="request",
    show_default=True,
    help="Compare durations of this layer.",
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME|GLOB",
    help="Compare only this operation (repeatable).  [default: all but rare ones]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[str, ...], layer: str, operations: tuple[str, ...], as_json: bool) -> None:
    """Show whether recordings or sweeps differ by more than noise.

    A, B ... are recordings, or folders of fusetools sweep. A single folder compares its own points.
    """
    from fusetools.answers.operations import expressions
    from fusetools.experiments.compare import compare
    from fusetools.results.compare import TIME

    expressions([pattern for pattern in operations if not fnmatchcase(TIME, pattern)])
    result = compare([Path(path) for path in paths], layer)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("compare", result))
    else:
        from fusetools.render.text.compare import render

        say(render(result, operations))
