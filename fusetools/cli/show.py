"""fusetools show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, say

if TYPE_CHECKING:
    from typing_extensions import Unpack


def request_number(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 1 << 64:
        raise click.BadParameter(f"{value!r} is not a request's number: fusetools slow prints them")
    return int(value)


@click.command()
@click.argument("unique", type=request_number, metavar="NUMBER")
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(unique: int, path: str, as_json: bool, **options: Unpack[FilterOptions]) -> None:
    """Print one request's story: what its caller and the daemon did.

    NUMBER is the request's number, as fusetools slow prints it.
    """
    result = opened(path).show(unique, filters=filters(options))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("show", result))
    else:
        from fusetools.render.text.show import render

        say(render(result))
