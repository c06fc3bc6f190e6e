"""Stacks for flame graphs: frames equal stock perf's, and times equal its switches."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import collapse
import data
import golden
import pytest
from columns import Columns
from fixtures import Invoke

import fusetools
from fusetools import _core
from fusetools._core import Catalogue, Probe
from fusetools.answers.filters import Filters
from fusetools.answers.flame import question
from fusetools.answers.frames import kind_of
from fusetools.cli.flame import command as flame_command
from fusetools.errors import Error
from fusetools.flame import FORMATS
from fusetools.reasons import Code
from fusetools.render.picture import picture
from fusetools.render.text.flame import nothing, render
from fusetools.results.flame import Amount

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples" / "recordings" / "demo.data"


def test_the_help_names_the_formats() -> None:
    (output,) = (one for one in flame_command.params if one.name == "output")
    assert isinstance(output, click.Option) and FORMATS in str(output.help)


pytestmark = pytest.mark.skipif(shutil.which("perf") is None, reason="this host has no perf")


def row(event: str, role: str) -> Probe:
    return Probe(event, "syscall", "", "", role)


def stacks(path: Path, rows: list[Probe], **ask: object) -> Counter[str]:
    found = _core.flame(str(path), rows, {"all": True, **ask})  # type: ignore[typeddict-item]
    assert not found["full"]
    return Counter(found["stacks"])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recording of the CernVM-FS client, and the traced kernel's symbols."""
    folder = tmp_path_factory.mktemp("client")
    return (
        data.unpack("cernvmfs-6.1/perf.data.zst", folder / "perf.data"),
        data.unpack("cernvmfs-6.1/kallsyms.zst", folder / "kallsyms"),
    )


@pytest.mark.parametrize(
    ("symfs", "theirs"), [({}, ["--symfs", "/nosuch"]), ({"symfs": "/"}, [])], ids=["none", "host"]
)
def test_stacks_of_the_client_are_perf_scripts(
    client: tuple[Path, Path], symfs: dict[str, str], theirs: list[str]
) -> None:
    """With this host's programs or none: it is not their host, and both take the same files."""
    path, kallsyms = client
    for event, many in (("sched:sched_switch", 28_000), ("fuse_kernel:queue_request", 5_000)):
        ours = stacks(path, [row(event, "stack")], kallsyms=str(kallsyms), **symfs)
        assert ours == collapse.folded(path, event, "--kallsyms", str(kallsyms), *theirs)
        assert sum(ours.values()) > many
        assert any("request_wait_answer" in stack or "fuse_simple" in stack for stack in ours)


@pytest.fixture(scope="module")
def demo_kallsyms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the kernel's symbols that the demo holds, in the form that stock perf reads."""
    held = re.findall(rb"([0-9a-f]{16}) ([fe]) ([^ \n]+)\n", DEMO.read_bytes())
    assert len(held) > 100
    # Addresses outside of the listed functions have no name.
    names = {at: b"" for at, kind, _ in held if kind == b"e"}
    names |= {at: name for at, kind, name in held if kind == b"f"}
    place = _core.describe(DEMO)["kernel_place"]
    assert place  # perf expects that symbol there
    names[b"%016x" % place[1]] = place[0].encode()
    path = tmp_path_factory.mktemp("demo") / "kallsyms"
    path.write_bytes(
        b"".join(b"%s t %s\n" % (at, n or b"unknown") for at, n in sorted(names.items()))
    )
    return path


def in_kernel(stacks: Counter[str], frames: Sequence[tuple[str, str, bool]]) -> Counter[str]:
    """Return stacks with their kernel frames only: stock perf takes the others from files."""
    kernel = {name for name, _, of_kernel in frames if of_kernel}
    found: Counter[str] = Counter()
    for stack, weight in stacks.items():
        comm, *rest = stack.split(";")
        found[";".join([comm, *(frame for frame in rest if frame in kernel)])] += weight
    return found


