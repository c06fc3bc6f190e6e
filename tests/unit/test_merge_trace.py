"""function_graph events of trace.dat in a merged recording, compared with trace-cmd and perf."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import test_merge as merge

from fusetools import _core, errors
from fusetools.record import manual_merge

RECORDINGS = {name: str(Path(path).parent) for name, path in merge.RECORDINGS.items()}
SMALL = [name for name in RECORDINGS if name != "cernvmfs"]
TRACES = [*((name, "trace.dat") for name in RECORDINGS), ("7.2", "trace-funcgraph-args.dat")]

needs_trace_cmd = pytest.mark.skipif(shutil.which("trace-cmd") is None, reason="no trace-cmd here")


class Call(NamedTuple):
    """An entry or exit: thread, CPU, time in ns, which, depth, function."""

    tid: int
    cpu: int
    time: str
    event: str
    depth: int
    function: str


def unpack(name: str, file: str, directory: Path) -> Path:
    packed = merge.DATA / RECORDINGS[name] / f"{file}.zst"
    if not packed.exists():
        pytest.skip(f"the shared recording {packed} is not here")
    unpacked = directory / f"{name}-{file}"
    subprocess.run(["zstd", "-dqf", packed, "-o", unpacked], check=True)
    return unpacked


def by_perf(merged: Path, script: list[str]) -> Iterator[Call]:
    """Return events as stock perf script prints them, with the merged file's names."""
    symbols: dict[int, set[str]] = {}
    text = merged.read_bytes()
    for start, name in re.findall(rb"([0-9a-f]{16}) [tTwW] ([^\s\0]+)", text):
        symbols.setdefault(int(start, 16), set()).add(name.decode())
    starts = sorted(symbols)
    for sample in script:
        match = re.match(
            r"\d+/(\d+) \[(\d+)\] ([\d.]+): ftrace:(funcgraph_\w+): .*? \((\d+)\).* (\w+)$", sample
        )
        if match:
            tid, cpu, time, event, depth, address = match.groups()
            # The address may be some bytes into the function, never many.
            start = starts[bisect.bisect_right(starts, int(address, 16)) - 1]
            assert int(address, 16) - start <= 16
            for function in symbols[start]:
                yield Call(int(tid), int(cpu), time, event, int(depth), function)


def by_trace_cmd(dat: Path) -> Iterator[Call]:
    """Return events as `trace-cmd report -R` prints them."""
    report = subprocess.run(
        ["trace-cmd", "report", "-R", "-t", "-i", dat], capture_output=True, check=True
    )
    for line in report.stdout.decode(errors="replace").splitlines():
        match = re.search(
            r"-(\d+)\s+\[(\d+)\]\s+([\d.]+): (funcgraph_\w+):\s+func=(\S+) .*?depth=(\d+)", line
        )
        if match:
            tid, cpu, time, event, function, depth = match.groups()
            yield Call(int(tid), int(cpu), time, event, int(depth), function)


@merge.needs_perf
@needs_trace_cmd
@pytest.mark.parametrize(("name", "file"), TRACES, ids=lambda value: str(value))
def test_every_event_is_as_trace_cmd_reads_it(name: str, file: str, tmp_path: Path) -> None:
    recording = unpack(name, "perf.data", tmp_path)
    dat = unpack(name, file, tmp_path)
    merged = tmp_path / "merged.data"
    assert not _core.merge([recording, dat], merged, merge.SESSION)["warnings"]
    expected = list(by_trace_cmd(dat))
    assert len(expected) > 200
    # Several names can share an address; trace-cmd prints one of them.
    script, perfs_own = merge.script(merged), merge.script(recording)
    found = list(by_perf(merged, script))
    assert not Counter(expected) - Counter(found)
    nameless = Counter(call._replace(function="") for call in set(found))
    assert set(nameless) == {call._replace(function="") for call in expected}

    # perf's records are present unchanged, in their order.
    others = [line for line in script if " ftrace:funcgraph_" not in line]
    assert merge.without_session(others) == perfs_own
    assert len(script) == 1 + len(perfs_own) + len(expected)


@merge.needs_perf
@pytest.mark.parametrize("name", SMALL)
def test_every_event_is_in_the_stored_report(name: str, tmp_path: Path) -> None:
    merged = tmp_path / "merged.data"
    inputs = [unpack(name, "perf.data", tmp_path), unpack(name, "trace.dat", tmp_path)]
    _core.merge(inputs, merged, merge.SESSION)
    found = set(by_perf(merged, merge.script(merged)))
    entries = leaves = exits = 0
    for line in unpack(name, "trace-cmd-report.txt", tmp_path).read_text().splitlines():
        # An entry and its exit without a call between them are one line, which ends in (); .
        match = re.search(r"-(\d+)\s+\[(\d+)\]\s+([\d.]+): (funcgraph_\w+):[^|]*\|( +)(\S*)", line)
        if not match:
            continue
        tid, cpu, time, event, indent, function = match.groups()
        depth = len(indent) // 2 - 1
        if event == "funcgraph_exit":
            exits += 1
            assert any(
                Call(int(tid), int(cpu), time, event, depth, call.function) == call
                for call in found
                if call.time == time
            )
        else:
            entries += 1
            leaves += function.endswith("();")
            function = function.split("(")[0]
            assert Call(int(tid), int(cpu), time, event, depth, function) in found
    nameless = [call.event for call in {call._replace(function="") for call in found}]
    assert Counter(nameless) == {"funcgraph_entry": entries, "funcgraph_exit": exits + leaves}
    assert entries > 1000


