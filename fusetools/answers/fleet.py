"""Questions to the recordings of many hosts, from the Parquet files of `fusetools export`.

One query for all engines, written with Ibis. The engine counts and adds up integers by group and
bucket; percentiles come from these counts here, so that all engines give the same figures.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from fusetools import extras
from fusetools.answers.diff import diff
from fusetools.answers.operations import expressions, selected
from fusetools.answers.parquet_files import Place
from fusetools.answers.requests import error_name
from fusetools.core import OPERATIONS
from fusetools.errors import Error
from fusetools.reasons import Code, Reason
from fusetools.results.buckets import BUCKETS, last
from fusetools.results.count import Count, Counts
from fusetools.results.diff import Differences
from fusetools.results.errors import Answered, Errors, OperationErrors
from fusetools.results.facts import Facts, Losses, Requests
from fusetools.results.fleet import (
    BY,
    MEASURES,
    Causes,
    FleetCause,
    Grouping,
    HostInTime,
    Outlier,
    Outliers,
    Overview,
)
from fusetools.results.groups import Groups, RequestGroup, Times
from fusetools.results.hist import PERCENTILES, Bucket, Histogram, Histograms
from fusetools.results.request import Request, StageTime
from fusetools.results.slow import Slowest
from fusetools.results.stages import OperationStages, Stage, Stages

_UNANSWERED = ("unfinished", "interrupted", "aborted")
_HOUR = 3600 * 10**9  # ns
_DAY = 24 * _HOUR
_MOST_STEPS = 96  # hours on a page; more become days
_OF_SESSIONS = ("kernel", "version")  # groupings by what a recording has once
_OTHERS = "\0others"
# Outliers: 3.5 scaled deviations, Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993.
_FAR, _SCALE = 3.5, 1.4826
_SURE = 3.29  # standard deviations of an interval of 99.9 %
_LEAST_GROUPS = 5
_LEAST_SPREAD = math.log1p(0.05)  # groups that differ less are alike

Cells = Mapping[int, int]  # number of requests by bucket


class Fleet:
    """The recordings below a folder of this host or of an object store (s3://BUCKET/PREFIX).

    Error: there are none, or the engine is not installed."""

    def __init__(self, folder: str, engine: str = "duckdb") -> None:
        extras.need("ibis", "it writes the queries", extras.FLEET)
        extras.need("pyarrow", "it reads Parquet", extras.FLEET)
        self.folder, self.engine = folder, engine
        self.place = Place(folder)
        if engine != "duckdb" and not self.place.local:
            why = "Spark needs Hadoop's settings for a store, which fusetools does not know"
            raise Error(f"Spark cannot read {folder}", why, "--engine duckdb")
        self.files = self.place.find()

    # The engine

    @cached_property
    def _connection(self) -> Any:
        import ibis

        if self.engine == "duckdb":
            extras.need("duckdb", "it is the engine", extras.FLEET)
            return ibis.duckdb.connect()
        extras.need("pyspark", "it is the engine", extras.SPARK)
        from pyspark.sql import SparkSession

        master = self.engine
        builder = SparkSession.builder.master(master).appName("fusetools")
        options = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        for name, value in options.items():
            builder = builder.config(name, value)
        return ibis.pyspark.connect(builder.getOrCreate())

    @cached_property
    def requests(self) -> Any:
        """The requests as a table of Ibis."""
        return self._table("requests", self.files.requests)

    def _table(self, name: str, paths: Sequence[str]) -> Any:
        if self.engine == "duckdb":
            if not self.place.local:
                self._connection.con.register(name, self.place.dataset(paths))
                return self._connection.table(name)
            options = {"hive_partitioning": False, "union_by_name": False}
            return self._connection.read_parquet(list(paths), table_name=name, **options)
        session = self._connection._session
        frame = session.read.parquet(*map(os.path.abspath, paths))
        frame.createOrReplaceTempView(name)
        return self._connection.table(name)

    def _rows(self, query: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = query.to_pyarrow().to_pylist()
        return rows

    def retried(self, ask: Callable[[], None]) -> None:
        """Ask; if it fails, skip the files that cannot be read in whole, and ask again."""
        try:
            ask()
        except Error:
            raise
        except Exception:
            if not self._check():
                raise
            ask()

    def _check(self) -> bool:
        """Read all files in whole. Return whether some of them cannot be read: they are skipped."""
        bad = self.place.damaged([*self.files.sessions, *self.files.requests])
        if bad:
            self.files = self.place.find(bad)
            for name in ("requests", "sessions"):
                self.__dict__.pop(name, None)
        return bool(bad)

    @cached_property
    def sessions(self) -> list[dict[str, Any]]:
        """The recordings, one row each."""
        return self.place.rows(self.files.sessions)

    # Shared by all answers

    def facts(self) -> Facts:
        rows = self.sessions
        hosts = {row["host"] for row in rows}
        kernels = {row["kernel"] or "" for row in rows}
        names = ("begun", "ended", "matched", "unanswered")
        sums = {name: sum(row[name] for row in rows) for name in names}
        return Facts(
            name=os.path.basename(os.path.normpath(self.folder)),
            seconds=sum(row["seconds"] for row in rows),
            requests=Requests(**sums),
            losses=Losses(sum(r["lost"] for r in rows), sum(r["throttled"] for r in rows)),
            missing=self.files.skipped,
            host=hosts.pop() if len(hosts) == 1 else f"{len(hosts)} hosts",
            kernel=kernels.pop() if len(kernels) == 1 else "",
            mounts=tuple(sorted({path for row in rows for path in row["mounts"]})),
        )

    def labels(self) -> list[str]:
        """Return the names of the recordings' labels."""
        return sorted({name for row in self.sessions for name, _ in row["labels"]})

    def _wanted(self, patterns: Sequence[str]) -> Any:
        expressions(patterns)  # raises its error before the query
        if not patterns:
            return self.requests
        names = {name for name in OPERATIONS if selected(name, patterns)}
        return self.requests.filter(self.requests.operation.isin(sorted(names)))

    def _keyed(self, table: Any, by: str) -> Any:
        """Add the column ``key``: the name of a request's group, null if unknown."""
        import ibis

        if by not in (*BY, *self.labels()):
            known = ", ".join([*BY, *self.labels()])
            raise Error(f"cannot group requests by {by}", f"known groupings: {known}")
        if by == "hour":
            return table.mutate(key=(table.time_ns - table.time_ns % _HOUR).cast("string"))
        if by in BY and by not in _OF_SESSIONS:
            return table.mutate(key=table[by])
        of = {
            row["session"]: row[by] if by in _OF_SESSIONS else dict(row["labels"]).get(by)
            for row in self.sessions
        }
        pairs = ibis.memtable(
            {"session": list(of), "key": list(of.values())},
            schema=ibis.schema({"session": "string", "key": "string"}),
        )
        return table.inner_join(pairs, "session")

    def _cells(self, table: Any, keys: Sequence[str], bucket: str) -> dict[Any, Counter[int]]:
        """Return the number of requests by bucket, of each group."""
        known = table.filter(table[bucket].notnull())
        grouped = known.group_by([*keys, bucket])
        found: dict[Any, Counter[int]] = defaultdict(Counter)
        for row in self._rows(grouped.aggregate(n=lambda t: t.count())):
            found[tuple(row[key] for key in keys)][row[bucket]] += row["n"]
        return found

    # Questions

    def hist(self, patterns: Sequence[str]) -> Histograms:
        """Return histograms of requests by operation, as `hist --layer request`."""
        table = self._wanted(patterns)
        figures = _figures(self._rows(table.group_by("operation").aggregate(**_sums("duration"))))
        cells = self._cells(table, ["operation"], "bucket")
        histograms = [
            _histogram(name, row, cells[name,]) for (name,), row in figures.items() if row["n"]
        ]
        histograms.sort(key=lambda h: (-h.count, h.operation))
        return Histograms(tuple(histograms), self.facts())

    def count(self, patterns: Sequence[str]) -> Counts:
        """Count the requests by operation."""
        begun = self._begun(self._wanted(patterns))
        hist = {h.operation: h for h in self.hist(patterns).histograms}
        counts = [
            Count(f"FUSE_{name.upper()}", name, "request", n, None, hist.get(name))
            for name, n in begun.items()
        ]
        counts.sort(key=lambda c: (-c.count, c.operation))
        return Counts(tuple(counts), self.facts())

    def _begun(self, table: Any) -> dict[str, int]:
        begun = table.group_by("operation").aggregate(n=lambda t: t.begin_ns.count())
        return {row["operation"]: row["n"] for row in self._rows(begun)}

    def errors(self, patterns: Sequence[str]) -> Errors:
        """Count error replies by operation."""
        rows = []
        for name, outcome in self._outcomes(self._wanted(patterns), "operation").items():
            errors, unanswered, answered, negative = outcome
            lookups = negative if name == "lookup" else None
            rows.append(OperationErrors(name, answered, errors, lookups, unanswered))
        rows.sort(key=lambda row: (-_failed(row), -row.requests, row.operation))
        return Errors(tuple(rows), self.facts())

    def _outcomes(
        self, table: Any, key: str
    ) -> dict[Any, tuple[tuple[Answered, ...], tuple[Answered, ...], int, int | None]]:
        """Return errors, unanswered by fate, and numbers of answered and negative requests."""
        table = table.mutate(ended=table.end_ns.notnull())
        table = table.filter(table.ended | table.fate.isin(_UNANSWERED))
        grouped = table.group_by([key, "ended", "fate", "error"]).aggregate(
            n=lambda t: t.count(), negative=lambda t: t.negative.cast("int64").sum()
        )
        errors: dict[Any, Counter[str]] = defaultdict(Counter)
        fates: dict[Any, Counter[str]] = defaultdict(Counter)
        answered: Counter[Any] = Counter()
        negative: dict[Any, int | None] = {}
        for row in self._rows(grouped):
            of, n = row[key], row["n"]
            answered[of] += n if row["ended"] else 0
            if not row["ended"]:
                fates[of][row["fate"]] += n
            elif row["error"]:
                errors[of][error_name(abs(row["error"]))] += n
            if row["negative"] is not None:
                negative[of] = (negative.get(of) or 0) + row["negative"]
        return {
            of: (_listed(errors[of]), _listed(fates[of]), answered[of], negative.get(of))
            for of in {*answered, *fates}
        }

    def stages(self, patterns: Sequence[str]) -> Stages:
        """Return the requests' time by operation, stage and part of a stage."""
        table = self._wanted(patterns)
        table, named = _separated(table)
        more: dict[str, Any] = {
            "requests": table.count(),
            "errors": ((table.error != 0) & table.whole_ns.notnull()).cast("int64").sum(),
            "ring": table.ring.cast("int64").sum(),
            "matched": (table.fate == "matched").cast("int64").sum(),
        }
        for name, column in named.items():
            more[f"{name}_n"] = table[column].count()
            more[f"{name}_ns"] = table[column].sum()
            more[f"{name}_max"] = table[column].max()
            for part, value in _parts(table, name, column).items():
                more[f"{name}_of_{part}"] = value.sum()
        keys = ["operation", "waits"]
        sums = table.group_by(keys).aggregate(**_sums("whole", table), **more)
        figures = _figures(self._rows(sums), keys)
        cells = self._cells(table, keys, "whole_bucket")
        timed = table.filter(table.whole_ns.notnull())
        of_stage = {}
        for name, column in named.items():
            bucketed = timed.mutate(at=_bucket(timed[column].fill_null(0)))
            of_stage[name] = self._cells(bucketed, keys, "at")
        fates = self._fates(table, keys)
        rows = []
        for key, row in figures.items():
            stages = tuple(
                _stage(name, row, of_stage[name][key]) for name in named if row[f"{name}_n"]
            )
            rows.append(_operation(key, row, cells[key], stages, fates.get(key, {})))
        rows.sort(key=lambda o: (not o.waits, -o.total_ns, o.operation))
        return Stages(tuple(rows), "", None, (), self.facts())

    def _fates(self, table: Any, keys: Sequence[str]) -> dict[Any, dict[str, int]]:
        others = table.filter(table.fate != "matched")
        found: dict[Any, dict[str, int]] = defaultdict(dict)
        grouped = others.group_by([*keys, "fate"]).aggregate(n=lambda t: t.count())
        for row in self._rows(grouped):
            found[tuple(row[key] for key in keys)][row["fate"]] = row["n"]
        return found

    def slow(self, patterns: Sequence[str], most: int) -> Slowest:
        """Return the slowest requests."""
        import ibis

        table = self._wanted(patterns)
        table = table.filter(table.whole_ns.notnull())
        order = [ibis.desc("whole_ns"), "session", "begin_ns", "unique"]
        began = {row["session"]: row["began_ns"] for row in self.sessions}
        rows = self._rows(table.order_by(order).limit(most))
        requests = tuple(_request(row, began.get(row["session"])) for row in rows)
        return Slowest(requests, False, self.facts())

    def groups(
        self, by: str, patterns: Sequence[str], order: str = "time", most: int = 20
    ) -> Groups:
        """Return the requests by host, kernel, label, and so on, as Recording.groups()."""
        import ibis

        table = self._keyed(self._wanted(patterns), by)
        unanswered = table.fate.isin(_UNANSWERED)
        ended = table.end_ns.notnull()
        failed = unanswered & ~ended | (ended & ((table.error != 0) | table.negative))
        table, named = _separated(table)
        sums = table.group_by("key").aggregate(
            requests=table.count(),
            begun=table.begin_ns.count(),
            failed=failed.cast("int64").sum(),
            **{f"w_{name}": value for name, value in _sums("whole", table).items()},
            **{f"l_{name}": value for name, value in _sums("duration", table).items()},
            **{f"s_{name}": table[column].sum() for name, column in named.items()},
        )
        place = {"time": "w_total", "requests": "requests", "slowest": "w_max", "errors": "failed"}
        rows = self._rows(sums)
        rows.sort(key=lambda r: (r["key"] is None, -(r[place[order]] or 0), str(r["key"])))
        known = [row["key"] for row in rows if row["key"] is not None]
        listed = known if len(known) <= most else known[:most]
        if len(known) > most:
            rest = [row for row in rows if row["key"] in set(known[most:])]
            rows = [row for row in rows if row not in rest] + [_sum_of(rest)]
            inside = table.key.isin(listed) | table.key.isnull()
            table = table.mutate(key=ibis.ifelse(inside, table.key, _OTHERS))
        latency = self._cells(table, ["key"], "bucket")
        whole = self._cells(table, ["key"], "whole_bucket")
        outcomes = self._outcomes(table, "key")
        total = sum(row["w_total"] or 0 for row in rows) or 1
        requests = sum(row["requests"] for row in rows) or 1
        groups = []
        for row in rows:
            key = row["key"]
            none: tuple[Any, ...] = ((), (), 0, None)
            errors, fates, answered, negative = outcomes.get(key, none)
            unknown = Reason(Code.FLEET_UNKNOWN, {"by": by}) if key is None else None
            stages = {n: row[f"s_{n}"] for n in named if row[f"s_{n}"]}
            groups.append(
                RequestGroup(
                    label="" if key in (None, _OTHERS) else _label(key, by),
                    pid=None,
                    comm="",
                    others=len(known) - most if key == _OTHERS else 0,
                    unknown=unknown,
                    requests=row["requests"],
                    requests_share=row["requests"] / requests,
                    begun=row["begun"],
                    whole=_times(row, "w_", whole[key,]),
                    time_share=(row["w_total"] or 0) / total,
                    latency=_times(row, "l_", latency[key,]),
                    stages_ns=stages,
                    answered=answered,
                    errors=errors,
                    negative=negative,
                    unanswered=fates,
                    slowest=None,
                )
            )
        return Groups(by, order, tuple(groups), False, None, 0, False, self.facts())

    def diff(self, a: str = "", b: str = "") -> Differences:
        """Compare the requests of two dates; default: of the last two that are recorded."""
        dates = sorted({row["date"] for row in self.sessions})
        if not a:
            if len(dates) < 2:
                why = f"all recordings are of {dates[0]}"
                raise Error(f"cannot compare two dates of {self.folder}", why)
            a, b = dates[-2:]
        for date in (a, b):
            if date not in dates:
                known = f"there are {', '.join(dates[-20:])}"
                raise Error(f"{self.folder} holds no recording of {date}", known)
        return diff(self._of(a), self._of(b), "")

    def _of(self, date: str) -> Counts:
        whole = Fleet.__new__(Fleet)
        whole.__dict__.update(self.__dict__)
        whole.__dict__["requests"] = self.requests.filter(self.requests.date == date)
        whole.__dict__["sessions"] = [row for row in self.sessions if row["date"] == date]
        found = whole.count(())
        return replace(found, facts=replace(found.facts, name=date))

    def why(self) -> Causes:
        """Add up the findings that each export has stored."""
        times: Counter[str] = Counter()
        recordings: Counter[str] = Counter()
        hosts: dict[str, set[str]] = defaultdict(set)
        for row in self.sessions:
            for finding in row["findings"]:
                code = finding["code"]
                times[code] += finding["time_ns"]
                recordings[code] += 1
                hosts[code].add(row["host"])
        waited = sum(row["waited_ns"] or 0 for row in self.sessions)
        causes = [
            FleetCause(code, len(hosts[code]), recordings[code], ns, ns / waited if waited else 0.0)
            for code, ns in times.items()
        ]
        causes.sort(key=lambda c: (-c.time_ns, c.code))
        unasked = sum(row["waited_ns"] is None for row in self.sessions)
        return Causes(tuple(causes), len(self.sessions), waited, unasked, self.facts())

    def outliers(self, by: Sequence[str] = ()) -> Outliers:
        """Return groups that differ from most others of the same grouping."""
        every = by or (*self.labels(), "version", "kernel", "mount", "user", "host")
        found: list[Outlier] = []
        compared = []
        for name in every:
            groups = self._measured(name)
            enough = len(groups) >= _LEAST_GROUPS
            compared.append(Grouping(name, len(groups), enough))
            if enough:
                for measure in MEASURES:
                    far = _far(name, measure, groups)
                    found += sorted(far, key=lambda o: (-abs(o.far), o.label))
        return Outliers(tuple(found), tuple(compared), self.facts())

    def overview(self, most: int) -> Overview:
        """Return what the page shows, with at most so many hosts."""
        outliers = self.outliers()
        totals = self.requests.group_by("host").aggregate(total=lambda t: t.whole_ns.sum())
        rows = sorted(self._rows(totals), key=lambda r: (-(r["total"] or 0), r["host"]))
        known = [row["host"] for row in rows]
        far = [o.label for o in outliers.outliers if o.by == "host"]
        listed = list(dict.fromkeys([*far, *known]))[:most]
        table = self.requests.filter(self.requests.host.isin(listed))
        first, step, count = self._steps(table)
        table = table.filter(table.time_ns >= first)
        table = table.mutate(step=table.time_ns // step)

        def figures(*keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
            return _figures(self._rows(table.group_by(keys).aggregate(**_sums("duration"))), keys)

        cells = self._cells(table, ["host", "step"], "bucket")
        sums, whole = figures("host", "step"), figures("host")
        hosts = []
        for name in listed:
            places = [(name, first // step + i) for i in range(count)]
            total = sum((cells[place] for place in places), Counter())
            hosts.append(
                HostInTime(
                    name,
                    name in far,
                    _histogram("", whole[name,], total) if total else None,
                    tuple(_times(sums[p], "", cells[p]) if cells[p] else None for p in places),
                )
            )
        others = len(known) - len(hosts)
        return Overview(outliers, self.why(), tuple(hosts), others, first, step, outliers.facts)

    def _steps(self, table: Any) -> tuple[int, int, int]:
        """Return the begin of the first hour or day, its length in ns, and their number."""
        (row,) = self._rows(table.aggregate(low=table.time_ns.min(), high=table.time_ns.max()))
        if row["low"] is None:
            return 0, _HOUR, 0
        step = _HOUR if row["high"] - row["low"] < _MOST_STEPS * _HOUR else _DAY
        first = row["low"] - row["low"] % step
        # The last ones, where there are more.
        count = min((row["high"] - first) // step + 1, 4 * _MOST_STEPS)
        return row["high"] - row["high"] % step - (count - 1) * step, step, count

    def _measured(self, by: str) -> dict[str, tuple[int, Counter[int], int]]:
        """Return the number of requests, their buckets and the number of failed ones by group."""
        table = self._keyed(self.requests, by)
        table = table.filter(table.key.notnull())
        table = table.mutate(failed=((table.error != 0) & table.end_ns.notnull()))
        cells: dict[str, Counter[int]] = defaultdict(Counter)
        failures: Counter[str] = Counter()
        grouped = table.group_by(["key", "bucket"]).aggregate(
            n=lambda t: t.count(), failed=lambda t: t.failed.cast("int64").sum()
        )
        for row in self._rows(grouped):
            key = _label(row["key"], by)
            cells[key][-1 if row["bucket"] is None else row["bucket"]] += row["n"]
            failures[key] += row["failed"] or 0
        return {key: (sum(of.values()), of, failures[key]) for key, of in cells.items()}

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns and rows of a query on the views `requests` and `sessions`."""
        self._table("requests", self.files.requests)
        self._table("sessions", self.files.sessions)
        try:
            if self.engine == "duckdb":
                cursor = self._connection.raw_sql(query)
                return [column[0] for column in cursor.description], cursor.fetchall()
            frame = self._connection._session.sql(query)
            return frame.columns, [tuple(row) for row in frame.collect()]
        except Exception as error:
            why = str(error).strip().splitlines()[0][:300]
            raise Error("the query failed", why) from error


def _sums(of: str, table: Any = None) -> dict[str, Any]:
    """Return the sums over a duration: number, total, extremes, least of unanswered requests."""
    column = f"{of}_ns"

    def made(name: str) -> Any:
        def of_table(t: Any) -> Any:
            ns = t[column]
            bound = t.fate.isin(_UNANSWERED)
            return {
                "n": ns.count,
                "total": ns.sum,
                "min": ns.min,
                "max": ns.max,
                "least": lambda: ns.min(where=bound),
                "open": lambda: ns.count(where=bound),
            }[name]()

        return of_table if table is None else of_table(table)

    return {name: made(name) for name in ("n", "total", "min", "max", "least", "open")}


def _stages(columns: Iterable[str]) -> list[str]:
    """Return the stages that have a column, in the core's order; without the stages' parts."""
    names = [match[1] for column in columns if (match := re.fullmatch("stage_(.+)_ns", column))]
    return [name for name in names if not name.startswith(tuple(f"{other}_" for other in names))]


# A request's begin and end are always known: no span of stages holds either.
_ENDS = ("setup", "reply", "vfs_exit")
# The columns with a stage's begin. The daemon's time begins with its read if it has no callbacks:
# such requests have no dispatch.
_BEGINS = {
    "vfs_entry": ["sys_enter_ns"],
    "between": ["resumed_ns"],
    "queue": ["begin_ns"],
    "daemon": ["callback_enter_ns", "read_ns"],
    "caller_wakeup": ["end_ns"],
}


def _joined(names: Sequence[str], final: str) -> list[tuple[str, list[str], list[str]]]:
    """Return each span of stages that may be one, as its last stage's: the span's name, the columns
    that are null then, and those of which one is known. The longest span comes last."""
    spans = []
    before = names[: names.index(final)]
    for at in reversed(range(len(before))):
        first = before[at]
        if first in _ENDS:
            break
        if first not in _BEGINS:
            continue
        inside = [first, *(name for name in before[at + 1 :] if name != "between"), final]
        null = [f"stage_{name}_ns" for name in before[at:]]
        null += ["sys_enter_ns"] if first == "between" else []
        spans.append(("+".join(inside), null, _BEGINS[first]))
    return spans


def _span(row: Mapping[str, Any], names: Sequence[str], final: str) -> str:
    """Return the name of a row's stage, with those before it that cannot be separated from it."""
    found = final
    for name, null, begins in _joined(names, final):
        if all(row[n] is None for n in null) and any(row[n] is not None for n in begins):
            found = name
    return found


def _separated(table: Any) -> tuple[Any, dict[str, str]]:
    """Add a column for each span of stages that is one in some of the requests.

    Return the column of each stage and of each such span, in order."""
    import ibis

    names = _stages(table.columns)
    spans = {}
    for final in names:
        span = ibis.literal(final)
        for name, null, begins in _joined(names, final):
            missing = [table[column].isnull() for column in null]
            begun = functools.reduce(operator.or_, (table[n].notnull() for n in begins))
            span = ibis.ifelse(functools.reduce(operator.and_, missing) & begun, name, span)
        spans[final] = ibis.ifelse(table[f"stage_{final}_ns"].isnull(), ibis.null("string"), span)
    known = table.select(**spans).distinct().to_pyarrow().to_pydict()
    columns = {
        name: (f"stage_{name}_ns", final)
        for final in names
        for name in sorted(set(filter(None, known[final])), key=lambda name: name != final)
    }
    stages = {
        column: ibis.ifelse(spans[final] == name, table[f"stage_{final}_ns"], ibis.null("int64"))
        for name, (column, final) in columns.items()
    }
    return table.mutate(**stages), {name: column for name, (column, _) in columns.items()}


# The columns of a stage's parts in the core's order, and the name of what is left.
_OF_QUEUE = ({"no_thread": "no_thread_ns", "runnable": "no_cpu_ns", "wakeup": "asleep_ns"}, "copy")
_OF_DAEMON = (
    {"blocked": "blocked_ns", "runnable": "runnable_ns", "elsewhere": "elsewhere_ns"},
    "on_cpu",
)


def _part_columns(stage: str) -> tuple[dict[str, str], str] | None:
    """Return none for a span of stages whose parts have no columns."""
    *others, stage = stage.split("+")
    if others and stage in ("queue", "daemon", "caller_wakeup"):
        return None
    if stage == "queue":
        return _OF_QUEUE
    if stage == "daemon":
        return _OF_DAEMON
    if stage == "caller_wakeup":
        return {"runnable": "stage_caller_wakeup_runnable_ns"}, "wakeup"
    return {part: f"stage_{stage}_{part}_ns" for part in ("blocked", "runnable")}, "on_cpu"


def _parts(table: Any, stage: str, column: str) -> dict[str, Any]:
    """Return the expression of each part of a stage's column, null where a request's parts are
    unknown: each is at most what those before it left."""
    import ibis

    of = _part_columns(stage)
    if of is None:
        return {}
    columns, rest = of
    left = table[column]
    for name in columns.values():
        left = ibis.ifelse(table[name].isnull(), ibis.null("int64"), left)
    found = {}
    for part, name in columns.items():
        found[part] = ibis.ifelse(table[name] < left, table[name], left)
        left = left - found[part]
    return {**found, rest: left}


def _figures(
    rows: Iterable[dict[str, Any]], keys: Sequence[str] = ("operation",)
) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[key] for key in keys): row for row in rows}


def percentile(cells: Cells, per_mille: int, high: int) -> int | None:
    """Return the nearest rank's bucket's last ns, at most the maximum ``high``."""
    count = sum(cells.values())
    below = 0
    for bucket, n in sorted(cells.items()):
        below += n
        if below * 1000 >= count * per_mille:
            return min(last(bucket), high)
    return None


def _bucket(ns: Any) -> Any:
    """Return the expression for a duration's bucket, in integers."""
    import ibis

    shifts = range(1, 55)  # a limit must be less than 2^63
    cases = [(ns < 2 * BUCKETS, ns)]
    cases += [(ns < BUCKETS << (s + 1), s * BUCKETS + ns // (1 << s)) for s in shifts]
    top = shifts[-1] + 1
    return ibis.cases(*cases, else_=top * BUCKETS + ns // (1 << top)).cast("int64")


def _histogram(name: str, row: dict[str, Any], cells: Cells) -> Histogram:
    per_mille = {p: round(float(p) * 10) for p in PERCENTILES}
    found = {p: percentile(cells, at, row["max"]) for p, at in per_mille.items()}
    octaves: Counter[int] = Counter()
    for bucket, n in cells.items():
        octaves[max(last(bucket).bit_length() - 1, 0)] += n
    buckets = tuple(
        Bucket(1 << k if k else 0, (2 << k) - 1, octaves[k])
        for k in range(min(octaves), max(octaves) + 1)
    )
    return Histogram(
        operation=name,
        layer="request",
        function=f"FUSE_{name.upper()}",
        count=row["n"],
        unmatched=0,
        min_ns=row["min"],
        max_ns=row["max"],
        mean_ns=int(row["total"]) / row["n"],
        percentiles_ns={p: ns for p, ns in found.items() if ns is not None},
        buckets=buckets,
        total_ns=int(row["total"]),
        unanswered=row["open"],
        least_ns=row["least"],
    )


def _times(row: dict[str, Any], prefix: str, cells: Cells) -> Times:
    high = row[f"{prefix}max"]
    p50, p90, p99 = (percentile(cells, at, high or 0) for at in (500, 900, 990))
    total = int(row[f"{prefix}total"] or 0)
    return Times(row[f"{prefix}n"], total, p50, p90, p99, high, row[f"{prefix}least"])


def _sum_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of several groups."""
    made: dict[str, Any] = {"key": _OTHERS}
    for name in rows[0]:
        if name == "key":
            continue
        values = [row[name] for row in rows if row[name] is not None]
        end = name.rpartition("_")[2]
        whole = {"max": max, "min": min, "least": min}.get(end, sum)
        made[name] = whole(values) if values else (None if end in ("max", "min", "least") else 0)
    return made


def _label(key: str, by: str) -> str:
    if by == "hour":
        hour = datetime.fromtimestamp(int(key) // 10**9, timezone.utc)
        return hour.strftime("%Y-%m-%d %H:00Z")
    return key


def _listed(counts: Counter[str]) -> tuple[Answered, ...]:
    found = (Answered(name, n) for name, n in counts.items())
    return tuple(sorted(found, key=lambda row: (-row.times, row.name)))


def _failed(row: OperationErrors) -> int:
    return row.failed + (row.negative or 0) + sum(n for _, n in row.unanswered)


def _stage(name: str, row: dict[str, Any], cells: Cells) -> Stage:
    total, high, n = int(row[f"{name}_ns"]), row[f"{name}_max"], row["n"]
    columns, rest = _part_columns(name) or ({}, "")
    parts = {
        part: int(ns)
        for part in filter(None, (*columns, rest))
        if (ns := row[f"{name}_of_{part}"]) is not None and (ns or part != "elsewhere")
    }
    if parts and (unknown := total - sum(parts.values())):
        parts["unknown"] = unknown
    return Stage(
        name=name,
        requests=row[f"{name}_n"],
        total_ns=total,
        mean_ns=total / n,
        share=total / int(row["total"]) if row["total"] else 0.0,
        p50_ns=percentile(cells, 500, high) or 0,
        p99_ns=percentile(cells, 990, high) or 0,
        max_ns=high,
        parts_ns=parts,
    )


def _operation(
    key: tuple[Any, ...],
    row: dict[str, Any],
    cells: Cells,
    stages: tuple[Stage, ...],
    fates: dict[str, int],
) -> OperationStages:
    total, n = int(row["total"] or 0), row["n"]
    return OperationStages(
        operation=key[0],
        waits=key[1],
        key="",
        requests=row["requests"],
        matched=row["matched"],
        unmatched=fates,
        errors=row["errors"] or 0,
        ring=row["ring"] or 0,
        stages=stages,
        total_ns=total,
        mean_ns=total / n if n else None,
        p50_ns=percentile(cells, 500, row["max"]) if n else None,
        p99_ns=percentile(cells, 990, row["max"]) if n else None,
        max_ns=row["max"],
        timed=n,
        least_ns=row["least"],
    )


def _request(row: dict[str, Any], began: int | None) -> Request:
    since = row["begin_ns"] if began is None else row["time_ns"] - began
    names = _stages(row)
    found = ((name, row[f"stage_{name}_ns"]) for name in names)
    stages = tuple(StageTime(_span(row, names, name), ns) for name, ns in found if ns)
    return Request(
        operation=row["operation"],
        unique=None if row["unique"] is None else int(row["unique"]),
        mount=row["mount"] or "",
        fate=row["fate"],
        start_ns=since,
        duration_ns=row["whole_ns"],
        error=error_name(abs(row["error"] or 0)),
        waits=row["waits"],
        comm=row["comm"] or "",
        pid=row["pid"],
        tid=row["tid"],
        syscall=row["syscall"] or "",
        daemon_comm="",
        daemon_pid=row["daemon_pid"],
        daemon_tid=row["daemon_tid"],
        path=row["path"],
        whole=bool(row["path_whole"]),
        name=row["name"],
        inode=None if row["inode"] is None else int(row["inode"]),
        size_bytes=row["size_bytes"],
        offset_bytes=row["offset_bytes"],
        answered_bytes=None if row["reply_bytes"] is None else max(row["reply_bytes"] - 16, 0),
        negative=bool(row["negative"]),
        marks_ns={},
        stages=stages,
        parts_ns=({},) * len(stages),
        host=row["host"],
    )


# Outliers


def _far(
    by: str, measure: str, groups: Mapping[str, tuple[int, Counter[int], int]]
) -> Iterable[Outlier]:
    """Yield the groups whose interval is outside of what the others' deviations explain."""
    values = {}
    for label, (n, cells, failed) in groups.items():
        interval = _interval(measure, n, cells, failed)
        if interval is not None:
            values[label] = interval
    if len(values) < _LEAST_GROUPS:
        return
    logs = sorted(_log(measure, value) for value, _, _ in values.values())
    middle = _median(logs)
    spread = _SCALE * _median(sorted(abs(log - middle) for log in logs))
    least = 0.01 if measure == "failed_share" else _LEAST_SPREAD
    spread = max(spread, least)
    median = middle if measure == "failed_share" else math.exp(middle)
    for label, (value, low, high) in values.items():
        near = low if _log(measure, value) > middle else high
        far = (_log(measure, near) - middle) / spread
        beyond = (far > 0) == (_log(measure, value) > middle)
        if beyond and abs(far) > _FAR:
            times = value / median if median else math.inf
            times = min(times, 1e9)
            n = groups[label][0]
            yield Outlier(by, label, measure, value, low, high, median, times, far, n)


def _log(measure: str, value: float) -> float:
    return value if measure == "failed_share" else math.log(max(value, 1e-9))


def _median(values: Sequence[float]) -> float:
    n = len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2


def _interval(
    measure: str, n: int, cells: Counter[int], failed: int
) -> tuple[float, float, float] | None:
    """Return a measure with the interval that holds it with 99.9 %; None: it cannot be known."""
    if measure == "requests":
        wide = _SURE * math.sqrt(n)
        return n, max(n - wide, 0.5), n + wide
    if measure == "failed_share":
        # Wilson's interval.
        share, square = failed / n, _SURE**2 / n
        middle = (share + square / 2) / (1 + square)
        wide = _SURE / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
        return share, max(middle - wide, 0.0), min(middle + wide, 1.0)
    timed = Counter({bucket: n for bucket, n in cells.items() if bucket >= 0})
    count = sum(timed.values())
    part = 0.5 if measure == "p50_ns" else 0.99
    # Ranks of order statistics, by the normal approximation of the binomial distribution.
    wide = _SURE * math.sqrt(part * (1 - part) / count) if count else 1.0
    if part - wide <= 0 or part + wide >= 1:
        return None
    ranks = (part, part - wide, part + wide)
    value, low, high = (percentile(timed, round(1000 * at), 2**63) or 0 for at in ranks)
    return value, low, high
