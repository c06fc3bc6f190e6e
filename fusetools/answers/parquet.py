"""Export of a recording's tables as Parquet, for `fusetools fleet`, DuckDB, Spark and others.

A recording has a file in each table's folder, `TABLE/host=HOST/date=DATE/RECORDING.parquet`. A
file appears once it is complete, that of `sessions` last: who reads only recordings with a row in
`sessions` never sees a part of an export.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fusetools import __version__, core, extras
from fusetools.answers import tables
from fusetools.answers.anonymous import Anonymiser
from fusetools.answers.filters import Filters
from fusetools.answers.flame import flame
from fusetools.answers.requests import guessed
from fusetools.answers.source import Source
from fusetools.answers.why import why
from fusetools.errors import Error
from fusetools.output import Output
from fusetools.reasons import Code, Reason
from fusetools.results.export import Tables
from fusetools.results.facts import Facts
from fusetools.results.table import Table

# Version of the files' columns. It increases when one is removed, renamed or changes its meaning.
SCHEMA = 1
KEY = b"fusetools.table"  # of a file's metadata: "TABLE SCHEMA"
TABLES = ("requests", "waits", "stacks", "calls", "sessions")
UNKNOWN = "unknown"  # host or date, in a folder's name and in the column
_PATHS = ("path", "name", "mount")  # columns with paths
_ENDS = 1 << 20  # bytes of the recording's begin and end that give it its name
_MOST_NAME = 100  # characters of a host's name


@dataclass(frozen=True)
class Columns:
    """Columns that all rows of a recording share, and those that follow from the caller."""

    same: Mapping[str, str]
    users: Mapping[int, tuple[str, str, str]]  # user, cgroup and job by process
    anonymiser: Anonymiser | None
    offset_ns: int | None  # from the recording's clock to ns since 1970
    exact: bool  # it is known whether lookups found a file


def write(
    source: Source,
    folder: str,
    filters: Filters,
    labels: Mapping[str, str] | None = None,
    key: str | None = None,
) -> Tables:
    """Write the tables into their folders below ``folder``.

    ``labels``: of the session; ``key``: file of the key that replaces paths and users by hashes.
    Error: a file cannot be written, or pyarrow is not installed.
    """
    extras.need("pyarrow", "it writes Parquet", extras.FLEET)
    anonymiser = Anonymiser(key) if key else None
    first, facts = _facts(source, filters)
    columns, session = _session(source, facts, first, dict(labels or {}), anonymiser)
    queries: dict[str, Callable[[], Iterator[Any]]] = {
        "requests": lambda: _batches(tables.requests(source, filters)),
        "waits": lambda: _batches(tables.waits(source, (), filters, (), True)),
        "stacks": lambda: _stacks(source, filters),
        "calls": lambda: _batches(tables.calls(source, (), filters)),
    }
    rows: dict[str, int] = {}
    missing: list[Reason] = []
    place = Path(f"host={quote(columns.same['host'], safe='')}", f"date={columns.same['date']}")
    with ExitStack() as files:
        # The last one to enter is the first to appear.
        of_session = _opened(files, Path(folder, "sessions", place), columns.same["session"])
        for name, query in queries.items():
            try:
                batches = _peeked(query())
            except Error as error:
                missing.append(Reason(Code.NO_TABLE, {"table": name, "why": error.why}))
                continue
            descriptor = _opened(files, Path(folder, name, place), columns.same["session"])
            rows[name] = _written(descriptor, name, map(partial(_completed, columns), batches))
        rows["sessions"] = _written(of_session, "sessions", [session])
    return Tables(folder, columns.same["host"], columns.same["date"], rows, tuple(missing), facts)


def _facts(source: Source, filters: Filters) -> tuple[int, Facts]:
    """Return the time of the first event on the recording's clock, and the facts."""
    rows = source.catalogue.select([], ["request"], filters.callers, []).rows
    answer = source.query(core.native.scan, rows, source.core_filters(filters, functions=False))
    return answer["first"], source.facts(answer, filters)


def _session(
    source: Source,
    facts: Facts,
    first: int,
    labels: dict[str, str],
    anonymiser: Anonymiser | None,
) -> tuple[Columns, Any]:
    """Return the columns that the tables share, and the recording's row in `sessions`."""
    import pyarrow as pa

    of = source.session
    began = _began(of.started)
    hashed = anonymiser.word if anonymiser else str
    path = anonymiser.path if anonymiser else str
    same = {
        "session": _identity(source),
        "host": (facts.host or UNKNOWN)[:_MOST_NAME],
        "date": UNKNOWN if began is None else began.date().isoformat(),
    }
    users = {p.pid: (hashed(p.user), path(p.cgroup), hashed(p.job)) for p in of.processes}
    began_ns = None if began is None else int(began.timestamp()) * 10**9
    probes = source.catalogue.named().rows
    shared = Columns(
        same,
        users,
        anonymiser,
        None if began_ns is None else began_ns - first,
        not guessed(probes),
    )
    libraries = {_version(mount.library or mount.program) for mount in of.mounts}
    version = labels.pop("version", "") or (libraries.pop() if len(libraries) == 1 else "")
    text, number = pa.string(), pa.int64()
    try:
        found = why(source, Filters())
    except Error:
        found = None
    findings = [] if found is None else found.findings
    row: dict[str, tuple[Any, Any]] = {
        **{name: (text, value) for name, value in same.items()},
        "kernel": (text, facts.kernel or None),
        "version": (text, version or None),
        "labels": (pa.map_(text, text), sorted(labels.items())),
        "began_ns": (number, began_ns),
        "seconds": (pa.float64(), facts.seconds),
        "mounts": (pa.list_(text), [path(mount.path) for mount in of.mounts]),
        "daemons": (pa.list_(text), [mount.comm for mount in of.mounts]),
        "command": (text, hashed(json.dumps(of.command)) if of.command else None),
        "detail": (text, source.detail),
        "begun": (number, facts.requests.begun),
        "ended": (number, facts.requests.ended),
        "matched": (number, facts.requests.matched),
        "unanswered": (number, facts.requests.unanswered),
        "lost": (number, facts.losses.lost),
        "throttled": (number, facts.losses.throttled),
        "waited_ns": (number, None if found is None else found.waited_ns),
        "findings": (
            pa.list_(pa.struct([("code", text), ("time_ns", number)])),
            [{"code": f.reason.code.value, "time_ns": f.time_ns} for f in findings],
        ),
        "fusetools": (text, __version__),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in row.items()])
    values = [pa.array([value], kind) for kind, value in row.values()]
    return shared, pa.record_batch(values, schema=schema)


