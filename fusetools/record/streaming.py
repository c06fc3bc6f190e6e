"""Requests as they happen: perf writes what it records to a pipe, and nothing to a disk."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.host.fusectl import waiting
from fusetools.host.probe import OWN_GROUPS
from fusetools.host.processes import cpu_seconds
from fusetools.names import CALIBRATION
from fusetools.plan.bundles import bundled
from fusetools.plan.options import Options
from fusetools.record.costs import Costs
from fusetools.record.job import Job
from fusetools.record.perf import Perf, Sizes, buffer_size, command_line
from fusetools.record.preflight import prepared
from fusetools.record.probes import Probes
from fusetools.record.recorders import Recorders
from fusetools.record.signals import ENDING, arrived, held_signals

# Buffers for the time that perf may fall behind: a second and more of 50,000 requests/s (25 MB/s).
BUFFERS = 128 << 20
LARGEST, SMALLEST = 16 << 20, 256 << 10
PIPE = 1 << 20
PATIENCE = 10_000_000_000  # ns that it has to write what it holds
STEP = 0.1  # seconds within which a signal is answered
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of fcntl(2), which Python has from 3.10 on
PING = (5, 12)  # the perf that answers "ping"; an older one gets "enable" again


class Piped(Perf):
    """A perf that writes to a pipe, which is emptied while it is waited for."""

    symbols = False

    def __init__(self, directory: Path, steered: bool = True) -> None:
        super().__init__(directory, steered)
        self._pipe, self.stdout = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe, False)
        with contextlib.suppress(OSError):  # an unprivileged user's share may be used up
            import fcntl

            fcntl.fcntl(self._pipe, SET_PIPE_SIZE, PIPE)
        self._parts: list[bytes] = []

    def start(self, *arguments: object, **more: object) -> int:
        pid = super().start(*arguments, **more)  # type: ignore[arg-type]
        assert self.stdout is not None
        os.close(self.stdout)
        self.stdout = None
        return pid

    def look(self, seconds: float) -> bool:
        """Read its answers, and what is in the pipe, which would fill up."""
        ready = select.select([self._answer, self._pipe], [], [], seconds)[0]
        answered = self._answer in ready
        if answered:
            self._take()
        return self._read() or answered  # a pipe that nobody writes to any more is ready, too

    def _read(self) -> bool:
        """Read what is in the pipe. Return False if there was nothing."""
        some = False
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._pipe, PIPE):
                self._parts.append(part)
                some = True
        return some

    @property
    def descriptor(self) -> int:
        """Readable when it has written something."""
        return self._pipe

    def readable(self, seconds: float, other: int | None = None) -> list[int]:
        """Wait until there is something to read."""
        wanted = [self._pipe] if other is None else [self._pipe, other]
        return select.select(wanted, [], [], seconds)[0]

    def parts(self) -> list[bytes]:
        """Return what it has written since the last time."""
        self._read()
        parts, self._parts = self._parts, []
        return parts

    @property
    def done(self) -> bool:
        """Until then the pipe is emptied."""
        return self.ended

    def end(self, patience: float) -> bool:
        """Do as Program.end, and discard what it still writes."""
        os.set_blocking(self._pipe, True)

        def drain() -> None:
            with contextlib.suppress(OSError):
                while os.read(self._pipe, PIPE):
                    pass

        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
        good = super().end(patience)
        thread.join(1.0)
        return good

    def close(self) -> None:
        super().close()
        os.close(self._pipe)
        if self.stdout is not None:
            os.close(self.stdout)


class Streaming:
    """Requests of a job, as they happen: ``requests``, once they are watched. ``probes``: made
    already by another recording."""

    # A time in ns, and the connections without a request in flight then.
    _idle: tuple[int, Sequence[int]] = (0, ())

    def __init__(self, job: Job, probes: Probes | None = None) -> None:
        self.job = job
        self._own = probes is None
        self.probes = probes or Probes(job)
        self.recorders: Recorders | None = None
        self.requests: native.Now
        self.pair_cost: int | None = None  # ns of the two probes of a call

    def __enter__(self) -> Streaming:
        self._signals = held_signals(self.job.outcome)
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
            self.job.close()
        finally:
            self._signals.__exit__(None, None, None)

    def arm(self) -> None:
        """Make the probes, and start perf."""
        if self._own:
            self.probes.make()
        costs = Costs() if self._own else None
        try:
            directory = self.job.folder()
            self.recorders = Recorders(
                self.job, self.probes, directory, Piped, "none", limited=False
            )
            self.recorders.start(self._line)
            if costs and any(p.function == CALIBRATION for p in self.job.plan.probes):
                self.pair_cost = costs.pair()
        finally:
            if costs:
                costs.close()

    def _line(self, perf: Tool, fifos: tuple[str, str]) -> list[str]:
        size = buffer_size(self.job.facts.cpus, BUFFERS, LARGEST, SMALLEST)
        return command_line(self.job.plan, perf, "-", fifos, Sizes(size, 0))

    def close(self) -> None:
        """Stop perf, and remove the probes if they are this stream's own."""
        if self.recorders:
            self.recorders.stop()
        if self._own:
            if self.recorders:
                self.recorders.unmake()
            self.probes.remove()
            self.job.lock.write()

    @property
    def perf(self) -> Piped:
        """The perf that writes to a pipe."""
        assert self.recorders is not None and isinstance(self.recorders.perfs.first, Piped)
        return self.recorders.perfs.first

    def watch(
        self,
        catalogue: Sequence[native.Probe],
        sums: bool,
        wanted: tuple[Sequence[str], int, str | None] | None = None,
        pids: Sequence[int] = (),
        comms: Sequence[str] = (),
    ) -> None:
        """Choose what is wanted of requests: see native.Now."""
        targets = [target.mount for target in self.job.plan.targets]
        daemons = [
            (pid, mount.connection)
            for mount in targets
            for pid in {*mount.servers, mount.daemon_pid}
            if pid is not None
        ]
        filters: native.Filters = {"pids": pids, "comms": comms, "daemons": daemons}
        mounts = {mount.connection: mount.path for mount in targets}
        self.requests = native.Now(
            catalogue, filters, self.job.servers(), mounts, self.job.facts.arch, sums, wanted
        )

    def catalogue(self) -> Sequence[native.Probe]:
        """Return the rows for requests and the names of files."""
        rows = [
            native.Probe(
                f"{probe.bundle}#{probe.number}" if probe.bundle else probe.event,
                probe.layer,
                probe.function,
                probe.operation,
                probe.role,
            )
            for whole in self.job.plan.probes
            if whole.function != CALIBRATION and whole not in self.probes.refused
            for probe in whole.apart()
        ]
        names = [event.name for event in self.job.plan.events]
        tracepoints = [n for n in names if n.partition(":")[0] not in OWN_GROUPS]
        return native.Catalogue(rows, tracepoints).inferred([]).named().rows

    def begin(self) -> int:
        """From when on nothing is missing; ns on the recording's clock."""
        start = self._all_read()
        self.requests.start(start)
        return start

    def advance(self) -> int:
        """Process all that happened until now. Return ns on the recording's clock. Raise Error if
        perf ended."""
        now = self._all_read()
        self.requests.complete(now)
        # The kernel drops a request in the queue, whose caller is killed, without a sign.
        since, connections = self._idle
        if connections:
            self.requests.forget(connections, since)
        return now

    def waiting(self) -> dict[int, int]:
        """Return the number of requests in flight by connection, as the kernel counts them."""
        now = time.monotonic_ns()
        counts = waiting(
            target.mount.connection
            for target in self.job.plan.targets
            if target.mount.connection is not None
        )
        self._idle = now, [number for number, count in counts.items() if not count]
        return counts

    def _all_read(self) -> int:
        assert self.job.facts.perf is not None
        perf, now = self.perf, time.monotonic_ns()
        version = self.job.facts.perf.version.split(".")
        new = tuple(int(part) for part in version[:2] if part.isdecimal()) >= PING
        # It reads its buffers between two answers, so that with the second one all is in the pipe.
        # While events come all the time it looks for no commands, but ends rounds. An answer that
        # it still owes from before counts for nothing.
        answers = -1 if perf.owes else 0
        while time.monotonic_ns() < now + PATIENCE:
            if not perf.owes:
                perf.ask("ping" if new else "enable")
            came = perf.look(0.05)
            self._feed()
            answers += not perf.owes
            if answers == 2 or self.requests.by_rounds() >= now:
                return now
            if not came and perf.ended:
                break
        why = perf.complaint() or "it was killed, or does not answer"
        raise Error("perf records no more", why)

    def _feed(self) -> None:
        for part in self.perf.parts():
            try:
                self.requests.feed(part)
            except native.CoreError as error:
                raise Error(*error.args) from error

    def feed_until(self, ended: threading.Event) -> None:
        """Take up requests in a thread, while nobody else does: what is not completed would pile up
        in memory."""
        with contextlib.suppress(Error):  # the next look has it, too
            while not ended.wait(STEP):
                self.advance()

    def cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU seconds that perf, and this process, have used."""
        assert self.perf.process is not None
        return cpu_seconds(self.perf.process.pid), time.process_time()

    def wait(self, seconds: float, keys: int | None = None) -> bool:
        """Process what perf writes by itself, for so many seconds, or until there is something to
        read from ``keys``. Return True if a signal asks to end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            came = arrived(0)
            if came is not None and came.si_signo in ENDING:
                return True
            if keys in self.perf.readable(min(left, STEP), keys):
                return False
            self._feed()
        return False


@contextlib.contextmanager
def streaming(options: Options, arguments: Sequence[str]) -> Iterator[Streaming]:
    """Provide an armed stream of requests. Raise Error if nothing can be recorded."""
    with prepared(options, arguments) as (lock, _, user, facts, plan):
        plan = bundled(facts, plan, lock.number, padded=False)  # nothing is merged
        with Streaming(Job(lock, options, arguments, user, facts, plan)) as stream:
            stream.arm()
            yield stream
