"""The flight recorder: perf's buffers hold the latest events, and are written on request.

perf overwrites its buffers (--overwrite) and writes nothing until a condition becomes true, a
signal arrives, or `fusetools snap` asks. Then the buffers' contents become a recording like any
other, through the same finishing, and perf continues. A second perf watches conditions on requests:
it streams only their begins and ends, as `fusetools top` does. Each recording has the requests in
flight, even if the buffers no longer hold their begins: these are taken from that stream.

Child processes assemble each recording and read what is stuck. So the recorder needs no more memory
after weeks than after its first recording.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import select
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from fusetools import session
from fusetools.core import native
from fusetools.errors import Error
from fusetools.figures import binary, size, took
from fusetools.host.files import Files, by_descriptor
from fusetools.live.conditions import Cause, Conditions, Requests, Waits
from fusetools.live.forked import Forked
from fusetools.live.mounts import NewMounts
from fusetools.output import Output
from fusetools.plan.bundles import bundled
from fusetools.plan.conditions import Waiting
from fusetools.plan.options import Flight, Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Code, Reason
from fusetools.record import waiting
from fusetools.record.callers import Callers
from fusetools.record.daemons import mapped
from fusetools.record.finisher import Finisher, Recorded
from fusetools.record.handover import give
from fusetools.record.job import Job
from fusetools.record.owners import Owners
from fusetools.record.perf import Overwriting, buffer_size
from fusetools.record.preflight import MOST, check_feedback, output_of, prepared
from fusetools.record.recorders import FORMATS, Recorders
from fusetools.record.scratch import TASKS
from fusetools.record.session import Recording, check_signals
from fusetools.record.signals import ENDING, SIGNALS
from fusetools.record.state import DIRECTORY, Removed
from fusetools.record.workload import User
from fusetools.results.flight import Written
from fusetools.results.stuck import Stuck
from fusetools.stuck import machine
from fusetools.stuck.diagnosis import stuck

SNAP = signal.SIGUSR1
STEP = 0.2  # seconds between two checks of the conditions
LOOK = 5.0  # seconds between two checks of the mounts
# Bytes per second on each CPU, and the limit of all CPUs' buffers.
RATE = 2 << 20
BUFFERS, LARGEST, LEAST = 1 << 30, 1 << 28, 1 << 20
ROOM = 1.25  # factor for variations of the measured rate
MEASURED = 1.0  # seconds at startup in which the rate of events is measured
GROW = 10.0  # seconds without a recording until a restart with larger buffers
QUIET = 0.5  # seconds without a trigger that end a burst
DATA = "flight"  # perf's own output: removed if the recorder is killed
HELD = "held"  # requests in flight, from the second perf
SOCKET = "flight"
KEEP = 10  # number of recordings
CALIBRATIONS = 100  # own calls in each recording, to measure the probes' cost
MARGIN = 100_000_000  # ns before the begin of the cause
ACCOUNT = ".stuck.json"
PATIENCE = 1.0  # timeout in seconds for a client to take its answer
LONG = 10.0  # seconds after which a client reports that it waits
_STAMP = r"\.\d{8}T\d{6}Z(-\d{1,4})?"
_NO_RECORDER = "fusetools record --flight 30"
T = TypeVar("T")


def buffer_of(flight: Flight, cpus: int) -> int:
    """Return the bytes of each CPU's buffer."""
    if flight.buffer is not None:
        return flight.buffer
    wanted = _power_of_two(int(min(max(flight.seconds * RATE, LEAST), LARGEST)))
    return buffer_size(cpus, BUFFERS, wanted, LEAST)


