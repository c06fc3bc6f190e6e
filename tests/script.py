"""A recording's events as stock `perf script` prints them: an independent source."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_LINE = re.compile(r"\s*(.*?)\s+(-?\d+)/(-?\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}):\s+(\S+?):?\s(.*)")


class Event(NamedTuple):
    time: int  # ns
    comm: str
    pid: int
    tid: int
    cpu: int
    name: str  # "system:event", or "PERF_RECORD_…"
    text: str

    def number(self, field: str) -> int:
        """Return the field's value, from `field=1` or `field 1`."""
        found = re.search(rf"\b{field}[= ](-?\d+)", self.text)
        assert found, (field, self.text)
        return int(found[1])

    def string(self, field: str) -> str:
        found = re.search(rf'\b{field}="(.*?)"(?: \w+=|$)', self.text)
        assert found, (field, self.text)
        return found[1]


def needs_perf() -> None:
    """Skip the test if there is no perf."""
    if shutil.which("perf") is None:
        pytest.skip("this host has no perf")


def events(recording: Path, switches: bool = False) -> list[Event]:
    """Return events in time order, including perf's own records of switches.

    Skip the test without perf.
    """
    needs_perf()
    fields = "comm,pid,tid,cpu,time,event,trace"
    command = ["perf", "script", "-f", "--ns", "-G", "-F", fields, "-i", str(recording)]
    command += ["--show-switch-events"] * switches
    done = subprocess.run(command, capture_output=True, check=True)
    found = []
    for line in done.stdout.decode(errors="backslashreplace").splitlines():
        match = _LINE.fullmatch(line)
        if match:
            comm, pid, tid, cpu, seconds, ns, name, text = match.groups()
            time = int(seconds) * 10**9 + int(ns)
            found.append(Event(time, comm, int(pid), int(tid), int(cpu), name, text))
    assert found
    return sorted(found, key=lambda event: event.time)
