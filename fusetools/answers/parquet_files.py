"""The Parquet files of `fusetools export`: which of them can be read, and why not the others."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusetools.answers.parquet import KEY, SCHEMA
from fusetools.errors import Error
from fusetools.reasons import Code, Reason

_MAGIC = b"PAR1"
_MOST_FOOTER = 16 << 20  # bytes
_EXPORT = "fusetools export --format parquet -o DIR"


@dataclass(frozen=True)
class Files:
    """Readable files of requests and sessions, and reasons for those that are skipped."""

    requests: tuple[str, ...]
    sessions: tuple[str, ...]
    skipped: tuple[Reason, ...]


def find(folder: str, bad: Iterable[str] = ()) -> Files:
    """Look at the end of each file. ``bad``: files that could not be read in whole.

    Error: there is no readable file."""
    wrong: dict[Code, list[str]] = defaultdict(list)
    known = set(bad)
    tables: dict[str, list[str]] = {}
    for table in ("sessions", "requests"):
        tables[table] = []
        for path in _parquet(Path(folder, table)):
            code = Code.FLEET_BROKEN if path in known else _problem(path, table)
            if code is None:
                tables[table].append(path)
            else:
                wrong[code].append(path)
    # The file of the session comes last: without it the export was not complete.
    complete = {Path(path).name for path in tables["sessions"]}
    requests = []
    for path in tables["requests"]:
        if Path(path).name in complete:
            requests.append(path)
        else:
            wrong[Code.FLEET_INCOMPLETE].append(path)
    if not requests:
        why = "it has no folder of fusetools export"
        if wrong:
            why = f"none of its {sum(map(len, wrong.values()))} files can be read"
        raise Error(f"{folder} holds no tables of recordings", why, _EXPORT)
    skipped = (
        Reason(code, {"path": paths[0]}, {"files": len(paths)}, layer="request")
        for code, paths in sorted(wrong.items(), key=lambda row: row[0].value)
    )
    names = {Path(path).name for path in requests}
    sessions = tuple(path for path in tables["sessions"] if Path(path).name in names)
    return Files(tuple(requests), sessions, tuple(skipped))


def _parquet(folder: Path) -> list[str]:
    found = []
    for parent, _, names in os.walk(folder):
        found += [
            os.path.join(parent, name)
            for name in names
            if name.endswith(".parquet") and not name.startswith(".")
        ]
    return sorted(found)


def _problem(path: str, table: str) -> Code | None:
    """Return why a file cannot be read, by its footer; None: it can."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 8, 0))
            end = file.read(8)
            length = int.from_bytes(end[:4], "little")
            if end[4:] != _MAGIC or not 0 < length <= min(size - 12, _MOST_FOOTER):
                return Code.FLEET_BROKEN
            file.seek(size - 8 - length)
            footer = file.read(length)
    except OSError:
        return Code.FLEET_BROKEN
    if f"{table} {SCHEMA}".encode() in footer and KEY in footer:
        return None
    return Code.FLEET_VERSION if KEY in footer else Code.FLEET_FOREIGN


def damaged(paths: Iterable[str]) -> list[str]:
    """Read files in whole. Return those that cannot be read."""
    import pyarrow.parquet as pq

    bad = []
    for path in paths:
        try:
            for _ in pq.ParquetFile(path).iter_batches():
                pass
        except Exception:  # of pyarrow: ArrowInvalid, OSError …
            bad.append(path)
    return bad


def rows(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of small files."""
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = []
    for path in paths:
        found += pq.ParquetFile(path).read().to_pylist()
    return found
