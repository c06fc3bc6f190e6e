"""fusetools export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BY_NAME = {".csv": "csv", ".json": "json", ".perfetto-trace": "perfetto", ".pftrace": "perfetto"}


@click.command()
@request_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "csv", "json"]),
    help="Write a trace for ui.perfetto.dev (perfetto), or a row for each request (csv, json)."
    "  [default: by FILE's name]",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="Write to FILE; - prints it.")
def command(path: str, form: str | None, output: str, **options: Unpack[FilterOptions]) -> None:
    """Write every request, with all known facts, for other programs."""
    from fusetools.output import Output

    if form is None:
        form = _BY_NAME.get(Path(output).suffix)
        if form is None:
            known = ", ".join(_BY_NAME)
            raise click.UsageError(f"--format is needed: {output} ends in none of {known}")
    Output(output).close()  # refused before anything is read
    result = opened(path).export(output, form, filters=filters(options))
    if output != "-":
        from fusetools.figures import plural
        from fusetools.printable import printable

        size = plural(result.requests, "request")
        click.echo(f"fusetools: {printable(output)}: {size}", err=True)
        if result.stateless:
            click.echo(f"  no states of threads: {printable(result.stateless)}", err=True)
