"""fusetools sweep as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from fusetools.figures import duration, number, plural, size
from fusetools.printable import printable
from fusetools.render.text.estimate import confidence, interval, seconds, span
from fusetools.render.text.layout import Whole, cut, lines, table
from fusetools.render.text.words import WORDS
from fusetools.results.estimate import Estimate
from fusetools.results.sweep import OperationAt, PointFigures, Sweep

LONG = 200  # characters of a command that are shown
LEAST = 0.1  # share of all requests' time from which an operation's stages are shown


def render(result: Sweep) -> str:
    """Return each point's times, then its requests by operation."""
    experiment = result.experiment
    output = [f"{printable(experiment.about)}:"] if experiment.about else []
    output += [Whole(f"sweep of {printable(cut(command_line(experiment.shown), LONG, False))}")]
    if not result.points:
        output.append("no run is done yet")
    else:
        output += [
            "",
            *table(points(result), aligned(result) + "><>>>><"),
            *_relative(result),
            *(["", *table(laws(result), "<<>><"), *changes(result)] if result.laws else []),
            *_operations(result),
            *_stages(result),
            "",
        ]
        how = times(result)
        caches = "empty" if experiment.caches == "drop" else "as they were"
        output.append(f"medians of {plural(how.runs, 'run')}, each with caches {caches}")
        output.append(confidence(how))
        if experiment.recorded and experiment.trace:
            output.append(recorded(result))
    for value, why in result.left_out.items():
        output.append(f"left out: {printable(value)}: {printable(why)}")
    if not experiment.trace:
        output.append("not recorded (--no-trace): the requests")
    if result.lost:
        output.append(f"{plural(result.lost, 'LOST event')} in all runs: counts are too low")
    output += [f"warning: {printable(warning)}" for warning in result.warnings]
    if result.to_do:
        path = printable(shlex.quote(str(result.path)))
        output.append(Whole(f"{plural(result.to_do, 'run')} to do yet: fusetools sweep {path}"))
    return lines(output)


def times(result: Sweep) -> Estimate:
    """Return a point's time whose estimate tells the number of runs that is typical of all."""
    base_ = result.experiment.relative
    own = [p.seconds for p in result.points if not (base_ and base_.is_base(p.point))]
    return max(own or [p.seconds for p in result.points], key=lambda e: e.runs)


def recorded(result: Sweep) -> str:
    """Return which rounds were recorded, as a sentence without its end."""
    rounds = plural(min(result.experiment.recorded, result.repeat), "round")
    return (
        f"requests, stages and laws about them: the first {rounds}, whose times count nowhere else"
    )


