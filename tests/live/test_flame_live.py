"""Flame graphs of live recordings, compared with settable sleeps, the scheduler's clock and
perf."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import collapse
import pytest
import script
from recording import opened, recorded, run
from sample import BUILD, Mounter
from truth import Stock, own_calls
from variants import variants

import fusetools
from fusetools import _core
from fusetools.answers.filters import Filters
from fusetools.reasons import Code

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"
NANOSLEEP = 230 if platform.machine() == "x86_64" else 115
SLEEPS = ("hrtimer_nanosleep", "__x64_sys_clock_nanosleep", "common_nsleep")


def of(stacks: dict[str, float], *frames: str) -> float:
    """Return us of the stacks that have one of these frames."""
    return sum(us for stack, us in stacks.items() if set(frames) & set(stack.split(";")))


def test_a_sleep_in_the_daemon_is_found(sample_mount: Mounter, tmp_path: Path) -> None:
    """The daemon's sleep in lookup lasts as long as stock perf's switches show.

    That is at most the time by the file system's own clock. Idle threads are not included.
    """
    mount = sample_mount("--delay", "lookup=20ms")
    name = next(path.name for path in sorted(mount.tree.iterdir()) if path.is_dir())
    recording = opened(tmp_path / "perf.data", [mount], WORKLOAD, "stat", 97, mount.path / name)
    stock = Stock(recording.path, mount)
    calls = [call for call in mount.calls() if call.delay_end]
    assert len(calls) == 97
    slept = sum(
        sum(stock.idle(tid, since, until))
        for tid in {seen.tid for seen in stock.seen.values()}
        for number, since, until in stock.syscalls[tid]
        if number == NANOSLEEP
    )
    # Each lookup sleeps until 60 us before its end, except those whose delay was already over.
    assert 0 < slept <= sum(call.delay_end - call.delay_begin for call in calls)

    daemon = recording.stacks("off-cpu", layers=["daemon"])
    asleep = of(daemon.stacks, *SLEEPS)
    assert asleep == pytest.approx(slept / 1000, rel=1e-6)
    assert of(daemon.stacks, "fuse_dev_do_read") == 0
    # Each request finds an idle thread. The start of idle waits from before the recording is
    # unknown.
    threads = {seen.tid for seen in stock.seen.values()}
    assert daemon.left_out.idle.times >= len(stock.seen) - len(threads)

    # While the daemon sleeps in a delay, the caller waits for its answer.
    waited = 0
    by_key = own_calls(mount)
    for key, seen in stock.seen.items():
        call = by_key[key]
        waited += stock.idle(seen.caller, call.delay_begin, call.delay_end)[0]
    callers = recording.stacks("off-cpu", layers=["syscall"])
    assert of(callers.stacks, "request_wait_answer") > waited / 1000 > 0
    lookups = recording.stacks("requests", "lookup")
    served = {s: us for s, us in lookups.stacks.items() if ";[FUSE lookup];cvmfs_lookup;" in s}
    assert of(served, *SLEEPS) == pytest.approx(slept / 1000, rel=1e-6)
    assert of(recording.stacks("off-cpu", "getattr").stacks, *SLEEPS) == 0

    # The stack of a C++ program with frame pointers is complete down to the sleep.
    longest = max(served, key=lambda stack: served[stack])
    assert longest.split(";")[0] == "workload"
    callback = [s for s in daemon.stacks if ";cvmfs::cvmfs_lookup;" in s]
    assert of({s: daemon.stacks[s] for s in callback}, *SLEEPS) == asleep


_BUSY = """
import json, os, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
def others():  # ns of its CPU that no thread had: interrupts, and what the hypervisor took
    (cpu,) = os.sched_getaffinity(0)
    times = [line.split() for line in open("/proc/stat") if line.startswith(f"cpu{cpu} ")][0]
    return sum(map(int, times[6:9])) * 10**9 // os.sysconf("SC_CLK_TCK")
