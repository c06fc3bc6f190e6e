"""The requests of FUSE mounts since it began, for monitoring systems.

It sums what `fusetools top` shows by interval. A mount that is mounted later begins a new stream;
the sums continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fusetools import __version__
from fusetools.answers.requests import error_name
from fusetools.core import native
from fusetools.host.files import Files
from fusetools.host.processes import started
from fusetools.live.mounts import NewMounts
from fusetools.plan.options import Options
from fusetools.printable import printable
from fusetools.record import waiting
from fusetools.record.streaming import Streaming, streaming
from fusetools.results.metrics import Family, Histogram, Labels

INTERVAL = 1.0  # seconds between two sums
LOOK = 5.0  # seconds between two checks of the mounts
# Labels: so many mounts, and errors of an operation on a mount. Further ones are "other".
MOST_MOUNTS = 64
MOST_ERRORS = 32
OTHER = "other"


@dataclass
class _Sums:
    """Requests of an operation on a mount since it began."""

    whole: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    daemon: Histogram = field(default_factory=Histogram)
    bytes: int = 0
    errors: dict[str, int] = field(default_factory=dict)


@dataclass
class _InFlight:
    requests: int = 0
    queued: int | None = None
    oldest: float = 0.0


class Totals:
    """Sums since it began. Its size is bounded by the limits above."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}
        self._mounts: set[str] = set()
        self._in_flight: dict[str, _InFlight] = {}
        self._lost = self._left_out = 0
        self._cpu = {"perf": 0.0, "fusetools": 0.0}
        self._pair_cost: int | None = None

    def mount(self, path: str | None) -> str:
        """Return a mount's label."""
        if path is None:
            return OTHER
        label = printable(path)
        if label not in self._mounts and len(self._mounts) < MOST_MOUNTS:
            self._mounts.add(label)
        return label if label in self._mounts else OTHER

    def add(
        self,
        metrics: native.Metrics,
        paths: Mapping[int | None, str],
        waiting: Mapping[int, int] | None = None,
    ) -> None:
        """Add an interval, and replace the state of the moment.

        ``paths``: mounts by connection; ``waiting``: requests in flight by connection, as the
        kernel counts them, where it does.
        """
        self._left_out += metrics["left_out"]
        self._in_flight = {}
        for row in metrics["measured"]:
            mount = self.mount(paths.get(row["connection"]))
            sums = self._sums.setdefault((row["operation"], mount), _Sums())
            _add(sums.whole, row["whole"])
            _add(sums.queue, row["queue"])
            _add(sums.daemon, row["daemon"])
            sums.bytes += row["bytes"]
            for number, count in row["errors"].items():
                name = error_name(number)
                if name not in sums.errors and len(sums.errors) >= MOST_ERRORS:
                    name = OTHER
                sums.errors[name] = sums.errors.get(name, 0) + count
        counts = dict.fromkeys(paths, 0)
        for flight in metrics["in_flight"]:
            counts[flight["connection"]] = flight["requests"]
        for connection, count in (waiting or {}).items():
            counts[connection] = count
        for where, count in counts.items():
            self._state(paths.get(where)).requests += count
        for flight in metrics["in_flight"]:
            state = self._state(paths.get(flight["connection"]))
            state.oldest = max(state.oldest, flight["oldest"] / 1e9)
            if flight["queued"] is not None:
                state.queued = (state.queued or 0) + flight["queued"]

    def _state(self, path: str | None) -> _InFlight:
        return self._in_flight.setdefault(self.mount(path), _InFlight())

    def cost(self, lost: int, perf: float, own: float, pair_cost: int | None) -> None:
        """Add lost events and CPU seconds; note the ns that the two probes of a callback take."""
        self._lost += lost
        self._cpu["perf"] += perf
        self._cpu["fusetools"] += own
        self._pair_cost = pair_cost

    def families(self) -> tuple[Family, ...]:
        """Return all that is known, in an order of its own."""
        sums = [
            ({"operation": operation, "mount": mount}, sums)
            for (operation, mount), sums in sorted(self._sums.items())
        ]
        states = [({"mount": mount}, state) for mount, state in sorted(self._in_flight.items())]
        stages = [
            ({**labels, "stage": stage}, _copied(histogram))
            for labels, one in sums
            for stage, histogram in (("queue", one.queue), ("daemon", one.daemon))
            if histogram.count
        ]
        errors = [
            ({**labels, "error": name}, count)
            for labels, one in sums
            for name, count in sorted(one.errors.items())
        ]
        of_bytes = [(labels, one.bytes) for labels, one in sums if one.bytes]
        whole = [(labels, _copied(one.whole)) for labels, one in sums]
        queued = [(labels, s.queued) for labels, s in states if s.queued is not None]
        cpu = [({"process": name}, seconds) for name, seconds in self._cpu.items()]
        cost = self._pair_cost
        probes: list[tuple[Labels, float]] = [] if cost is None else [({}, cost / 1e9)]
        return (
            _family("build_info", "gauge", "", "Version.", [({"version": __version__}, 1)]),
            _family(
                "request_duration_seconds", "histogram", "seconds",
                "Time of requests from their begin to their end.", whole,
            ),
            _family(
                "request_stage_duration_seconds", "histogram", "seconds",
                "Time of requests until the daemon begins them (queue), and from then on (daemon).",
                stages,
            ),
            _family("request_errors", "counter", "", "Requests that ended with an error.", errors),
            _family("transferred_bytes", "counter", "bytes", "Bytes read or written.", of_bytes),
            _family(
                "requests_in_flight", "gauge", "", "Requests that have not ended.",
                [(labels, state.requests) for labels, state in states],
            ),
            _family(
                "requests_queued", "gauge", "",
                "Requests in flight that no thread of the daemon has begun.", queued,
            ),
            _family(
                "oldest_request_age_seconds", "gauge", "seconds",
                "Age of the oldest request in flight, 0 without one.",
                [(labels, state.oldest) for labels, state in states],
            ),
            _family(
                "lost_events", "counter", "",
                "Events that the kernel dropped: requests are missing then.", [({}, self._lost)],
            ),
            _family(
                "uncounted_requests", "counter", "",
                "Requests that are in no other figure: there were too many.",
                [({}, self._left_out)],
            ),
            _family(
                "cpu_seconds", "counter", "seconds", "CPU time that measuring took.", cpu
            ),
            _family(
                "probe_seconds", "gauge", "seconds",
                "Time that the probes of a callback add to it.", probes,
            ),
        )  # fmt: skip


