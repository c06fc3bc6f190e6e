"""The fate of each request, from sources that the answers do not use and load does not change.

The sources are stock perf's time stamps of single events, and the daemon's own list of its calls
(`calls`). All times are in ns on CLOCK_MONOTONIC.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import affairs
import numpy as np
import script
from columns import Columns

import fusetools
from fusetools.reasons import Code

if TYPE_CHECKING:
    from sample import SampleMount


# System calls by which a thread takes a request: read, splice.
READ = (0, 275) if platform.machine() == "x86_64" else (63, 76)


@dataclass
class Seen:
    """A request, by its events as stock perf prints them; 0: not seen."""

    connection: int
    unique: int
    caller: int
    sys_enter: int
    begin: int
    tid: int = 0  # of the daemon
    free: int = 0  # the thread enters its read for a request
    read: int = 0
    callback_enter: int = 0
    reply: int = 0
    end: int = 0
    runs: int = 0  # 0 also if no tracer saw the switch
    sys_exit: int = 0
    callback_return: int = 0


class Stock:
    """The requests of a recording of sample file systems, and its threads' off-CPU time."""

    def __init__(self, recording: Path, *mounts: SampleMount) -> None:
        self.seen: dict[tuple[int, int], Seen] = {}
        self.off: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # begin, wake-up, end
        # Number, begin, end
        self.syscalls: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        connections = {mount.pid: mount.connection for mount in mounts}
        missing = fusetools.open(recording).session.missing
        self.lacks_ends = any(why.code is Code.SWITCHES_MISSING for why in missing)
        enter: dict[int, tuple[int, int]] = {}  # by thread: number, time
        open_: dict[int, list[Seen]] = defaultdict(list)  # by thread of the daemon
        awaited: dict[int, Seen] = {}  # by caller: request ended, and the caller has yet to run
        called: dict[int, Seen] = {}  # by caller: it runs, and has yet to return
        out: dict[int, tuple[int, int]] = {}  # by thread: begin, wake-up
        # By thread: woken while going to sleep, by another CPU, before its switch is recorded.
        early: set[int] = set()

        def answered(tid: int) -> None:
            """Before it slept."""
            if tid in awaited:
                called[tid] = awaited.pop(tid)
                called[tid].runs = called[tid].end

        def run(tid: int, time: int, switched: bool = False) -> None:
            early.discard(tid)
            if tid not in out:
                answered(tid)
            else:
                since, woken = out.pop(tid)
                self.off[tid].append((since, woken, time))
                if tid in awaited:
                    called[tid] = awaited.pop(tid)
                    called[tid].runs = time if switched else 0

        for event in script.events(recording, switches=True):
            tid, time, name = event.tid, event.time, event.name
            if name == "sched:sched_switch":
                before, after = event.number("prev_pid"), event.number("next_pid")
                preempted = "prev_state=R" in event.text
                if before not in out and (preempted or before not in early):
                    answered(before)
                out[before] = (time, time if preempted or before in early else 0)
                run(after, time, switched=True)
                continue
            if name.startswith("PERF_RECORD_SWITCH"):
                if not event.text.startswith("OUT"):
                    run(tid, time, switched=True)
                continue
            if name == "cpu-clock":
                continue  # sampled at any time: not an event of its own
            run(tid, time)
            if name == "sched:sched_waking":
                woken = event.number("pid")
                if woken not in out:
                    early.add(woken)
                elif not out[woken][1] or woken in early:
                    out[woken] = (out[woken][0], time)
                    early.discard(woken)
            elif name == "raw_syscalls:sys_enter":
                enter[tid] = (event.number("NR"), time)
            elif name == "raw_syscalls:sys_exit":
                # Entered before the recording: at 0.
                number, since = enter.pop(tid, (event.number("NR"), 0))
                self.syscalls[tid].append((number, since, time))
                if tid in called:
                    called.pop(tid).sys_exit = time
            elif name == "fuse:fuse_request_send":
                key = event.number("connection"), event.number("req")
                self.seen[key] = Seen(*key, tid, enter.get(tid, (0, 0))[1], time)
            elif name == "fuse:fuse_request_end":
                found = self.seen.get((event.number("connection"), event.number("req")))
                if found:
                    found.end, found.reply = time, enter.get(tid, (0, 0))[1]
                    awaited[found.caller] = found
            elif name.startswith("fuse_daemon:cvmfs_") and name.endswith("__return"):
                if open_[tid]:
                    open_[tid].pop().callback_return = time
            elif name.startswith("fuse_daemon:cvmfs_"):
                key = connections[event.pid], event.number("unique")
                found = self.seen.get(key) or Seen(*key, 0, 0, 0)
                # libfuse may start another thread between the two events.
                reads = (call for call in reversed(self.syscalls[tid]) if call[0] in READ)
                _, found.free, found.read = next(reads)
                found.tid, found.callback_enter = tid, time
                open_[tid].append(found)

    def idle(self, tid: int, begin: int, end: int) -> tuple[int, int]:
        """Return the ns of a time span in which the thread was blocked, and in which it lacked a
        CPU."""
        blocked = ready = 0
        for since, woken, until in self.off[tid]:
            ran = woken or until
            blocked += overlap((since, ran), (begin, end))
            ready += overlap((ran, until), (begin, end))
        return blocked, ready


def overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return the ns that two time spans have in common."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


OF_DAEMON = ("read", "callback_enter", "callback_return")
MARKS = ("sys_enter", "begin", *OF_DAEMON, "reply", "end", "runs", "sys_exit")


def hold(stories: Columns, stock: Stock) -> dict[tuple[int, int], int]:
    """Compare each answered request with stock perf's times. Return the places in the stories."""
    found = {}
    for i in np.flatnonzero(stories.fated("matched")):
        key = int(stories.connection[i]), int(stories.unique[i])
        found[key], seen = int(i), stock.seen[key]
        marks: tuple[str, ...] = (
            MARKS if stories.waits[i] == 1 else ("begin", *OF_DAEMON, "reply", "end")
        )
        if not seen.callback_enter:  # libfuse answers by itself
            marks = tuple(mark for mark in marks if mark not in OF_DAEMON)
        for mark in marks:
            # The second request of a system call begins where the first one's caller ran.
            if mark == "sys_enter" and stories.resumed_ns[i]:
                assert stories.sys_enter_ns[i] == 0
            elif mark == "runs" and not seen.runs:
                assert stories.runs_ns[i] == 0 and stock.lacks_ends, seen
            elif mark != "sys_exit" or stories.sys_exit_ns[i]:
                assert int(getattr(stories, f"{mark}_ns")[i]) == getattr(seen, mark) > 0, (
                    mark,
                    seen,
                )
        if not seen.callback_enter:
            continue
        assert (stories.tid[i], stories.daemon_tid[i]) == (seen.caller, seen.tid)
        blocked, ready = stock.idle(seen.tid, seen.callback_enter, seen.reply)
        assert (stories.blocked_ns[i], stories.runnable_ns[i]) == (blocked, ready), seen
    return found


def own_calls(mount: SampleMount) -> dict[tuple[int, int], affairs.Call]:
    """Return the daemon's own times of each call, by connection and request."""
    return {(mount.connection, call.unique): call for call in mount.calls()}


def behind(request: Seen, calls: dict[tuple[int, int], affairs.Call], stock: Stock) -> int:
    """Return ns for which a request was queued while its later thread was in other calls."""
    return sum(
        overlap((request.begin, request.read), (call.entered, call.left))
        for key, call in calls.items()
        if call.unique != request.unique and stock.seen[key].tid == request.tid
    )