def points(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: the times of each point."""
    axes = result.experiment.axes
    rates = any(point.operations_per_second for point in result.points)
    unit, show = ("ops/s", _rate) if rates else ("bytes/s", size)
    known = rates or any(point.bytes_per_second for point in result.points)
    rows: list[Sequence[str]] = [
        (*axes, "time", "", "user", "system", "switches", unit if known else "", ""),
    ]
    for point in result.points:
        band = point.operations_per_second if rates else point.bytes_per_second
        rows.append(
            (
                *(point.point[name] for name in axes),
                seconds(point.seconds.median),
                span(point.seconds, 1e9, duration),
                seconds(point.user_seconds.median),
                seconds(point.system_seconds.median),
                number(round(point.switches.median)),
                show(band.median) if band else "",
                span(band, 1, show) if band else "",
            )
        )
    return rows


def _rate(value: float) -> str:
    return number(round(value))


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
    """Return a table's heading and rows: an operation's requests at each point that has some."""
    axes = result.experiment.axes
    sizes = any(of.size_bytes for point in result.points if (of := point.requests.get(name)))
    rows: list[Sequence[str]] = [
        (*axes, "requests", "mean size" if sizes else "", "p50", "", "p99", ""),
    ]
    for point in result.points:
        if not (at := point.requests.get(name)):
            continue
        rows.append(
            (
                *(point.point[axis] for axis in axes),
                number(round(at.count.median)),
                size(at.size_bytes.median) if at.size_bytes else "",
                duration(at.p50_ns.median) if at.p50_ns else "",
                span(at.p50_ns, 1, duration) if at.p50_ns else "",
                duration(at.p99_ns.median) if at.p99_ns else "",
                span(at.p99_ns, 1, duration) if at.p99_ns else "",
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


def stages(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: at each point, the mean time in each stage of the
    operations whose requests took most time."""
    axes = result.experiment.axes
    found: list[tuple[PointFigures, str, OperationAt]] = []
    for point in result.points:
        known = [(name, at) for name, at in point.requests.items() if at.stages_ns]
        least = LEAST * sum(_whole(at) for _, at in known)
        known.sort(key=lambda row: -_whole(row[1]))
        found += [(point, name, at) for name, at in known if _whole(at) >= least]
    names = sorted({name for _, _, at in found for name in at.stages_ns}, key=_place)
    rows: list[Sequence[str]] = [(*axes, "", *names)]
    for point, operation_, at in found:
        cells = [
            duration(at.stages_ns[name].median) if name in at.stages_ns else "" for name in names
        ]
        rows.append((*(point.point[axis] for axis in axes), operation_, *cells))
    return rows


def _place(stage: str) -> tuple[int, str]:
    """Return the place of a stage, or of the first one of joined stages, in a request's time."""
    order = list(WORDS)
    places = [order.index(part) for part in stage.split("+") if part in order]
    return min(places, default=len(order)), stage


def _whole(at: OperationAt) -> float:
    return at.count.median * sum(e.median for e in at.stages_ns.values())


def _stages(result: Sweep) -> list[str]:
    heading, *rows = stages(result)
    if not rows:
        return []
    numbers = len(heading) - len(result.experiment.axes) - 1
    aligned_ = aligned(result) + "<" + ">" * numbers
    return ["", "mean time in stages:", *table([heading, *rows], aligned_)]


def _relative(result: Sweep) -> list[str]:
    heading, *rows = relative(result)
    if not rows:
        return []
    to = result.experiment.relative
    assert to
    axes = aligned(result)
    left = len({(row.label, row.figure) for row in result.published} - _relative_places(result))
    return [
        "",
        f"throughput relative to {printable(to.param)}={printable(base(result))}:",
        *table([heading, *rows], axes + "><<" + "<" * (len(heading) - len(axes) - 3)),
        *([f"{plural(left, 'other published figure')}: --json, fusetools report"] if left else []),
    ]


def base(result: Sweep) -> str:
    """Return the value of the parameter to which throughput is relative."""
    to = result.experiment.relative
    found = (point.point[to.param] for point in result.points if to and to.is_base(point.point))
    return next(found, "")


def _relative_places(result: Sweep) -> set[tuple[str, str]]:
    return {(row.label, row.figure) for row in result.published if row.figure == "relative"}


def series(result: Sweep, figure: str = "") -> list[str]:
    """Return the names of the series of published values, of a figure or of all."""
    rows = (row for row in result.published if figure in ("", row.figure))
    return list(dict.fromkeys(row.series for row in rows))


def relative(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: each point's relative throughput and its class, beside the
    published ones."""
    to, axes = result.experiment.relative, result.experiment.axes
    names = series(result, "relative")
    rows: list[Sequence[str]] = [
        (*axes, "relative", "", "class" if to and to.classes else "", *names)
    ]
    of = {(row.label, row.series): row for row in result.published if row.figure == "relative"}
    for point in result.points:
        if not to or not point.relative:
            continue
        cells = []
        for name in names:
            row = of.get((point.label, name))
            middle = (row.low + row.high) / 2 if row else 0.0
            cells.append(f"{middle:.2f} {to.class_of(middle)}".rstrip() if row else "")
        e = point.relative
        own = (f"{e.median:.2f}", interval(e, "{:.2f}"), point.relative_class)
        rows.append((*(point.point[axis] for axis in axes), *own, *cells))
    return rows


def value(figure: str, number_: float) -> str:
    """Return a figure's value, as its name says: a time, bytes, or a number."""
    if figure.endswith("_ns"):
        return duration(number_)
    if figure == "seconds":
        return seconds(number_)
    if figure == "bytes_per_second" or figure.endswith("_bytes"):
        return size(number_)
    return number(round(number_)) if number_ >= 100 else f"{number_:.3g}"


_VERDICTS = {"differs": "does not hold", "unseen": "cannot be seen here"}


def laws(result: Sweep) -> list[Sequence[str]]:
    """Return a table's heading and rows: each law at each of its points, with its verdict."""
    rows: list[Sequence[str]] = [("law", "at", "expected", "measured", "verdict")]
    for law in result.laws:
        expected = f"{law.low:,.12g}"
        expected += f" to {law.high:,.12g}" if law.high > law.low else ""
        e = law.measured
        measured = _measured(e) if e else ""
        verdict = _VERDICTS.get(law.verdict, law.verdict)
        rows.append([printable(cell) for cell in (law.law, law.label, expected, measured, verdict)])
    return rows


def _measured(e: Estimate) -> str:
    """Return a law's figure, with its interval if it is one."""
    between = f" ({e.low:,.3g} to {e.high:,.3g})" if e.high > e.low else ""
    return (f"{e.median:,.0f}" if e.median == round(e.median) else f"{e.median:,.3g}") + between


def changes(result: Sweep) -> list[str]:
    """Return what is known about the laws that differ."""
    known = (f"{law.law}: {law.since}" for law in result.laws if law.since)
    return [printable(text) for text in dict.fromkeys(known)]


def command_line(words: Sequence[str]) -> str:
    """Return the command as users type it, with unquoted braces."""
    plain = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)
