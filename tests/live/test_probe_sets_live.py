"""Probe sets on unmodified daemons: bindfs from Debian's package, with libfuse's own module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import recorded, run

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not installed"),
]
FILES = 13

# odd_read begins with an instruction that the kernel cannot execute out of line.
ODD = """
.globl odd_read, odd_open
.type odd_read,@function
.type odd_open,@function
odd_read: lock; incl (%rdi)
 ret
.size odd_read,.-odd_read
odd_open: push %rbx
 pop %rbx
 ret
.size odd_open,.-odd_open
.section .note.GNU-stack,"",@progbits
"""
SET = r"""
[[group]]
library = 'lib odd#:\.so'
function = 'odd_(\w+)'
[group.operations]
read = "read"
open = "open"

[[group]]
name = "replies"
library = 'libfuse3?\.so[.\d]*'
function = 'fuse_reply_\w+'
role = "reply"
[group.arguments]
all = { unique = "+8(arg1):u64" }
"""


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Path]:
    """bindfs with the module subdir and a library under an odd name."""
    source, mount, odd = tmp_path / "source", tmp_path / "mount", tmp_path / "odd dir"
    for folder in (source / "sub", mount, odd):
        folder.mkdir(parents=True)
    for number in range(FILES):
        (source / "sub" / f"f{number}").write_text("x" * 100)
    (tmp_path / "odd.S").write_text(ODD)
    library = odd / "lib odd#:.so"
    subprocess.run(["gcc", "-shared", "-o", library, tmp_path / "odd.S"], check=True)
    (tmp_path / "lib.so").symlink_to(library)
    daemon = subprocess.Popen(
        ["bindfs", "-f", "-o", "modules=subdir,subdir=/sub", source, mount],
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "lib.so")},
    )
    while not os.path.ismount(mount):
        assert daemon.poll() is None
        time.sleep(0.01)
    try:
        yield mount
        assert daemon.poll() is None, "the daemon died"
    finally:
        subprocess.run(["umount", "-l", mount], check=True)
        daemon.wait(20)


def counts(output: Path) -> dict[str, int]:
    done = run("count", "--json", "-i", output, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["counts"]
    found: dict[str, int] = {}
    for row in rows:
        found[row["function"]] = found.get(row["function"], 0) + row["count"]
    return found


def test_high_level_callbacks(bound: Path, tmp_path: Path) -> None:
    """Each appears once for its request, with its path, though the module calls it again."""
    output = tmp_path / "perf.data"
    reads = f"cat {bound}/f* > /dev/null"
    said = recorded(output, "--mount", bound, "--", "sh", "-c", reads).stderr
    assert " callbacks, on-CPU" in said
    seen = counts(output)
    assert seen["fuse_fs_open"] == seen["FUSE_OPEN"] == FILES
    assert seen["fuse_fs_read_buf"] == seen["FUSE_READ"] == FILES
    assert seen["fuse_fs_getattr"] == seen["FUSE_LOOKUP"] + seen.get("FUSE_GETATTR", 0)
    raw = subprocess.run(["perf", "script", "-i", output], capture_output=True, text=True).stdout
    opened = raw.count("fuse_daemon:fuse_fs_open:")
    assert opened == 2 * FILES, "the module was not there"
    slow = run("slow", "--json", "-n", "100", "-i", output)
    for number in range(FILES):
        assert f"f{number}" in slow.stdout


def test_an_odd_library(bound: Path, tmp_path: Path) -> None:
    """tracefs does not accept its name, and one function cannot be probed: everything else is
    recorded."""
    (tmp_path / "set.toml").write_text(SET)
    output = tmp_path / "perf.data"
    options = ("--mount", bound, "--fs", tmp_path / "set.toml")
    said = recorded(output, *options, "--", "ls", bound).stderr
    assert "missing: callback odd_read: the kernel refuses a probe on it" in said
    seen = counts(output)
    assert "odd_open" in seen and "odd_read" not in seen
    assert sum(count for name, count in seen.items() if name.startswith("fuse_reply_")) > 0
    assert "odd" not in Path("/sys/kernel/tracing/uprobe_events").read_text()