def _family(
    name: str,
    kind: str,
    unit: str,
    text: str,
    samples: Sequence[tuple[Labels, float | Histogram]],
) -> Family:
    return Family(f"fusetools_{name}", kind, unit, text, tuple(samples))


def _add(to: Histogram, new: native.Distribution) -> None:
    to.count += new["count"]
    to.seconds += new["sum"] / 1e9
    to.zeros += new["zeros"]
    for mine, its in ((to.classic, new["classic"]), (to.native, new["native"])):
        for bucket, count in its.items():
            mine[bucket] = mine.get(bucket, 0) + count


def _copied(of: Histogram) -> Histogram:
    return Histogram(of.count, of.seconds, dict(of.classic), dict(of.native), of.zeros)


def measure(
    options: Options,
    arguments: Sequence[str],
    began: Callable[[Sequence[str]], None],
    changed: Callable[[Sequence[Family]], None],
    warn: Callable[[str], None],
) -> None:
    """Measure until a signal ends it. Raise Error if perf has exited.

    ``began``: called with the paths of the mounts whenever they are traced; ``changed``: called
    with all figures, every INTERVAL seconds.
    """
    totals = Totals()
    while True:
        waiting.until_mounted(options.mounts, warn)
        with streaming(options, arguments) as stream:
            new = _Measuring(stream, totals).run(began, changed)
        # A signal may also arrive while the stream's probes are removed.
        if not new or stream.job.outcome.interrupted:
            return
        warn(f"{', '.join(new)} is mounted now: measuring begins anew")


class _Measuring:
    """The measuring of one stream."""

    def __init__(self, stream: Streaming, totals: Totals) -> None:
        self.stream, self.totals = stream, totals
        targets = [target.mount for target in stream.job.plan.targets]
        self.paths: dict[int | None, str] = {m.connection: m.path for m in targets}
        recorded = {
            mount.connection: (pid, start)
            if pid is not None and (start := started(pid)) is not None
            else None
            for mount in targets
            for pid in [mount.daemon_pid]
        }
        self.mounts = NewMounts(Files(Path("/")), stream.job.options.mounts, recorded)
        stream.watch(stream.catalogue(), sums=True)
        stream.begin()
        self._lost = 0
        self._cpu = stream.cpu_seconds()

    def run(
        self, began: Callable[[Sequence[str]], None], changed: Callable[[Sequence[Family]], None]
    ) -> list[str]:
        """Return the paths of new mounts; empty: a signal ends it."""
        self._interval()
        changed(self.totals.families())
        began(sorted(self.paths.values()))
        looked = time.monotonic()
        while True:
            stopped = self.stream.wait(INTERVAL)
            self._interval()
            changed(self.totals.families())
            if stopped:
                return []
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if new := self.mounts.look():
                    return new

    def _interval(self) -> None:
        stream = self.stream
        stream.advance()
        self.totals.add(stream.requests.measure(), self.paths, stream.waiting())
        lost, self._lost = self._lost, stream.requests.lost()
        before, self._cpu = self._cpu, stream.cpu_seconds()
        perf, own = (now - then for now, then in zip(self._cpu, before))
        self.totals.cost(self._lost - lost, perf, own, stream.pair_cost)