def test_stacks_of_the_demo_are_perf_scripts(demo_kallsyms: Path) -> None:
    """By the recording's own contents, whatever host this is."""
    for event, many in (("sched:sched_switch", 500), ("cpu-clock", 50 * 10_101_010)):
        found = _core.flame(str(DEMO), [row(event, "stack")], {"all": True})
        assert found["kernel"]["addresses"] > 20 and found["kernel"]["nameless"] == 0
        options = "--kallsyms", str(demo_kallsyms), "--symfs", "/nosuch"
        theirs = collapse.folded(DEMO, event, *options)
        # As for an idle CPU: no stack was taken.
        for sample in collapse.samples(DEMO, *options):
            if sample.event == event and not sample.frames:
                theirs[sample.stack] += sample.period
        ours, theirs = (
            # perf shows no stack whose frame pointers led to -1, as those of one process here did.
            Counter({s: n for s, n in stacks.items() if not s.startswith("-")})
            for stacks in (
                in_kernel(Counter(found["stacks"]), found["frames"]),
                in_kernel(theirs, found["frames"]),
            )
        )
        assert ours == theirs
        assert sum(ours.values()) > many


def test_time_off_the_cpu_is_what_the_switches_say(client: tuple[Path, Path]) -> None:
    path, kallsyms = client
    switch, waking = "sched:sched_switch", "sched:sched_waking"
    rows = [row(switch, "switch"), row(waking, "waking"), row(switch, "stack")]
    ours = stacks(path, rows, graph="off-cpu", kallsyms=str(kallsyms))
    theirs = collapse.off_cpu(path, "--kallsyms", str(kallsyms), "--symfs", "/nosuch")
    assert ours == theirs
    assert not any(stack.startswith("swapper") for stack in ours)
    for state, frame in (("runnable", "[runnable]"), ("preempted", "[preempted]")):
        only = stacks(path, rows, graph="off-cpu", kallsyms=str(kallsyms), states=[state])
        assert only == Counter({s: n for s, n in theirs.items() if s.endswith(";" + frame)})


def test_no_thread_waits_longer_than_the_recording_takes(client: tuple[Path, Path]) -> None:
    recording = fusetools.open(client[0])
    names: dict[str, float] = defaultdict(float)
    for stack, us in recording.stacks("off-cpu", everything=True).stacks.items():
        names[stack.split(";")[0]] += us
    threads = Counter(re.findall(r"PERF_RECORD_COMM(?: exec)?: ([^:]+):", _tasks(client[0])))
    seconds = recording.counts().facts.seconds
    for name, us in names.items():
        assert us <= max(threads[name], 1) * seconds * 1e6 * 1.001, name


