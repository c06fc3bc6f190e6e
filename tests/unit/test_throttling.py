"""CPU quotas of both versions of cgroups, from stored trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusetools.host.files import Files
from fusetools.record import throttling
from fusetools.session import Throttled

AUTOGROUP = "proc/sys/kernel/sched_autogroup_enabled"


def tree(root: Path, mounts: str, cgroup: str, **stats: str) -> Files:
    for name, text in (("proc/self/mounts", mounts), ("proc/7/cgroup", cgroup), *stats.items()):
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return Files(root)


def test_version_2_and_a_quota_further_up(tmp_path: Path) -> None:
    own, above = "sys/fs/cgroup/a/b/cpu.stat", "sys/fs/cgroup/a/cpu.stat"
    files = tree(
        tmp_path,
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "0::/a/b\n",
        **{
            own: "usage_usec 9\nnr_periods 5\nnr_throttled 0\nthrottled_usec 0\n",
            above: "usage_usec 9\nnr_periods 5\nnr_throttled 3\nthrottled_usec 1500\n",
        },
    )
    before = throttling.quotas(files, 7)
    assert before == {"/sys/fs/cgroup/a/b": (0, 0), "/sys/fs/cgroup/a": (3, 1_500_000)}
    assert throttling.since(files, "daemon", before) == []
    (tmp_path / above).write_text("nr_throttled 4\nthrottled_usec 2000\n")
    renewed = dict(before)
    throttling.renew(files, renewed)
    assert throttling.since(files, "daemon", renewed) == []
    (tmp_path / above).write_text("nr_throttled 10\nthrottled_usec 701500\n")
    assert throttling.since(files, "daemon", before) == [
        Throttled("/sys/fs/cgroup/a", "daemon", times=7, ns=700_000_000)
    ]


def test_version_1_by_its_cpu_controller(tmp_path: Path) -> None:
    files = tree(
        tmp_path,
        "cgroup /c/memory cgroup rw,memory 0 0\ncgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\n",
        "3:memory:/m\n2:cpu,cpuacct:/x\n",
        **{"c/cpu/x/cpu.stat": "nr_periods 5\nnr_throttled 2\nthrottled_time 900\n"},
    )
    assert throttling.quotas(files, 7) == {"/c/cpu/x": (2, 900)}


def test_unreadable_quotas_are_none(tmp_path: Path) -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    # Outside of this namespace's view; without a controller; an exited process.
    files = tree(tmp_path, mounts, "0::/../other\n", **{"sys/fs/cgroup/cpu.stat": "usage_usec 1\n"})
    assert throttling.quotas(files, 7) == {}
    assert throttling.quotas(files, 8) == {}


@pytest.mark.parametrize(
    ("more", "weighed"),
    [
        ({"sys/fs/cgroup/a/cpu.weight": "100\n"}, "cgroup"),  # above its own
        ({AUTOGROUP: "1\n", "proc/7/autogroup": "/autogroup-9 nice 0\n"}, "autogroup"),
        ({AUTOGROUP: "0\n", "proc/7/autogroup": "/autogroup-9 nice 0\n"}, "nice"),
        ({AUTOGROUP: "1\n"}, "nice"),  # a kernel without them
        ({}, "nice"),
    ],
)
def test_shares_of_a_cpu(tmp_path: Path, more: dict[str, str], weighed: str) -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    files = tree(tmp_path, mounts, "0::/a/b\n", **{"proc/7/stat": "7 (x) S\n", **more})
    assert throttling.weighed_by(files, 7) == weighed
    assert throttling.weighed_by(files, 8) == ""