@merge.needs_perf
def test_perf_reads_it_in_every_way(tmp_path: Path) -> None:
    merged = tmp_path / "merged.data"
    inputs = [unpack("6.1", "perf.data", tmp_path), unpack("6.1", "trace.dat", tmp_path)]
    _core.merge(inputs, merged, merge.SESSION)
    events = ["ftrace:funcgraph_entry", "ftrace:funcgraph_exit", "fusetools:session"]
    assert sorted(merge.perf("evlist", "-i", merged)[0][-4:-1]) == events
    report = "\n".join(merge.perf("report", "--stdio", "-i", merged)[0])
    assert all(f"of event '{event}'" in report for event in events)
    injected = tmp_path / "injected.data"
    merge.perf("inject", "-i", merged, "-o", injected)
    assert merge.script(injected) == merge.script(merged)
    merge.perf("data", "convert", "--to-json", tmp_path / "json", "-i", merged)
    samples = (tmp_path / "json").read_text().count('"timestamp"')
    assert samples == len(merge.script(merged)) > 2000


@merge.needs_perf
def test_processes_come_from_perfs_records(tmp_path: Path) -> None:
    """Threads of the daemon, whose process is in perf's COMM and FORK records."""
    merged = tmp_path / "merged.data"
    inputs = [unpack("cernvmfs", "perf.data", tmp_path), unpack("cernvmfs", "trace.dat", tmp_path)]
    _core.merge(inputs, merged, "")
    processes: dict[int, set[int]] = {}
    of_graph: dict[int, set[int]] = {}
    for line in merge.script(merged):
        pid, tid = map(int, line.split(" ", 1)[0].split("/"))
        which = of_graph if " ftrace:funcgraph_" in line else processes
        which.setdefault(tid, set()).add(pid)
    both = set(processes) & set(of_graph)
    assert sum(1 for tid in both if processes[tid] != {tid}) >= 3, "no threads to look at"
    assert {tid: of_graph[tid] for tid in both} == {tid: processes[tid] for tid in both}


def test_another_clock_is_refused(tmp_path: Path) -> None:
    recording, dat = unpack("6.1", "perf.data", tmp_path), unpack("6.1", "trace.dat", tmp_path)
    data = dat.read_bytes()
    for clock, why in (b"[boot]", "different clocks"), (b"[tick]", "trace-cmd record -C mono"):
        dat.write_bytes(data.replace(b"[mono]", clock))
        with pytest.raises(_core.CoreError, match=why):
            _core.merge([recording, dat], tmp_path / "merged", "")


def test_traces_of_another_machine_are_refused(tmp_path: Path) -> None:
    inputs = [unpack("6.1", "perf.data", tmp_path), unpack("cernvmfs", "trace.dat", tmp_path)]
    with pytest.raises(errors.Error, match="different hosts") as caught:
        manual_merge.merge([str(path) for path in inputs], str(tmp_path / "merged"))
    assert caught.value.fix == errors.RECORD


def test_a_damaged_trace_gives_an_error_or_what_is_left(tmp_path: Path) -> None:
    recording, dat = unpack("6.1", "perf.data", tmp_path), unpack("6.1", "trace.dat", tmp_path)
    data = dat.read_bytes()
    merged = tmp_path / "merged"
    whole = _core.merge([recording, dat], merged, "")["records"]
    salvaged = set()
    for cut in range(0, len(data), len(data) // 60):
        dat.write_bytes(data[:cut])
        try:
            info = _core.merge([recording, dat], merged, "")
        except _core.CoreError:
            continue
        assert any("cut short" in warning for warning in info["warnings"])
        assert info["records"] <= whole
        salvaged.add(info["records"])
    assert len(salvaged) > 1
    # The first page of events, and one in the middle.
    start = len(data) - 22 * 4096
    for page in (start, start + 9 * 4096):
        for offset in range(0, 128, 4):
            for value in (b"\xff" * 4, b"\0" * 4, b"\x1d\0\0\0"):
                place = page + offset
                dat.write_bytes(data[:place] + value + data[place + 4 :])
                _core.merge([recording, dat], merged, "")
