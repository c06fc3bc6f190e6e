"""perf record: its command line, and a running one steered through --control, or by signals."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.host.processes import until_ended
from fusetools.host.rights import hide_kernel_symbols
from fusetools.plan.capabilities import steerable
from fusetools.plan.events import Event
from fusetools.plan.filters import Filter, OfDaemons, OfWorkload, Open
from fusetools.plan.planner import ProbePlan
from fusetools.record.program import Program

# All CPUs' buffers together, and one at most and at least. 8 processes at work fill some 20 MB a
# second on each CPU; perf reads in time while it gets one.
BUFFERS = 512 << 20
LARGEST, SMALLEST = 32 << 20, 64 << 10
# It looks for commands only when it has nothing to write: it writes no less at once.
WRITTEN = 256 << 10
SWITCH = "sched:sched_switch"
COPIES = 4  # times as much where each event's stack is copied: 20 times the bytes
# Threads that a workload is expected not to start, and numbers that are not given anew.
FAR = 1 << 18
MOST_THREADS = 64  # whose numbers a filter holds, which is at most a page
NO_THREAD = -1
RESERVED = 300


@dataclass(frozen=True)
class Sizes:
    """Bytes: of each CPU's ring buffer (a power of two); after which perf stops by itself (0: after
    none); and of a buffer that perf leaves there until it has to end (0: none)."""

    buffer: int
    limit: int
    left: int = 0


def buffer_size(cpus: int, together: int, largest: int, smallest: int) -> int:
    """Return the bytes of each CPU's buffer, a power of two: all together are no more than
    ``together``."""
    buffer = largest
    while buffer > smallest and buffer * cpus > together:
        buffer //= 2
    return buffer


def sizes(cpus: int, free: int, copies: bool = False, both: bool = False) -> Sizes:
    """For so many CPUs and bytes of free disk. ``copies``: the stack of each event is copied;
    ``both``: ftrace writes, too, as much at most.

    The file is there twice for a moment, when the session sample is added, and ftrace's events
    take twice the room in it; and after its limit perf still writes what is in the buffers. A disk
    that runs full would leave a file that lacks the formats of its events.
    """
    largest = LARGEST * COPIES if copies else LARGEST
    buffer = buffer_size(cpus, min(BUFFERS, free // 8), largest, SMALLEST)
    most, least = (free * 9 // 50, 1 << 19) if both else (free * 9 // 20, 1 << 20)
    return Sizes(buffer, max(most - buffer * cpus, least), min(WRITTEN, buffer // 4))


@dataclass(frozen=True)
class Since:
    """Threads that are not older than the first of the workload, by their numbers; and those in
    ``also``, which run already: ranges (first, last).

    Numbers are given one after the other up to ``pid_max``, then again from RESERVED on.
    Where that may happen, all are taken but those of a quarter of the range below the first's: it
    is right until ``room`` threads have been started. Unrelated threads are dropped when merging.
    """

    first: int
    pid_max: int
    also: tuple[tuple[int, int], ...] = ()

    @property
    def below(self) -> int:
        """Numbers below this one may be given anew; 0: that far it will not come."""
        if self.pid_max - self.first >= FAR:
            return 0
        below = self.first - self.pid_max // 4
        return below if below > RESERVED else 0

    @property
    def room(self) -> int:
        return self.pid_max - self.first + max(self.below - RESERVED, 0)

    def condition(self, field: str) -> str:
        """Return a filter for events whose ``field`` is the number of one of these threads."""
        is_ours = f"{field} >= {self.first}"
        if self.below:
            is_ours = f"({is_ours} || ({field} >= {RESERVED} && {field} < {self.below}))"
        for first, last in self.also:
            within = f"({field} >= {first} && {field} <= {last})"
            is_ours += f" || {field} == {first}" if first == last else f" || {within}"
        return f"({is_ours})" if self.also else is_ours


@dataclass(frozen=True)
class Threads:
    """The threads that filters select: those that may be the workload's, and the daemons'.

    ``daemons``: their numbers; None: not known yet. Filters show names instead of unknown numbers.
    """

    workload: Since | None = None
    daemons: Sequence[int] | None = None

    def filled(self, only: Filter) -> str:
        """Return a filter's text as the kernel takes it."""
        return only.filled(self._condition)

    def _condition(self, place: Open) -> str:
        if isinstance(place, OfWorkload) and self.workload:
            return self.workload.condition(place.field)
        if isinstance(place, OfDaemons) and self.daemons is not None:
            # None of them, if they are too many.
            few = self.daemons if 0 < len(self.daemons) <= MOST_THREADS else (NO_THREAD,)
            return "(" + " || ".join(f"{place.field} == {number}" for number in few) + ")"
        return str(Filter((place,)))


UNKNOWN = Threads()