def keep_of(flight: Flight, cpus: int, user: User | None) -> int:
    """Return how many recordings are kept.

    Raise Error if the buffers or the recordings are too large for a user who invoked sudo. A
    recording is at most as large as the buffers.
    """
    together = buffer_of(flight, cpus) * cpus
    if user is None:
        return flight.keep or KEEP
    fix = f"fusetools record --flight {flight.seconds:g}"
    if together > BUFFERS:
        what = f"--buffer {binary(buffer_of(flight, cpus))} is too much"
        why = f"on {cpus} CPUs it takes {binary(together)}; the limit is {binary(BUFFERS)}"
        raise Error(what, why, f"{fix}   # or --as-root")
    most = max(MOST // together, 1)
    if flight.keep is not None and flight.keep > most:
        why = f"{flight.keep:,} recordings of up to {binary(together)}"
        why = f"{why}; who invoked sudo may record {binary(MOST)} at most"
        raise Error(
            f"--keep {flight.keep:,} is too much", why, f"{fix} --keep {most}   # or --as-root"
        )
    return flight.keep or min(KEEP, most)


def larger_buffer(flight: Flight, cpus: int, user: User | None, rate: float) -> int | None:
    """Return the bytes of each CPU's buffer that hold what is wanted at ``rate`` bytes a second, as
    far as the limits allow; None: the present buffers do, or are as large as they may be."""
    memory = Files(Path("/")).read("/proc/meminfo", quiet=True) or ""
    free = re.search(r"^MemAvailable:\s+(\d+) kB", memory, re.MULTILINE)
    together = min(BUFFERS, int(free[1]) << 8) if free else BUFFERS
    if user is not None and flight.keep:
        together = min(together, MOST // flight.keep)
    wanted = _power_of_two(int(min(rate * flight.seconds * ROOM, LARGEST)))
    buffer = buffer_size(cpus, together, wanted, LEAST)
    return buffer if buffer > buffer_of(flight, cpus) else None


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 1).bit_length()


def fly(
    options: Options,
    arguments: Sequence[str],
    account: Callable[[Stuck], str],
    armed: Callable[[ProbePlan, Removed, int, float], None],
    written: Callable[[Written], None],
    warn: Callable[[str], None],
) -> None:
    """Record until a signal ends it.

    ``account``: returns the report on stuck mounts; ``armed``: called once when everything is
    armed, with the bytes of each CPU's buffer and the seconds that it holds at the present rate;
    ``written``: called for each recording; ``warn``: called with the reason why one could not be
    written. Raise Error if recording has ended.
    """
    kept = first = options.flight or Flight()
    own, found = first.buffer is None, Removed((), ())
    waits: Waits = {}
    with output_of(options) as output, _held():
        while True:
            waiting.until_mounted(options.mounts, warn)
            with prepared(options, arguments, warn) as (lock, removed, user, facts, plan):
                if not options.force:
                    check_feedback(output, plan)
                plan = bundled(facts, plan, lock.number)
                job = Job(lock, options, arguments, user, facts, plan, output, warn)
                flight = FlightRecorder(job, account, written)
                flight.grows, flight.waits = own, waits
                found = found if found.what else removed
                why = ""
                with flight:
                    try:
                        flight.arm()
                    except Error as error:
                        if not own or kept.buffer is None:
                            raise
                        own, flight.larger = False, buffer_of(first, facts.cpus)
                        why = f"no larger buffers: {error.what}: {error.why}"
                    else:
                        flight.measure()
                    if not flight.larger:
                        armed(job.plan, found, flight.recorders.room.buffer, flight.holds)
                        if not (why := flight.watch()):
                            return
            if job.outcome.interrupted:  # a signal arrived while the recording was removed
                return
            if why:
                warn(f"{why}: the flight recorder begins anew")
            kept = replace(kept, buffer=flight.larger or kept.buffer)
            options = replace(options, kind=kept, wait=True)


@contextlib.contextmanager
def _held() -> Iterator[None]:
    """Hold SNAP until it is polled, also while the recorder restarts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [SNAP])
    try:
        yield
    finally:
        while signal.sigtimedwait([SNAP], 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class FlightRecorder:
    """A recording without a workload that never ends and is written repeatedly.

    ``account``: returns the report on stuck mounts; ``written``: called for each recording.
    """

    requests: Requests | None = None
    grows = True  # whether buffers that are too small become larger
    larger: int | None = None  # their new size in bytes
    holds = math.inf  # seconds that the buffers hold at the rate measured last
    waits: Waits
    # ns on the recording's clock: its begin, and the time from which missing events were
    # overwritten
    begun = whole_since = 0
    listener: socket.socket | None = None
    # Stuck requests when a condition became true that has no recording yet, and the child that
    # looks for them
    moment: Stuck | None = None
    looking: Forked[Stuck] | None = None
    ending = False  # a signal to end arrived while a child was working

    def __init__(
        self, job: Job, account: Callable[[Stuck], str], written: Callable[[Written], None]
    ) -> None:
        assert job.options.flight is not None and job.output is not None
        # ftrace is not used, which may lack this clock
        job.plan = replace(job.plan, clock="mono")
        self.job, self.account, self.written = job, account, written
        self.kept = job.options.flight
        self.shelf = Shelf(job.output, keep_of(self.kept, job.facts.cpus, job.user))
        self.recording = Recording(job, buffer_of(self.kept, job.facts.cpus), DATA)

    def __enter__(self) -> FlightRecorder:
        self.recording.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.requests is not None:
                self.requests.close()
                self.requests = None
            if self.listener is not None:
                self.listener.close()
        finally:
            self.recording.__exit__(None, None, None)

    @property
    def recorders(self) -> Recorders:
        assert self.recording.recorders is not None
        return self.recording.recorders

    @property
    def output(self) -> Output:
        assert self.job.output is not None
        return self.job.output

    @property
    def _places(self) -> tuple[int, int]:
        """The directories that a child writes in."""
        return self.recording.made.descriptor, self.output.directory

    def arm(self) -> None:
        self.recording.arm()
        self.begun = self.whole_since = time.monotonic_ns()
        folder = self.job.folder()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(folder / SOCKET))
        self.listener.listen()
        self.listener.setblocking(False)
        if any(not isinstance(c, Waiting) for c in self.kept.conditions):
            self.requests = Requests(self.recording)
            self.requests.arm()
            self.requests.follow(self.kept.conditions)
        if lack := self._lack():  # a later time would miss events
            self.job.warn(f"cannot write in {self.output.parent} now: {lack}")
        check_signals()

    def measure(self) -> None:
        """Measure the rate of events, and how many seconds the buffers hold."""
        self.ending = self._wait_for(MEASURED)
        if self.ending or self._lack():
            return
        upto = time.monotonic_ns()
        raws = self._dumped()
        since = self.whole_since
        self.begun = self.whole_since = time.monotonic_ns()  # what came before is dropped
        window = (upto, upto, since, self.recorders.room.buffer, False)
        try:
            for raw in raws:
                rate = self._forked(partial(native.kept, raw, window))[3]
                self._hold(self.recorders.room.buffer / max(rate, 1))
        except native.CoreError:
            pass  # nothing was recorded
        finally:
            self._remove_dumps()

    def _hold(self, seconds: float) -> None:
        """Note how many seconds the buffers hold, and how large they should be."""
        self.holds = min(seconds, self.holds)
        if self.grows and self.holds < self.kept.seconds:
            rate = self.recorders.room.buffer / max(self.holds, 1e-3)
            self.larger = larger_buffer(self.kept, self.job.facts.cpus, self.job.user, rate)

    def _dumped(self) -> list[Path]:
        """Have each perf write its buffers. Return the files."""
        perfs = [perf for perf in self.recorders.perfs.all if isinstance(perf, Overwriting)]
        with self._fed():
            for perf in perfs:
                perf.ask_dump()
            names = (DATA, TASKS)
            return [perf.dump(self.recording.made.path, name) for perf, name in zip(perfs, names)]

    def _remove_dumps(self) -> None:
        for path in [
            *self.recording.made.path.glob("*.[0-9]*"),
            self.recording.made.path / "merged",
            self.recording.made.path / HELD,
        ]:
            path.unlink(missing_ok=True)

    def watch(self) -> str:
        """Run until a signal ends it, or until it must restart. Return why.

        Raise Error if perf has exited.
        """
        paths = {t.mount.connection: t.mount.path for t in self.job.plan.targets}
        mounts = self._mounts()
        new: list[str] = []
        looked = taken = time.monotonic()
        wanted, seconds = self.kept.conditions, self.kept.seconds
        with Conditions(wanted, self.requests, paths, seconds, self.job.warn) as conditions:
            conditions.waits = self.waits
            while not self._wait_for(STEP):
                held = min(self.holds, seconds)
                conditions.quiet, conditions.longest = min(QUIET, held / 4), held / 2
                if self.recorders.perfs.ended:
                    why = self.recorders.why_ended()
                    raise Error("the flight recorder ended", why)
                cause = conditions.look()
                self._look(conditions.due is not None)
                clients = self._clients()
                if clients:
                    cause = Cause("fusetools snap", None)
                elif signal.sigtimedwait([SNAP], 0) is not None:
                    cause = Cause(f"signal {SNAP.name}", None)
                if cause:
                    self._take(cause, clients)
                    conditions.taken()
                    taken = time.monotonic()
                if self.larger and not conditions.due and time.monotonic() > taken + GROW:
                    return (
                        f"buffers of {binary(self.recorders.room.buffer)} held {took(self.holds)}"
                    )
                if time.monotonic() - looked > LOOK:
                    looked = time.monotonic()
                    if mounts and (new := mounts.look()):
                        break
            conditions.look()
            if cause := conditions.due:
                self._take(cause, [])
        return f"{', '.join(new)} is mounted now" if new else ""

    def _look(self, due: bool) -> None:
        """Have a child look for what is stuck, once for what is due: it may be over when that is
        recorded."""
        if self.looking and self.looking.ready(0):
            self._looked()
        if not due:
            self.moment = None
        elif not self.moment and not self.looking:
            self.looking = Forked(self._stuck, self._places)

    def _looked(self) -> None:
        """Take what the child has found, if it was asked."""
        looking, self.looking = self.looking, None
        if looking:
            with contextlib.suppress(Error):  # the recording's own child tries again
                self.moment = self._result(looking)

    def _mounts(self) -> NewMounts | None:
        if self.job.options.pid is not None:
            return None
        assert self.recording.daemons is not None
        started = self.recording.daemons.started
        recorded = {
            target.mount.connection: (pid, start)
            if pid is not None and (start := started.get(pid)) is not None
            else None
            for target in self.job.plan.targets
            for pid in [target.mount.daemon_pid]
        }
        return NewMounts(Files(Path("/")), self.job.options.mounts, recorded)

    def _wait_for(self, seconds: float) -> bool:
        """Wait. Return whether a signal ends the recorder."""
        assert self.listener is not None
        if self.ending:
            return True
        if self.requests is not None:
            return self.requests.wait(seconds, self.listener.fileno())
        select.select([self.listener], [], [], seconds)
        came = signal.sigtimedwait(SIGNALS, 0)
        return came is not None and came.si_signo in ENDING

    def _clients(self) -> list[socket.socket]:
        """Return the clients that ask for a recording; only root can."""
        assert self.listener is not None
        clients = []
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = self.listener.accept()
                client.settimeout(PATIENCE)
                clients.append(client)
        return clients

    def _take(self, cause: Cause, clients: Sequence[socket.socket]) -> None:
        """Write a recording and answer its clients; continue if that fails."""
        taken = None
        try:
            taken = self._recording(cause)
            answer: dict[str, object] = {"output": str(taken.output)}
        except (Error, OSError) as problem:
            error = (
                problem
                if isinstance(problem, Error)
                else Error("the recording was not written", problem.strerror or str(problem))
            )
            if self.recorders.perfs.ended:
                raise error from problem
            self.job.warn(f"no recording was written ({cause.why}): {error.what}: {error.why}")
            answer = {"error": [error.what, error.why, error.fix]}
        # Answer first: the reader of the output may be gone or slow.
        for client in clients:
            with contextlib.suppress(OSError), client:
                client.sendall(json.dumps(answer).encode())
                client.shutdown(socket.SHUT_RDWR)  # held by another recorder
        if taken is not None:
            try:
                self.written(taken)
            except OSError as problem:
                self.job.warn(f"cannot print that {taken.output} was written: {problem.strerror}")

    @contextlib.contextmanager
    def _fed(self) -> Iterator[None]:
        """Meanwhile drain the pipe of the second perf, which would fill up."""
        if self.requests is None:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self.requests.feed_until, args=[ended])
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _forked(self, function: Callable[[], T]) -> T:
        """Return a function's result from a child, and keep none of the memory that it takes.

        Raise the function's error, or Error if the child was killed.
        """
        return self._result(Forked(function, self._places))

    def _result(self, child: Forked[T]) -> T:
        with self._fed():
            while not child.ready(STEP):
                came = signal.sigtimedwait(ENDING, 0)
                if came is not None:
                    self.ending = True
                    child.pass_on(came)  # on a second signal the child stops naming
            return child.result()

    def _recording(self, cause: Cause) -> Written:
        if lack := self._lack():
            fix = f"fusetools record --flight {self.kept.seconds:g} -o FILE   # on another disk"
            raise Error(f"cannot write in {self.output.parent}", lack, fix)
        native.calibrate(CALIBRATIONS)
        upto = time.monotonic_ns()
        raws = self._dumped()
        whole_since, self.whole_since = self.whole_since, time.monotonic_ns()
        held = self._held()
        self._looked()
        # The recording includes its cause, however long ago that began.
        length = round(self.kept.seconds * 1e9)
        if cause.began is not None:
            length = max(length, upto - cause.began + MARGIN)
        window = (length, upto, whole_since, self.recorders.room.buffer, held is not None)
        try:
            taken, file = self._forked(partial(self._put_together, cause, raws, held, window))
        finally:
            self._remove_dumps()
        for reason in taken.missing:
            if reason.code == Code.BUFFERS_FULL:
                self._hold(reason.figures["held_ns"] / 1e9)
        self.shelf.add(file)
        _trim()
        return taken

    def _held(self) -> Path | None:
        """Return a recording of the requests in flight, and of those that are a cause."""
        if self.requests is None:
            return None
        with contextlib.suppress(Error):  # the next look has it, too
            self.requests.advance()
        data = self.requests.requests.held()
        if data is None:
            return None
        path = self.recording.made.path / HELD
        path.write_bytes(data)
        return path

    def _put_together(
        self, cause: Cause, raws: list[Path], held: Path | None, window: native.Window
    ) -> tuple[Written, _File | None]:
        """Write the recording and its report in a child."""
        moment = self.moment if cause.began is not None else None
        account = self.account(replace(moment or self._stuck(), triggers=cause.triggers))
        name = self.shelf.free_name()
        with self.output.beside(name) as place, self.output.beside(name + ACCOUNT) as beside:
            taken = self._finished(place, raws, held, window, cause)
            self._write_account(beside, account)
            taken.account = Path(taken.output.parent, beside.name) if taken.output else None
        return taken, self.shelf.recorded(name)

    def _finished(
        self,
        place: Output,
        raws: list[Path],
        held: Path | None,
        window: native.Window,
        cause: Cause,
    ) -> Written:
        """Put a recording of the buffers' contents together."""
        job, daemons = self.job.copied(), self.recording.daemons
        assert daemons is not None
        mounts = [target.mount for target in job.plan.targets]
        outcome = Written(why=cause.why, wanted_seconds=self.kept.seconds)
        job.output, job.outcome = place, outcome
        owners = Owners(job)
        owners.look()
        recorded = Recorded(
            owners=owners,
            raw=raws[0],
            tasks=raws[1] if len(raws) > 1 else None,
            held=held,
            started=datetime.now(timezone.utc),
            daemons=daemons,
            maps=[row for mount in mounts if mount.daemon_pid is not None for row in mapped(mount)],
            pair_cost=self.recording.pair_cost,
            event_cost=self.recording.event_cost,
            window=window,
            flight=session.Flight(self.kept.seconds, cause.why),
        )

        def merged(info: native.MergeInfo) -> None:
            kept = info["kept"]
            assert kept is not None
            begin, end, overwritten, _ = kept
            length, upto, since, buffer, _ = window
            outcome.seconds = max(end - begin, 0) / 1e9
            ago = timedelta(seconds=(time.monotonic_ns() - begin) / 1e9)
            recorded.started = datetime.now(timezone.utc) - ago
            figures = {"held_ns": round(1e9 * outcome.seconds)}
            if overwritten:
                lasts = max(upto - begin, 1)
                more = binary(_power_of_two(int(buffer * length / lasts)))
                figures.update(buffer_bytes=buffer, wanted_ns=length)
                fix = f"fusetools record --flight {self.kept.seconds:g} --buffer {more}"
                fix += "   # or less --detail"
                job.missing.append(Reason(Code.BUFFERS_FULL, {}, figures, fix))
            elif begin <= since and upto - since < length:
                first = since == self.begun
                code = Code.RECORDER_BEGAN if first else Code.IN_ANOTHER_RECORDING
                job.missing.append(Reason(code, {}, figures))

        give_up = Callers(job).asked_to_end
        Finisher(job, self.recording.made, recorded, give_up=give_up, merged=merged).finish()
        return outcome

    def _lack(self) -> str:
        """Return why there is no room for a recording now; "" if there is."""
        buffers = self.recorders.room.buffer * self.job.facts.cpus * len(self.recorders.perfs.all)
        room, free = 2 * buffers + FORMATS, self.recorders.free()
        why = f"a recording may need {size(room)}, and {size(free)} are free"
        return why if free < room else ""

    def _stuck(self) -> Stuck:
        paths = [target.mount.path for target in self.job.plan.targets]
        return stuck(machine.read(), paths)

    def _write_account(self, place: Output, text: str) -> None:
        """Create a file as private as the recording beside it."""
        with place.part() as descriptor:
            os.fchmod(descriptor, 0o600)
            give(descriptor, self.job.user)
            with open(descriptor, "w", encoding="utf-8", closefd=False) as to:
                to.write(text)


def _trim() -> None:
    """Return the memory of the second perf's events to the kernel: glibc keeps freed memory."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


class _File(NamedTuple):
    """A recording on the shelf: its name, and the identity of its file."""

    name: str
    device: int
    inode: int


class Shelf:
    """The recordings in a directory, the oldest first; at most ``keep`` stay.

    Recordings of an earlier flight recorder count, too. Other recordings are never removed.
    """

    def __init__(self, output: Output, keep: int) -> None:
        self._output = output
        self._keep = keep
        self._files = self._earlier()

    def _earlier(self) -> list[_File]:
        stamped = re.compile(re.escape(self._output.name) + _STAMP)
        names = sorted(
            name for name in os.listdir(self._output.directory) if stamped.fullmatch(name)
        )
        return [file for name in names if (file := self.recorded(name))]

    def recorded(self, name: str) -> _File | None:
        """Return a flight recorder's recording; None if the file is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=self._output.directory)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in self._owners():
                return None
            described = native.describe(by_descriptor(descriptor))
            flown = session.read(described["session"])[0].flight
            return _File(name, status.st_dev, status.st_ino) if flown else None
        except native.CoreError:
            return None
        finally:
            os.close(descriptor)

    def _owners(self) -> set[int]:
        owner = self._output.owner
        return {os.geteuid(), owner.uid if owner else os.geteuid()}

    def free_name(self) -> str:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self._output.name}.{stamp}"
        names = set(os.listdir(self._output.directory))
        tries = (f"{name}-{number}" if number else name for number in range(10_000))
        return next(n for n in tries if not {n, n + ACCOUNT} & names)

    def add(self, file: _File | None) -> None:
        """Add a recording, and remove the oldest ones."""
        if file is not None:
            self._files.append(file)
        while len(self._files) > self._keep:
            self._remove(self._files.pop(0))

    def _remove(self, file: _File) -> None:
        directory = self._output.directory
        with contextlib.suppress(OSError):
            status = os.stat(file.name, dir_fd=directory, follow_symlinks=False)
            if (status.st_dev, status.st_ino) != (file.device, file.inode):
                return  # replaced by another file meanwhile
            os.unlink(file.name, dir_fd=directory)
            account = os.stat(file.name + ACCOUNT, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(account.st_mode) and account.st_uid in self._owners():
                os.unlink(file.name + ACCOUNT, dir_fd=directory)


def snap(warn: Callable[[str], None]) -> Iterator[str]:
    """Make each flight recorder of this host write a recording, and yield the paths.

    ``warn``: called with the name of a recorder that takes long. Raise Error if there is no
    recorder, or one failed.
    """
    try:
        names = os.listdir(DIRECTORY) if DIRECTORY.exists() else []
    except PermissionError as error:
        raise Error(
            "cannot ask the flight recorder", "root alone can", "sudo fusetools snap"
        ) from error
    written = False
    places = sorted(path for name in names for path in (DIRECTORY / name).glob("perf.*"))
    for place in places:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(str(place / SOCKET))
            except OSError:
                continue  # no recorder, or it was killed
            text = _answer(client, warn)
        answer = json.loads(text or b"null")
        if answer is None:
            raise Error(
                "no recording was written", "the flight recorder ended meanwhile", _NO_RECORDER
            )
        if "error" in answer:
            raise Error(*answer["error"])
        written = True
        yield str(answer["output"])
    if not written:
        raise Error("no flight recorder runs here", "", _NO_RECORDER)


def _answer(client: socket.socket, warn: Callable[[str], None]) -> bytes:
    """b"" if the recorder exited meanwhile"""
    # The directory that it writes to may hang.
    client.settimeout(LONG)
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while True:
            try:
                part = client.recv(1 << 16)
            except socket.timeout:
                # struct ucred: pid, uid, gid (unix(7))
                ucred = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                (pid,) = struct.unpack("i8x", ucred)
                warn(f"waiting for the flight recorder (pid {pid}); Ctrl-C ends the waiting")
                client.settimeout(None)
                continue
            if not part:
                break
            parts.append(part)
    return b"".join(parts)
