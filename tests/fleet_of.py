"""Makes the Parquet files of a site: hosts that record for 24 hours, with known outliers.

``python tests/fleet_of.py DIR HOSTS REQUESTS`` writes HOSTS files of REQUESTS requests each. The
columns are those of an export of the demonstration's recording; those that are not made are null.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fusetools
from fusetools.answers import parquet

DEMO = Path(__file__).parents[1] / "samples/recordings/demo.data"
DATE = "2026-11-25"
BEGAN = 1_795_564_800 * 10**9  # 2026-11-25T00:00:00Z
DAY = 86_400 * 10**9
GROUP = 1 << 17  # rows of a row group
OPERATIONS = ("lookup", "getattr", "read", "open")
USERS = 40
RACKS, VERSIONS = 20, 8
SLOW_RACK, BAD_VERSION, HAMMERER = "r07", "2.11.5", "user13"


def buckets(ns: Any) -> Any:
    shift = np.maximum(np.log2(np.maximum(ns // 128, 1) + 0.5).astype(np.int64), 0)
    return (shift * 128 + (ns >> shift)).astype(np.int32)


def make(folder: Path, hosts: int, requests: int, date: str = DATE) -> None:
    """Write a day of the site. A rack is slow, a version fails, a user makes a third of all
    requests."""
    scratch = folder / "scratch"
    fusetools.open(DEMO).tables(str(scratch))
    schemas = {}
    for table in ("requests", "sessions"):
        (path,) = (scratch / table).rglob("*.parquet")
        schemas[table] = pq.read_schema(path).remove_metadata()
    for path in sorted(scratch.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    scratch.rmdir()
    random = np.random.default_rng(1)
    for number in range(hosts):
        of = {
            "session": f"{date}-{number:06}",
            "host": f"node{number:04}",
            "date": date,
            "rack": f"r{number * RACKS // hosts:02}",
            "version": f"2.11.{number % VERSIONS}",
        }
        batches = [
            _requests(schemas["requests"], of, min(GROUP, requests - at), random)
            for at in range(0, requests, GROUP)
        ]
        _file(folder, "requests", of, batches)
        _file(folder, "sessions", of, [_session(schemas["sessions"], of, requests)])


def _file(folder: Path, table: str, of: dict[str, str], batches: list[Any]) -> None:
    place = folder / table / f"host={of['host']}" / f"date={of['date']}"
    place.mkdir(parents=True)
    with (place / f"{of['session']}.parquet").open("wb") as file:
        parquet._written(file.fileno(), table, batches)


def _batch(schema: Any, n: int, known: dict[str, Any]) -> Any:
    columns = []
    for field in schema:
        value = known.get(field.name)
        if value is None:
            columns.append(pa.nulls(n, field.type))
        elif isinstance(value, str):
            zeros = pa.array(np.zeros(n, np.int32))
            columns.append(pa.DictionaryArray.from_arrays(zeros, [value]))
        else:
            columns.append(value if isinstance(value, pa.Array) else pa.array(value, field.type))
    return pa.record_batch(columns, schema=schema)


def _requests(schema: Any, of: dict[str, str], n: int, random: Any) -> Any:
    def texts(numbers: Any, names: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)

    scale = 5.0 if of["rack"] == SLOW_RACK else 1.0
    ns = (random.lognormal(11, 0.8, n) * scale).astype(np.int64)
    rate = 0.08 if of["version"] == BAD_VERSION else 0.002
    error = np.where(random.random(n) < rate, -5, 0).astype(np.int32)
    users = np.where(random.random(n) < 1 / 3, 13, random.integers(0, USERS, n))
    begin = np.sort(random.integers(0, DAY, n))
    at = buckets(ns)
    names = ["matched", "unfinished"]
    return _batch(
        schema,
        n,
        {
            **{name: of[name] for name in ("session", "host", "date")},
            "time_ns": begin + BEGAN,
            "user": texts(users, [f"user{i:02}" for i in range(USERS)]),
            "operation": texts(random.integers(0, len(OPERATIONS), n), list(OPERATIONS)),
            "fate": texts(np.zeros(n), names),
            "mount": "/cvmfs/sft.cern.ch",
            "comm": "job",
            "waits": np.ones(n, bool),
            "negative": np.zeros(n, bool),
            "ring": np.zeros(n, bool),
            "error": error,
            "begin_ns": begin,
            "end_ns": begin + ns,
            "until_ns": begin + ns,
            "duration_ns": ns,
            "whole_ns": ns,
            "bucket": at,
            "whole_bucket": at,
            "stage_queue_ns": ns // 4,
            "stage_daemon_ns": ns - ns // 4,
        },
    )


def _session(schema: Any, of: dict[str, str], n: int) -> Any:
    row = dict.fromkeys(schema.names)
    row.update({name: of[name] for name in ("session", "host", "date", "version")})
    row.update(labels=[("rack", of["rack"])], mounts=["/cvmfs/sft.cern.ch"], findings=[])
    row.update(dict.fromkeys(("begun", "ended", "matched"), n))
    row.update(kernel="6.1.0", began_ns=BEGAN, seconds=86_400.0, unanswered=0, lost=0, throttled=0)
    return pa.record_batch(
        [pa.array([row[field.name]], field.type) for field in schema], schema=schema
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
