"""`fusetools sweep` on the sample file system, compared with its own counters and delays."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mounts import HANGS, end_with_the_test, mount_entry, wait_until
from passed import Passed
from recording import COMMAND, run
from sample import Mounter, SampleMount
from schemas import held
from script import needs_perf

import fusetools

pytestmark = pytest.mark.live
PAGES = 1009  # of the sample tree's file `big`


def sweep(directory: Path, *arguments: object) -> dict[str, Any]:
    done = run("sweep", "--json", *arguments, cwd=directory)
    assert done.returncode == 0, done.stderr
    return held("sweep", done.stdout)


def lookups(mount: SampleMount) -> int:
    return mount.affairs()["cvmfs_lookup"].total


def test_the_kernels_cache_cuts_lookups(sample_mount: Mounter, tmp_path: Path) -> None:
    """Counts equal the daemons' own counters."""
    needs_perf()
    mounts = [sample_mount(kernel_cache=seconds) for seconds in (60, 0)]
    before = [lookups(mount) for mount in mounts]
    given = ("--param", "probes=on", "--param", f"uncached={mounts[1].path}")
    options = [word for mount in mounts for word in ("--mount", mount.path)]
    found = sweep(tmp_path, "--repeat", 1, *given, *options, "openlab19")
    counted = [0, 0]
    for one in found["points"]:
        uncached = one["point"]["where"] == str(mounts[1].path)
        counted[uncached] += one["requests"]["lookup"]["count"]["median"]
    assert counted == [lookups(mount) - n for mount, n in zip(mounts, before)]
    assert 0 < counted[0] < counted[1]
    assert [law["verdict"] for law in found["laws"]] == ["holds"] * 3
    assert found["lost"] == 0