def command_line(
    plan: ProbePlan,
    perf: Tool,
    output: str,
    control: tuple[str, str] | None,
    room: Sizes,
    cgroup: str | None = None,
    threads: Threads = UNKNOWN,
) -> list[str]:
    """`perf record` for a plan.

    ``control``: the fifos (commands, answers). Without them, or where perf has no --control (before
    perf 5.10), its events are on from the beginning;
    ``cgroup``: the workload's, below the mount point of
    the hierarchy that perf uses; ``threads``: those that filters select.
    """
    argv = _options(plan, perf, output, control, room, ["-a"])
    if plan.switch_records:
        argv += ["--switch-events"]
    if plan.kernel_stacks:
        argv += ["--kernel-callchains"]
    events = [event for event in plan.events if not event.ftrace and not event.per_task]
    by_ftrace = any(event.ftrace and event.name == SWITCH for event in plan.events)
    ours = [event for event in events if event.workload and cgroup]
    if ours:
        # First, so that perf takes it for the records of tasks, mappings and switches: only the
        # workload's. -G is of all events before it.
        argv += ["-e", "dummy:u"]
        for event in ours:
            argv += _event(event, plan.stack_bytes, by_ftrace, threads)
        argv += ["-G", cgroup or ""]
    elif any(event.ftrace for event in plan.events):
        # perf has the records of tasks with its first event.
        argv += ["-e", "dummy:u"]
    for event in events:
        if event not in ours:
            argv += _event(event, plan.stack_bytes, by_ftrace, threads)
    return argv


def per_task_line(
    plan: ProbePlan,
    perf: Tool,
    output: str,
    control: tuple[str, str] | None,
    room: Sizes,
    pids: Iterable[int],
    threads: Threads = UNKNOWN,
) -> list[str]:
    """Return `perf record` for the plan's per-task events: on ``pids`` and all that they start.

    The kernel ends them where a process runs a setuid program (fs/exec.c, begin_new_exec).
    """
    whom = ["-p", ",".join(map(str, pids)), "--sample-cpu"]
    argv = _options(plan, perf, output, control, room, whom)
    for event in plan.events:
        if event.per_task:
            argv += _event(event, plan.stack_bytes, True, threads)
    return argv


def _options(
    plan: ProbePlan,
    perf: Tool,
    output: str,
    control: tuple[str, str] | None,
    room: Sizes,
    whom: Sequence[str],
) -> list[str]:
    argv = [perf.path, "record", *whom, "-o", output, "-N", "-B"]
    if plan.clock == "mono":
        argv += ["-k", "CLOCK_MONOTONIC"]
    argv += [option for option in ("--no-bpf-event",) if option in perf.options]
    if "--synth" in perf.options:  # names of running tasks, not the maps of every process
        argv += ["--synth", "task"]
    if control and steerable(perf):
        argv += ["-D", "-1", "--control", f"fifo:{control[0]},{control[1]}"]
    argv += ["-m", f"{room.buffer >> 10}K"]
    if room.limit and "--max-size" in perf.options:
        argv += ["--max-size", f"{room.limit >> 10}K"]
    if room.left and "--mmap-flush" in perf.options:
        argv += ["--mmap-flush", f"{room.left >> 10}K"]
    return argv


def overwriting(command_line: Sequence[str]) -> list[str]:
    """Return the same command line, with buffers that always hold the newest events. SIGUSR2 has
    them written."""
    return [*command_line, "--overwrite", "--switch-output=signal"]


def _event(event: Event, stack_bytes: int, by_ftrace: bool, threads: Threads) -> list[str]:
    """``by_ftrace``: all switches are recorded by ftrace, and perf takes their stacks."""
    terms = []
    if event.frequency:
        terms.append(f"freq={event.frequency}")
    # Never by the global option: it would take the user's part from events with call-graph=fp.
    if event.stack == "dwarf":
        terms += ["call-graph=dwarf", f"stack-size={stack_bytes}"]
    elif event.stack:
        terms.append("call-graph=fp")
    if event.frequency:
        # perf would call it by all its terms; I: not on an idle CPU
        return ["-e", f"{event.name}/{','.join(terms)},name={event.name}/I"]
    argv = ["-e", event.name + (f"/{','.join(terms)}/" if terms else "")]
    if event.condition:
        argv += ["--filter", threads.filled(event.condition)]
    # A switch from perf to another task happens in perf: without it that task's wait has no end.
    if event.name == SWITCH and not by_ftrace:
        return argv
    # For each other event: without it perf's own system calls were most of them; and where perf
    # writes to a FUSE mount, which it waits for, it had no end of its own switches to write.
    return [*argv, "--exclude-perf"]


# Beginnings of the lines of perf's warnings: perf records in spite of them, or refuses for another
# reason.
_WARNINGS = (
    "Warning:",
    "WARNING:",
    "check /proc/sys/kernel/kptr_restrict",
    "Samples in kernel ",
    "file is not found in the buildid cache",
    "If some relocation was applied",
    "even with a suitable vmlinux",
    "Couldn't record kernel reference relocation symbol",
    "Symbol resolution may be skewed",
    "Check /proc/kallsyms permission",
    "Cannot read kernel map",
)

# The command that a perf without --control runs, which starts it when all events are on. It ends
# with perf, or with the process that has the fifos ("$0": commands, "$1": answers).
_HELD = 'trap "" INT; echo ack >"$1"; read -r _ <"$0"'


