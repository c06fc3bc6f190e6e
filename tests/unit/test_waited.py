"""Requests that wait already when a recording begins."""

from __future__ import annotations

from fusetools.reasons import Code, Reason
from fusetools.results.stuck import Blocked, Stuck, StuckMount
from fusetools.stuck.waited import missing


def one(pid: int, age: float | None, tid: int = 0, path: str = "/mnt/a b/x") -> Blocked:
    return Blocked(pid, tid or pid, "cat", "D", Reason(Code.WAIT_CALL), path=path, age_seconds=age)


def mount(number: int, *callers: Blocked, fstype: str = "fuse.x") -> StuckMount:
    return StuckMount(f"/mnt/a b/{number}", fstype, "", number, "busy", callers=callers)


def test_waiting_callers_are_named_with_the_fix() -> None:
    found = Stuck("6.1", (mount(7, one(12, 90.2), one(13, 12.34, tid=14, path="")),))
    assert missing(found, [7]) == [
        Reason(
            Code.ALREADY_WAITING,
            {
                "path": "/mnt/a b/7",
                "comms": ("cat", "cat"),
                "pids": (12, 13),
                "tids": (12, 14),
                "paths": ("/mnt/a b/x", ""),
                "ages_ns": (90_200_000_000, 12_340_000_000),
            },
            {"callers": 2},
            "fusetools stuck --mount '/mnt/a b/7'",
            "request",
        )
    ]


def test_the_first_three_are_named() -> None:
    found = Stuck("6.1", (mount(7, *(one(pid, 100.0 - pid) for pid in range(12, 17))),))
    (known,) = missing(found, [7])
    assert (known.subject["pids"], known.figures) == ((12, 13, 14), {"callers": 5})


def test_a_busy_mount_lacks_nothing() -> None:
    """Neither do unrecorded mounts, nor autofs, which has no requests."""
    late = one(12, 5.0)
    mounts = (
        mount(7, one(12, 0.9), one(13, None)),
        mount(8, late),
        mount(9, late, fstype="autofs"),
    )
    assert missing(Stuck("6.1", mounts), [7, 9]) == []
