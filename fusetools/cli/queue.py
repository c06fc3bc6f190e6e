"""fusetools queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, say, write

if TYPE_CHECKING:
    from typing_extensions import Unpack


@click.command()
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--csv", "csv_path", metavar="FILE", help="Write every change to FILE as CSV; - prints it."
)
def command(
    path: str, as_json: bool, csv_path: str | None, **options: Unpack[FilterOptions]
) -> None:
    """Print whether the daemon has enough threads, and what queued."""
    from fusetools.output import Output

    target = None if csv_path is None else Output(csv_path)
    result = opened(path).queue(filters=filters(options))
    if target is not None:
        from fusetools.render.csv.queue import render as to_csv

        with target:
            write(target, to_csv(result))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("queue", result))
    elif csv_path is None:
        from fusetools.render.text.queue import render

        say(render(result))
