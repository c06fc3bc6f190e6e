"""Events of a running perf, switched on and off without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import script
from leftovers import TRACEFS
from mounts import wait_until

from fusetools.record.borrowed import Borrowed
from fusetools.record.tracefs import Tracefs

pytestmark = pytest.mark.live

SWITCH, OTHER = "sched:sched_switch", "sched:sched_process_exit"
NAPS = "import time\nwhile True: time.sleep(0.001)"


def test_only_what_is_borrowed_is_switched(tmp_path: Path) -> None:
    """By the time stamps of stock perf, and as long as perf is there."""
    if os.geteuid() != 0 or shutil.which("perf") is None:
        pytest.skip("it needs root and perf")
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 6):
        pytest.skip("pidfd_getfd(2) is there since Linux 5.6")
    path = tmp_path / "perf.data"
    command: list[str | Path] = ["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC"]
    command += ["-e", SWITCH, "-e", OTHER, "-o", path, "--"]
    # Its events are on before it starts that.
    begun = tmp_path / "begun"
    command += ["sh", "-c", f"touch {begun}; exec sleep 60"]
    tracefs = Tracefs(str(TRACEFS))
    with subprocess.Popen([sys.executable, "-c", NAPS]) as napping:
        with subprocess.Popen(command) as perf:
            try:
                wait_until(begun.exists, "perf")
                with pytest.raises(OSError):
                    Borrowed(perf.pid, path, [tracefs.number("sched:sched_wakeup_new")])
                borrowed = Borrowed(perf.pid, path, [tracefs.number(SWITCH)])
                moments = []
                for on in (False, True):
                    borrowed.switch(on)
                    moments.append(time.monotonic_ns())
                    subprocess.run(["true"], check=True)
                    time.sleep(0.3)
                    subprocess.run(["true"], check=True)
                    moments.append(time.monotonic_ns())
                borrowed.close()
            finally:
                perf.send_signal(signal.SIGINT)
        napping.kill()
    events = script.events(path)
    times = {name: [e.time for e in events if e.name == name] for name in (SWITCH, OTHER)}
    without, with_it = [
        {name: sum(since < time < until for time in of) for name, of in times.items()}
        for since, until in zip(moments[::2], moments[1::2])
    ]
    assert without[SWITCH] == 0 and with_it[SWITCH] > 50
    assert without[OTHER] >= 1 and with_it[OTHER] >= 1
    with pytest.raises(OSError):
        Borrowed(perf.pid, path, [tracefs.number(SWITCH)])