def _tasks(path: Path) -> str:
    command = ["perf", "script", "-i", str(path), "--show-task-events"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_requests_contain_all_of_their_waits(client: tuple[Path, Path]) -> None:
    """A caller's wait for an answer is off the CPU and in a request; its other waits are not."""
    path, kallsyms = client
    recording = fusetools.open(path)
    inside = recording.stacks("off-cpu", kallsyms=str(kallsyms))
    everything = recording.stacks("off-cpu", everything=True, kallsyms=str(kallsyms))

    def of(shown: dict[str, float], frame: str) -> float:
        return sum(us for stack, us in shown.items() if f";{frame};" in stack)

    waiting = "request_wait_answer"
    assert of(inside.stacks, waiting) == pytest.approx(of(everything.stacks, waiting), rel=0.02)
    # A daemon's thread waits for work, and a shell for its child.
    for idle in ("fuse_dev_do_read", "do_wait", "do_sys_poll"):
        assert of(everything.stacks, idle) > 0.1e6
        assert of(inside.stacks, idle) < 0.001 * of(everything.stacks, idle)
    left = inside.left_out
    parts = (inside.total_ns, left.idle.total_ns, left.own.total_ns, left.others.total_ns)
    whole = (everything.total_ns, everything.left_out.others.total_ns)
    assert sum(ns or 0 for ns in parts) == pytest.approx(sum(ns or 0 for ns in whole))


def test_requests_are_as_wide_as_their_callers_waited(client: tuple[Path, Path]) -> None:
    recording = fusetools.open(client[0])
    shown = recording.stacks("requests", kallsyms=str(client[1]))
    stories = Columns(recording.requests())
    waited = (stories.waits == 1) & stories.fated("matched")
    end = stories.runs_ns.copy()
    end[end == 0] = stories.end_ns[end == 0]
    # Requests of one caller at the same time are not counted twice.
    spans = sorted(zip(stories.tid[waited], stories.begin_ns[waited], end[waited]))
    total, last = 0, (0, 0)
    for tid, begin, until in spans:
        begin = max(begin, last[1]) if tid == last[0] else begin
        total += max(int(until) - int(begin), 0)
        last = (tid, max(until, last[1] if tid == last[0] else 0))
    assert shown.total_ns == pytest.approx(total, rel=0.002)
    assert sum(shown.stacks.values()) * 1000 == pytest.approx(shown.total_ns)
    # Figures agree for each operation; the callbacks' own time is that of the calls.
    for operation in ("lookup", "getattr", "readlink", "open", "read", "readdir"):
        only = recording.stacks("requests", operation, kallsyms=str(client[1]))
        assert all(f"[FUSE {operation}]" in stack for stack in only.stacks)
        served = sum(us for s, us in only.stacks.items() if f";cvmfs_{operation}" in s)
        of = stories.of(operation) & waited & (stories.callback_enter_ns > 0)
        reply = stories.reply_ns.copy()
        reply[reply == 0] = stories.end_ns[reply == 0]
        truth = float((reply - stories.callback_enter_ns)[of].sum()) / 1000
        assert served == pytest.approx(truth, rel=0.02), operation


def test_a_recording_holds_the_symbols_of_its_stacks(
    client: tuple[Path, Path], tmp_path: Path
) -> None:
    path, kallsyms = client
    whole = tmp_path / "whole.data"
    mapped = (4242, 0x1000, 0x2000, 0x3000, "/usr/lib/libx.so", b"\x01" * 20, "")
    _core.merge([path], whole, "", kallsyms=kallsyms, maps=[mapped])
    for event in ("sched:sched_switch", "fuse_kernel:queue_request"):
        rows = [row(event, "stack")]
        assert stacks(whole, rows) == stacks(path, rows, kallsyms=str(kallsyms))
        assert _core.flame(str(whole), rows, {"all": True})["kernel"]["nameless"] == 0
        assert _core.flame(str(path), rows, {"all": True})["kernel"]["nameless"] > 50
    assert whole.stat().st_size - path.stat().st_size < 100_000
    command = ["perf", "script", "-i", str(whole), "--show-mmap-events"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    mapping = "[0x1000(0x2000) @ 0x3000 <" + "01" * 20 + ">]: r-xp /usr/lib/libx.so"
    assert mapping in shown
    # Another kernel's symbols are worse than none.
    assert _core.describe(whole)["functions"] == _core.describe(path)["functions"]


def test_symbols_of_another_kernel_are_refused(client: tuple[Path, Path]) -> None:
    path, kallsyms = client
    rows = [row("sched:sched_switch", "stack")]
    named = _core.flame(str(path), rows, {"all": True, "kallsyms": str(kallsyms)})
    assert (
        named["kernel"]["known"]
        and named["kernel"]["addresses"] > 100
        and named["kernel"]["nameless"] == 0
    )
    other, hidden = kallsyms.with_name("moved"), kallsyms.with_name("hidden")
    other.write_text(re.sub(r"(?m)^ffffffff81", "ffffffff91", kallsyms.read_text()))
    hidden.write_text(re.sub(r"(?m)^[0-9a-f]{16}", "0" * 16, kallsyms.read_text()))
    for wrong, why in ((other, "another kernel or boot"), (hidden, "without their addresses")):
        with pytest.raises(Error, match=why) as error:
            fusetools.open(path).stacks("off-cpu", kallsyms=str(wrong))
        assert error.value.what == f"cannot read {wrong}"


def test_a_recording_is_read_without_the_host(
    client: tuple[Path, Path], demo: Path, tmp_path: Path, run: Invoke
) -> None:
    """Functions that no recording can name stay unnamed, and the output gives the command that
    names them."""
    shown = fusetools.open(client[0]).stacks("off-cpu", everything=True)
    named = (shown.kernel, shown.user)
    assert [one.source for one in named] == ["", ""]
    assert shown.kernel.nameless == shown.kernel.addresses > 100
    assert shown.user.nameless == shown.user.addresses > 10
    merge = f"fusetools merge {client[0]} -o {client[0]}"
    assert [note.code for note in shown.notes] == [Code.KERNEL_UNNAMED, Code.USER_UNNAMED]
    assert {note.fix for note in shown.notes} == {merge}
    figures = [dict(note.figures) for note in shown.notes]
    assert figures == [{"nameless": n.nameless, "addresses": n.addresses} for n in named]
    assert not any(f.startswith("vfs_") for stack in shown.stacks for f in stack.split(";"))
    by_file = fusetools.open(client[0]).stacks("off-cpu", kallsyms=str(client[1]))
    assert by_file.kernel.source == str(client[1]) and by_file.kernel.nameless == 0
    # The demo holds everything that it needs, except stripped symbols.
    figures = json.loads(run("flame", "--offcpu", "-i", "demo.data", "--json").output)
    assert figures["kernel"]["source"] == figures["user"]["source"] == "recording"
    assert figures["kernel"]["nameless"] == 0 < figures["kernel"]["addresses"]
    assert figures["cut_ns"] == 0
    text = run("flame", "--offcpu", "-i", "demo.data", "-o", "-").output
    assert "cvmfs::cvmfs_lookup" in run("flame", "-i", "demo.data", "-o", "-").output
    assert ";__x64_sys_openat;" in text


@pytest.mark.parametrize(
    ("cut", "deep", "unknown", "mended"),
    [
        (6000, 0, 0, True),
        (6000, 2000, 3000, True),
        (6000, 0, 6000, False),
        (6000, 2500, 3500, False),
        (6000, 0, 5995, False),  # nobody sees the rest
        (6000, 0, 5, True),
    ],
)
def test_copies_are_the_fix_of_what_was_not_copied(
    monkeypatch: pytest.MonkeyPatch, cut: int, deep: int, unknown: int, mended: bool
) -> None:
    """If no table continues a copied stack, another copy gives no more."""
    ours = _core.flame

    def flame(path: str, rows: Any, ask: Any) -> Any:
        found = ours(path, rows, ask)
        total = found["shown"]["ns"]
        shares = {"cut": cut, "cut_copied": deep, "cut_unknown": unknown, "cut_daemons": cut}
        return {**found, "daemons": 0, **{k: n * (total // 10000) for k, n in shares.items()}}

    monkeypatch.setattr(_core, "flame", flame)
    recording = fusetools.open(DEMO)
    assert recording.session.call_graph == "dwarf"
    notes = {note.code: note for note in recording.stacks("off-cpu").notes}
    assert round(notes[Code.STACKS_CUT].figures["time_share"], 3) == 0.6
    assert not notes[Code.STACKS_CUT].fix  # all were copied
    recording._source.session = replace(recording.session, call_graph="auto")
    notes = {note.code: note for note in recording.stacks("off-cpu").notes}
    assert round(notes[Code.STACKS_CUT].figures["time_share"], 3) == 0.6
    fix = "fusetools record --call-graph dwarf -- WORKLOAD"
    assert notes[Code.STACKS_CUT].fix == (fix if mended else "")
    assert (Code.STACKS_TOO_DEEP in notes) == bool(deep)
    lost = notes.get(Code.STACKS_WITHOUT_TABLES)
    assert (lost is not None) == (unknown > 1000)
    if lost:
        assert abs(lost.figures["time_share"] - unknown / 10_000) < 0.0006


@pytest.mark.skipif(shutil.which("strace") is None, reason="this host has no strace")
@pytest.mark.parametrize(
    "command",
    [
        ["flame", "--offcpu", "-o", "x.svg"],
        ["flame", "--json"],
        ["flame", "--requests", "-o", "x.html"],
        ["report", "-o", "x.html"],
        ["hist"],
        ["stages"],
        ["slow"],
        ["count"],
        ["errors"],
        ["queue"],
        ["export", "--format", "perfetto", "-o", "x.json"],
    ],
)
def test_nothing_of_the_host_is_opened(command: list[str], demo: Path) -> None:
    """Except for those of the interpreter and its libraries."""
    trace = demo / "trace"
    name, *rest = command
    recording = ["demo.data"] if name == "report" else ["-i", "demo.data"]
    ran = [sys.executable, "-m", "fusetools", name, *recording, *rest]
    calls = "trace=open,openat,openat2,execve,connect,uname"
    strace = ["strace", "-f", "-qq", "-z", "-e", calls, "-o", str(trace)]
    subprocess.run([*strace, *ran], check=True, capture_output=True, cwd=demo)
    library = tuple(
        str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, ROOT, demo, "/usr/lib")
    )
    own = re.compile(
        r"/etc/(ld\.so\.(cache|preload)|localtime|terminfo)|/usr/(share|lib)/(locale|zoneinfo|terminfo)"
        r"|/proc/(self|\d+)/(maps|cgroup|mountinfo|status|schedstat|fd)|/sys/(fs/cgroup|devices/system/(cpu|node))"
        r"|/dev/(null|urandom|tty|pts)|/usr/bin/env|/lib(64)?/|/usr/local/lib/python"
    )
    seen = 0
    for line in trace.read_text().splitlines():
        path = re.search(r'"((?:[^"\\]|\\.)*)"', line)
        if path is None:
            continue
        seen += 1
        full = str((demo / path[1]).resolve())
        assert full.startswith(library) or own.match(path[1]), line
        assert not re.search(r"kallsyms|samplefs|/usr/bin/(grep|perf)|libfuse|/lib/debug", line), (
            line
        )
    assert seen > 20


def test_filters(client: tuple[Path, Path]) -> None:
    recording = fusetools.open(client[0])

    def total(*operations: str, **more: object) -> float:
        return recording.stacks("off-cpu", *operations, **more).total_ns or 0  # type: ignore[arg-type]

    whole = total()
    lookup = total("lookup")
    assert 0 < lookup < whole
    named = {c.operation for c in recording.counts().counts if c.layer == "request"}
    assert sum(total(name) for name in named) == whole
    assert total(layers=["daemon"]) + total(layers=["syscall"]) == whole
    assert total(filters=Filters(comms=("no such",))) == 0
    comms = {
        stack.split(";")[0] for stack in recording.stacks("off-cpu", layers=["syscall"]).stacks
    }
    by_comm = [total(filters=Filters(comms=(comm,))) for comm in comms]
    assert sum(by_comm) == pytest.approx(whole, rel=0.01)
    half = round(recording.counts().facts.seconds * 5e8)
    halves = [total(filters=Filters(end_ns=half)), total(filters=Filters(start_ns=half))]
    assert sum(halves) == pytest.approx(whole) and min(halves) > 0
    with pytest.raises(Error, match="no FUSE operation matches nosuch"):
        recording.stacks("off-cpu", "nosuch")


def test_the_kernels_functions_by_wall_time(client: tuple[Path, Path], tmp_path: Path) -> None:
    dat = data.unpack("cernvmfs-6.1/trace.dat.zst", tmp_path / "trace.dat")
    _core.merge([client[0], dat], tmp_path / "merged.data", "")
    recording = fusetools.open(tmp_path / "merged.data")
    roots = recording.graph().roots
    shown = recording.stacks("graph", everything=True)
    assert sum(shown.stacks.values()) * 1000 == pytest.approx(sum(root.total_ns for root in roots))
    for root in roots:
        of = (us for s, us in shown.stacks.items() if s.split(";")[0] == root.function)
        assert sum(of) * 1000 == pytest.approx(root.total_ns)
    busy = recording.stacks("graph")
    assert not any(stack.startswith("fuse_dev_read") for stack in busy.stacks)
    assert (busy.total_ns or 0) + (busy.left_out.idle.total_ns or 0) == shown.total_ns
    (lookup,) = recording.graph("fuse_lookup").roots
    assert recording.stacks("graph", "fuse_lookup").total_ns == lookup.total_ns
    # The merged recording took the kernel's symbols from the trace.dat.
    switches = [row("sched:sched_switch", "stack")]
    assert stacks(tmp_path / "merged.data", switches) == stacks(
        client[0], switches, kallsyms=str(client[1])
    )


@pytest.mark.parametrize(
    ("name", "path", "in_kernel", "kind"),
    [
        ("entry_SYSCALL_64_after_hwframe", "", True, "system call"),
        ("__x64_sys_newfstatat", "", True, "system call"),
        ("fuse_lookup", "", True, "FUSE"),
        ("request_wait_answer", "", True, "FUSE"),
        ("__schedule", "", True, "scheduler"),
        ("vfs_statx", "", True, "VFS"),
        ("walk_component", "", True, "VFS"),
        ("ext4_lookup", "", True, "kernel"),
        ("cvmfs::cvmfs_lookup", "/usr/lib/libcvmfs_fuse3.so.2.12.0", False, "daemon"),
        ("main", "/usr/bin/samplefs", False, "daemon"),
        ("__GI___fstatat64", "/usr/lib/libc.so.6", False, "library"),
        ("main", "/usr/bin/find", False, "program"),
        ("[FUSE lookup]", "", False, "FUSE"),
        ("cvmfs_lookup", "", False, "daemon"),
        ("[newfstatat]", "", False, "system call"),
        ("find", "", False, None),
        ("[unknown]", "", False, None),
    ],
)
def test_kinds_of_frames(name: str, path: str, in_kernel: bool, kind: str | None) -> None:
    assert kind_of(name, path, in_kernel, ["samplefs"], ["cvmfs_lookup"]) == kind


# The command


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEMO, "demo.data")
    return tmp_path


@pytest.mark.parametrize("graph", ["--offcpu", "--offwake", "--requests"])
def test_notes_of_a_flame_graph(graph: str, demo: Path, run: Invoke) -> None:
    result = run("flame", graph, "-i", "demo.data", "-o", "x.folded")
    assert result.exit_code == 0, result.output
    golden.check(f"flame{graph[1:]}.txt", result.output)
    figures = json.loads(run("flame", graph, "-i", "demo.data", "--json").output)
    text = Path("x.folded").read_text()
    weights = [float(line.rpartition(" ")[2]) for line in text.splitlines()]
    assert sum(weights) * 1000 == pytest.approx(figures["total_ns"])
    assert run("flame", graph, "-i", "demo.data", "-o", "-").output == text


def test_pictures(demo: Path, run: Invoke) -> None:
    for name, begin in (
        ("a.html", "<!"),
        ("a.svg", "<?xml"),
        ("a.json", "{"),
        ("a.firefox.json", "{"),
        ("a.folded", "grep;"),
    ):
        assert run("flame", "--offcpu", "-i", "demo.data", "-o", name).exit_code == 0
        assert Path(name).read_text().startswith(begin)
    assert "Waiting on FUSE mounts: demo.data" in Path("a.svg").read_text()
    assert run("flame", "--offcpu", "lookup", "-i", "demo.data").exit_code == 0
    assert "Waiting on FUSE mounts (lookup): demo.data" in Path("flame.html").read_text()
    same = ("flame", "--offcpu", "-i", "demo.data", "--diff", "demo.data", "--normalise")
    assert run(*same, "-o", "d.folded").exit_code == 0
    for line in Path("d.folded").read_text().splitlines():
        before, after = line.split()[-2:]
        assert before == after
    turned = run("flame", "--offcpu", "-i", "demo.data", "-o", "-", "--reverse").output
    for line in turned.splitlines():
        stack, _, weight = line.rpartition(" ")
        assert f"{';'.join(stack.split(';')[::-1])} {weight}\n" in Path("a.folded").read_text()
    failed = run("flame", "--offcpu", "-i", "demo.data", "-o", "a.png")
    assert failed.exit_code == 1 and "cannot draw a.png" in failed.output


def test_a_difference_leaves_the_tracer_out(demo: Path) -> None:
    """Overhead differs by the recorded events. Few samples differ by chance."""
    shown = fusetools.open(str(demo / "demo.data")).stacks("on-cpu")
    traced = {
        "cat;read;handle_swbp;uprobe_perf_func": 100.0,
        "cat;read;perf_trace_run_bpf_submit": 50.0,
        "cat;perf_tool_main": 8.0,
        "cat;read": 10.0,
    }
    kinds = dict.fromkeys(("read", "handle_swbp", "perf_trace_run_bpf_submit"), "kernel")
    kinds["perf_tool_main"] = "program"
    before = replace(shown, stacks=traced, order=(), kinds=kinds, unit="us", count=500)
    assert before.untraced() == {"cat;perf_tool_main": 8.0, "cat;read": 10.0}
    after = replace(before, stacks={"cat;read": 20.0}, count=99)
    lines = picture(after, before, "-").splitlines()
    assert lines == ["cat;perf_tool_main 8 0", "cat;read 10 20"]
    text = " ".join(render(after, before, "flame.svg").split())
    assert "left out: the tracer's own functions, 150 us before, 0 ns now" in text
    assert "warning: few samples (500 before, 99 now): differences may be chance" in text
    text = render(replace(after, count=100), replace(before, stacks=after.stacks), "flame.svg")
    assert "left out: the tracer" not in text and "warning: few" not in text
    assert "handle_swbp" in picture(before, None, "-")  # one recording shows all


def test_the_fix_draws_the_same_graph_of_the_same_recording(demo: Path) -> None:
    shown = fusetools.open(str(demo / "demo.data")).stacks("off-cpu")
    idle = replace(shown.left_out, idle=Amount(13, 5))
    *_, fix = nothing(replace(shown, stacks={}, left_out=idle), False, "a b.data")
    assert fix == "fusetools flame --offcpu -i 'a b.data' --all"
    *_, fix = nothing(replace(shown, graph="on-cpu", left_out=idle), False, "perf.data")
    assert fix == "fusetools flame --all"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["flame", "--graph"],
            ["holds no calls of kernel functions", "fusetools record --backend"],
        ),
        (["flame", "--offcpu", "write"], ["holds no wait inside a request that was asked for"]),
        (["flame", "--offcpu", "--kallsyms", "nosuch"], ["cannot read nosuch"]),
        (["flame", "--offcpu", "--symfs", "nosuch"], ["cannot read nosuch", "no such directory"]),
    ],
)
def test_missing_stacks_are_reported(
    arguments: list[str], said: list[str], demo: Path, run: Invoke
) -> None:
    result = run(*arguments, "-i", "demo.data")
    assert result.exit_code == 1
    for words in said:
        assert words in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("graph", "events", "stacks", "said"),
    [
        ("on-cpu", ["fuse:fuse_request_send"], [], "x holds no samples of what ran"),
        ("off-cpu", ["fuse:fuse_request_send"], [], "x holds no switches of tasks"),
        ("off-cpu", ["sched:sched_switch"], [], "x holds no stacks"),
        ("requests", ["sched:sched_switch"], ["sched:sched_switch"], "x holds no requests"),
    ],
)
def test_flame_reports_missing_events(
    graph: str, events: list[str], stacks: list[str], said: str
) -> None:
    described: Any = {"events": events, "stacks": stacks, "samples": [], "off_cpu": False}
    with pytest.raises(Error) as error:
        question("x", graph, Catalogue([]), described, False)
    assert error.value.what == said
    assert error.value.fix == "fusetools record -- WORKLOAD"