unseen = 3 * 10**9 // os.sysconf("SC_CLK_TCK")  # each of the three is rounded down to a tick
took = others()
begin, ran = time.monotonic_ns(), time.thread_time_ns()
while time.monotonic_ns() - begin < seconds * 1e9:
    os.stat(path)
    sum(range(100_000))
end, ran = time.monotonic_ns(), time.thread_time_ns() - ran
took = others() - took + unseen
print(json.dumps({"pid": os.getpid(), "begin": begin, "end": end, "ran": ran, "took": took}))
"""


def off_by_perf_script(path: Path, pid: int, start: int, end: int) -> int:
    """Return ns between these times that a thread is switched out according to stock perf.

    The wait ends at the next event that shows the thread running: some hosts record no switch-in of
    some threads. Such an event is one of its own, or its next switch-out.
    """
    since, total = None, 0
    for event in script.events(path, switches=True):
        if not start <= event.time <= end:
            continue
        switch = event.name == "sched:sched_switch"
        out = event.name.startswith("PERF_RECORD_SWITCH") and event.text.startswith("OUT")
        runs_no_more = switch and event.number("prev_pid") == pid
        runs = (switch and event.number("next_pid") == pid) or (event.tid == pid and not out)
        if since is not None and (runs or runs_no_more):
            total, since = total + event.time - since, None
        if runs_no_more:
            since = event.time
    return total


@pytest.mark.parametrize("as_shipped", [True, *variants(False)])
def test_a_rare_long_wait_among_many_short_ones_has_its_own_stack(
    as_shipped: bool, sample_mount: Mounter, tmp_path: Path
) -> None:
    """Idle waits are too many for a stack of each.

    The wait of the one statfs is not idle, and no other wait is similar.
    """
    mount = sample_mount("--kernel-cache", "0", "--delay", "statfs=20ms", as_shipped=as_shipped)
    file = next(path for path in sorted(mount.tree.rglob("*")) if path.is_file())
    many = f"{WORKLOAD} stat 20000 {mount.path / file.relative_to(mount.tree)}"
    one = f"sleep 0.6; stat -f {mount.path} >/dev/null"
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", f"{many} & {one}; wait")
    daemon = recording.stacks("off-cpu", "statfs", layers=["daemon"], states=["blocked"])
    slept = of(daemon.stacks, "cvmfs::cvmfs_statfs")
    assert slept >= 0.95 * (daemon.total_ns or 0) / 1000 > 15_000, daemon.stacks


def test_time_off_and_on_the_cpu_is_all_there_is(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount("--delay", "getattr=1ms")
    out = tmp_path / "out"
    pin = mount.pin()
    command = [*pin, sys.executable, "-c", _BUSY, str(mount.path), "2"]
    shell = " ".join(f"'{word}'" for word in command)
    # Another process takes the CPU from it.
    with subprocess.Popen([*pin, sys.executable, "-c", "while True: pass"]) as other:
        try:
            recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", f"exec {shell} > {out}")
        finally:
            other.kill()
    told = json.loads(out.read_text())
    first = _core.scan(str(tmp_path / "perf.data"), [], {})["first"]
    span = Filters(pids=(told["pid"],), start_ns=told["begin"] - first, end_ns=told["end"] - first)
    own: dict[str, Any] = {
        "layers": ["syscall"],
        "filters": span,
    }  # not the daemon's wait at that time
    waited = recording.stacks("off-cpu", everything=True, **own)
    wall = told["end"] - told["begin"]
    whole = waited.total_ns + told["ran"]
    assert 0.99 * wall - told["took"] <= whole <= 1.01 * wall, told
    assert waited.total_ns < wall
    assert waited.states_ns["preempted"] > 0
    seen = off_by_perf_script(tmp_path / "perf.data", told["pid"], told["begin"], told["end"])
    assert waited.total_ns == seen

    # Samples agree with the scheduler's time: as many as stock perf shows of the thread.
    sampled = recording.stacks("on-cpu", **own)
    assert sampled.unit == "ns"
    of_process = [
        sample
        for sample in collapse.samples(tmp_path / "perf.data")
        if sample.event == "cpu-clock" and sample.pid == told["pid"]
    ]
    shown = [sample for sample in of_process if told["begin"] <= sample.ns <= told["end"]]
    assert sampled.count == len(shown)
    assert sampled.total_ns == sum(sample.period for sample in shown)
    # Five standard deviations of that many samples: exceeded by chance in 6 of 10^7 runs.
    samples = max(sampled.count, 1)
    assert sampled.total_ns == pytest.approx(told["ran"], rel=0.1 + 5 / samples**0.5)
    # The workload's first process, in a request or not, including its shell's earlier work.
    (python,) = {stack.split(";")[0] for stack in sampled.stacks}
    process = of(recording.stacks("on-cpu").stacks, python)
    assert sum(sampled.stacks.values()) <= process <= sum(s.period for s in of_process)


def test_stacks_are_perf_scripts_and_need_no_host(sample_mount: Mounter, tmp_path: Path) -> None:
    """Stacks have kernel and user frames, on and off the CPU; kernel symbols come from the
    recording."""
    mount = sample_mount("--delay", "lookup=4ms:spin")
    path = tmp_path / "perf.data"
    script = f"find {mount.path} -type d; {sys.executable} -c 'import json; print(json)'"
    recording = opened(path, [mount], "sh", "-c", script)
    seen: set[str] = set()
    for event in ("cpu-clock", "sched:sched_switch"):
        ours = _core.flame(
            str(path), [_core.Probe(event, "syscall", "", "", "stack")], {"all": True}
        )
        assert ours["kernel"]["nameless"] == 0
        theirs = collapse.folded(path, event)
        for name in ("samplefs;", "find;", "sh;"):
            mine, perfs = (
                {stack: n for stack, n in found.items() if stack.startswith(name)}
                for found in (ours["stacks"], theirs)
            )
            assert mine == perfs
            assert perfs or event == "cpu-clock"
        seen |= set(ours["stacks"])
    assert any("cvmfs::cvmfs_" in stack for stack in seen)
    shown = recording.stacks("on-cpu", layers=["daemon"])
    assert shown.count and all(stack.startswith("samplefs") for stack in shown.stacks)
    spun = of(recording.stacks("on-cpu", "lookup").stacks, "cvmfs::cvmfs_lookup")
    assert spun > 0


def test_flame_names_the_thread_that_ended_a_wait(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    path = tmp_path / "perf.data"
    recorded(path, "--wakers", "--mount", mount.path, "--", "find", mount.path)
    shown = fusetools.open(path).stacks("off-wake", layers=["syscall"])
    assert shown.stackless == 0 and Code.WAKERS_STACKLESS not in {n.code for n in shown.notes}
    answered = [stack for stack in shown.stacks if "request_wait_answer" in stack]
    assert answered
    for stack in answered:
        blocked, _, waker = stack.partition(";--;")
        assert "request_wait_answer" in blocked
        assert "fuse_dev_do_write" in waker and waker.endswith(";samplefs")


def test_stacks_are_unwound(sample_mount: Mounter, tmp_path: Path) -> None:
    """Stacks of programs without frame pointers, and of the daemon, reach the start of each thread.

    The recording suffices, after the program is removed.
    """
    mount = sample_mount("--delay", "lookup=2ms")
    path, workload = tmp_path / "perf.data", tmp_path / "workload"
    shutil.copy(WORKLOAD, workload)
    name = next(path.name for path in sorted(mount.tree.iterdir()) if path.is_dir())
    options = ("--call-graph", "dwarf", "--mount", mount.path)
    recorded(path, *options, "--", workload, "stat", 53, mount.path / name)
    workload.unlink()
    recording = fusetools.open(path)
    shown = recording.stacks("off-cpu", "lookup", layers=["syscall"])
    assert shown.user.source == shown.kernel.source == "recording"
    callers = shown.stacks
    whole = of({s: us for s, us in callers.items() if s.startswith("workload;_start;")}, "main")
    assert whole > 0.98 * sum(callers.values())
    daemon = recording.stacks("off-cpu", "lookup", layers=["daemon"]).stacks
    slept = {stack: us for stack, us in daemon.items() if set(SLEEPS) & set(stack.split(";"))}
    assert of(slept, "cvmfs::cvmfs_lookup") > 0.98 * sum(slept.values()) > 0
    # clone3 and start_thread, if the host has the symbols of its C library.
    assert all(re.match(r"samplefs;(__)?clone3?;|samplefs;\[libc", stack) for stack in slept), slept
    # Other files with these names are not mistaken for them.
    workload.write_bytes(b"#!/bin/sh\n")
    assert recording.stacks("off-cpu", "lookup", layers=["syscall"]).stacks == callers
    (tmp_path / "files").mkdir()
    told = recording.stacks("off-cpu", "lookup", layers=["syscall"], symfs=str(tmp_path / "files"))
    assert told.user.nameless == told.user.addresses > 0 and told.kernel.nameless == 0


CHAINS = "n w an bn cn dn en qn sn abcden edcbaw ccccccn qaqbqew bsdsn aqbscw"


def calls_of(thread: str) -> list[str]:
    """Return the functions of chains.c that a thread is in while it has this name, outermost
    first."""
    names = ["_start", "main"] if thread[0] == "m" else ["thread"]
    for letter in thread[1:]:
        names += [letter, *{"q": ["compare"], "s": ["handler"]}.get(letter, [])]
    return names


def frames_of(path: Path) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return stock perf's samples: comm, time, event; frames (address, function, file), outermost
    first."""
    fields = "comm,tid,time,event,trace,ip,sym,dso"
    command = ["perf", "script", "-i", str(path), "--no-inline", "--ns", "-F", fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[tuple[str, list[tuple[str, str, str]]]] = []
    for line in done.stdout.splitlines():
        if line.startswith("\t"):
            frame = re.fullmatch(r"\s*(\w+) (.*) \((.*)\)", line)
            assert frame, line
            found[-1][1].insert(0, (frame[1], frame[2], frame[3]))
        elif line.strip():
            found.append((" ".join(line.split()), []))
    return sorted(found, key=lambda sample: sample[0])


def has_table(file: str, address: int) -> bool:
    """Return whether .eh_frame describes the function at that address, as readelf prints it."""
    # readelf fails if a named debug file is not installed.
    done = subprocess.run(["readelf", "-wF", file], capture_output=True, text=True, check=False)
    tables = re.findall(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)$", done.stdout, re.MULTILINE)
    assert tables, done.stderr
    return any(int(start, 16) <= address < int(end, 16) for start, end in tables)


RAISES = """
#include <signal.h>
static volatile int n;
static void handle(int number) { n++; }
int main(void) {
  signal(SIGUSR1, handle);
  for (int i = 0; i < 300000; i++) raise(SIGUSR1);
  return n == 0;
}
"""


def test_a_thread_in_what_its_signal_handler_returns_to(tmp_path: Path) -> None:
    """Neither the tables nor frame pointers describe how its stack continues."""
    source, program = tmp_path / "raises.c", tmp_path / "raises"
    source.write_text(RAISES)
    subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-o", program, source], check=True)
    raw, merged = tmp_path / "raw.data", tmp_path / "merged.data"
    command = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "--call-graph", "dwarf,8192"]
    command += ["-F", "8000", "-e", "cpu-clock", "-e", "fuse:fuse_request_send", "-o", str(raw)]
    subprocess.run([*command, "--", str(program)], check=True, capture_output=True)
    run("merge", raw, "-o", merged, check=True)
    stacks = [[name for _, name, file in frames] for _, frames in frames_of(merged)]
    cut = [names for names in stacks if names and names[0] == "__restore_rt"]
    going_on = [names for names in stacks if "__restore_rt" in names and "main" in names]
    assert len(going_on) > 20 and len(cut) * 20 < len(going_on)


