"""fusetools compare."""

from __future__ import annotations

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
    help="Which durations of recordings are compared.",
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME|GLOB",
    help="Only this operation; may be given again.  [default: all but the rare]",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, times in ns.")
def command(paths: tuple[str, ...], layer: str, operations: tuple[str, ...], as_json: bool) -> None:
    """Tell whether recordings or sweeps differ by more than noise, and which is best.

    A, B and so on are recordings, or folders of fusetools sweep; of one such folder alone its
    points are compared.
    """
    from fusetools.experiments.compare import compare

    result = compare([Path(path) for path in paths], layer)
    if as_json:
        from fusetools.render.json.compare import render as to_json

        say(to_json(result))
    else:
        from fusetools.render.text.compare import render

        say(render(result, operations))