@pytest.mark.parametrize("graph", ["off-cpu", "off-wake", "requests"])
def test_the_order_in_time_holds_each_stack(graph: str, client: tuple[Path, Path]) -> None:
    for path in (DEMO, client[0]):
        shown = fusetools.open(path).stacks(graph)
        sums: Counter[str] = Counter()
        for stack, us in shown.order:
            sums[stack] += round(us * 1000)
        whole = {stack: round(us * 1000) for stack, us in shown.stacks.items()}
        assert len(shown.order) > len(sums) > 10
        if len(shown.order) < 20_000:
            assert sums == whole
        else:  # of many, the earliest
            assert len(shown.order) == 20_000 and sums <= Counter(whole) and path != DEMO


def test_the_order_of_requests_is_that_of_their_begin() -> None:
    recording = fusetools.open(DEMO)
    rows = Columns(recording.requests())
    waited = [row for row in zip(rows.begin_ns, rows.operation, rows.tid, rows.waits) if row[3]]
    threads = dict.fromkeys(tid for _, _, tid, _ in sorted(waited))
    assert threads
    wanted = [op for tid in threads for _, op, of, _ in sorted(waited) if of == tid]
    frames = [stack.split(";") for stack, _ in recording.stacks("requests").order]
    queued = [stack for stack in frames if stack[-1] == "[queue]"]
    assert [re.sub(r"\[FUSE (.*)\]", r"\1", stack[-2]) for stack in queued] == wanted


