"""A daemon that lacks threads, with advice by its library and command line, or a CPU."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fusetools
from fusetools.answers.queue import more_threads
from fusetools.answers.rules import threshold
from fusetools.errors import Error
from fusetools.host.mounts import threading
from fusetools.reasons import Code
from fusetools.results import queue
from fusetools.session import TracedMount

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
V3, V2 = "libfuse3.so.3.14.0", "libfuse.so.2.9.9"


def daemon(
    library: str = V3, *options: str, program: str = "sshfs", parses: bool = True
) -> TracedMount:
    return TracedMount("/mnt", program=program, library=library, options=options, parses=parses)


@pytest.mark.parametrize(
    ("mount", "threads", "option"),
    [
        (daemon(), 10, "max_threads"),
        (daemon(V3, "max_threads=3"), 3, "N more than 3"),
        (daemon(V3, "-s"), 1, "without -s"),
        (daemon(V2, "-s"), 1, "without -s"),
        (daemon(V2, program="bindfs"), 1, "--multithreaded"),
        (daemon(V3, "--multithreaded", program="bindfs"), 10, "max_threads"),
        # No known limit, or its own options are unknown.
        (daemon(), 1, ""),
        (daemon(V2), 10, ""),
        (daemon("libfuse3.so.3.10.5"), 10, ""),
        (daemon(V3, "-s", parses=False), 1, ""),
        (daemon("", program="rclone"), 1, ""),
        (None, 1, ""),
    ],
)
def test_only_advice_that_can_work(mount: TracedMount | None, threads: int, option: str) -> None:
    advice = more_threads(mount, threads)
    assert option in advice and bool(option) == bool(advice)


def test_the_options_about_threads_and_no_others() -> None:
    command = ["sshfs", "-f", "-s", "-o", "password=x,max_threads=7", "-oallow_other", "a:", "/mnt"]
    assert threading(command) == ("-s", "max_threads=7")
    assert threading(["bindfs", "-omultithreaded", "/a", "/b"]) == ("--multithreaded",)
    assert threading(["x", "-o", "max_threads=seven", "max_threads=8"]) == ()


@pytest.mark.parametrize(("period", "flags"), [(99, 1 << 10), (7, 0)])
def test_sampled_tracepoints_are_refused(tmp_path: Path, period: int, flags: int) -> None:
    """As perf record -F 99, or -c 7, makes them: only some events are present."""
    data = bytearray(DEMO.read_bytes())
    start, size, entry = (struct.unpack_from("<Q", data, at)[0] for at in (24, 32, 16))
    found = 0
    for at in range(start, start + size, entry):
        if struct.unpack_from("<I", data, at)[0] == 2:  # PERF_TYPE_TRACEPOINT
            struct.pack_into("<Q", data, at + 16, period)
            before = struct.unpack_from("<Q", data, at + 40)[0]
            struct.pack_into("<Q", data, at + 40, before | flags)
            found += 1
    assert found
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    fusetools.open(DEMO)
    with pytest.raises(Error, match="were sampled"):
        fusetools.open(path)


def test_a_recording_from_the_standard_input() -> None:
    command = [sys.executable, "-m", "fusetools", "count", "--json", "-i"]
    by_name = subprocess.run([*command, DEMO], capture_output=True, check=True).stdout
    by_pipe = subprocess.run(
        [*command, "-"], input=DEMO.read_bytes(), capture_output=True, check=True
    ).stdout
    piped, named = json.loads(by_pipe), json.loads(by_name)
    rows = [key for key, value in named.items() if isinstance(value, list)]
    assert rows and all(piped[key] == named[key] for key in rows)


@pytest.mark.parametrize(
    ("runnable", "code"),
    [(149, Code.CPU_SHORT_AT_TIMES), (150, Code.CPU_SHORT), (50, Code.CPU_SHORT_AT_TIMES)],
)
def test_a_daemon_that_lacks_a_cpu(runnable: int, code: Code) -> None:
    """As `why` has it: the two commands agree about one recording."""
    assert threshold("cpu_taken", "least_share") == queue.SHORT_OF_CPU
    part = queue.QueuePart(0.0, 0.5, 1, 1)
    mount = queue.MountQueue("/mnt", 10, 1, 0, 1000, 1000, 0, 0, part, (), ())
    assert [reason.code for reason in replace(mount, runnable_ns=runnable).verdict] == [
        code,
        Code.THREADS_ENOUGH,
    ]
    assert replace(mount, runnable_ns=49).verdict[0].code == Code.THREADS_ENOUGH
