"""fusetools export."""

from __future__ import annotations

from typing import Any

import click

from fusetools.cli.options import export_options, filters, opened
from fusetools.output import Output


@click.command()
@export_options
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice(["perfetto", "csv", "json"]),
    help="A trace for ui.perfetto.dev, or a row for each request.",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="The file; -: print it.")
def command(path: str, form: str, output: str, **options: Any) -> None:
    """Write every request, with all that is known of it, for other programs."""
    Output(output).close()  # refused before anything is read
    result = opened(path).export(output, form, filters=filters(options))
    if output != "-":
        from fusetools.printable import printable
        from fusetools.render.text.figures import plural

        size = plural(result.requests, "request")
        click.echo(f"fusetools: {printable(output)}: {size}", err=True)
