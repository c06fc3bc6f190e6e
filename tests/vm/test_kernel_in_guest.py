"""fusetools record with function_graph and kprobes: one perf.data contains all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import vm
from columns import Columns
from samplefs import (
    FAILS,
    FUSETOOLS,
    OWN,
    RUNNING,
    SAMPLES,
    TRACING,
    counts,
    mount,
    own,
    until_recording,
)

import fusetools

# The kernel accepts a probe on a function of a missing module.
PLACED = """
from fusetools.plan.events import Probe
from fusetools.record.tracefs import Tracefs
fs = Tracefs("/sys/kernel/tracing")
probes = [
    Probe(f"fuse_kernel:at{i}", "p", place, "kernel", "", "", "entry")
    for i, place in enumerate(("fuse_lookup", "elsewhere:fuse_lookup"))
]
for probe in probes:
    fs.add(probe)
enable = fs.root / "events" / "fuse_kernel" / "at0" / "enable"
enable.write_text("1")
print(fs.unplaced(probes))
enable.write_text("0")
fs.remove([probe.event for probe in probes])
raise SystemExit
"""
pytestmark = pytest.mark.vm

MOUNT = f"""set -e
{mount("--delay statfs=5ms")}
{RUNNING}{FAILS}
ftrace() {{
  cd {TRACING}
  grep -H -m 3 . current_tracer trace_clock tracing_on set_ftrace_filter set_ftrace_notrace \\
      set_graph_function set_ftrace_pid set_event dynamic_events uprobe_events kprobe_events
  grep -H . /sys/kernel/tracing/events/*/enable | grep -v ':0$' || true
  find /sys/fs/cgroup -name 'fusetools*'
  ls instances
  running
  cd - > /dev/null
}}
ftrace > before
"""
# Stages of a request, by the event that shows each on some kernel.
STAGES = {
    "begin": (
        "fuse_kernel:queue_request_and_unlock",
        "fuse_kernel:fuse_dev_queue_req",
        "fuse:fuse_request_send",
    ),
    "sent": ("fuse_kernel:fuse_copy_args", "fuse:fuse_request_sent"),
    "end": ("fuse_kernel:fuse_request_end", "fuse:fuse_request_end"),
}


class Script:
    """Stock perf's output for a recording."""

    def __init__(self, text: str) -> None:
        self.events = Counter[str]()
        self.numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)  # (connection, unique)
        self.calls: dict[str, int] = Counter()  # by function_graph
        self.spans: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.probes: dict[tuple[str, int], list[int]] = defaultdict(list)
        open_: dict[int, list[tuple[str, int]]] = defaultdict(list)
        last = 0
        self.in_order = True
        for line in text.splitlines():
            found = re.match(r" *(\d+) +(\d+)\.(\d{9}): +([\w-]+:\w+): ?(.*)", line)
            if not found:
                continue
            tid, time, event, rest = int(found[1]), int(found[2] + found[3]), found[4], found[5]
            self.in_order = self.in_order and time >= last
            last = time
            self.events[event] += 1
            if event == "ftrace:funcgraph_entry":
                function = rest.split("(")[0].removeprefix("-->").strip()
                self.calls[function] += 1
                open_[tid].append((function, time))
            elif event == "ftrace:funcgraph_exit":
                function = rest.split("(")[0].removeprefix("<--").strip()
                if open_[tid] and open_[tid][-1][0] == function:
                    begin = open_[tid].pop()[1]
                    self.spans[function, tid].append((begin, time))
            elif event.startswith("fuse_kernel:"):
                self.probes[event.partition(":")[2], tid].append(time)
            unique = re.search(r"\b(?:unique=|req )(\d+)", rest)
            connection = re.search(r"\bconnection[= ](\d+)", rest)
            if unique:
                number = (int(connection[1]) if connection else 0, int(unique[1]))
                self.numbers[event].append(number)

    def stage(self, name: str) -> list[tuple[int, int]]:
        (event,) = [event for event in STAGES[name] if event in self.numbers]
        return self.numbers[event]


# Options of each way to record one workload.
WAYS = {"graph": "", "kprobe": "--backend kprobe"}


@pytest.fixture(scope="session")
def recorded(kernel: vm.Kernel, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with WAY.data of a workload by each of the WAYS, its output, the sample's counts
    before and after, and leftovers."""
    folder = tmp_path_factory.mktemp(f"recorded-{kernel.suite}")
    script = f"""{MOUNT}
        export PATH={tools}:$PATH
        cat /proc/kallsyms > kallsyms
        stat -c %d /run/mount > device
        {OWN}"""
    for way, options in WAYS.items():
        script += f"""
        own {way}.before
        {FUSETOOLS} record {options} -o {way}.data -- \
          {SAMPLES}/workload mixed --processes 2 --few /run/mount > {way}.workload 2> {way}.said
        own {way}.after
        ftrace > {way}.left"""
    script += f"""
        {FUSETOOLS} count --json -i graph.data > count.json"""
    vm.guest(kernel, folder)(script)
    return folder


def answer(folder: Path, command: str, way: str = "graph") -> str:
    """Return a command's --json about a recording, on this host."""
    return subprocess.run(
        [FUSETOOLS, command, "--json", "-i", folder / f"{way}.data"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip


def script(tools: Path, folder: Path, way: str, fields: str) -> str:
    """Return stock perf's output for a recording, on this host, with the guest's kernel symbols."""
    data = folder / f"{way}.data"
    command: list[str | Path] = [tools / "perf", "script", "-i", data, "-F", fields, "--ns"]
    if fields != "event":  # functions of function_graph have names, too
        command += ["--kallsyms", folder / "kallsyms"]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout


def test_counts_equal_the_samples_own(recorded: Path, tools: Path) -> None:
    assert json.loads((recorded / "graph.workload").read_text())["errors"] == {}
    called = own(recorded, "graph")
    assert +counts(recorded / "graph.data", "daemon") == +called

    histograms = json.loads(answer(recorded, "hist"))
    daemon = [one for one in histograms["histograms"] if one["layer"] == "daemon"]
    assert {one["function"]: (one["count"], one["unmatched"]) for one in daemon} == {
        name: (count, 0) for name, count in called.items()
    }

    # The same file gives the same answers there, and stock perf reads it: each call of a callback
    # and its return.
    assert (recorded / "count.json").read_text() == answer(recorded, "count")
    for way in WAYS:
        text = script(tools, recorded, way, "event")
        events = Counter(line.strip(": ") for line in text.split())
        assert events["sched:sched_switch"] > 0
        for name, count in own(recorded, way).items():
            calls = [events[f"fuse_daemon:{name}{end}"] for end in ("", "__return")]
            assert calls == [count] * 2, (way, name)
    assert +counts(recorded / "kprobe.data", "daemon") == +own(recorded, "kprobe")

    # Return the file of each request, by the inodes in the answers to lookups.
    slowest = fusetools.open(recorded / "graph.data").slowest(most=10_000)
    assert not slowest.guessed
    found = [one for one in slowest.requests if one.operation in ("lookup", "getattr", "read")]
    assert len(found) == sum(called[f"cvmfs_{name}"] for name in ("lookup", "getattr", "read"))
    assert all(one.whole and one.path and one.inode for one in found)
    read = {one.path for one in found if one.operation == "read"}
    assert read == {"dir-00/pages", "dir-01/pages"}  # each process has its own


def test_the_full_path(kernel: vm.Kernel, recorded: Path, tools: Path) -> None:
    said = (recorded / "graph.said").read_text()
    assert "none lost" in said
    assert "warning" not in said and "missing" not in said
    assert re.search(r"\d+ kernel functions, requests, 14 callbacks", said)
    assert list(recorded.glob("*.trace.dat")) == []

    # Nothing is left behind, and ftrace is as it was.
    for way in WAYS:
        assert (recorded / f"{way}.left").read_text() == (recorded / "before").read_text()

    # Counts are the sample's own, in requests.
    called = own(recorded, "graph")
    requests = counts(recorded / "graph.data", "request")
    # libfuse refuses it, as there is no callback, and the kernel stops asking: once for each
    # process
    flushes = requests.pop("FUSE_FLUSH")
    assert flushes in (1, 2)
    named = {name.replace("cvmfs_", "FUSE_").upper(): n for name, n in (+called).items()}
    assert requests == Counter(named)

    # Each request is queued, copied to the daemon and ended, once.
    total = json.loads(answer(recorded, "hist"))["recording"]["requests"]
    assert total["begun"] == total["ended"] == total["matched"] == sum(called.values()) + flushes
    seen = Script(script(tools, recorded, "graph", "tid,time,event,trace"))
    assert seen.in_order
    begun = seen.stage("begin")
    if {unique for _, unique in begun} == {0}:  # numbered later, 6.12 to 6.14
        assert (6, 12) <= kernel.version <= (6, 14)
        begun = seen.stage("sent")
    assert len(begun) == len(set(begun)) == total["begun"] == len(seen.stage("begin"))
    assert Counter(seen.stage("sent")) == Counter(seen.stage("end")) == Counter(begun)
    device = int((recorded / "device").read_text())
    assert {connection for connection, _ in begun} == {device}

    # function_graph and kprobes saw the same calls, on one clock: kprobes enclose the graph's.
    waits = seen.events["fuse_kernel:request_wait_answer"]
    # A return probe would cut the kernel's stacks there.
    paired = kernel.version >= (5, 18)
    assert seen.events["fuse_kernel:request_wait_answer__return"] == (waits if paired else 0)
    assert waits == seen.calls["request_wait_answer"]
    background = ("cvmfs_read", "cvmfs_release", "cvmfs_releasedir")  # no caller waits for those
    assert waits == total["begun"] - sum(called[name] for name in background)
    assert seen.calls["fuse_request_end"] == total["ended"]
    assert seen.calls["fuse_statfs"] == called["cvmfs_statfs"]
    assert seen.calls["fuse_dir_open"] == called["cvmfs_opendir"]
    told = 0
    for (function, tid), times in seen.probes.items():
        if function != "request_wait_answer":
            continue
        returns = [*times[1:], sys.maxsize]  # one ends before the next one
        if paired:
            returns = seen.probes["request_wait_answer__return", tid]
        spans = seen.spans["request_wait_answer", tid]
        assert len(times) == len(returns) == len(spans)
        for before, (begin, end), after in zip(times, spans, returns):
            told += 1
            assert before <= begin <= end <= after
    assert told == waits

    # The stacks of waiting threads are complete.
    waiting = waiting_stacks(script(tools, recorded, "graph", "comm,event,ip,sym"))
    assert waiting
    for stack in waiting:
        caller = stack.index("request_wait_answer") + 1
        # __fuse_simple_request, in 7.2 fuse_chan_send, and its caller
        for frame in stack[caller : caller + 2]:
            assert frame.lstrip("_").startswith("fuse_"), stack
        assert reaches_user(stack), stack


# Kernel functions each of whose calls makes one request, if nothing is cached.
REQUEST_EACH = {
    "fuse_dir_open": "opendir",
    "fuse_dir_release": "releasedir",
    "fuse_file_read_iter": "read",
    "fuse_get_link": "readlink",
    "fuse_getattr": "getattr",
    "fuse_getxattr": "getxattr",
    "fuse_listxattr": "listxattr",
    "fuse_open": "open",
    "fuse_readdir": "readdir",
    "fuse_release": "release",
    "fuse_statfs": "statfs",
}
OPCODES = {15: "read", 18: "release", 29: "releasedir"}  # enum fuse_opcode of <linux/fuse.h>


def waiting_stacks(script: str) -> list[list[str]]:
    """Return stacks of the workload that is switched out while it waits for an answer."""
    stacks: list[list[str]] = []
    for line in script.splitlines():
        frame = re.match(r"\s+[0-9a-f]+ (\S+)", line)
        if frame is None:
            stacks.append([])
            ours = re.match(r"workload .*sched:sched_switch", line)
        elif ours:
            stacks[-1].append(frame[1])
    return [stack for stack in stacks if "request_wait_answer" in stack]


def reaches_user(stack: list[str]) -> bool:
    return any(frame.startswith("entry_SYSCALL_64") for frame in stack)


def test_answers_of_function_graph_kprobes_and_the_sample_agree(
    kernel: vm.Kernel, recorded: Path, tools: Path
) -> None:
    for way in WAYS:
        calls = {name[len("cvmfs_") :]: n for name, n in own(recorded, way).items()}
        assert all(calls[operation] > 0 for operation in REQUEST_EACH.values())

        called = counts(recorded / f"{way}.data", "kernel")
        assert {name: called[name] for name in REQUEST_EACH} == {
            name: calls[operation] for name, operation in REQUEST_EACH.items()
        }

        # A lookup in each layer; its kernel function depends on earlier lookups.
        recording = fusetools.open(recorded / f"{way}.data")
        lookups = Counter[str]()
        for one in recording.hist("lookup").histograms:
            if one.function != "fuse_atomic_open":  # fuse_lookup makes one
                lookups[one.layer] += one.count
                assert one.unmatched == 0
        assert lookups["kernel"] == lookups["request"] == lookups["daemon"] == calls["lookup"]

        # Every request is queued, copied to the daemon and ended, and its caller continues.¶No
        # caller waits for background requests.
        requests = Columns(recording.requests())
        assert len(requests.begin_ns) >= sum(calls.values())
        assert (requests.begin_ns > 0).all()
        assert (requests.begin_ns <= requests.sent_ns).all() and (
            requests.sent_ns <= requests.end_ns
        ).all()
        woken = requests.runs_ns > 0
        assert (requests.end_ns <= requests.runs_ns)[woken].all()
        alone = Counter(OPCODES[int(opcode)] for opcode in requests.opcode[~woken])
        # The caller of a read-ahead may wait for one of its pages.
        assert alone.pop("read", 0) <= calls["read"]
        assert alone == Counter({name: calls[name] for name in ("release", "releasedir")})

        # The tree and the histogram of a function show the same calls.
        for function in (*REQUEST_EACH, "request_wait_answer"):
            (of,) = recording.hist(function, layers=["kernel"]).histograms
            tree = recording.graph(function).roots
            assert (sum(n.calls for n in tree), sum(n.total_ns for n in tree)) == (
                of.count,
                of.total_ns,
            )
            assert of.count == called[function]

    # Return probes cut stacks of waiting threads on some kernels: this is reported there only.
    waiting = waiting_stacks(script(tools, recorded, "kprobe", "comm,event,ip,sym"))
    assert waiting
    cut = {not reaches_user(stack) or "__kretprobe_trampoline" in stack for stack in waiting}
    assert cut == {kernel.version < (5, 18)}
    said = "missing: the callers in kernel stacks" in (recorded / "kprobe.said").read_text()
    assert cut == {said}


def usual(operation: dict[str, Any]) -> list[str]:
    """Stages that most requests have: sometimes a caller gets its answer before it sleeps."""
    most = 0.5 * operation["matched"]
    return [s["name"] for s in operation["stages"] if s["requests"] > most]


def test_both_ways_tell_the_same_stages(recorded: Path) -> None:
    told = {}
    for way in WAYS:
        found = json.loads(answer(recorded, "stages", way))
        requests = found["recording"]["requests"]
        assert requests["begun"] > 500
        assert requests["matched"] >= 0.999 * requests["begun"]
        for o in found["operations"]:
            assert sum(s["total_ns"] for s in o["stages"]) == o["total_ns"]
        told[way] = {(o["operation"], o["waits"]): o for o in found["operations"] if o["matched"]}
    for key, o in told["graph"].items():
        other = told["kprobe"].get(key)
        if key[0] in ("read", "flush"):  # whether a page's reader sleeps depends on timing
            continue
        assert other and other["matched"] == o["matched"], key
        assert usual(other) == usual(o), key
    before, after = ["vfs_entry", "setup"], ["caller_wakeup", "vfs_exit"]
    inside = ["queue", "dispatch", "daemon", "reply"]
    for way in told:
        # After the lookup of its path.
        assert usual(told[way]["statfs", True]) == ["between", "setup", *inside, *after]
        assert usual(told[way]["lookup", True]) == [*before, *inside, "caller_wakeup"]
        assert usual(told[way]["release", False]) == inside
        daemon = next(s for s in told[way]["statfs", True]["stages"] if s["name"] == "daemon")
        assert daemon["p50_ns"] > 5_000_000
        # Only its sleep is counted so; for some request that is nearly its whole time.
        assert 0 < daemon["parts_ns"]["blocked"] < daemon["total_ns"]
        stories = Columns(fusetools.open(recorded / f"{way}.data").requests())
        assert stories.blocked_ns[stories.of("statfs")].max() > 0.7 * 5_000_000


def test_kprobes_alone_and_a_busy_ftrace(
    guest: vm.Guest, tools: Path, tmp_path: Path, all_kernels: bool
) -> None:
    """Another user of ftrace is named and left alone; kprobes continue beside it."""
    workload = f"{SAMPLES}/workload stat 31 /run/mount/dir-00/file-000"
    # The stacks that it records would be cut. On one kernel unit/test_record_tracecmd.py proves it.
    beside_perf = f"""
        /usr/bin/perf record -q -a -N -B --no-bpf-event -e sched:sched_switch -o /run/theirs \
          sleep 999 2> theirs-said &
        theirs=$!
        until [ "$(cat /proc/[0-9]*/comm | grep -c '^sleep$')" -gt 0 ]; do
          kill -0 $theirs || {{ cat theirs-said >&2; exit 1; }}
          sleep 0.3
        done
        fails {FUSETOOLS} record -- {workload} > refused-three 2>&1
        kill -INT $theirs
        wait $theirs || true"""
    guest(
        f"""{MOUNT}
        export PATH={tools}:$PATH
        echo vfs_statx > {TRACING}/set_ftrace_filter
        echo function > {TRACING}/current_tracer
        ftrace > theirs
        fails {FUSETOOLS} record -- {workload} > refused 2>&1
        ftrace > still
        {FUSETOOLS} record --backend kprobe --functions 'nothing_*' -o beside.data \
          > beside-began 2> beside-said &
        beside=$!
        {until_recording("beside-said")}
        cat {TRACING}/current_tracer > tracer
        echo nop > {TRACING}/current_tracer
        echo > {TRACING}/set_ftrace_filter
        fails {FUSETOOLS} record --backend graph -o no.data -- {workload} > refused-beside 2>&1
        {FUSETOOLS} record -o too.data -- {workload} > workload.json 2> too
        kill -INT $beside
        wait $beside{beside_perf if all_kernels else ""}
        ftrace > after"""
    )
    assert "ftrace is in use" in (tmp_path / "refused").read_text()
    if all_kernels:
        refused = (tmp_path / "refused-three").read_text()
        assert re.search(r"ftrace is in use\n  why: perf \(pid \d+\) holds", refused), refused
    assert "vfs_statx in set_ftrace_filter" in (tmp_path / "refused").read_text()
    assert "--backend kprobe" in (tmp_path / "refused").read_text()
    assert (tmp_path / "still").read_text() == (tmp_path / "theirs").read_text()
    assert "the tracer function is on" in (tmp_path / "refused").read_text()
    assert (tmp_path / "tracer").read_text() == "function\n"
    # Two at once, each with its own kprobes; function_graph would cut the stacks of others.
    refused = (tmp_path / "refused-beside").read_text()
    assert refused.startswith("fusetools: another recording is running\n"), refused
    assert "fix: fusetools record --backend kprobe …   # beside it" in refused
    said = (tmp_path / "too").read_text()
    assert "another recording ran at the same time" in said
    assert "missing: function_graph: another recording runs, whose stacks it would cut" in said
    for name in ("beside.data", "too.data"):
        assert counts(tmp_path / name, "request") == Counter(FUSE_LOOKUP=2 * 31, FUSE_GETATTR=31)
    functions = counts(tmp_path / "too.data", "kernel")
    assert functions["request_wait_answer"] == 3 * 31
    # the attributes are requested again once in each stat
    assert functions["fuse_getattr"] == 31
    # A pattern without a matching function is reported, and everything else is recorded.
    reported = "missing: kernel function nothing_*: this kernel has none of that name to trace"
    said = (tmp_path / "beside-said").read_text()
    assert said.count("nothing_*") == said.count(reported) == 1
    assert counts(tmp_path / "beside.data", "kernel") == Counter(request_wait_answer=3 * 31)
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


@pytest.mark.usefixtures("campaign")
def test_in_a_pid_namespace(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """There function_graph reports other numbers of threads than perf, which then records alone."""
    script = tmp_path / "inside.sh"
    script.write_text(
        f"""{MOUNT}
        export PATH={tools}:$PATH
        {FUSETOOLS} record -- {SAMPLES}/workload stat 101 /run/mount/dir-00/file-000 \
          > workload.json 2> said
        fails {FUSETOOLS} record --backend graph -- true 2> refused"""
    )
    guest(f"unshare --pid --fork --mount-proc sh {script} > out 2>&1 || {{ cat out >&2; exit 1; }}")
    for name in ("said", "refused"):
        assert "in a pid namespace it and perf have other numbers" in (tmp_path / name).read_text()
    stages = json.loads(answer(tmp_path, "stages", "perf"))["operations"]
    seen = {one["operation"]: (one["requests"], one["matched"]) for one in stages}
    assert seen == {"lookup": (202, 202), "getattr": (101, 101)}


def test_a_mount_that_is_always_busy(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """Requests are in flight when the recording begins, and when it ends."""
    guest(
        f"""{MOUNT.replace("--delay", "--delay lookup=20ms --delay")}
        export PATH={tools}:$PATH
        {SAMPLES}/workload stat 1000000 /run/mount/dir-00/file-000 > workload.json &
        until {SAMPLES}/with-symbols/samplefs --talk /run/talk calls | grep -q ^getattr; do
          sleep 0.3
        done
        {FUSETOOLS} record --duration 2 > said 2>&1
        kill $!
        wait $! || true
        ftrace > after"""
    )
    assert "warning" not in (tmp_path / "said").read_text()
    assert list(tmp_path.glob("*.trace.dat")) == []
    total = json.loads(answer(tmp_path, "hist", "perf"))["recording"]["requests"]
    assert total["begun"] > 60
    assert total["begun"] - total["matched"] <= 2 and total["ended"] - total["matched"] <= 2
    # function_graph was on as long as perf, except for moments, and without a gap.¶While both were
    # on, there is a call for each request, except those in flight at the begin.
    recording = fusetools.open(tmp_path / "perf.data")
    calls = Columns(recording.calls("request_wait_answer"))
    waits = calls.begin_ns[calls.of("request_wait_answer")]
    begun = Columns(recording.requests()).begin_ns
    # trace-cmd begins before it can be paused: its early events do not belong to that time.
    since = waits[waits >= begun.min()].min()
    until = min(waits.max(), begun.max())
    both = [int(((since <= times) & (times <= until)).sum()) for times in (waits, begun)]
    # There is one caller: at each end, one request begins before its wait.
    assert abs(both[0] - both[1]) <= 1
    assert both[1] > 0.5 * total["begun"]
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


def test_returns_that_kprobes_miss_are_counted(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    """With room for one call at a time; and a probe that is nowhere in the code is found."""
    one_at_a_time = "from fusetools.plan import kernel; kernel.INSTANCES = 1"
    guest(
        f"""{MOUNT}
        export PATH={tools}:$PATH
        FORKED='{one_at_a_time}' {FUSETOOLS} record --backend kprobe -- \\
          {SAMPLES}/workload mixed --processes 3 --few /run/mount > workload.json 2> said
        FORKED='{PLACED}' {FUSETOOLS} > unplaced
        ftrace > after"""
    )
    text = script(tools, tmp_path, "perf", "event")
    counted = subprocess.run(
        [FUSETOOLS, "count", "-i", tmp_path / "perf.data"], capture_output=True, text=True
    )
    events = Counter(text.replace(":", " ").split())
    returns = [event for event in events if event.endswith("__return") and "cvmfs" not in event]
    missed = {event: events[event.removesuffix("__return")] - events[event] for event in returns}
    recording = fusetools.open(tmp_path / "perf.data")
    misses = recording.session.misses
    assert misses == {f"fuse_kernel:{event}": n for event, n in missed.items() if n}
    n = missed["request_wait_answer__return"]
    assert n > 0
    said = f"request_wait_answer__return: the probe missed {n:,} of its calls"
    assert said in " ".join((counted.stdout + counted.stderr).split())
    assert (tmp_path / "unplaced").read_text() == "['elsewhere:fuse_lookup']\n"
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


def test_a_killed_recording_leaves_function_graph_off(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    """Its leftovers are removed, and only those: another user's probe stays."""
    guest(
        f"""{MOUNT}
        export PATH={tools}:$PATH
        echo 'p:somebody/elses fuse_lookup' > {TRACING}/dynamic_events
        ftrace > before
        {FUSETOOLS} record -- sleep 1000 2> said &
        {until_recording()}
        ftrace > during
        kill -9 $!
        {FUSETOOLS} clean > cleaned 2>&1
        ftrace > after
        find . -name '.perf.data*' > files
        {FUSETOOLS} clean > again
        echo > {TRACING}/dynamic_events"""
    )
    during = (tmp_path / "during").read_text()
    assert "current_tracer:function_graph" in during
    assert "fuse_kernel/" in during and "trace-cmd record" in during
    assert "somebody/elses" in (tmp_path / "after").read_text()
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
    assert (tmp_path / "files").read_text() == ""
    assert "nothing was left" in (tmp_path / "again").read_text()


# On one kernel tests/live/test_faults_live.py fills a disk.
@pytest.mark.usefixtures("campaign")
def test_a_disk_that_fills_ends_the_recording(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    guest(
        f"""{MOUNT}
        export PATH={tools}:$PATH
        mkdir /run/small
        mount -t tmpfs -o size=160M small /run/small
        fails {FUSETOOLS} record -o /run/small/perf.data -- {SAMPLES}/workload mixed --processes 8 \
          /run/mount > workload.json 2> said
        ftrace > after
        ls -A /run/small > files
        cp /run/small/perf.data ."""
    )
    assert "the recording ended early: No space left" in (tmp_path / "said").read_text()
    assert json.loads((tmp_path / "workload.json").read_text())["errors"] == {}
    assert counts(tmp_path / "perf.data", "request")["FUSE_LOOKUP"] > 0
    assert (tmp_path / "files").read_text() == "perf.data\n"
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


def test_a_read_at_the_end_of_a_file_is_a_request_before_linux_5_16(
    kernel: vm.Kernel, guest: vm.Guest, tmp_path: Path
) -> None:
    """The change that the experiment fast17 names: 8c8387ee3f55."""
    guest(
        f"""set -e
        {OWN}
        {mount()}
        for n in 1 2 3 4 5 6 7; do head -c 4096 /dev/zero > /run/tree/page-$n; done
        own {tmp_path}/ends.before
        for n in 1 2 3 4 5 6 7; do cat /run/mount/page-$n > /dev/null; done
        own {tmp_path}/ends.after"""
    )
    reads = 2 if kernel.version < (5, 16) else 1
    assert own(tmp_path, "ends")["cvmfs_read"] == 7 * reads
