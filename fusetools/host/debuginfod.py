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


def build_id_at(path: str) -> str | None:
    """Return the build id whose debug file that path is for, on this host."""
    match = re.fullmatch(r"/usr/lib/debug/\.build-id/([0-9a-f]{2})/([0-9a-f]+)\.debug", path)
    return match[1] + match[2] if match else None


def program() -> str | None:
    """Return debuginfod-find's path. None: it is not installed, or DEBUGINFOD_URLS names no
    server."""
    return shutil.which(PROGRAM) if os.environ.get("DEBUGINFOD_URLS", "").strip() else None


class Servers:
    """Asks the servers, for MOST files and ``seconds`` in all.

    ``unasked``: number of files for which the limits left no time.
    """

    def __init__(self, asked: str, seconds: float = SECONDS) -> None:
        self._program, self._end, self._asked = asked, time.monotonic() + seconds, 0
        self.unasked = 0

    def find(self, build_id: str) -> str:
        """Return the path of a file's debug file, "" if no server has it."""
        left = self._end - time.monotonic()
        if left > 0 and self._asked < MOST:
            self._asked += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _ask(self._program, build_id, left)
        self.unasked += 1
        return ""


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
        folder, servers = Path(name), Servers(asked, seconds)
        files = 0
        for build_id, place in wanted.items():
            if path := servers.find(build_id):
                link = folder / place
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
                files += 1
        yield Found(folder, files, servers.unasked)


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