class Refused(Error):
    """perf does not begin to record."""


class Perf(Program):
    """A `perf record` (or `perf stat`) that has opened its events and waits.

    ``steered``: it has --control. Else its events are on as soon as it has opened them, until it
    gets a signal.
    """

    symbols = True  # whether its file has to tell where the kernel's functions are
    noise = ("Events ", "[ perf record:", "Usage:", "or: perf", "Run 'perf", *_WARNINGS)
    again = 1.0  # while it begins a signal is lost at times: it was waited for until SIGTERM

    def __init__(self, directory: Path, steered: bool = True) -> None:
        super().__init__(directory / "perf.log")
        self.steered = steered
        self._owed = 0  # answers
        self.fifos = (str(directory / "control"), str(directory / "answer"))
        for name in self.fifos:
            os.mkfifo(name, 0o600)
        # both ends, so that neither side waits for the other to open
        self._control = os.open(self.fifos[0], os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._answer = os.open(self.fifos[1], os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self, argv: Sequence[str], prepare: Callable[[], None], directory: Path) -> int:
        if not self.steered:
            self._owed += 1  # that its events are on
            argv = [*argv, "--", "sh", "-c", _HELD, *self.fifos]

        def limited() -> None:
            prepare()
            if not self.symbols:
                hide_kernel_symbols()

        return super().start(argv, limited, directory)

    def tell(self, word: str, seconds: float = 60.0) -> bool:
        """Send a command and wait for its answer. Return False if perf ended, did not answer or
        takes no commands."""
        if not self.steered:
            return False
        self.ask(word)
        return self._answers(seconds)

    def _answers(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.owes and time.monotonic() < end:
            if not self.look(0.05) and self.ended:
                return False
        return not self.owes

    def ask(self, word: str) -> None:
        """Send a command."""
        os.write(self._control, word.encode() + b"\n")
        self._owed += 1

    @property
    def owes(self) -> bool:
        """True if it has yet to answer, perhaps to an earlier command: it looks for none while it
        has much to write."""
        return self._owed > 0

    def look(self, seconds: float) -> bool:
        """Read its answers. Return False if nothing came in that time."""
        ready = select.select([self._answer], [], [], seconds)[0]
        if ready:
            self._take()
        return bool(ready)

    def _take(self) -> None:
        self._owed -= os.read(self._answer, 4096).count(b"ack")

    def enable(self) -> None:
        """Switch the events on. Raise Refused if perf could not open them."""
        if not (self.tell("enable") if self.steered else self._answers(60.0)):
            why = self.complaint() or "it does not answer"
            # The kernel's limit of locked memory, which CAP_IPC_LOCK lifts.
            fix = "fusetools doctor" if why.startswith("Permission error mapping pages") else ""
            raise Refused("perf cannot record", why, fix)

    def pause(self) -> None:
        """Switch the events off, if it takes commands."""
        if not self.ended:
            self.tell("disable")

    @property
    def done(self) -> bool:
        """True if it has written its data: it reports that (builtin-record.c) before it closes its
        events, which takes a grace period for each."""
        return self.ended or self._wrote

    @property
    def _wrote(self) -> bool:
        return "[ perf record: Captured and wrote " in self.said()

    @property
    def complete(self) -> bool:
        """True if it ended because all its processes did: it has written all their events.

        At its limit it ends as well (builtin-record.c).
        """
        whole = self.process is not None and self.process.poll() == 0
        return whole and "size limit reached" not in self.said()

    def _until_done(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.done and self.process and (left := end - time.monotonic()) > 0:
            until_ended(self.process.pid, min(left, 0.005))

    def stop(self) -> bool:
        """Let perf write its data. Return whether it did. It may still run: let_go()."""
        if self.process is None:
            return True
        # perf before 5.12 knows no "stop". One that runs a command ends by the signal that ends it.
        good = self.end(120.0)
        return good and (
            self.process.returncode in (None, 0, -signal.SIGINT)
            or (not self.steered and self._wrote)
        )

    def close(self) -> None:
        os.close(self._control)
        os.close(self._answer)


class Overwriting(Perf):
    """One whose buffers hold the newest events, and are written when that is asked for."""

    complete = False  # by itself it writes none of its buffers

    def ask_dump(self) -> None:
        """Have the buffers written; dump() waits for that."""
        if self.process is not None and not self.ended:
            self.process.send_signal(signal.SIGUSR2)

    def dump(self, directory: Path, name: str, seconds: float = 60.0) -> Path:
        """Wait for what ask_dump() asked for. Return it, a file of the directory that perf runs in.

        ``name``: of its own output. Meanwhile events are dropped; perf records again when this
        returns. Raise Error if it did not write that.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.ended:
            for path in directory.glob(f"{name}.[0-9]*"):
                return path
            time.sleep(0.01)
        raise Error("perf did not write its buffers", self.complaint() or "it does not answer")

    def stop(self) -> bool:
        """Kill perf immediately: at SIGINT it would write its buffers."""
        self.kill()
        return True
