"""Settings of a caller (limits, priorities, masks, descriptors) do not affect root's work.

The workload gets them back.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fusetools.errors import Error
from fusetools.host import inherited
from fusetools.plan.options import stream
from fusetools.record import preflight

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to raise limits")

# Return a process's settings as JSON: here, and in the workload that it starts.
LOOK = """
import json, os, resource, signal, sys
def look():
    limits = {n: resource.getrlimit(getattr(resource, n)) for n in (
        "RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK")}
    umask = os.umask(0)
    os.umask(umask)
    return {
        "soft": {n: soft for n, (soft, _) in limits.items()},
        "umask": umask,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "policy": os.sched_getscheduler(0),
        "cpus": len(os.sched_getaffinity(0)),
        "oom": open("/proc/self/oom_score_adj").read().strip(),
        "ignored": [int(n) for n in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)
                    if signal.getsignal(n) == signal.SIG_IGN],
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "descriptors": [n for n in (200, 201) if os.path.exists(f"/proc/self/fd/{n}")],
    }
print(json.dumps(look()))
sys.stdout.flush()
"""
# A caller that sets all of them, and runs a program like fusetools: SETTLED.
CALLER = """
import os, resource, signal, sys
limits = {"CORE": 7, "FSIZE": 1 << 20, "NOFILE": 250, "NPROC": 90000, "STACK": 1 << 20}
for name, soft in limits.items():
    number = getattr(resource, f"RLIMIT_{name}")
    resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
os.umask(0o277)
os.nice(5)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
open("/proc/self/oom_score_adj", "w").write("500")
for ignored in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
    signal.signal(ignored, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.setitimer(signal.ITIMER_REAL, 1000)
os.dup2(os.open("/dev/null", os.O_RDONLY), 200)
os.set_inheritable(200, True)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
SETTLED = """
import subprocess, sys
from fusetools.host import inherited
inherited.settle()
exec(sys.argv[1])
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
from fusetools.record.workload import Workload
import os
workload = Workload([sys.executable, "-c", sys.argv[1]], None, os.environ)
workload.start()
workload.wait()
sys.exit(workload.exit_status)
"""


@as_root
def test_a_callers_settings_reach_the_workload_alone() -> None:
    words = [sys.executable, "-c", CALLER, SETTLED, LOOK]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    own, child, workload = map(json.loads, done.stdout.splitlines())
    known = {
        "umask": 0o077 & 0o277 | 0o022,
        "nice": 0,
        "policy": os.SCHED_OTHER,
        "cpus": os.cpu_count(),
        "oom": "0",
        "ignored": [1],  # set by nohup
        "blocked": [],
        "timer": False,
    }
    for seen in (own, child):
        assert {name: seen[name] for name in known} == known
        assert seen["soft"]["RLIMIT_CORE"] == 0
        for name, value in (("FSIZE", 1 << 20), ("NOFILE", 250), ("STACK", 1 << 20)):
            soft = seen["soft"][f"RLIMIT_{name}"]
            assert soft == resource.RLIM_INFINITY or soft > value, name
    assert (own["descriptors"], child["descriptors"]) == ([200], [])
    assert workload == {
        "soft": {
            "RLIMIT_CORE": 7 if resource.getrlimit(resource.RLIMIT_CORE)[1] else 0,
            "RLIMIT_FSIZE": 1 << 20,
            "RLIMIT_NOFILE": 250,
            "RLIMIT_NPROC": 90000,
            "RLIMIT_STACK": 1 << 20,
        },
        "umask": 0o277,
        "nice": min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19),
        "policy": os.SCHED_BATCH,
        "cpus": 1,
        "oom": "500",
        "ignored": [17, 15, 1],
        "blocked": [12],
        "timer": False,  # of one process alone, across exec
        "descriptors": [200],
    }


def test_a_limit_that_cannot_be_raised_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inherited.too_low() == ""
    real = resource.getrlimit

    def low(number: int) -> tuple[int, int]:
        return (512, 512) if number == resource.RLIMIT_FSIZE else real(number)

    monkeypatch.setattr(resource, "getrlimit", low)
    assert inherited.too_low() == "f"
    with pytest.raises(Error) as caught, preflight.prepared(stream(), []):
        pass
    assert caught.value.what == "cannot record"
    assert caught.value.why == "ulimit -f was set too low, and cannot be raised here"
    assert caught.value.fix == "ulimit -f unlimited   # before sudo"


@as_root
def test_a_recording_is_read_where_no_thread_can_be_started() -> None:
    """Set by one thread, and not by a panic."""
    scanned = (
        "import os, resource, sys\n"
        "from fusetools.core import native\n"
        "{limited}\n"
        "print(native.scan(sys.argv[1], [], {{}})['events'])\n"
        "native.merge([sys.argv[1]], sys.argv[2], '', packed=True)\n"
    )
    limited = (
        "os.setgid(65534); os.setuid(65534); resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = Path(shutil.copy(DEMO, folder))
        for path in (folder, recording):
            os.chown(path, 65534, 65534)

        def run(how: str) -> tuple[str, bytes]:
            merged = folder / f"merged{len(how)}"
            words = [sys.executable, "-c", scanned.format(limited=how), recording, merged]
            done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout, merged.read_bytes()

        assert run(limited) == run("")
