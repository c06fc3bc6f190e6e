"""Reader of the CSV file that `fusetools count` writes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TypeVar

from fusetools.csvfile import uncell
from fusetools.errors import Error
from fusetools.names import LAYERS
from fusetools.results.count import COLUMNS, Count, Counts
from fusetools.results.facts import Facts, Losses, Requests
from fusetools.results.hist import PERCENTILES, Histogram

N = TypeVar("N", int, float)
MOST_ROWS = 1_000_000
MOST_FIGURE = 1 << 64


def read_counts(path: Path) -> Counts:
    """Read a file of render/csv/count.py, which has no buckets. Raise Error if it is another
    file."""

    def wrong(line: int, why: str) -> Error:
        return Error(
            f"cannot read {path}, line {line}", why, "fusetools count -i perf.data --csv FILE"
        )

    counts: list[Count] = []
    seconds, requests, lost = 0.0, 0, 0
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.DictReader(file)
        try:
            if lines.fieldnames is None or set(COLUMNS) - set(lines.fieldnames):
                raise wrong(1, "these are not the columns of fusetools count --csv")
            for row in lines:
                if len(counts) == MOST_ROWS:
                    raise wrong(lines.line_num, f"more than {MOST_ROWS:,} lines")
                counts.append(_count(row))
                seconds = _figure(float(row["seconds"]))
                requests, lost = _figure(int(row["requests"])), _figure(int(row["lost"]))
        except (csv.Error, ValueError, TypeError, KeyError) as error:
            raise wrong(lines.line_num, str(error)) from error
    facts = Facts(path.name, seconds, Requests(requests, requests, requests), Losses(lost))
    return Counts(tuple(counts), facts)


def _count(row: dict[str, str]) -> Count:
    if row["layer"] not in LAYERS:
        raise ValueError(f"{row['layer']!r} is no layer")
    function, operation = uncell(row["function"]), uncell(row["operation"])
    names = (operation, row["layer"], function)
    latency = None
    if row["matched"]:
        latency = Histogram(
            *names,
            count=_figure(int(row["matched"])),
            unmatched=_figure(int(row["unmatched"])),
            min_ns=_int(row["min_ns"]),
            max_ns=_int(row["max_ns"]),
            mean_ns=_figure(float(row["mean_ns"])) if row["mean_ns"] else None,
            percentiles_ns={p: n for p in PERCENTILES if (n := _int(row[f"p{p}_ns"])) is not None},
            buckets=(),
        )
    address = int(row["address"], 16) if row["address"] else None
    count = _figure(int(row["count"]))
    return Count(function, operation, row["layer"], count, address, latency)


def _int(text: str) -> int | None:
    return _figure(int(text)) if text else None


def _figure(number: N) -> N:
    if not 0 <= number < MOST_FIGURE:  # also refuses NaN
        raise ValueError("a figure makes no sense")
    return number
