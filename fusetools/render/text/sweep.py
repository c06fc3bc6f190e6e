"""fusetools sweep as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from fusetools.figures import duration, number, plural, size
from fusetools.printable import printable
from fusetools.render.text.estimate import confidence, seconds, span
from fusetools.render.text.layout import lines, table
from fusetools.results.sweep import Sweep


def render(result: Sweep) -> str:
    """Return each point's times, then its requests by operation."""
    experiment = result.experiment
    output = [f"{printable(experiment.about)}:"] if experiment.about else []
    output += [f"sweep of {printable(command_line(experiment.shown))}"]
    if not result.points:
        output.append("no run is done yet")
    else:
        output += [
            "",
            *table(points(result), aligned(result) + "><>>>><"),
            *_operations(result),
            *(["", *table(laws(result), "<<>><"), *changes(result)] if result.laws else []),
            "",
        ]
        how = max((point.seconds for point in result.points), key=lambda e: e.runs)
        caches = "empty" if experiment.caches == "drop" else "as they were"
        output.append(f"medians of {plural(how.runs, 'run')}, each with caches {caches}")
        output.append(confidence(how))
    for value, why in result.left_out.items():
        output.append(f"left out: {printable(value)}: {printable(why)}")
    if not experiment.trace:
        output.append("not recorded (--no-trace): the requests")
    if result.lost:
        output.append(f"{plural(result.lost, 'LOST event')} in all runs: counts are too low")
    output += [f"warning: {printable(warning)}" for warning in result.warnings]
    if result.to_do:
        path = printable(shlex.quote(str(result.path)))
        output.append(f"{plural(result.to_do, 'run')} to do yet: fusetools sweep {path}")
    return lines(output)


def points(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: the times of each point."""
    axes = result.experiment.axes
    rows: list[Sequence[str]] = [
        (*axes, "time", "", "user", "system", "switches", "bytes/s", ""),
    ]
    for point in result.points:
        band = point.bytes_per_second
        rows.append(
            (
                *(point.point[name] for name in axes),
                seconds(point.seconds.median),
                span(point.seconds, 1e9, duration),
                seconds(point.user_seconds.median),
                seconds(point.system_seconds.median),
                number(round(point.switches.median)),
                size(band.median if band else None),
                span(band, 1, size) if band else "",
            )
        )
    return rows


def aligned(result: Sweep) -> str:
    """Return the alignment of the axes' columns: numbers and sizes to the right."""
    params = result.experiment.params
    return "".join(
        ">" if all(value[:1].isdigit() for value in params[name]) else "<"
        for name in result.experiment.axes
    )


MINOR = 0.05  # the text omits operations with a smaller share of the requests at every point


def main_operations(result: Sweep) -> tuple[list[str], list[str]]:
    """Return the operations with many requests at any point, most first, and the others."""
    shares: dict[str, float] = {}
    for point in result.points:
        whole = sum(r.count.median for r in point.requests.values())
        for name, r in point.requests.items():
            shares[name] = max(shares.get(name, 0), r.count.median / whole if whole else 0)
    shown = [name for name, share in sorted(shares.items(), key=lambda s: -s[1]) if share >= MINOR]
    return shown, [name for name in shares if name not in shown]


def operation(result: Sweep, name: str) -> list[Sequence[str]]:
    """Return a table's heading and rows: an operation's requests at each point."""
    axes = result.experiment.axes
    sizes = any(of.size_bytes for point in result.points if (of := point.requests.get(name)))
    rows: list[Sequence[str]] = [
        (*axes, "requests", "mean size" if sizes else "", "p50", "", "p99", ""),
    ]
    for point in result.points:
        at = point.requests.get(name)
        rows.append(
            (
                *(point.point[axis] for axis in axes),
                number(round(at.count.median)) if at else "0",
                size(at.size_bytes.median) if at and at.size_bytes else "",
                duration(at.p50_ns.median) if at and at.p50_ns else "",
                span(at.p50_ns, 1, duration) if at and at.p50_ns else "",
                duration(at.p99_ns.median) if at and at.p99_ns else "",
                span(at.p99_ns, 1, duration) if at and at.p99_ns else "",
            )
        )
    return rows


def _operations(result: Sweep) -> list[str]:
    shown, minor = main_operations(result)
    rows: list[Sequence[str]] = []
    for name in shown:
        heading, *more = operation(result, name)
        rows += [(name, *heading), *(("", *row) for row in more)]
    output = ["", *table(rows, f"<{aligned(result)}>>><><")] if rows else []
    others = [printable(name) for name in minor]
    if others:
        output.append(f"few requests, only in sweep.csv and with --json: {', '.join(others)}")
    return output


_VERDICTS = {"differs": "does not hold", "unseen": "cannot be seen here"}


def laws(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: each law at each of its points, with its verdict."""
    rows: list[Sequence[str]] = [("law", "at", "expected", "requests", "verdict")]
    for law in result.laws:
        more = f" to {number(law.expected + law.slack)}" if law.slack else ""
        counted = number(round(law.requests.median)) if law.requests else ""
        verdict = _VERDICTS.get(law.verdict, law.verdict)
        row = (law.law, law.label, f"{number(law.expected)}{more}", counted, verdict)
        rows.append([printable(cell) for cell in row])
    return rows


def changes(result: Sweep) -> list[str]:
    """Return what is known about the laws that differ."""
    known = (f"{law.law}: {law.since}" for law in result.laws if law.since)
    return [printable(text) for text in dict.fromkeys(known)]


def command_line(words: Sequence[str]) -> str:
    """Return the command as users type it, with unquoted braces."""
    plain = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)
