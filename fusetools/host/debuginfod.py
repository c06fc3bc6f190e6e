"""Debug files by build id from debuginfod servers, as perf and gdb use them.

debuginfod-find(1) asks the servers in DEBUGINFOD_URLS, and keeps its own cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "debuginfod-find"
SECONDS = 30.0  # limit for all files
MOST = 64  # files


@dataclass(frozen=True)
class Found:
    """``folder``: has ``files`` debug files in usr/lib/debug/.build-id.

    ``unasked``: number of files that the time limit left out.
    """

    folder: Path
    files: int
    unasked: int


def debug_place(build_id: str) -> str | None:
    """Return where below a root a file's separate debug file is. None: it is no build id."""
    if not re.fullmatch("[0-9a-f]{4,128}", build_id):
        return None
    return f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"


def program() -> str | None:
    """Return debuginfod-find's path. None: it is not installed, or DEBUGINFOD_URLS names no
    server."""
    return shutil.which(PROGRAM) if os.environ.get("DEBUGINFOD_URLS", "").strip() else None


@contextlib.contextmanager
def debug_files(build_ids: Iterable[str], seconds: float = SECONDS) -> Iterator[Found | None]:
    """Yield a temporary folder with links to these files' debug files; None if nobody can be asked.

    ``build_ids``: in hexadecimal.
    """
    wanted = {one: place for one in build_ids if (place := debug_place(one))}
    asked = program() if wanted else None
    if asked is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fusetools-") as name:
        folder, end = Path(name), time.monotonic() + seconds
        files = unasked = 0
        for build_id, place in wanted.items():
            left = end - time.monotonic()
            if left <= 0 or files + unasked >= MOST:
                unasked += 1
                continue
            try:
                path = _ask(asked, build_id, left)
            except subprocess.TimeoutExpired:
                unasked += 1
                continue
            if path:
                link = folder / place
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
                files += 1
        yield Found(folder, files, unasked)


def _ask(asked: str, build_id: str, seconds: float) -> str:
    """Return the path of the file, "" if no server has it. Raise TimeoutExpired."""
    done = subprocess.run(
        [asked, "debuginfo", build_id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=seconds,
    )
    path = os.fsdecode(done.stdout).strip()
    return path if done.returncode == 0 and os.path.isfile(path) else ""