def _began(started: str) -> datetime | None:
    """Return the time in UTC; None: it is unknown."""
    try:
        began = datetime.fromisoformat(started)
        return None if began.tzinfo is None else began.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _version(library: str) -> str:
    """Return the version in the file name of a library or a program, "" if there is none."""
    found = re.search(r"\.so\.(\d+(?:\.\d+)+)$", library)
    return found[1] if found else ""


def _identity(source: Source) -> str:
    """Return the recording's name in the tables: a second export of it replaces the first."""
    state = blake2b(digest_size=16)
    with source.path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        state.update(str(size).encode())
        for begin in (0, max(_ENDS, size - _ENDS)):
            file.seek(begin)
            state.update(file.read(_ENDS))
    return state.hexdigest()


def _batches(table: Table) -> Iterator[Any]:
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(table)
    # A table of no rows has its columns.
    yield pa.RecordBatch.from_pylist([], schema=reader.schema)
    yield from reader


def _stacks(source: Source, filters: Filters) -> Iterator[Any]:
    """Yield the stacks of what ran and of what was waited for, each with its weight."""
    import pyarrow as pa

    empty = None
    for graph in ("on-cpu", "off-cpu"):
        try:
            found = flame(source, graph, (), (), filters, (), True, None, None)
        except Error as error:
            empty = error
            continue
        (batch,) = pa.table(found._table()).combine_chunks().to_batches() or [None]
        if batch is None:
            continue
        text = pa.dictionary(pa.int32(), pa.string())
        n, number = batch.num_rows, pa.int64()
        known = {name: batch.column(name) for name in batch.schema.names}
        columns = {
            "graph": pa.array([graph] * n, text),
            "stack": known["stack"].cast(text),
            "time_ns": known.get("time_ns", pa.nulls(n, number)),
            "samples": known.get("samples", pa.nulls(n, number)),
        }
        empty = None
        yield pa.record_batch(list(columns.values()), names=list(columns))
    if empty is not None:
        raise empty


def _peeked(batches: Iterator[Any]) -> Iterable[Any]:
    """Take the first batch, so that a table that the recording has not is known. Raise Error."""
    first = next(batches, None)

    def every() -> Iterator[Any]:
        if first is not None:
            yield first
        yield from batches

    return every()


def _opened(files: ExitStack, folder: Path, name: str) -> int:
    """Return the descriptor of a file that appears in the folder when the block ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise Error(f"cannot write into {folder}", why, "-o DIR") from error
    return files.enter_context(files.enter_context(Output(str(folder / f"{name}.parquet"))).part())


def _written(descriptor: int, table: str, batches: Iterable[Any]) -> int:
    """Write a row group for each batch. Return the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, writer = 0, None
    with open(descriptor, "wb", closefd=False) as file:
        for batch in batches:
            if writer is None:
                schema = batch.schema.with_metadata({KEY: f"{table} {SCHEMA}".encode()})
                texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
                writer = pq.ParquetWriter(
                    file, schema, compression="zstd", use_dictionary=texts, version="2.6"
                )
            if batch.num_rows:
                # A dictionary is that of one batch, and so of one row group.
                writer.write_table(pa.Table.from_batches([batch.cast(schema)]))
            rows += batch.num_rows
        if writer is not None:
            writer.close()
    os.fsync(descriptor)
    return rows


def _completed(shared: Columns, batch: Any) -> Any:
    """Add what all rows of the recording share, and the caller's user, cgroup and job."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = batch.num_rows
    columns = {name: batch.column(name) for name in batch.schema.names}
    if shared.anonymiser is not None:
        for name in _PATHS:
            if name in columns:
                columns[name] = _hashed(columns[name], shared.anonymiser)
    more: dict[str, Any] = {
        name: pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), n), [value])
        for name, value in shared.same.items()
    }
    if "bucket" in columns:  # requests
        begin = columns["begin_ns"]
        offset = pa.scalar(shared.offset_ns, pa.int64())
        more["time_ns"] = pc.add(begin, offset)
        if not shared.exact:
            columns["negative"] = pa.nulls(n, pa.bool_())
        pids = pa.array(list(shared.users), pa.int32())
        place = pc.index_in(columns["pid"], pids)
        for at, name in enumerate(("user", "cgroup", "job")):
            texts = pa.array([of[at] or None for of in shared.users.values()], pa.string())
            more[name] = texts.take(place).dictionary_encode()
    every = {**more, **columns}
    return pa.record_batch(list(every.values()), names=list(every))


def _hashed(column: Any, anonymiser: Anonymiser) -> Any:
    import pyarrow as pa

    texts = [text and anonymiser.path(text) for text in column.dictionary.to_pylist()]
    dictionary: Sequence[Any] = pa.array(texts, pa.string())
    return pa.DictionaryArray.from_arrays(column.indices, dictionary)
