"""CSV: a line per function; the format that `fusetools diff` reads again."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from fusetools.errors import Error
from fusetools.model import (
    LAYERS,
    PERCENTILES,
    Count,
    Counts,
    Differences,
    Facts,
    Histogram,
    Losses,
    Queue,
    Requests,
)
from fusetools.render.text import printable

_LATENCY = ("min_ns", "mean_ns", *(f"p{p}_ns" for p in PERCENTILES), "max_ns")
# Each line says how long its recording was and how many requests it had, so that a part of the
# file, or lines of several, still mean something.
COLUMNS = (
    "function",
    "operation",
    "layer",
    "count",
    "address",
    "matched",
    "unmatched",
    *_LATENCY,
    "seconds",
    "requests",
    "lost",
)
MOST_ROWS = 1_000_000


def counts(result: Counts) -> str:
    return written(COLUMNS, (_row(c, result.facts) for c in result.counts))


def differences(result: Differences) -> str:
    columns = ["function", "operation", "layer", "count_a", "count_b", "change", "percent"]
    columns += [f"p{p}_ns_{side}" for p in PERCENTILES for side in "ab"]
    columns += ["p50_change_ns", "p50_percent", "per"]
    rows = (
        [
            d.function,
            d.operation,
            d.layer,
            d.a.count,
            d.b.count,
            d.change,
            d.percent,
            *(side.percentiles.get(p) for p in PERCENTILES for side in (d.a, d.b)),
            d.slower("50"),
            d.slower_percent("50"),
            result.per,
        ]
        for d in result.differences
    )
    return written(columns, rows)


def queue(result: Queue) -> Iterator[str]:
    """Every change: since when, ns since the recording's first event, and what then holds."""
    yield written(("mount", "time_ns", "queued", "busy"), ())
    for mount in result.mounts:
        rows = ((mount.mount, *level) for level in mount.levels)
        while some := list(islice(rows, 10_000)):
            yield _rows(some)


def read_counts(path: Path) -> Counts:
    """What counts() wrote, without the buckets. Raises Error if it is something else."""

    def wrong(line: int, why: str) -> Error:
        return Error(
            f"cannot read {path}, line {line}", why, "fusetools count -i perf.data --csv FILE"
        )

    found: list[Count] = []
    seconds, requests, lost = 0.0, 0, 0
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.DictReader(file)
        try:
            if lines.fieldnames is None or set(COLUMNS) - set(lines.fieldnames):
                raise wrong(1, "these are not the columns of fusetools count --csv")
            for row in lines:
                if len(found) == MOST_ROWS:
                    raise wrong(lines.line_num, f"more than {MOST_ROWS:,} lines")
                found.append(_count(row))
                seconds, requests = float(row["seconds"]), int(row["requests"])
                lost = int(row["lost"])
        except (csv.Error, ValueError, TypeError, KeyError) as error:
            raise wrong(lines.line_num, str(error)) from error
    facts = Facts(path.name, seconds, Requests(requests, requests, requests), Losses(lost))
    return Counts(tuple(found), facts)


def _row(c: Count, facts: Facts) -> list[Any]:
    h = c.latency
    latency: Iterable[Any] = [""] * (2 + len(_LATENCY))
    if h is not None:
        percentiles = (h.percentiles.get(p) for p in PERCENTILES)
        latency = (h.count, h.unmatched, h.min, h.mean, *percentiles, h.max)
    address = "" if c.address is None else f"0x{c.address:x}"
    tail = (facts.seconds, facts.requests.begun, facts.losses.lost)
    return [c.function, c.operation, c.layer, c.count, address, *latency, *tail]


def _count(row: dict[str, str]) -> Count:
    if row["layer"] not in LAYERS:
        raise ValueError(f"{row['layer']!r} is no layer")
    function, operation = _uncell(row["function"]), _uncell(row["operation"])
    names = (operation, row["layer"], function)
    latency = None
    if row["matched"]:
        latency = Histogram(
            *names,
            count=int(row["matched"]),
            unmatched=int(row["unmatched"]),
            min=_int(row["min_ns"]),
            max=_int(row["max_ns"]),
            mean=float(row["mean_ns"]) if row["mean_ns"] else None,
            percentiles={p: int(row[f"p{p}_ns"]) for p in PERCENTILES if row[f"p{p}_ns"]},
            buckets=(),
        )
    address = int(row["address"], 16) if row["address"] else None
    return Count(function, operation, row["layer"], int(row["count"]), address, latency)


def _int(text: str) -> int | None:
    return int(text) if text else None


def written(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    return _rows([columns, *rows])


def _rows(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


# Spreadsheets take what begins so for a formula, and run it.
_FORMULA = re.compile(r"'*[=+@-](?![0-9.]+$)")


def _cell(text: str) -> str:
    text = printable(text)
    return "'" + text if _FORMULA.match(text) else text


def _uncell(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
