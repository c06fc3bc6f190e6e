"""fusetools count."""

from __future__ import annotations

import re
from typing import Any

import click

from fusetools.cli.options import filters, opened, recording_options, say, write


@click.command()
@click.argument("regex", default="")
@recording_options
@click.option(
    "--csv", metavar="FILE", help="Write a CSV file, also for fusetools diff; - prints it."
)
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def command(
    regex: str,
    path: str,
    layers: tuple[str, ...],
    csv: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print how often each function, request and callback was called.

    REGEX leaves in those in whose name or operation it is found: lookup, '^fuse_', 'open|read'.
    """
    try:
        re.compile(regex)
    except re.error as error:
        raise click.BadParameter(f"{regex!r}: {error}", param_hint="REGEX") from error
    chosen = filters(options)
    result = opened(path).counts(regex, layers=layers, filters=chosen)
    if csv:
        from fusetools.render import csv as render

        write(csv, render.counts(result))
    if as_json:
        from fusetools.render import json

        say(json.counts(result))
    elif not csv:
        from fusetools.render import text

        say(text.counts(result))
