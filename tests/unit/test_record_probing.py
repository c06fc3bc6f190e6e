"""Probes that the kernel refuses: the report, and what is still recorded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from test_plan import host, make

from fusetools.errors import Error
from fusetools.plan.events import Probe
from fusetools.plan.options import Options
from fusetools.reasons import Code
from fusetools.record import probes
from fusetools.record.job import Job

CLIENT = "/usr/lib64/libcvmfs_fuse3.so.2.12.0"


class Refusing:
    """The kernel refuses probes on names with this beginning."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self.places = places
        self.since = ""

    def add(self, probe: Probe) -> None:
        if probe.place.startswith(self.places):
            raise Error("cannot probe", "Input/output error")

    def remove(self, names: object) -> tuple[str, ...]:
        return ()


def made(monkeypatch: pytest.MonkeyPatch, *places: str) -> Job:
    """A job with the probes that remain if the kernel refuses these."""
    lock = SimpleNamespace(theirs=(), write=lambda: None, state=SimpleNamespace())
    job = Job(lock, Options(), (), None, host(), make(host()))  # type: ignore[arg-type]
    job.missing = []
    monkeypatch.setattr(probes, "Tracefs", lambda *_, **__: Refusing(places))
    probes.Probes(job).make()
    return job


def test_each_of_some_callbacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(monkeypatch, f"{CLIENT}:0x1f000", f"{CLIENT}:0x1f040")
    assert {m.code for m in found.missing} == {Code.CALLBACK_REFUSED}
    assert [m.subject for m in found.missing] == [
        {"function": name, "message": "Input/output error"}
        for name in ("cvmfs_lookup", "cvmfs_getattr")
    ]
    functions = {probe.function for probe in found.plan.probes}
    assert "cvmfs_open" in functions and "cvmfs_lookup" not in functions


def test_one_line_tells_of_all_callbacks_of_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an overlay on Linux 4.4."""
    found = made(monkeypatch, CLIENT)
    (lack,) = found.missing
    assert lack.code is Code.CALLBACKS_REFUSED
    assert lack.subject == {
        "part": "daemon",
        "path": ("/cvmfs/sft.cern.ch",),
        "file": CLIENT,
        "message": "Input/output error",
    }
    assert not [p for p in found.plan.probes if p.place.startswith(CLIENT)]
    assert [p for p in found.plan.probes if not p.in_kernel]  # of its libraries
