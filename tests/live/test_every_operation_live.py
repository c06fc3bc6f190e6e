"""Each operation that libfuse can produce is recorded, counted and shown.

The independent source is the sample's own count of the requests that it answered
(samples/fs/passfs.cc).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from passed import Passed
from recording import run
from schemas import held
from script import needs_perf

pytestmark = pytest.mark.live
EVERY = Path(__file__).with_name("every.py")

# Requests of every kernel that fusetools records on, by a program and a file system with all
# callbacks of libfuse 3.12. The mount itself makes init; only a block device makes bmap and
# destroy.
EXPECTED = {
    *("lookup", "getattr", "setattr", "readlink", "symlink", "mknod", "mkdir", "unlink", "rmdir"),
    *("rename", "link", "open", "read", "write", "statfs", "release", "fsync", "setxattr"),
    *("getxattr", "listxattr", "removexattr", "flush", "opendir", "readdir", "releasedir"),
    *("fsyncdir", "getlk", "setlk", "setlkw", "access", "create", "ioctl", "poll"),
    *("notify_reply", "fallocate", "readdirplus", "rename2", "lseek", "copy_file_range"),
}
# The sample has no callback for these; libfuse answers ENOSYS.
NEWER = {"tmpfile", "statx", "copy_file_range_64", "syncfs"}
# Nobody waits for these: they may come before, after, or be merged.
UNAWAITED = {"forget", "batch_forget", "interrupt", "init", "destroy"}


@pytest.fixture(params=["plain", "writeback"])
def passed(
    request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Passed]:
    options = ["--writeback"] if request.param == "writeback" else []
    place = tmp_path_factory.mktemp("pass")
    made = Passed(samples, place, "--unchecked", "--threads", "4", *options)
    yield made
    made.clean()


def counted(recording: Path, layer: str) -> Counter[str]:
    done = run("count", "--json", "--layer", layer, "-i", recording)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = held("count", done.stdout)["counts"]
    return Counter({row["operation"]: row["count"] for row in rows if row["count"]})


def test_every_operation_is_recorded_and_counted(passed: Passed, tmp_path: Path) -> None:
    needs_perf()
    recording = tmp_path / "perf.data"
    done = run(
        *("record", "--as-root", "--mount", passed.path, "-o", recording, "--"),
        *(sys.executable, EVERY, passed.path),
    )
    assert done.returncode == 0, done.stderr
    requests = counted(recording, "request")
    own = passed.counts()
    assert set(requests) >= EXPECTED
    assert set(requests) <= EXPECTED | NEWER | UNAWAITED
    assert {name: requests[name] for name in EXPECTED} == {name: own[name] for name in EXPECTED}
    shown = run("export", "--format", "csv", "-o", "-", "-i", recording)
    assert shown.returncode == 0, shown.stderr
    rows = Counter(line.split(",")[0] for line in shown.stdout.splitlines()[1:])
    assert {name: rows[name] for name in EXPECTED} == {name: own[name] for name in EXPECTED}
