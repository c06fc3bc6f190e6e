"""Every kernel here can record function_graph, kprobes and uprobes at once, with stock tools alone.

Recordings of fusetools are compared with the same sources; this test shows that these exist and
agree.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import vm
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from samplefs import SAMPLES, own_counts

HERE = Path(__file__).parent
LIBRARY = SAMPLES / "with-symbols" / "libcvmfs_fuse3.so.0.1.0"
pytestmark = pytest.mark.vm


def callbacks(library: Path) -> dict[str, int]:
    """Return callback -> its offset in the file, as a uprobe needs it."""
    found = {}
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection)
        for symbol in symbols.iter_symbols():
            name = re.match(r"_ZN5cvmfsL\d+(cvmfs_\w+?)E", symbol.name)
            if not name or symbol["st_info"]["type"] != "STT_FUNC" or ".cold" in symbol.name:
                continue
            section = elf.get_section(symbol["st_shndx"])
            found[name[1]] = symbol["st_value"] - section["sh_addr"] + section["sh_offset"]
    return found


def output(*command: str | Path) -> list[str]:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout.splitlines()


def perf_events(perf: Path, recording: Path) -> list[tuple[str, int, int, dict[str, int]]]:
    """Return (event, tid, ns, its numeric fields) of a recording, by the perf that made it."""
    events = []
    for line in output(*(perf, "script", "-i", recording, "--ns", "-F", "tid,time,event,trace")):
        found = re.match(r" *(\d+) +(\d+)\.(\d+): +(\S+): (.*)", line)
        assert found, line
        tid, seconds, nanoseconds, event, rest = found.groups()
        fields = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)\b", rest)}
        events.append((event, int(tid), int(seconds + nanoseconds), fields))
    return events


def graph_calls(recording: Path, function: str) -> dict[int, list[tuple[int, int]]]:
    """Return tid -> (begin, end) in ns of each call of `function`, by `trace-cmd report`."""
    begun: dict[tuple[int, int], int] = {}
    calls = defaultdict(list)
    for line in output("trace-cmd", "report", "-t", "-R", recording):
        found = re.match(
            rf" *.*-(\d+) .* (\d+)\.(\d+): funcgraph_(\w+): +func={function} .*?depth=(\d+)", line
        )
        if not found:
            continue
        tid, ns, depth = int(found[1]), int(found[2] + found[3]), int(found[5])
        if found[4] == "entry":
            begun[tid, depth] = ns
        else:
            calls[tid].append((begun.pop((tid, depth)), ns))
    assert not begun
    return calls


# Recordings depend on it: on one kernel test_kernel_in_guest.py proves as much.
@pytest.mark.usefixtures("campaign")
def test_graph_kprobes_and_uprobes_agree(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    offsets = callbacks(LIBRARY)
    probes = [
        "p:fuse_kernel/lookup_name fuse_lookup_name",
        "r:fuse_kernel/lookup_name__return fuse_lookup_name",
        "p:fuse_kernel/request_end fuse_request_end unique=+64($arg1):u64 opcode=+60($arg1):u32",
    ]
    for name, offset in offsets.items():
        probes.append(f"p:fuse_daemon/{name} {LIBRARY}:{offset:#x} unique=+8(%di):u64")
        probes.append(f"r:fuse_daemon/{name}__return {LIBRARY}:{offset:#x}")
    (tmp_path / "probes").write_text("\n".join(probes) + "\n")
    guest(f"PATH={tools}:$PATH sh {HERE}/full_path.sh {SAMPLES}")

    own = own_counts((tmp_path / "counters").read_text())
    done = json.loads((tmp_path / "workload.json").read_text())["calls"]
    assert own["cvmfs_getattr"] == done["stat"]["count"] == 2 * 211
    assert own["cvmfs_read"] == done["read"]["count"] == 2 * 89

    events = perf_events(tools / "perf", tmp_path / "perf.data")
    seen = Counter(event for event, *_ in events)
    for name in offsets.keys() - {"cvmfs_init", "cvmfs_destroy"}:
        assert seen[f"fuse_daemon:{name}"] == own[name], name
        assert seen[f"fuse_daemon:{name}__return"] == own[name], name

    # Both the kernel's and the daemon's side have the request's number.
    ended = {fields["unique"] for event, *_, fields in events if event.endswith(":request_end")}
    called = {
        fields["unique"]
        for event, *_, fields in events
        if event.startswith("fuse_daemon:") and "unique" in fields and "forget" not in event
    }
    assert called <= ended

    # Both tracers saw the same calls, on one clock: each pair of kprobes encloses its graph call.
    assert "events lost" not in (tmp_path / "trace-cmd.log").read_text()
    calls = graph_calls(tmp_path / "trace.dat", "fuse_lookup_name")
    kprobes = defaultdict(list)
    for event, tid, ns, _ in events:
        if event == "fuse_kernel:lookup_name":
            kprobes[tid].append([ns])
        elif event == "fuse_kernel:lookup_name__return":
            kprobes[tid][-1].append(ns)
    assert kprobes.keys() == calls.keys()
    for tid, pairs in kprobes.items():
        assert len(pairs) == len(calls[tid]) > 100
        for (before, after), (begin, end) in zip(pairs, calls[tid]):
            assert before <= begin <= end <= after
