"""Sums of the requests on FUSE mounts, interval by interval, while they happen."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.core import native
from fusetools.record.streaming import Streaming
from fusetools.results.top import Row, Top, UnderWay
from fusetools.stuck import machine

OLDEST = 5  # requests in flight that are shown
GONE = "(ended)"  # a caller that ended before it could be examined
MOST_CALLERS = 1 << 16
NEVER = (1 << 63) - 1  # ns; longer than any request
LOOKS = 4  # time until older requests can be distinguished from those that have just begun
_BY = {"user": "label", "cgroup": "label"}


@dataclass
class View:
    """The selection for the next interval: ``most`` rows whose label contains ``contains``."""

    by: str = "operation"
    sort: str = "requests"
    most: int = 40
    contains: str = ""
    older: float = 1.0  # seconds after which a request in flight is shown


class Watch:
    """The intervals of a stream."""

    def __init__(self, stream: Streaming) -> None:
        self.stream = stream
        self.mounts: dict[int | None, str] = {
            t.mount.connection: t.mount.path for t in stream.job.plan.targets
        }
        self._users: dict[int, str] = {}
        self._callers: dict[int, tuple[str, str]] = {}
        self._lost = 0
        self._differences: list[int] = []
        stream.watch(stream.catalogue(), sums=True)
        self._start = stream.begin()
        self._cpu = stream.cpu_seconds()

    def meanwhile(self, view: View) -> None:
        """Update between two intervals, several times a second: callers are examined while they
        live."""
        self.stream.requests.set_paths(view.by in ("file", "directory"))
        self.stream.advance()
        self._count_before()
        if view.by in _BY:
            self._look_at_callers()

    def _count_before(self) -> None:
        """Count the requests in flight in the kernel whose begin was not seen."""
        if counts := self.stream.waiting():
            _, seen = self.stream.requests.under_way(NEVER, 0)
            self._differences = [*self._differences[-LOOKS:], max(sum(counts.values()) - seen, 0)]
            # Their number only falls. Take the smaller of the last two differences: a single one
            # may be too large.
            self._differences[-1] = min(self._differences[-2:])

    @property
    def _before(self) -> int | None:
        return self._differences[-1] if len(self._differences) >= LOOKS else None

    def _look_at_callers(self) -> None:
        if not self._users:
            self._users = machine.users()
        if len(self._callers) > MOST_CALLERS:
            self._callers = {}
        for pid in self.stream.requests.callers():
            if pid not in self._callers:
                uid, cgroup = machine.owner(pid)
                user = GONE if uid is None else self._users.get(uid, str(uid))
                self._callers[pid] = (user, cgroup if uid is not None else GONE)

    def interval(self, view: View) -> Top:
        """Return the interval since the last one. Raise Error if perf has exited."""
        stream = self.stream
        end = stream.advance()
        self._count_before()
        labels = {}
        if view.by in _BY:
            self._look_at_callers()
            which = 0 if view.by == "user" else 1
            labels = {pid: caller[which] for pid, caller in self._callers.items()}
        by = _BY.get(view.by, view.by)
        taken = stream.requests.take(by, view.sort, view.most, view.contains, labels)
        if view.by in _BY:  # a pid may be reused
            self._callers = {}
        under_way, count = stream.requests.under_way(round(view.older * 1e9), OLDEST)
        perf, own = stream.cpu_seconds()
        start, self._start = self._start, end
        cpu, self._cpu = self._cpu, (perf, own)
        lost, self._lost = self._lost, stream.requests.lost()
        seconds = (end - start) / 1e9
        return Top(
            by=view.by,
            sort=view.sort,
            start_ns=start,
            end_ns=end,
            overall=self._row(taken["total"], seconds, "operation"),
            rows=tuple(self._row(row, seconds, view.by) for row in taken["rows"]),
            groups=taken["groups"],
            oldest=tuple(self._under_way(*row) for row in under_way),
            under_way=count,
            before=self._before,
            lost=self._lost - lost,
            left_out=taken["left_out"],
            perf_cpu=(perf - cpu[0]) / seconds,
            own_cpu=(own - cpu[1]) / seconds,
            pair_cost_ns=stream.pair_cost,
            missing=tuple(stream.job.missing),
        )

    def _row(self, fields: native.Fields, seconds: float, by: str) -> Row:
        def mean(total: int, count: int) -> float | None:
            return total / count if count else None

        names = ("connection", "total", "waited", "queue", "daemon", "queued")
        connection, total, waited, queue, daemon, queued = map(fields.pop, names)
        if by == "thread":
            targets = (target.mount for target in self.stream.job.plan.targets)
            mounts = (mount for mount in targets if mount.connection == connection)
            fields["label"] = next((mount.comm or "" for mount in mounts), "")
            fields["under_way"] = None
        return Row(
            **fields,
            mount=self.mounts.get(connection, ""),
            per_second=fields["requests"] / seconds,
            waited_seconds=waited / 1e9,
            queue_ns=mean(queue, queued),
            rtt_ns=mean(daemon, queued),
            exec_ns=mean(total, fields["requests"]),
        )

    def _under_way(self, row: native.NamedRequest, unsure: bool) -> UnderWay:
        path, whole = row.path or (None, False)
        mount = self.mounts.get(row.connection, "")
        return UnderWay(
            operation=row.operation,
            age_ns=row.duration,
            mount=mount,
            path=full_path(mount, path, whole),
            comm=row.comm,
            pid=row.pid,
            tid=row.tid,
            unique=row.unique,
            thread=row.daemon_tid,
            unsure=unsure,
        )


def full_path(mount: str, path: str | None, whole: bool) -> str | None:
    """Return a path from the mount point on; "…" for the unknown part."""
    if path is None:
        return None
    if not path and whole:
        return mount
    return f"{mount.rstrip('/')}/{'' if whole else '…/'}{path}"
