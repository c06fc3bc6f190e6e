"""Recordings made at once on this host, merged, held against stock perf on each."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import wait_until
from script import needs_perf

from fusetools import _core

pytestmark = pytest.mark.live

RECORD = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC"]
SYSTEM_WIDE = [*RECORD, "-a", "-e", "raw_syscalls:sys_enter", "--exclude-perf"]
PER_TASK = [*RECORD, "-e", "sched:sched_switch/call-graph=fp/", "-e", "sched:sched_waking"]
# The same sample type in all events: perf then gives them no PERF_SAMPLE_IDENTIFIER.
ALIKE = [*RECORD, "-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"]
# Each sleep is a switch at least, also where nobody else wants the CPU.
SLEEPS = "for i in $(seq 60); do sleep 0.002; done"
LISTS = "for i in 1 2; do ls -lR /etc /bin/ >/dev/null; sleep 0.02; done"
WORKLOAD = ["sh", "-c", f"{LISTS}; {SLEEPS}"]
SESSION = '{"format": 1}'
FIELDS = "tid,pid,cpu,time,event,trace,ip"


@pytest.fixture(scope="session", autouse=True)
def able_to_record(tmp_path_factory: pytest.TempPathFactory) -> None:
    needs_perf()
    out = tmp_path_factory.mktemp("try") / "perf.data"
    command: list[str | Path] = [*SYSTEM_WIDE, "-o", out, "--", "true"]
    tried = subprocess.run(command, capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"perf cannot record here: {tried.stderr.decode().splitlines()[:1]}")


def record_at_once(directory: Path, *commands: list[str]) -> list[Path]:
    """Runs the recorders beside each other, each with the workload."""
    outputs = [directory / f"{index}.data" for index in range(len(commands))]
    recorders = [
        subprocess.Popen([*command, "-o", out, "--", *WORKLOAD], stderr=subprocess.DEVNULL)
        for command, out in zip(commands, outputs)
    ]
    for recorder in recorders:
        assert recorder.wait() == 0
    return outputs


def perf(*arguments: str | Path) -> list[str]:
    done = subprocess.run(["perf", *map(str, arguments)], capture_output=True, check=False)
    messages = done.stderr.decode(errors="backslashreplace").splitlines()
    assert done.returncode == 0, messages
    # Events that were lost while recording are the recording's own.
    harmless = re.compile(
        r"not valid for|^$|Warning:$|lost \d+ chunks|and lost|Check IO/CPU|^\[ perf "
    )
    assert [line for line in messages if not harmless.search(line)] == []
    return done.stdout.decode(errors="backslashreplace").splitlines()


def script(*recordings: Path) -> list[str]:
    """Return every sample of the recordings, sorted, without padding, with a stack in its sample's
    line.

    A user address is reduced to its place in its page: perf prints an offset of the file if it
    knows the mapping, which one recorder may have lost. Whole addresses: see stacks().
    """
    samples: list[str] = []
    for recording in recordings:
        for line in perf("script", "--ns", "-F", FIELDS, "-i", recording):
            if re.match(r"\s+[0-9a-f]+$", line) and samples:
                address = line.strip()
                samples[-1] += " " + (address if address.startswith("ffff") else address[-3:])
            elif line and "fusetools:session" not in line:
                samples.append(" ".join(line.split()))
    return sorted(samples)


def stacks(*recordings: Path) -> list[str]:
    """Each stack of the recordings, its addresses as recorded, after its thread; sorted."""
    found: list[str] = []
    for recording in recordings:
        for line in perf("script", "-D", "-i", recording):
            if sample := re.search(r"PERF_RECORD_SAMPLE\(.*?\): (\d+/\d+):", line):
                thread = sample[1]
            elif "FP chain: nr:" in line:
                found.append(thread)
            elif address := re.match(r"\.\.\.\.\.\s+\d+: (\w+)$", line):
                found[-1] += " " + address[1]
    return sorted(found)


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    data = path.read_bytes()
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        yield kind, data[at : at + length]
        at += length


@pytest.mark.parametrize(
    "commands",
    [
        (PER_TASK, ALIKE),
        ([*SYSTEM_WIDE, "-z"], [*PER_TASK, "--switch-events"], ALIKE),
    ],
    ids=["without-identifier", "compressed"],
)
def test_the_merge_is_the_union(commands: tuple[list[str], ...], tmp_path: Path) -> None:
    inputs = record_at_once(tmp_path, *commands)
    merged = tmp_path / "merged.data"
    info = _core.merge(inputs, merged, SESSION)
    assert not info["warnings"]
    union = script(*inputs)
    assert len(union) > 1000
    assert script(merged) == union
    assert any(" ffffffff" in line for line in union), "no kernel stacks were recorded"
    assert merged.stat().st_mode & 0o777 == 0o600

    events = [line for path in inputs for line in perf("evlist", "-i", path) if line[0] != "#"]
    assert [line for line in perf("evlist", "-i", merged) if line[0] != "#"] == [
        *events,
        "fusetools:session",
    ]
    report = perf("report", "--stdio", "-i", merged)
    assert any("of event 'fusetools:session'" in line for line in report)
    perf("inject", "-i", merged, "-o", tmp_path / "injected.data")
    assert script(tmp_path / "injected.data") == union
    perf("data", "convert", "--to-json", tmp_path / "merged.json", "-i", merged)
    assert (tmp_path / "merged.json").stat().st_size > 1000
    # In time order as it stands in the file: a reader that trusts the rounds loses nothing.
    written = list(records(merged))
    kinds = [kind for kind, _ in written]
    assert kinds[0] == 9 and kinds.count(82) == 1
    assert len(kinds) - kinds.count(68) == info["records"]
    # Identifier, ip, pid and tid, then the time.
    times = [struct.unpack_from("<Q", record, 32) for kind, record in written if kind == 9]
    assert times == sorted(times)


def test_stacks_are_merged_as_they_were_recorded(tmp_path: Path) -> None:
    inputs = record_at_once(tmp_path, SYSTEM_WIDE, PER_TASK)
    _core.merge(inputs, tmp_path / "merged.data", SESSION)
    addresses = stacks(*inputs)
    assert len(addresses) > 50
    assert stacks(tmp_path / "merged.data") == addresses


def test_merge_keeps_events_of_both_recorders_once(tmp_path: Path) -> None:
    inputs = record_at_once(tmp_path, SYSTEM_WIDE, [*SYSTEM_WIDE, "-e", "raw_syscalls:sys_exit"])
    _core.merge(inputs, tmp_path / "merged.data", SESSION)

    def found(path: Path) -> list[bytes]:
        # MMAP, COMM and MMAP2 whose sample id is all zero were made up by the recorder.
        return [r for kind, r in records(path) if kind in (1, 3, 10) and r[-32:] == bytes(32)]

    first, second = map(found, inputs)
    assert len(set(first) & set(second)) > 20, "the recorders found nothing in common"
    both = found(tmp_path / "merged.data")
    assert set(both) == set(first) | set(second)
    assert len(both) < len(first) + len(second)


def test_a_killed_recorder_leaves_what_the_other_can_explain(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed.data", tmp_path / "whole.data"
    recorder = subprocess.Popen([*SYSTEM_WIDE, "-o", killed], stderr=subprocess.DEVNULL)

    def written() -> bool:
        subprocess.run(WORKLOAD, check=True)
        return killed.exists() and killed.stat().st_size > 1 << 18

    wait_until(written, "what it writes of what it has recorded")
    assert subprocess.run([*ALIKE, "-o", whole, "--", *WORKLOAD], check=False).returncode == 0
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    info = _core.merge([whole, killed], tmp_path / "merged.data", SESSION)
    assert any("killed.data: the recording was never finished" in line for line in info["warnings"])
    merged, of_whole = script(tmp_path / "merged.data"), script(whole)
    assert set(of_whole) <= set(merged)
    assert len(merged) > len(of_whole) + 100
    assert all("raw_syscalls:" in line for line in merged)


def test_a_full_disk_leaves_the_inputs_and_no_output(tmp_path: Path) -> None:
    inputs = record_at_once(tmp_path, SYSTEM_WIDE, PER_TASK)
    before = [path.read_bytes() for path in inputs]
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "fusetools-test", disk], check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk")
    try:
        assert sum(map(len, before)) > 512 << 10
        with pytest.raises(_core.CoreError, match="No space left on device"):
            _core.merge(inputs, disk / "merged.data", SESSION)
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", disk], check=True)
    assert [path.read_bytes() for path in inputs] == before