def test_a_delay_shows_in_bandwidth_against_block_size(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    """Without the kernel's cache each block is a request, which takes 1 ms longer at any size.

    dd's own time of each run contains the delays of its requests. Load adds to it, differently in
    each run. The best of 7 runs takes some 10 ms without the delay. All would have to be lengthened
    by the delays' time, 63 ms to 1 s: if 1 in 8 was, all 7 would be in 5 of 10^7 runs.
    """
    plain = sample_mount()
    delayed = sample_mount(delay=("read=1ms",))
    sizes = {"4k": 4096, "16k": 16384, "64k": 65536}
    found = sweep(
        tmp_path,
        *("--no-trace", "--caches", "keep", "--repeat", 7, "--param", f"bs={','.join(sizes)}"),
        *("--param", f"where={plain.path},{delayed.path}", "--"),
        *("dd", "if={where}/big", "of=/dev/null", "bs={bs}", "iflag=direct"),
    )
    counters = delayed.counters()
    assert counters["samplefs.ns_delay_read"] >= 1_000_000 * counters["samplefs.n_delay_read"]
    points = {(p["point"]["bs"], p["point"]["where"]): p for p in found["points"]}
    reads = 0
    for name, size in sizes.items():
        without, with_ = (points[name, str(mount.path)] for mount in (plain, delayed))
        blocks = -(-PAGES * 4096 // size)
        reads += 7 * (blocks + (PAGES * 4096 % size == 0))  # the last one finds the end
        for one in (without, with_):
            assert one["bytes"]["low"] == one["bytes"]["high"] == PAGES * 4096  # dd's own report
        fast, slow = (PAGES * 4096 / p["bytes_per_second"]["high"] for p in (without, with_))
        assert fast < blocks * 1e-3 < slow, name
        # dd's time is a part of the run's.
        assert slow < with_["seconds"]["high"]
        assert with_["bytes_per_second"]["high"] < without["bytes_per_second"]["high"]
    assert abs(counters["samplefs.n_delay_read"] - reads) <= 3 * 7


def test_a_sweep_killed_while_it_records_goes_on(sample_mount: Mounter, tmp_path: Path) -> None:
    needs_perf()
    mount = sample_mount()
    arguments = ["--mount", mount.path, "--repeat", 1, "--param", "bs=16k,1M", "--"]
    arguments += ["dd", "if={mount}/big", "of=/dev/null", "bs={bs}"]
    process = subprocess.Popen([*COMMAND, "sweep", *map(str, arguments)], cwd=tmp_path)
    wait_until(
        lambda: any(tmp_path.glob("sweep/runs/*/1/output")) or process.poll() is not None,
        "the first run",
    )
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = sweep(tmp_path, *arguments)
    assert [one["point"]["bs"] for one in found["points"]] == ["16k", "1M"]
    assert found["to_do"] == 0 and found["lost"] == 0
    assert not list(Path("/run/fusetools").glob("*/state.json"))
    for one, place in zip(found["points"], sorted(tmp_path.glob("sweep/runs/*/1"))):
        assert {path.name for path in place.iterdir()} == {"run.json", "output", "perf.data"}
        assert one["seconds"]["runs"] == 1
        read = one["requests"]["read"]
        # The file was read completely, in requests of that size, by the kernel's events.
        size = read["count"]["median"] * read["size_bytes"]["median"]
        assert size == pytest.approx(PAGES * 4096)
        (h,) = fusetools.open(place / "perf.data").hist("read", layers=("request",)).histograms
        assert (h.count, h.percentiles_ns["99"]) == (
            read["count"]["median"],
            read["p99_ns"]["median"],
        )


def test_a_mount_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    options = ("--mount", "/no/mount", "--param", "n=1,2")
    done = run("sweep", *options, "--", "echo", "{n}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.fixture
def null(samples: Path, tmp_path: Path) -> Iterator[Path]:
    """The mount of a file system that does nothing."""
    path = tmp_path / "null"
    path.mkdir()
    process = subprocess.Popen([samples / "nullfs", path], preexec_fn=end_with_the_test)
    try:
        wait_until(lambda: bool(mount_entry(path)), "the mount")
        yield path
    finally:
        process.terminate()
        assert process.wait(HANGS) == 0


def test_rfuse24_shows_the_stages_of_a_creat(null: Path, tmp_path: Path) -> None:
    """A file that is created is looked up, created, flushed and released: nothing else."""
    needs_perf()
    found = sweep(tmp_path, "--repeat", 1, "--mount", null, "--param", "files=101", "rfuse24")
    (point,) = found["points"]
    counted = {name: at["count"]["median"] for name, at in point["requests"].items()}
    assert {name: counted[name] for name in ("create", "flush", "release")} == dict.fromkeys(
        ("create", "flush", "release"), 101
    )
    # Also the directory that they are in.
    assert counted["lookup"] in (101, 102)
    stages = point["requests"]["create"]["stages_ns"]
    assert {"queue", "dispatch", "daemon", "reply", "caller_wakeup", "vfs_exit"} <= stages.keys()
    # It does nothing: the daemon's part is small.
    assert stages["daemon"]["median"] < 0.5 * sum(at["median"] for at in stages.values())


def test_fast17_counts_what_the_file_system_answered(
    samples: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Requests that the laws count are as many as the sample's own count says.

    It begins with 61 files created for each workload that reads or deletes them."""
    needs_perf()
    passed = Passed(samples, tmp_path_factory.mktemp("pass"), "--timeout", "600")
    works = ("files-cr-1th", "files-rd-1th", "files-del-1th", "seq-wr-1th-1f")
    try:
        params = (f"work={','.join(works)}", "files=61", "size=1M", f"native={passed.below}")
        options = [word for param in params for word in ("--param", param)]
        options += ["--as-root", "--repeat", "2", "--mount", str(passed.path)]
        found = sweep(tmp_path, *options, "fast17")
        assert not list(passed.path.iterdir())
        own = passed.counts()
    finally:
        passed.clean()
    laws = {(row["figure"], row["label"].split()[0]): row for row in found["laws"]}
    for figure in ("lookup", "create", "getattr", "write", "flush", "release"):
        row = laws[figure, "work=files-cr-1th"]
        assert (row["low"], row["verdict"]) == (61, "holds"), row
    assert laws["write", "work=seq-wr-1th-1f"]["verdict"] == "holds"
    reads = laws["read", "work=files-rd-1th"]
    assert (reads["low"], reads["high"]) == (2 * 61, 2 * 61)
    right = reads["measured"]["median"] == 2 * 61
    assert reads["verdict"] == ("holds" if right else "differs")
    assert laws["unlink", "work=files-del-1th"]["verdict"] == "holds"
    # Each of two rounds: created by the workload, and before those that read or delete.
    assert own["create"] == 2 * (61 + 61 + 61 + 1)
    assert own["read"] == 2 * reads["measured"]["median"]
    assert own["unlink"] == own["create"]
    assert found["lost"] == 0
    native = [one for one in found["points"] if one["point"]["where"] == str(passed.below)]
    assert len(native) == len(works)
    assert all(one["relative"] is None and one["requests"] == {} for one in native)
    for one in found["points"]:
        if one not in native:
            base = next(n for n in native if n["point"]["work"] == one["point"]["work"])
            ratio = one["operations_per_second"]["median"] / base["operations_per_second"]["median"]
            assert one["relative"]["median"] == pytest.approx(ratio)
    assert {row["figure"] for row in found["published"] if row["here"]} >= {
        *("relative", "operations_per_second", "create/files", "read/files", "write/size"),
        "create.queue_ns",
    }
