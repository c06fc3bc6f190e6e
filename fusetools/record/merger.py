"""Merging in a process of its own: it opens the daemons' files, and one of these may hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fusetools.core import native
from fusetools.host.files import Files
from fusetools.host.processes import family
from fusetools.record.signals import with_parent

STUCK = 10.0  # seconds without a sign of life
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from fusetools.record.merger import main; main()"


class Stuck(Exception):
    """It was given up."""


def merge(
    inputs: list[str],
    output: str,
    session: str,
    give_up: Callable[[], bool],
    **more: Any,
) -> native.MergeInfo:
    """As the core's merge. ``give_up`` is asked now and then. CoreError; Stuck: it was given up, or
    waits for a file system that does not answer."""
    maps = [(*row[:5], row[5].hex(), row[6]) for row in more.pop("maps", [])]
    asked = json.dumps([inputs, output, session, {**more, "maps": maps}])
    parent = os.getpid()

    def prepare() -> None:
        with_parent(parent, signal.SIGKILL)

    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, *(os.path.abspath(path) for path in sys.path if path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        text=True,
        preexec_fn=prepare,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as to:
        to.write(asked)
    alive, seen = time.monotonic(), (0, 0)
    while process.poll() is None:
        time.sleep(0.05)
        now = _signs(process.pid, output)
        if now != seen or not any(one.hung for one in family(Files(Path("/")), process.pid)):
            alive, seen = time.monotonic(), now
        if time.monotonic() - alive > STUCK or give_up():
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            raise Stuck
    text = process.stdout.read()
    process.stdout.close()
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise native.CoreError("cannot merge the recording", "the merger ended early") from error
    if "error" in answer:
        raise native.CoreError(*answer["error"])
    answer["left_out"] = {str(name): int(n) for name, n in answer["left_out"].items()}
    answer["stacks"] = tuple(answer["stacks"])
    answer["session_at"] = [tuple(place) for place in answer["session_at"]]
    result: native.MergeInfo = answer
    return result


def _signs(pid: int, output: str) -> tuple[int, int]:
    """What changes while it works: its CPU time, and what it has written."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        place = Path(output)
        size = place.with_name(f".{place.name}.{pid}").stat().st_size  # where the core writes
        return int(fields[11]) + int(fields[12]), size
    return 0, 0


def main() -> None:
    """In the process: what is asked on the standard input, the answer on the standard output."""
    inputs, output, session, more = json.load(sys.stdin)
    arguments: Mapping[str, Any] = {
        **more,
        "maps": [(*row[:5], bytes.fromhex(row[5]), row[6]) for row in more["maps"]],
        "bundles": [(event, field, list(map(tuple, of))) for event, field, of in more["bundles"]],
    }
    try:
        info: Any = dict(native.merge(inputs, output, session, **arguments))
        info["left_out"] = dict(info["left_out"])
    except native.CoreError as error:
        info = {"error": list(map(str, error.args))}
    json.dump(info, sys.stdout)
