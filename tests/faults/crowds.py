"""Runs `stuck` beside a crowd of an ordinary user's processes.

`crowds.py [--idle] [KIND COUNT [SIZE]]`. Without a kind (tests/live/crowd.py) each of CROWDS is
run. A mount hangs in a mount namespace of its own (--idle: nothing waits there), and `fusetools
stuck` runs. Prints a line of JSON for each crowd: its name, the exit status, the mount's state,
unknown facts, and the duration in seconds. `left` is not a crowd: a process of fusetools that a
command left behind waits alone. Exits with 1 if an exit status was 0 beside a hang.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIVE = ROOT / "tests" / "live"
CLONE_NEWNS, MS_REC_PRIVATE, MNT_DETACH = 0x20000, 0x44000, 2
PR_SET_PDEATHSIG = 1
LONG = 1.5  # seconds that a caller waits before the first look
OPEN = 20_000  # descriptors
CROWDS = (
    "nobody", "descriptors 200 20000", "descriptors 1000 1000", "threads 21000",
    "threads 21000 PATH", "threads 200 PATH", "forks 50", "waiting 2000", "named 50",
    "namespaces 100 1000", "commands 100", "callers 1000 PATH", "left",
)  # fmt: skip
# A command that looks up a path, and gives up.
LEAVE = """
import os, sys
from fusetools.host.files import bounded
assert bounded(lambda: str(os.stat(sys.argv[1])), 0.5) is None
print("left behind")
"""


def libc(function: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments):
        raise OSError(ctypes.get_errno(), function)


def end_with_us() -> None:
    """Get SIGKILL when this process is killed. For a child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def started(*command: object) -> Iterator[subprocess.Popen[str]]:
    """Yield a group of processes whose first one has printed a word; kill the group at the end."""
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_us,
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{' '.join(map(str, command))} did not start")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextlib.contextmanager
def mount(delay: float) -> Iterator[Path]:
    """A mount whose lookups take that long, visible in this mount namespace alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder, "mount")
        path.mkdir()
        with started(LIVE / "rawfs.py", path, "--delay", delay):
            try:
                yield path
            finally:
                # The daemon's end, which follows, ends the waiting processes.
                libc("umount2", os.fsencode(path), MNT_DETACH)


def waits(caller: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(OSError):
        return "fuse_" in Path(f"/proc/{caller.pid}/stack").read_text()
    return False


def asked(path: Path) -> dict[str, Any]:
    """Return stuck's answer for the mount."""
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "fusetools", "stuck", "--json", "--mount", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    took = time.monotonic() - begin
    if done.stderr:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    (own,) = found["mounts"]
    return {
        "status": done.returncode,
        "state": own.get("state"),
        "waiting": own.get("waiting"),
        "callers": [one["comm"] for one in own.get("callers", ())][:3],
        "daemon": own.get("comm"),
        "own": own.get("own"),
        "unknown": [one["kind"] for one in found.get("unknown", ())],
        "silent": len(found["silent"]),
        "seconds": round(took, 1),
    }


def beside(crowd: str, idle: bool) -> dict[str, Any]:
    """Start the crowd first: its processes get the lower numbers."""
    kind, *more = crowd.split()
    asks = bool(more) and more[-1] == "PATH"
    with contextlib.ExitStack() as stack:
        if kind not in ("nobody", "left") and not asks:
            stack.enter_context(started(LIVE / "crowd.py", kind, *more))
        # Callers of the mount can only end after it.
        with mount(0 if idle else 1000) as path:
            if asks:
                words = [word.replace("PATH", f"{path}/file") for word in more]
                stack.enter_context(started(LIVE / "crowd.py", kind, *words))
            elif kind == "left":
                leave = [sys.executable, "-c", LEAVE, str(path / "file")]
                subprocess.run(leave, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            elif not idle:
                caller = subprocess.Popen(
                    ["stat", path / "file"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                stack.callback(caller.wait)
                stack.callback(caller.kill)
                while not waits(caller):
                    time.sleep(0.01)
            time.sleep(LONG)
            answer = asked(path)
    return {"crowd": crowd, **answer}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("crowd", nargs="*")
    parser.add_argument("--idle", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    libc("unshare", CLONE_NEWNS)
    libc("mount", b"none", b"/", None, MS_REC_PRIVATE, None)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(OPEN, most), max(OPEN, most)))
    blind = False
    for crowd in [" ".join(given.crowd)] if given.crowd else CROWDS:
        answer = beside(crowd, given.idle)
        print(json.dumps(answer), flush=True)
        blind |= not given.idle and answer["status"] == 0 and answer["crowd"] != "left"
    return 1 if blind else 0


if __name__ == "__main__":
    sys.exit(main())
