"""HostFacts: reading a stored record returns the same record."""

from __future__ import annotations

import json

import pytest

from fusetools.host.facts import HostFacts, Library, Mount, Tool

FULL = HostFacts(
    kernel="6.1.0-56-amd64",
    arch="x86_64",
    cpus=2,
    uid=0,
    capabilities=("cap_sys_admin",),
    tracefs="/sys/kernel/tracing",
    perf=Tool("/usr/bin/perf", "6.1", ("--control",), True),
    mounts=(
        Mount(
            "/mnt/ä b\udcff", "fuse", "cvmfs2", 45, 7, "cvmfs2", (Library("/l", "", 3, "08:01"),)
        ),
        Mount("/x", "fuse.sshfs", "h:", 46, why="no process has this connection"),
    ),
    unreadable=(("/proc/kallsyms", "Permission denied"),),
)


def test_round_trip() -> None:
    assert HostFacts.from_json(FULL.to_json()) == FULL


def test_missing_field_has_its_default() -> None:
    facts = HostFacts.from_json('{"kernel": "5", "arch": "x86_64", "cpus": 1, "uid": 1000}')
    assert facts == HostFacts("5", "x86_64", 1, 1000)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"kernel": 1, "no_such_field": 2}', "not json", '"facts"']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        HostFacts.from_json(text)


def test_unknown_field_inside_a_mount_is_refused() -> None:
    data = json.loads(FULL.to_json())
    data["mounts"][0]["colour"] = "red"
    with pytest.raises(ValueError, match="colour"):
        HostFacts.from_json(json.dumps(data))
