"""System calls of a workload before what it uses is mounted, summed by process.

The mount is recorded from when it is there; it takes long to come where its daemon closes a million
descriptors, or waits for a server. perf writes to a pipe, and nothing to a disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.probe import read_host
from fusetools.plan.capabilities import steerable
from fusetools.plan.collectors import SYSCALLS
from fusetools.plan.events import Event
from fusetools.plan.filters import OfWorkload, place
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Value
from fusetools.record.job import Job
from fusetools.record.perf import SWITCH, Since, Sizes, Threads, buffer_size, command_line
from fusetools.record.state import Lock
from fusetools.record.streaming import BUFFERS, LARGEST, SMALLEST, Piped

PATIENCE = 10.0  # seconds that perf has to write what it holds
EVENTS = (
    *(Event(name, place(OfWorkload("common_pid"))) for name in SYSCALLS),
    Event(SWITCH, place(OfWorkload("prev_pid"))),
)
ROLES = ("sys_enter", "sys_exit", "switch")
NO_MOUNTS = [os.devnull]  # on none: no mount is asked


class Before:
    """System calls and waits of the process ``pid``, which has not begun, and of all that it
    starts. ``descriptor``: to be read from (take) when there is something."""

    def __init__(self, perf: Piped, pid: int, arch: str) -> None:
        self.perf = perf
        rows = [
            native.Probe(event.name, "syscall", "", "", role) for event, role in zip(EVENTS, ROLES)
        ]
        self.sums = native.Before(rows, pid, arch)
        self.descriptor = perf.descriptor
        self.damaged = False

    def take(self) -> None:
        """Sum up what perf has written."""
        for part in self.perf.parts():
            try:
                if not self.damaged:
                    self.sums.feed(part)
            except native.CoreError:
                self.damaged = True

    def told(self) -> tuple[dict[str, Value], dict[str, float]]:
        """End perf; return what the process that took the longest did: subject and figures of a
        reason."""
        process, end = self.perf.process, time.monotonic() + PATIENCE
        if process is not None and not self.perf.ended:
            process.send_signal(signal.SIGINT)
        while not self.perf.ended and time.monotonic() < end:
            self.perf.readable(0.05)
            self.take()
        self.take()
        found = [] if self.damaged or not self.perf.ended else self.sums.finish()
        return _words(found[0], self.sums.lost()) if found else ({}, {})


def _words(process: native.ProcessBefore, lost: int) -> tuple[dict[str, Value], dict[str, float]]:
    subject: dict[str, Value] = {"comm": process["comm"], "pid": process["pid"]}
    figures: dict[str, float] = {
        "span_ns": process["span_ns"],
        "blocked_ns": process["blocked_ns"],
        "lost": lost,
    }
    for call in process["calls"][:1]:
        subject["call"] = call["name"]
        figures["calls"], figures["failed"] = call["calls"], call["failed"]
        figures["calls_ns"] = call["total_ns"]
    return subject, figures


@contextlib.contextmanager
def watched(options: Options, arguments: Sequence[str], pid: int) -> Iterator[Before | None]:
    """Provide what sums up the system calls of a process, armed. None: this host cannot."""
    facts = read_host(trial=False, paths=NO_MOUNTS)
    perf = facts.perf
    known = {event.name for event in EVENTS} <= set(facts.tracepoints)
    if perf is None or not steerable(perf) or not known or facts.pid_namespace:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(Lock(["fusetools", *arguments]))
            plan = ProbePlan((), (), EVENTS)
            job = Job(lock, options, arguments, None, facts, plan)
            stack.callback(job.close)
            folder = job.folder()
            piped = Piped(folder)
            stack.callback(piped.close)
            stack.callback(piped.end, 10.0)
            room = Sizes(buffer_size(facts.cpus, BUFFERS, LARGEST, SMALLEST), 0)
            threads = Threads(Since(pid, facts.pid_max))
            line = command_line(plan, perf, "-", piped.fifos, room, threads=threads)
            job.run(piped, line, folder)
            piped.enable()
            before = Before(piped, pid, facts.arch)
        except Error:
            stack.close()
            yield None
            return
        yield before
