"""fusetools diff."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import opened, say, write

if TYPE_CHECKING:
    from fusetools.results.count import Counts


def limits(value: str) -> tuple[float, float]:
    """LOW,HIGH."""
    try:
        low, high = map(float, value.split(","))
    except ValueError:
        low, high = 1, 0
    if not 0 <= low <= high < math.inf:  # also if one is nan
        raise click.BadParameter(f"{value!r} is not LOW,HIGH, for example 100,500")
    return low, high


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--per",
    type=click.Choice(["request", "second"]),
    help="Divide the calls by the recording's requests or seconds.",
)
@click.option(
    "--thresholds",
    type=limits,
    metavar="LOW,HIGH",
    default="100,500",
    show_default=True,
    help="Change in calls up to LOW is marked !, up to HIGH !! (magenta), above !!! (red).",
)
@click.option("--csv", metavar="FILE", help="Write CSV to FILE; - prints it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    a: str,
    b: str,
    per: str | None,
    thresholds: tuple[float, float],
    csv: str | None,
    as_json: bool,
) -> None:
    """Compare two recordings: calls and latency side by side.

    A and B are recordings or CSV files of fusetools count. The change is B less A.
    """
    from fusetools.answers.diff import diff
    from fusetools.output import Output

    target = Output(csv) if csv else None
    result = diff(_counts(a), _counts(b), per or "")
    if target:
        from fusetools.render.csv.diff import render as to_csv

        with target:
            write(target, to_csv(result))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("diff", result))
    elif not csv:
        from fusetools.render.text.diff import render

        say(render(result, thresholds, (a, b)))


def _counts(path: str) -> Counts:
    from fusetools.answers.counts_file import read_counts
    from fusetools.host.files import check_readable, open_regular

    check_readable(Path(path))
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        is_csv = path.endswith(".csv") or file.read(9) == b"function,"
    return read_counts(Path(path)) if is_csv else opened(path).counts()
