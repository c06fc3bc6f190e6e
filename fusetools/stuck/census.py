"""Census of all processes: which may wait for a file system, and which may be a daemon.

Any user can create 200 processes with 20,000 descriptors, a process with 21,000 threads, or
thousands of processes that only seem to wait. So the first pass reads little of each process,
likely ones come first, and large processes are read a part at a time: they delay only themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fusetools.host.facts import VIRTIOFS, Mount
from fusetools.stuck import children
from fusetools.stuck.bounded import Asker
from fusetools.stuck.moment import AUTOFS, Process

# Share of the limit at which each step ends: no step takes the time of later ones.
WAITS, STACKS, DAEMONS = 0.35, 0.45, 0.6
FIRST_THREADS = 64  # threads of each daemon that come before any caller
MOST_HALTED = 128  # stopped and traced threads that are examined: none of them waits for an answer

Rows = dict[int, children.ProcessRow]
Threads = dict[int, list[children.ThreadRow]]


class Census:
    """The result of the census.

    ``rows``: processes by pid; ``threads``: threads of each that may wait for a file system;
    ``closer``: further facts; ``unseen``: processes that may wait, but could not be examined;
    ``unasked``: number of possible daemons that were not fully examined.
    """

    def __init__(self, ask: Asker, pids: Iterable[int]) -> None:
        self.ask = ask
        self.unseen: list[int] = []
        self.unasked = 0
        self.closer: dict[int, children.CloserRow] = {}
        found = ask.each(pids, children.process, WAITS, self.unseen)
        self.rows: Rows = {row["pid"]: row for rows in found for row in rows}
        self.threads = self._threads()

    @property
    def kernel(self) -> set[int]:
        """Return the kernel's own threads."""
        return {row["pid"] for row in self.rows.values() if row["of_kernel"]}

    @property
    def in_fuse(self) -> set[int]:
        """Return the processes with a thread that waits for an answer of FUSE or autofs."""
        return {pid for pid, own in self.threads.items() if any(map(in_fuse, own))} - self.kernel

    def _threads(self) -> Threads:
        """Return the threads of each process that may wait for a file system, with the functions in
        which they sleep.

        Threads of large processes come last, some of each process at a time.
        """
        rows = self.rows
        found = {pid: list(row["waits"]) for pid, row in rows.items()}
        size = children.SLICE
        parts = sorted(
            (first, pid)
            for pid, row in rows.items()
            if not row["of_kernel"]
            for first in range(size, len(row["threads"]), size)
        )
        rest = [(rows[pid]["threads"][first : first + size], pid) for first, pid in parts]
        for pid, serves, waits in self.ask.each(rest, children.waits, WAITS, self.unseen):
            found[pid] += waits
            rows[pid]["serves"] = rows[pid]["serves"] or serves
        # The stack shows the function where wchan does not. Threads in state D come first.
        items = []
        for pid, own in found.items():
            unknown = [(state, tid) for tid, state, wchan in own if wchan == "0"]
            if unknown and not rows[pid]["of_kernel"]:
                items.append((min(unknown)[0], ([tid for _, tid in unknown], pid)))
        items.sort(key=lambda item: item[0])
        stacks = [item for _, item in items]
        answers = self.ask.each(stacks, children.sleeps_in, STACKS, self.unseen)
        functions = dict(row for rows in answers for row in rows)
        return {
            pid: [
                (tid, state, functions.get(tid, wchan))
                for tid, state, wchan in own
                # A thread without a function did not sleep.
                if tid not in functions
                or state in "DTt"
                or (functions[tid] != "0" and children.is_suspicious(state, functions[tid]))
            ]
            for pid, own in found.items()
        }

    def look_closer(self, mounts: Iterable[Mount], listed: Iterable[int]) -> None:
        """Read the further facts of processes.

        Likely daemons come first, then processes that wait: others may be many. The first
        descriptors of all processes come before the later ones of any. Later descriptors are read
        only for connections (of ``mounts``, and all that are ``listed``) whose daemon is still
        unknown.
        """
        rows, wait = self.rows, self.in_fuse
        mounts = list(mounts)
        owners = {mount.user for mount in mounts}
        wanted = {mount.connection for mount in mounts if mount.fstype != VIRTIOFS} | {*listed}

        def order(row: children.ProcessRow) -> tuple[bool, bool, bool, int]:
            pid = row["pid"]
            return not row["serves"], pid not in wait, row["owner"] not in owners, pid

        users = [row for row in rows.values() if not row["of_kernel"] and row["state"] not in "ZX"]
        users.sort(key=order)
        items = [(row["via"], row["pid"]) for row in users]
        silent: list[int] = []
        closer = {row["pid"]: row for row in self.ask.each(items, children.closer, DAEMONS, silent)}
        following = [(pid, row["left"]) for pid, row in closer.items() if row["left"]]
        while following and wanted - {n for row in closer.values() for _, n in row["fuse"]}:
            left = [((rows[pid]["via"], first), pid) for pid, first in following]
            following = []
            for pid, fuse, first in self.ask.each(left, children.devices, DAEMONS, silent):
                closer[pid]["fuse"] += fuse
                following += [(pid, first)] if first else []
        self.closer, self.unasked = closer, len(silent) + len(self.unseen)

    def owners(self, numbers: Iterable[int]) -> Counter[int]:
        """Return the known users of these processes and threads, and how many each user has."""
        of = {tid: pid for pid, row in self.rows.items() for tid in row["threads"]}
        found = (children.owner(of.get(number, number)) for number in numbers)
        return Counter(uid for uid in found if uid is not None)


def in_fuse(row: children.ThreadRow) -> bool:
    """Return whether a thread waits for an answer of a FUSE or autofs daemon."""
    return row[2].startswith(_FUSE_WAITS) and not row[2].startswith(children.SERVES)


_HALTED = 5  # rank of threads that do not wait
_FUSE_WAITS = ("request_wait_answer", "fuse_", "__fuse_", *AUTOFS)


def by_suspicion(
    threads: Threads, near: set[int], processes: dict[int, Process]
) -> list[tuple[int, int]]:
    """Return (process, thread) of those to examine closely, the most informative first.

    ``threads``: those that may wait, by process; ``near``: daemons, all of whose threads are
    informative, and their descendants.
    """
    suspects = {row[0]: row for own in threads.values() for row in own}
    ranked = []
    for pid in {*threads, *near}:
        known = processes[pid].threads if pid in near else [tid for tid, *_ in threads[pid]]
        for place, tid in enumerate(known):
            row = suspects.get(tid)
            if pid in near and place < FIRST_THREADS:
                rank = 0
            elif row and in_fuse(row):
                rank = 1
            elif pid in near:
                rank = 2
            elif row and row[1] in "Tt":
                rank = _HALTED
            else:
                rank = 3 if row and row[1] == "D" else 4
            # Among equal ranks, some threads of each process at a time.
            ranked.append((rank, place // FIRST_THREADS, pid, tid))
    ranked.sort()
    waiting = sum(rank < _HALTED for rank, *_ in ranked)
    return [(pid, tid) for *_, pid, tid in ranked[: waiting + MOST_HALTED]]
