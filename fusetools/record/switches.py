"""Test of the kernel's switch tracepoint.

Some kernels do not call it in the idle thread of a CPU: the next thread there has no switch-in.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from fusetools.host.facts import Tool
from fusetools.host.files import end_children, tool_environment
from fusetools.record.perf import SWITCH

BY_IDLE = "prev_pid == 0"
SLEEP = 2e-4  # seconds
COUNTED = 0.3  # seconds that perf counts
PATIENCE = 5.0  # seconds that it has to begin and end


def perf_misses_switches(perf: Tool, directory: Path) -> bool:
    """Return whether a CPU's idle thread does not report to whom it gives the CPU, as perf counts
    it. A CPU that does not become idle counts as one; so does a perf that cannot count.

    ``directory``: for what perf prints.
    """
    output = directory / "switches"
    argv = [perf.path, "stat", "-a", "-A", "-x", ",", "-o", str(output)]
    argv += ["-e", SWITCH, "--filter", BY_IDLE, "--", "sleep", str(COUNTED)]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=tool_environment(),
            start_new_session=True,
        )
    except OSError:
        return True
    end = time.monotonic() + PATIENCE
    cpus = os.sched_getaffinity(0)
    try:
        while process.poll() is None and time.monotonic() < end:
            for cpu in cpus:  # which becomes idle, and is given up
                os.sched_setaffinity(0, {cpu})
                time.sleep(SLEEP)
    finally:
        os.sched_setaffinity(0, cpus)
    if process.poll() is None:
        end_children([process.pid])
        return True
    return process.returncode != 0 or misses(output.read_text(), cpus)


def misses(text: str, cpus: set[int]) -> bool:
    """Return whether one of these CPUs has no count in the CSV lines of `perf stat -A`."""
    found = re.findall(r"^CPU(\d+),(\d+),", text, re.MULTILINE)
    return bool(cpus - {int(cpu) for cpu, count in found if int(count)})
