"""fusetools fleet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fusetools.cli.options import say, say_groups, unit_option, whole, write

if TYPE_CHECKING:
    from fusetools.answers.fleet import Fleet

QUESTIONS = ("hist", "stages", "slow", "errors", "count", "why", "diff", "outliers", "report")
_ORDERS = {"hist": "time", "stages": "time", "slow": "slowest", "errors": "errors"}


def engine(value: str) -> str:
    """duckdb, or Spark's address."""
    if value != "duckdb" and not re.fullmatch(r"local(\[(\d{1,4}|\*)\])?|spark://\S+", value):
        raise click.BadParameter(f"{value!r} is not duckdb, local[N] or spark://HOST:PORT")
    return value


@click.command()
@click.argument("folder", metavar="DIR")
@click.argument("question", type=click.Choice(QUESTIONS), required=False, metavar="[QUESTION]")
@click.argument("words", nargs=-1, metavar="[OPERATION|GLOB|DATE]...")
@click.option(
    "--by",
    metavar="NAME",
    help="Print a line for each host, kernel, version, mount, date, hour, comm, user, cgroup or "
    "job, or for each value of a label of fusetools export.",
)
@click.option(
    "-n",
    "most",
    type=whole(1, 10_000),
    metavar="N",
    help="Show N requests, or groups of --by.  [default: 20]",
)
@click.option(
    "--engine",
    "on",
    type=engine,
    default="duckdb",
    show_default=True,
    metavar="ENGINE",
    help="Run the query on duckdb, or on Spark: local[N], spark://HOST:PORT.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the report to FILE; - prints it.  [default: fleet.html]",
)
@click.option("--sql", metavar="QUERY", help="Run a query on the views requests and sessions.")
@unit_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    folder: str,
    question: str | None,
    words: tuple[str, ...],
    by: str | None,
    most: int | None,
    on: str,
    output: str | None,
    sql: str | None,
    unit: str | None,
    as_json: bool,
) -> None:
    """Answer a question about the recordings of many hosts.

    The recordings are Parquet files of fusetools export --format parquet -o DIR. The questions are
    those of hist, stages, slow, errors, count and why about one recording. diff compares two dates,
    outliers names hosts and other groups that differ from most. report writes an HTML page with
    outliers, causes, and the latency of up to N hosts (-n; default: 40) over time.
    """
    if (question is None) == (sql is None):
        raise click.UsageError("either a QUESTION or --sql is needed")
    if question in ("why", "outliers", "report") and words:
        raise click.UsageError(f"{question} takes no operation")
    if output and question != "report":
        raise click.UsageError(f"{question or '--sql'} excludes --output")
    if as_json and question == "report":
        raise click.UsageError("report excludes --json")
    if by and (sql or question in ("why", "diff", "report")):
        raise click.UsageError(f"{question or '--sql'} excludes --by")
    if question == "diff" and len(words) not in (0, 2):
        raise click.UsageError("diff needs two dates, or none")
    from fusetools.answers.fleet import Fleet

    fleet = Fleet(folder, on)

    def ask() -> None:
        if question == "report":
            _report(fleet, most or 40, output or "fleet.html")
        elif sql is not None:
            _sql(fleet, sql, as_json)
        else:
            _answer(fleet, question or "", words, by, most, unit, as_json)

    fleet.retried(ask)


def _answer(
    fleet: Fleet,
    question: str,
    words: tuple[str, ...],
    by: str | None,
    most: int | None,
    unit: str | None,
    as_json: bool,
) -> None:
    if by and question in (*_ORDERS, "count"):
        listed = most or (10_000 if as_json else 20)
        order = _ORDERS.get(question, "requests")
        say_groups(question, fleet.groups(by, words, order, listed), as_json, unit)
        return
    result: object
    if question == "slow":
        result = fleet.slow(words, most or 20)
    elif question == "diff":
        result = fleet.diff(*words)
    elif question == "outliers":
        result = fleet.outliers((by,) if by else ())
    elif question == "why":
        result = fleet.why()
    else:
        result = getattr(fleet, question)(words)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        name = {"why": "fleet-why", "outliers": "fleet"}.get(question, question)
        say(to_json(name, result))
        return
    say(_text(fleet.folder, question, result, words, unit))


def _text(
    folder: str, question: str, result: object, words: tuple[str, ...], unit: str | None
) -> str:
    """Return the answer as the command about one recording prints it."""
    from fusetools.render.text import count, diff, errors, fleet, hist, slow, stages

    made: dict[str, Callable[[Any], str]] = {
        "hist": lambda r: hist.render(r, unit or "", bool(words), ("request",)),
        "stages": lambda r: stages.render(
            r, unit or "", not words, False, ("fusetools", "fleet", folder, "stages")
        ),
        "slow": slow.render,
        "errors": errors.render,
        "count": count.render,
        "diff": lambda r: diff.render(r, (100.0, 500.0)),
        "why": fleet.causes,
        "outliers": fleet.outliers,
    }
    return made[question](result)


def _report(fleet: Fleet, most: int, name: str) -> None:
    from fusetools.figures import size
    from fusetools.output import Output
    from fusetools.printable import printable
    from fusetools.render.html.fleet import render

    with Output(name) as target:
        write(target, render(fleet.overview(most)))
        if not target.printed:
            say(f"{printable(name)}: {size(target.size())}\n")


def _sql(fleet: Fleet, query: str, as_json: bool) -> None:
    columns, rows = fleet.sql(query)
    if as_json:
        import json

        say(json.dumps([dict(zip(columns, map(_cell, row))) for row in rows], default=str) + "\n")
        return
    from fusetools.printable import printable
    from fusetools.render.text.layout import lines, table

    text = [columns, *([_shown(value) for value in row] for row in rows)]
    say(lines(table([[printable(cell) for cell in row] for row in text], "<" * len(columns))))


def _cell(value: object) -> object:
    return value if value is None or isinstance(value, (int, float, str, bool)) else str(value)


def _shown(value: object) -> str:
    return "" if value is None else str(value)