@pytest.mark.parametrize("graph", ["off-cpu", "off-wake", "requests"])
def test_a_sampled_thread_no_longer_waits(graph: str) -> None:
    events = ["sched:sched_switch", "fuse:fuse_request_send"]
    samples = [("cpu-clock", True)]
    described: Any = {"events": events, "stacks": events, "samples": samples, "off_cpu": False}
    rows = question("x", graph, Catalogue([], events).inferred([]), described, False)
    assert [row.event for row in rows if row.role == "sample"] == ["cpu-clock"]


def test_waits_come_from_perfs_own_event_where_no_switch_was_recorded() -> None:
    events = ["offcpu-time", "fuse:fuse_request_send"]
    described: Any = {"events": events, "stacks": [], "samples": [], "off_cpu": True}
    (row,) = question("x", "off-cpu", Catalogue([], events).inferred([]), described, False)
    assert (row.event, row.role) == ("offcpu-time", "stack")
    by_request = question("x", "off-cpu", Catalogue([], events).inferred([]), described, True)
    assert {"stack", "begin"} <= {row.role for row in by_request}
    described["events"] = [*events, "sched:sched_switch"]
    described["stacks"] = ["sched:sched_switch"]
    rows = question(
        "x", "off-cpu", Catalogue([], described["events"]).inferred([]), described, False
    )
    assert "offcpu-time" not in {row.event for row in rows}