def test_merged_copies_of_stacks_are_the_calls(sample_mount: Mounter, tmp_path: Path) -> None:
    """perf record --call-graph dwarf by hand, then fusetools merge.

    Each sleep of a program without frame pointers has its callers. Each stack equals stock perf's,
    if perf reaches the thread's start.
    """
    mount = sample_mount("--delay", "lookup=1ms")
    program, raw, merged = (tmp_path / name for name in ("chains", "raw.data", "merged.data"))
    source = Path(__file__).with_name("chains.c")
    flags = ["-O2", "-fomit-frame-pointer", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", program, source], check=True)
    command: list[str | Path] = ["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC"]
    # More than perf's 8 KiB: with AVX-512 a signal takes 3 KiB of the stack.
    command += ["--call-graph", "dwarf,16384"]
    command += ["-e", "sched:sched_switch", "-e", "cpu-clock", "-e", "fuse:*", "-m", "16M"]
    command += ["-o", raw, "--"]
    work = [program, 23, CHAINS, ";", WORKLOAD, "stat", 97, *sorted(mount.path.iterdir())[:3]]
    command += ["sh", "-c", " ".join(str(word) for word in work)]
    now = {**os.environ, "LD_BIND_NOW": "1"}
    for _ in range(5):
        subprocess.run([str(word) for word in command], check=True, capture_output=True, env=now)
        if not _core.scan(str(raw), [], {})["lost"]:
            break  # else perf may lose mappings among many other records
    noted = fusetools.open(raw).stacks("on-cpu", everything=True).notes
    (note,) = [note for note in noted if note.code is Code.COPIES_NOT_UNWOUND]
    assert note.subject == {"host": os.uname().nodename}
    assert note.fix == f"fusetools merge {raw} -o {raw}"
    run("merge", raw, "-o", merged, check=True)
    assert merged.stat().st_size < raw.stat().st_size / 4

    # perf writes overlapping rounds on a busy host; merged records are in order.
    theirs, ours = frames_of(raw), frames_of(merged)
    assert [head for head, _ in ours] == [head for head, _ in theirs]
    threads = {thread + chain for thread in "mt" for chain in CHAINS.split()}
    sleeps = set()
    for head, frames in ours:
        slept = re.search(r"prev_comm=(\w+) .* prev_state=S ", head)
        if not slept or slept[1] not in threads:
            continue
        own = [name for _, name, file in frames if file == str(program)]
        others = {Path(file).name for _, _, file in frames if file.startswith("/")}
        assert own == calls_of(slept[1]), (head, frames)
        assert all(name.startswith("libc.so.") for name in others - {"chains"}), frames
        assert slept[1][0] == "m" or frames[0][2] != str(program), frames  # start_thread, clone3
        sleeps.add(slept[1])
    assert sleeps == threads
    known = {"chains", "samplefs", "workload", *threads}  # files of others may change meanwhile
    for (head, mine), (_, perfs) in zip(ours, theirs):
        if head.split()[0] not in known:
            continue
        # The loader's resolver keeps its caller's frame in a register that is not followed here.
        # Even with LD_BIND_NOW it appeared at a program's end, for an unknown reason.
        if any(name.startswith("_dl_runtime_resolve") for _, name, _ in perfs):
            continue
        # Not in the loader: while no program is loaded, perf leaves its frames out.
        begun = [name for _, name, file in perfs[:2] if not Path(file).name.startswith("ld-")]
        if re.match("_start( |$)|(__)?clone3? start_thread$", " ".join(begun)):
            # If a program's tables skip a function, perf continues by the frame pointer.
            if mine != perfs and perfs[-len(mine) :] == mine:
                _, _, file = mine[0]
                assert not has_table(file, int(mine[0][0], 16) - 1), (head, mine, perfs)
                continue
            assert mine == perfs, head
    # Names by file equal those of the recording.
    rows = [_core.Probe("sched:sched_switch", "syscall", "", "", "stack")]
    held = _core.flame(str(merged), rows, {"all": True})
    here = _core.flame(str(merged), rows, {"all": True, "symfs": "/"})
    assert held["kernel"]["nameless"] == 0 and held["user"]["addresses"] > 20

    def of_known(stacks: dict[str, float]) -> dict[str, float]:
        return {stack: n for stack, n in stacks.items() if stack.split(";")[0] in known}

    assert of_known(held["stacks"]) == of_known(here["stacks"]) != {}
