"""The Parquet files of `fusetools export`: which of them can be read, and why not the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fusetools.answers.parquet import KEY, SCHEMA
from fusetools.errors import Error
from fusetools.reasons import Code, Reason

_MAGIC = b"PAR1"
_MOST_FOOTER = 16 << 20  # bytes
_EXPORT = "fusetools export --format parquet -o DIR"
_S3 = "fusetools fleet s3://BUCKET/DIR …"
_STORE = "export AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… AWS_ENDPOINT_URL=…"


@dataclass(frozen=True)
class Files:
    """Readable files of requests and sessions, and reasons for those that are skipped."""

    requests: tuple[str, ...]
    sessions: tuple[str, ...]
    skipped: tuple[Reason, ...]


class Place:
    """A folder of this host, or one in an object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX.

    ``name``: as the user wrote it; ``local``: it is of this host. Source: Arrow's file systems,
    https://arrow.apache.org/docs/python/filesystems.html.
    Error: there is no such store, or it cannot be asked.
    """

    def __init__(self, name: str) -> None:
        from pyarrow import fs

        self.name = name
        self.local = "://" not in name or name.startswith("file://")
        try:
            if self.local:
                self._system: Any = fs.LocalFileSystem()
                self._root = name.removeprefix("file://")
            else:
                self._system, self._root = fs.FileSystem.from_uri(name)
        except (OSError, ValueError, NotImplementedError) as error:
            raise self._closed(error) from error

    def _closed(self, error: Exception) -> Error:
        why = str(error).strip().split("\n", 1)[0]
        if self.local:
            return Error(f"cannot read {self.name}", why)
        return Error(f"cannot read {self.name}", why, _STORE if isinstance(error, OSError) else _S3)

    def find(self, bad: Iterable[str] = ()) -> Files:
        """Look at the end of each file. ``bad``: files that could not be read in whole.

        Error: there is no readable file."""
        wrong: dict[Code, list[str]] = defaultdict(list)
        known = set(bad)
        tables: dict[str, list[str]] = {}
        for table in ("sessions", "requests"):
            tables[table] = []
            for path in self._parquet(table):
                code = Code.FLEET_BROKEN if path in known else self._problem(path, table)
                if code is None:
                    tables[table].append(path)
                else:
                    wrong[code].append(path)
        # The file of the session comes last: without it the export was not complete.
        complete = {_base(path) for path in tables["sessions"]}
        requests = []
        for path in tables["requests"]:
            if _base(path) in complete:
                requests.append(path)
            else:
                wrong[Code.FLEET_INCOMPLETE].append(path)
        if not requests:
            why = "it has no folder of fusetools export"
            if not self._is_there():
                raise Error(f"cannot read {self.name}", "there is no such directory", _EXPORT)
            if wrong:
                why = f"none of its {sum(map(len, wrong.values()))} files can be read"
            raise Error(f"{self.name} holds no tables of recordings", why, _EXPORT)
        skipped = (
            Reason(code, {"path": paths[0]}, {"files": len(paths)}, layer="request")
            for code, paths in sorted(wrong.items(), key=lambda row: row[0].value)
        )
        names = {_base(path) for path in requests}
        sessions = tuple(path for path in tables["sessions"] if _base(path) in names)
        return Files(tuple(requests), sessions, tuple(skipped))

    def _is_there(self) -> bool:
        """Return whether the directory exists. In an object store any name may: return True."""
        from pyarrow import fs

        if not self.local:
            return True
        return bool(self._system.get_file_info(self._root).type == fs.FileType.Directory)

    def _parquet(self, table: str) -> list[str]:
        from pyarrow import fs

        folder = str(PurePosixPath(self._root, table))
        below = fs.FileSelector(folder, recursive=True, allow_not_found=True)
        try:
            entries = self._system.get_file_info(below)
        except OSError as error:
            raise self._closed(error) from error
        names = (e.path for e in entries if e.type == fs.FileType.File)
        return sorted(n for n in names if n.endswith(".parquet") and not _base(n).startswith("."))

    def _problem(self, path: str, table: str) -> Code | None:
        """Return why a file cannot be read, by its footer; None: it can."""
        try:
            with self._system.open_input_file(path) as file:
                size = file.size()
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

    def damaged(self, paths: Iterable[str]) -> list[str]:
        """Read files in whole. Return those that cannot be read."""
        import pyarrow.parquet as pq

        bad = []
        for path in paths:
            try:
                for _ in pq.ParquetFile(path, filesystem=self._system).iter_batches():
                    pass
            except Exception:  # of pyarrow: ArrowInvalid, OSError …
                bad.append(path)
        return bad

    def rows(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """Return the rows of small files."""
        import pyarrow.parquet as pq

        found: list[dict[str, Any]] = []
        for path in paths:
            found += pq.ParquetFile(path, filesystem=self._system).read().to_pylist()
        return found

    def dataset(self, paths: Sequence[str]) -> Any:
        """Return a dataset of Arrow, for engines that cannot read the store by themselves."""
        from pyarrow import dataset

        return dataset.dataset(list(paths), filesystem=self._system, format="parquet")


def _base(path: str) -> str:
    return path.rpartition("/")[2]
