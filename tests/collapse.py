"""Folded stacks and off-CPU time from the output of `perf script`: an independent source for tests.

The folding follows stackcollapse-perf.pl of github.com/brendangregg/FlameGraph, without its
options. In contrast to it, names of C++ keep their parentheses, without the arguments.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r"(\S.*?)\s+(-?\d+)/(-?\d+)\s+(?:\[\d+\]\s+)?([\d.]+):\s+(\d+\s+)?(\S+):(.*)")
_COMM = re.compile(r"PERF_RECORD_COMM(?: exec)?: (.+):-?\d+/(-?\d+)$")
_FRAME = re.compile(r"\s*(\w+)\s*(.+) \((.*)\)")


@dataclass
class Sample:
    comm: str
    pid: int
    tid: int
    ns: int
    event: str
    period: int
    text: str
    frames: list[str] = field(default_factory=list)  # outermost first

    @property
    def stack(self) -> str:
        return ";".join([self.comm.replace(" ", "_"), *self.frames])


def samples(data: Path, *options: str) -> Iterator[Sample]:
    """Yield every sample of a recording as stock perf prints it."""
    fields = "comm,pid,tid,time,period,event,trace,ip,sym,dso"
    command = ["perf", "script", "-i", str(data), "--ns", "--show-task-events", "-F", fields]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, check=True, errors="replace")
    sample = None
    comms: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if named := _COMM.search(line):
            comms[int(named[2])] = named[1]
        elif line.startswith("\t"):
            match = _FRAME.match(line)
            if sample and match:
                _frame(sample.frames, match[2], match[3])
        elif match := _HEAD.match(line.strip()):
            if sample:
                yield sample
            comm, pid, tid, time, period, event, text = match.groups()
            seconds, _, rest = time.partition(".")
            ns = int(seconds) * 10**9 + int(rest.ljust(9, "0"))
            # Documented: a thread without a name has the name of its process
            if comm.startswith(":"):
                comm = comms.get(int(pid), comm)
            sample = Sample(comm, int(pid), int(tid), ns, event, int(period or 1), text)
    if sample:
        yield sample


def _frame(frames: list[str], function: str, file: str) -> None:
    function = re.sub(r"\+0x[\da-f]+$", "", function)
    if function == "[unknown]":
        function = file.rpartition("/")[2]
        function = function if function.startswith("[") else f"[{function}]"
        # Documented: addresses in no file form one frame together.
        if function == "[unknown]" and frames[:1] == ["[unknown]"]:
            return
    # Documented: the caller of a tracepoint's probes is left out.
    if function.startswith("__traceiter_"):
        return
    function = without_arguments(function).replace(";", ":")
    frames.insert(0, function.replace('"', "").replace("'", ""))


def without_arguments(function: str) -> str:
    """Return a name as `c++filt --no-params` demangles it."""
    name = re.sub(r"( const| volatile| &&?| \[clone [^]]*\])*$", "", function)
    if not name.endswith(")") or name.endswith("(anonymous namespace)"):
        return function
    depth, at = 0, len(name)
    while at and (at == len(name) or depth):
        at -= 1
        depth += {")": 1, "(": -1}.get(name[at], 0)
    name = name[:at]
    # The name begins with its return type
    if name.endswith(">") and not re.search(r"\boperator \w", name):
        depth = 0
        for at in reversed(range(len(name))):
            depth += {">": 1, ")": 1, "<": -1, "(": -1}.get(name[at], 0)
            if name[at] == " " and not depth:
                return name[at + 1 :]
    return name


def folded(data: Path, event: str, *options: str) -> Counter[str]:
    """Return folded stacks of the samples of an event, weighted by their periods."""
    found: Counter[str] = Counter()
    for sample in samples(data, *options):
        if sample.event == event and sample.frames:
            found[sample.stack] += sample.period
    return found


def off_cpu(data: Path, *options: str) -> Counter[str]:
    """Return ns off the CPU by stack and state.

    The time lasts from each switch-out to the task's next switch-in, to the end of the recording,
    or until the task wakes up another one. The state is unknown for a task that runs again without
    a wake-up.
    """
    found: Counter[str] = Counter()
    out: dict[int, tuple[Sample, bool, int]] = {}

    def add(wait: tuple[Sample, bool, int], to: int, runs: bool) -> None:
        before, preempted, woken = wait
        whole = to - before.ns
        if preempted:
            found[f"{before.stack};[preempted]"] += whole
        elif not woken and runs:
            found[f"{before.stack};[blocked or runnable]"] += whole
        else:
            blocked = woken - before.ns if woken else whole
            found[before.stack] += blocked
            found[f"{before.stack};[runnable]"] += whole - blocked

    last = 0
    early: set[int] = set()  # woken while going to sleep, before the switch is recorded
    for sample in samples(data, *options):
        last = max(last, sample.ns)
        if sample.event == "sched:sched_waking":
            early.discard(sample.tid)
            if sample.tid in out:  # it runs although its switch-in was not recorded
                add(out.pop(sample.tid), sample.ns, True)
            woken = int(re.search(r" pid=(\d+)", sample.text)[1])  # type: ignore[index]
            if woken not in out:
                early.add(woken)
            elif not out[woken][2] or woken in early:
                out[woken] = (*out[woken][:2], sample.ns)
                early.discard(woken)
        elif sample.event == "sched:sched_switch":
            switch = re.search(r"prev_pid=(\d+) .*prev_state=(\S+) .*next_pid=(\d+)", sample.text)
            assert switch
            prev, state, following = int(switch[1]), switch[2], int(switch[3])
            if prev in out:  # same name
                add(out.pop(prev), sample.ns, True)
            if following in out:
                add(out.pop(following), sample.ns, True)
            if prev and state not in ("X", "Z"):
                out[prev] = (sample, state in ("R", "R+"), sample.ns if prev in early else 0)
            early.discard(following)
    for wait in out.values():
        add(wait, last, False)
    return +found
