"""Diagnosis of stuck mounts at a moment: a pure function, so that each pattern is tested from
facts.

Callers wait for their mount's daemon. A daemon's threads wait for locks and so for their holders,
for the other ends of sockets and pipes, for children, for other mounts, or for their own mount
(fusetools.stuck.graph). A chain ends in a circle (a deadlock), or in a thread that waits for
something outside.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fusetools.host.facts import VIRTIOFS
from fusetools.reasons import Code, Reason, Value
from fusetools.results.stuck import KINDS, Blocked, Cause, Fix, Mounting, Stuck, StuckMount, Told
from fusetools.stuck import verdict
from fusetools.stuck.fixes import abort, restart, thaw
from fusetools.stuck.graph import (
    DEEPEST,
    INVALIDATES,
    MEMORY,
    SKEW,
    Graph,
    Node,
    ends,
    without_frozen,
)
from fusetools.stuck.moment import Connection, Moment, Mounter, Process, Socket, Task
from fusetools.stuck.threads import (
    cannot_send,
    downloads,
    has_request,
    has_work,
    idles,
    in_callback,
    in_reload,
    is_paused,
    kind_of_wait,
    start_function,
)
from fusetools.stuck.waits import wait

OLDER = 1.0  # seconds after which a caller counts as stuck
# SKEW if interrupts or a hypervisor took a CPU: the clock of a thread's CPU stops meanwhile, and
# the age of a caller that was kept from going to sleep is too small. In seconds, and as a share of
# the age.
TAKEN, PART_TAKEN = 0.1, 0.05
# Operation, as users know it, by system call.
_OPERATIONS = {
    **dict.fromkeys(("open", "openat", "openat2", "creat"), "open"),
    **dict.fromkeys(("stat", "lstat", "fstat", "newfstatat", "statx"), "stat"),
    **dict.fromkeys(("read", "pread64", "readv", "preadv", "preadv2"), "read"),
    **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), "write"),
    **dict.fromkeys(("getdents", "getdents64"), "readdir"),
}
# Locks of the kernel, and a daemon's threads, serve callers almost in turn: none waits for so many
# times as long as others.
OVERTAKEN = 1.5
CHECKS = 15.0  # seconds between two checks of the kernel for requests that are too old
AFTER = 0.0003  # minimum seconds between a request and its server's start
_KINDS = {
    Code.HALT_FROZEN: "frozen",
    Code.HALT_TRACED: "traced",
    Code.HALT_STOPPED: "stopped",
    Code.HALT_ZOMBIE: "gone",
    Code.HALT_KILLED: "killed",
}

_RESUMED = (Code.HALT_FROZEN, Code.HALT_TRACED, Code.HALT_STOPPED)  # processes that can run again


def stuck(moment: Moment, mounts: Iterable[str] = (), older: float = OLDER) -> Stuck:
    """Return what is stuck on all mounts, or on those on ``mounts`` (mount points)."""
    moment = without_frozen(moment)
    diagnosis = _Diagnosis(Graph(moment, older))
    paths = set(mounts)
    results = tuple(
        diagnosis.mount(connection)
        for connection in moment.connections
        if (not paths or paths & {connection.path, *connection.also})
        and (connection.fstype != "autofs" or diagnosis.graph.waited_for(connection.number))
    )
    return Stuck(
        kernel=moment.kernel,
        mounts=results,
        unplaced=tuple(diagnosis.blocked(task) for task in diagnosis.graph.unplaced),
        silent=moment.silent,
        older_seconds=older,
        seconds=moment.seconds,
        notes=moment.notes,
        unknown=verdict.unknown(moment, results, not paths, diagnosis.unheld),
        unread=moment.unread,
        mounting=tuple(
            mounting
            for mounter in moment.mounting
            if (not paths or mounter.path in paths) and (mounting := diagnosis.mounting(mounter))
        ),
    )


class _Diagnosis:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.moment = graph.moment
        self.below: list[Connection] = []  # mounts on the way to the one that is diagnosed
        self.unheld: list[Reason] = []  # callers that wait for file locks

    def blocked(self, task: Task) -> Blocked:
        process = self.graph.processes.get(task.pid)
        uid = process.uid if process else None
        return Blocked(
            pid=task.pid,
            tid=task.tid,
            comm=task.comm,
            state=task.state,
            wait=wait(self.graph, task),
            call=task.call,
            path=task.path,
            age_seconds=task.age,
            uid=uid,
            user=process.user if process else "",
            cgroup=process.cgroup if process else "",
            holder=task.lock.owner if task.lock else None,
            start_function=start_function(task),
            stack=task.stack,
            user_stack=task.user,
            killed=task.killed,
        )

    def mount(self, connection: Connection) -> StuckMount:
        """Return the answer for one mount."""
        graph = self.graph
        callers = graph.callers(connection.number)
        daemon = self._daemon(connection)
        threads = graph.threads(connection.servers) or (
            graph.of.get(daemon.pid, []) if daemon else []
        )
        own = {task.tid for task in threads}
        old = self._old(connection, own)
        others = [task for task in old if not self.moment.is_own(task)]
        locked = [task for task in others if task.in_lock]
        late = self._unanswered([task for task in others if not task.in_lock])
        served = [t for t in others if t.tid in self.moment.served and not late]
        causes = self._dead(connection, daemon) or self._causes(connection, late)
        causes += self._of_locks(locked)
        ours = len(old) - len(others)
        unheld = [] if causes else [t for t in locked if not (t.holders or t.openers)]
        for task in unheld[:1]:
            subject: dict[str, Value] = {
                "path": task.path,
                "comm": graph.comm(task),
                "pid": task.pid,
            }
            figures = {"alike": task.alike, "again": int(task.again)}
            self.unheld.append(Reason(Code.LOCK_HOLDER_UNKNOWN, subject, figures))
        state = (
            "dead"
            if any(cause.kind == "dead" for cause in causes)
            else verdict.state(
                self.moment, connection, bool(causes), len(callers), ours, bool(unheld)
            )
        )
        outside = [
            task
            for task in callers
            if (task.tid not in own or task.tid == connection.mounting)
            and not self.moment.is_own(task)
        ]
        return StuckMount(
            path=connection.path,
            fstype=connection.fstype,
            source=connection.source,
            connection=connection.number,
            state=state,
            waiting=connection.waiting,
            daemon=connection.daemon,
            comm=daemon.comm if daemon else "",
            namespace_of=connection.seen_by,
            covered=connection.covered,
            causes=tuple(causes),
            callers=tuple(self.blocked(task) for task in outside),
            threads=tuple(self.blocked(task) for task in threads),
            own=ours,
            locked=len(locked),
            served=len(served),
            halted=tuple(self._halted(connection, locked)),
            servers=connection.servers,
            client=tuple(Told(command, text) for command, text in connection.client),
        )

    def _old(self, connection: Connection, own: set[int]) -> list[Task]:
        """Return the threads that have waited for long. ``own``: the threads of the daemon."""
        return [
            task
            for task in self.graph.callers(connection.number)
            if (task.age is None or task.age >= self.graph.older)
            and (task.tid not in own or task.in_fuse)
        ]

    def _late(self, connection: Connection) -> list[Task]:
        """Return the threads that have waited for long for an answer, without fusetools' own."""
        own = {task.tid for task in self.graph.threads(connection.servers)}
        old = self._old(connection, own)
        return self._unanswered(
            [task for task in old if not (self.moment.is_own(task) or task.in_lock)]
        )

    def _unanswered(self, late: list[Task]) -> list[Task]:
        """Return the callers that are passed over: that wait for much longer than those that got
        an answer; all if none got one."""
        served = [task.age or 0.0 for task in late if task.tid in self.moment.served]
        most = OVERTAKEN * max(served, default=0.0)
        return [task for task in late if not served or task.age is None or task.age > most]

    def _of_locks(self, locked: list[Task]) -> list[Cause]:
        """Return a cause for each circle of callers that wait for each other's file locks.

        Only callers of one thread, which can release nothing while they wait, and only where one
        process alone can hold the lock."""
        waits: dict[int, tuple[int, Task]] = {}
        for task in locked:
            others, process = task.holders or task.openers, self.graph.processes.get(task.pid)
            if len(others) == 1 and process and process.threads == (task.tid,):
                waits[task.pid] = (others[0], task)
        circles: dict[frozenset[int], list[Task]] = {}
        for pid in sorted(waits):
            way: list[int] = []
            while pid in waits and pid not in way:
                way.append(pid)
                pid = waits[pid][0]
            if pid in way:
                circle = way[way.index(pid) :]
                circles.setdefault(frozenset(circle), [waits[one][1] for one in circle])
        return [self._of_circle(tasks) for tasks in circles.values()]

    def _of_circle(self, tasks: list[Task]) -> Cause:
        subject: dict[str, Value] = {
            "names": tuple(self.graph.named(task.pid) for task in tasks),
            "paths": tuple(task.path for task in tasks),
        }
        last = tasks[-1]
        what = f"ends {last.comm} and releases its locks, if the daemon obeys interrupts"
        fix = Fix(f"kill {last.pid}", what)
        return Cause("deadlock", Reason(Code.HANG_FILE_LOCKS, subject), fixes=(fix,))

    def _halted(self, connection: Connection, locked: list[Task]) -> Iterator[Cause]:
        """Yield a cause for each caller that does not run, and waits for no answer; and for each
        halted process that holds a lock for which a caller waits."""
        graph, moment = self.graph, self.moment
        for tid, number in sorted(graph.halted.items()):
            task = graph.tasks[tid]
            process = graph.processes.get(task.pid)
            new = task.age is not None and task.age < graph.older
            if number != connection.number or process is None or new or moment.is_own(task):
                continue
            if task.pid in connection.holders:
                continue
            halt = graph.halt_of(task)
            subject: dict[str, Value] = {
                "comm": process.comm,
                "pid": task.pid,
                "tid": tid,
                "call": task.call,
                "path": task.path,
            }
            age = {} if task.age is None else {"age_ns": round(1e9 * task.age)}
            reason = Reason(Code.CALLER_HALTED, {**subject, **_halted(halt)}, age)
            yield Cause(_KINDS[halt.code], reason, (), restart(process, halt), (tid,))
        held: dict[int, str] = {}
        for task in locked:
            others = task.holders or (task.openers if len(task.openers) == 1 else ())
            for pid in others:
                held.setdefault(pid, task.path)
        for pid, path in held.items():
            process = graph.processes.get(pid)
            stops = graph.halt(process) if process else None
            if process and stops and stops.code in _RESUMED:
                subject = {"comm": process.comm, "pid": pid, "path": path}
                reason = Reason(Code.HOLDER_HALTED, {**subject, **_halted(stops)})
                yield Cause(_KINDS[stops.code], reason, (), restart(process, stops))

    def _daemon(self, connection: Connection) -> Process | None:
        pid = connection.daemon
        return self.graph.processes.get(pid) if pid is not None else None

    def _dead(self, connection: Connection, daemon: Process | None) -> list[Cause]:
        """Return why each call fails on a mount whose connection was aborted, or whose daemon has
        ended."""
        path = shlex.quote(connection.path)
        fix = Fix(f"umount -l {path}", "detaches the mount; then it can be mounted anew")
        fixes = (fix,) if connection.path else ()
        if connection.dead and daemon is not None:
            subject: dict[str, Value] = {"comm": daemon.comm, "pid": daemon.pid}
            return [Cause("dead", Reason(Code.HANG_DEAD, subject), fixes=fixes)]
        moment = self.moment
        # All processes are seen, and none has it open.
        seen = moment.root and not moment.pid_namespace and not connection.hidden
        # Mount namespaces of services and containers keep mounts that are long gone here.
        others = connection.fstype in (VIRTIOFS, "autofs") or not connection.path
        others = others or connection.seen_by is not None
        if daemon is None and seen and not others and connection.waiting == 0:
            return [Cause("dead", Reason(Code.HANG_ENDED), fixes=fixes)]
        return []

    def _aborts(self, late: list[Task]) -> list[Cause]:
        """Return when the kernel's own request timeout aborts the connection, if it has one."""
        ages = [task.age for task in late if task.age is not None]
        if not self.moment.timeout or not ages:
            return []
        left = max(self.moment.timeout - max(ages), 0.0)
        figures = {
            "limit_ns": 10**9 * self.moment.timeout,
            "least_ns": round(1e9 * left),
            "most_ns": round(1e9 * (left + CHECKS)),
        }
        return [Cause("timeout", Reason(Code.ABORT_SOON, {}, figures))]

    def mounting(self, mounter: Mounter) -> Mounting | None:
        """Return what a process that mounts something waits for."""
        graph = self.graph
        process = graph.processes.get(mounter.pid)
        tasks = graph.of.get(mounter.pid, [])
        if process is None or process.since is None or process.since < graph.older or not tasks:
            return None
        first = min(tasks, key=lambda task: (not has_work(task), task.tid))
        chain, _ = graph.follow(first)
        if isinstance(chain[-1], Process):  # a thread that waits for an answer, if any
            asks = [t for t in graph.of.get(chain[-1].pid, ()) if any(_peer(t))]
            chain += sorted(asks, key=lambda task: task.age or 0.0)[:1]
        # not a socket of a server on this host
        own = [n for n in chain if isinstance(n, Task) and mounter.pid in graph.above(n.pid)]
        last = own[-1] if own else first
        subject: dict[str, Value] = {
            **self._thread(last),
            "mounter": graph.named(mounter.pid),
            "path": mounter.path,
            "sign": mounter.sign,
        }
        family = [p for p in graph.processes.values() if mounter.pid in graph.above(p.pid)]
        ran = sum(process.ran for process in family)
        figures = {"age_ns": round(1e9 * process.since), "on_cpu_ns": round(1e9 * ran)}
        return Mounting(
            pid=process.pid,
            comm=process.comm,
            path=mounter.path,
            age_seconds=process.since,
            user=process.user,
            helper=mounter.sign == "helper",
            reason=Reason(Code.MOUNTING, subject, figures),
            links=tuple(self._link(node) for node in chain),
        )

    # Why callers wait

    def _causes(self, connection: Connection, late: list[Task]) -> list[Cause]:
        """Return why callers wait, the surest cause first.

        Return no cause if nobody waits and the daemon can answer.
        """
        causes = self._why(connection, late)
        if connection.fstype != "autofs":
            return causes
        paths = tuple(sorted({task.path for task in late if task.path}))
        return [
            replace(
                cause,
                kind="autofs",
                reason=Reason(
                    Code.HANG_AUTOFS,
                    {"paths": paths, "cause": cause.reason.code.value, "message": cause.text},
                ),
            )
            for cause in causes[:1]
        ]

    def _why(self, connection: Connection, late: list[Task]) -> list[Cause]:
        autofs = connection.fstype == "autofs"
        graph = self.graph
        daemon = self._daemon(connection)
        ends_it = () if autofs else abort(connection, self.moment.fusectl)
        if daemon is None:
            return self._unserved(connection, ends_it) if late else []
        servers = [graph.processes[pid] for pid in connection.servers if pid in graph.processes]
        halts = {p.pid: halt for p in servers or [daemon] if (halt := graph.halt(p))}
        daemon = graph.processes[next(iter(halts), daemon.pid)]
        halt = halts.get(daemon.pid)
        if halt and (late or not (autofs or len(halts) < len(servers))):
            kind = _KINDS[halt.code]
            if kind in ("gone", "killed") and not late:
                return []
            chain = tuple(
                Reason(Code.LINK_HOLDER, {"process": self.graph.named(pid)})
                for pid in connection.holders
                if pid != daemon.pid
            )
            subject = {"comm": daemon.comm, "pid": daemon.pid, **_halted(halt)}
            reason = Reason(Code.HANG_DAEMON_HALTED, subject)
            return [Cause(kind, reason, chain, (*restart(daemon, halt), *ends_it))]
        if not late:
            return []
        threads = graph.threads(connection.servers) or graph.of.get(daemon.pid, [])
        waits = [t for t in threads if has_work(t) and t.tid != connection.mounting]
        waits.sort(key=lambda task: (not in_callback(task), -(task.age or 0.0)))
        # Threads also work for callers that wait for a file lock.
        callers = [*late, *(t for t in graph.callers(connection.number) if t.in_lock)]
        causes = self._of_threads(daemon, waits, callers)
        if any(cause.kind == "condition" for cause in causes):
            causes = self._with_outside(daemon, waits, callers, causes)
        if autofs:
            unknown = Reason(Code.HANG_AUTOFS_UNKNOWN, {"daemon": daemon.comm})
            return causes or [Cause("unanswered", unknown)]
        if older := self._older(connection, threads, late):
            # Unless the server itself read the request after its start: a sure cause comes first.
            sure = [cause for cause in causes if _ORDER[cause.kind] < _ORDER["sleep"]]
            handover = Cause("handover", self._successor(older[0], servers))
            causes = [*sure, handover, *(cause for cause in causes if cause not in sure)]
        left = self._left(connection, daemon, waits, late)
        causes = left or [
            *causes,
            *self._general(connection, daemon, threads, late, bool(causes)),
        ]
        causes += self._aborts(late)
        ends_it = (*ends_it, *self._kill(connection, daemon))
        return [
            replace(cause, fixes=cause.fixes or (ends_it if not n else ()))
            for n, cause in enumerate(causes)
        ]

    def _left(
        self, connection: Connection, daemon: Process, waits: list[Task], late: list[Task]
    ) -> list[Cause]:
        """Return that a daemon has left requests, if its only thread answers later ones."""
        served = [t for t in self.graph.callers(connection.number) if t.tid in self.moment.served]
        asks = [t for t in late if has_request(t)]
        ages = [task.age for task in asks if task.age is not None]
        if not (served and ages) or len(waits) != 1 or (waits[0].age or 0.0) >= min(ages) / 2:
            return []
        subject: dict[str, Value] = {"daemon": daemon.comm, "later": "answered"}
        figures = {"requests": len(asks), "age_ns": round(1e9 * max(ages))}
        return [self._unsettled(connection, subject, figures)]

    @staticmethod
    def _unsettled(
        connection: Connection, subject: dict[str, Value], figures: dict[str, int]
    ) -> Cause:
        path = shlex.quote(connection.path or "PATH")
        shown = f"fusetools record --mount {path} -- COMMAND"
        return Cause("unanswered", Reason(Code.HANG_UNANSWERED, subject, figures, shown))

    def _older(self, connection: Connection, threads: list[Task], late: list[Task]) -> list[Task]:
        """Return the callers whose request is older than all servers of the mount, which wait for
        new requests.

        No server will read such a request.
        """
        known = self.graph.processes
        ages = [known[pid].since for pid in connection.servers if pid in known]
        since = [age for age in ages if age is not None]
        if not since or len(since) < len(ages) or not any(t.reads_device for t in threads):
            return []
        # A thread's age may be too small (TAKEN) but not too large: it counts from its sleep.
        least = max(since) + AFTER
        return [t for t in late if has_request(t) and t.age is not None and t.age > least]

    def _may_be_older(self, connection: Connection, late: list[Task]) -> bool:
        """Return whether a caller's request may be older than all servers: its age may be too
        small."""
        known = self.graph.processes
        ages = [known[pid].since for pid in connection.servers if pid in known]
        since = [age for age in ages if age is not None]
        if not since or len(since) < len(ages):
            return False
        requests = [t.age for t in late if has_request(t) and t.age is not None]
        return any(_about(age) >= max(since) for age in requests)

    def _successor(self, task: Task, servers: list[Process]) -> Reason:
        oldest = max(servers, key=lambda process: process.since or 0.0)
        figures = {
            "age_ns": round(1e9 * (task.age or 0.0)),
            "server_ns": round(1e9 * (oldest.since or 0.0)),
        }
        subject = {**self._thread(task), "server": self.graph.named(oldest.pid)}
        return Reason(Code.HANG_OLDER, subject, figures)

    @staticmethod
    def _unserved(connection: Connection, fixes: tuple[Fix, ...]) -> list[Cause]:
        subject: dict[str, Value] = {"message": connection.why}
        if connection.fstype == VIRTIOFS:  # connections that fusectl does not list
            subject["path"] = connection.path or "it"
            return [Cause("unanswered", Reason(Code.HANG_BEYOND, subject))]
        subject["path"] = connection.path or ("it" if not connection.hidden else "")
        if connection.hidden:
            return [Cause("unknown", Reason(Code.HANG_HIDDEN, subject), fixes=fixes)]
        return [Cause("gone", Reason(Code.HANG_GONE, subject), fixes=fixes)]

    def _of_threads(self, daemon: Process, waits: list[Task], callers: list[Task]) -> list[Cause]:
        """Return why the daemon's waiting threads do not answer: one cause for all that wait for
        the same object.

        Return only the sure causes, if there are any.
        """
        by_key: dict[object, Cause] = {}
        tids: dict[object, list[int]] = {}
        oldest = max((task.age for task in callers if task.age is not None), default=None)

        # A thread that waits for longer than the oldest caller works for none of them. Clocks may
        # differ: a thread that waits a little longer counts if there is no other, or if its chain
        # ends where another does.
        def within(most: float) -> list[Task]:
            return [t for t in waits if t.age is None or oldest is None or t.age <= oldest + most]

        about = within(_about(oldest or 0.0) - (oldest or 0.0))
        found = {task.tid: self._cause(daemon, task, callers) for task in about}
        known = {found[task.tid][0] for task in within(SKEW)}
        for tid, (key, cause) in found.items():
            if known and key not in known:
                continue
            tids.setdefault(key, []).append(tid)
            if key not in by_key or _ORDER[cause.kind] < _ORDER[by_key[key].kind]:
                by_key[key] = cause
        threads = len(self.graph.of.get(daemon.pid, ()))

        def many(code: Code, alike: int) -> Reason:
            return Reason(code, {"daemon": daemon.comm}, {"alike": alike, "threads": threads})

        for key, cause in by_key.items():
            more = (many(Code.LINK_END_THERE, len(tids[key])),) if len(tids[key]) > 1 else ()
            by_key[key] = replace(cause, links=cause.links + more, threads=tuple(tids[key]))
        # Threads whose chains end at themselves, and that wait for the same object, are one cause.
        alike: dict[Reason, list[object]] = {}
        for key, cause in by_key.items():
            if len(cause.links) == 1 and isinstance(key, int) and key in self.graph.tasks:
                alike.setdefault(wait(self.graph, self.graph.tasks[key]), []).append(key)
        for first, *rest in alike.values():
            if rest:
                line = many(Code.LINK_WAIT_ALIKE, 1 + len(rest))
                all_ = tuple(tid for key in (first, *rest) for tid in tids[key])
                links = (*by_key[first].links, line)
                by_key[first] = replace(by_key[first], links=links, threads=all_)
            by_key = {key: cause for key, cause in by_key.items() if key not in rest}
        causes = sorted(by_key.values(), key=lambda cause: _ORDER[cause.kind])
        sure = [cause for cause in causes if _ORDER[cause.kind] < _ORDER["sleep"]]
        return sure or causes

    def _kill(self, connection: Connection, daemon: Process) -> tuple[Fix, ...]:
        """Return the command that kills all processes that have the connection open.

        Return none while one of their threads waits in a FUSE mount: it does so even after SIGKILL.
        """
        pids = [daemon.pid, *(pid for pid in connection.holders if pid != daemon.pid)]
        threads = [task for pid in pids for task in self.graph.of.get(pid, ())]
        if any(task.in_fuse for task in threads):
            return ()
        known = self.graph.processes
        names = dict.fromkeys(known[pid].comm for pid in pids if pid in known)
        what = f"ends {' and '.join(names)}: all files on the mount fail then"
        if any(task.state == "D" for task in threads):
            what += " (unless a thread in state D cannot be interrupted)"
        return (Fix(f"kill -9 {' '.join(map(str, pids))}", what),)

    def _cause(self, daemon: Process, task: Task, callers: list[Task]) -> tuple[object, Cause]:
        """Return why one of the daemon's threads does not answer ``callers``, after a sort key.

        The key is the same for all threads whose chains end alike.
        """
        chain, circle = self.graph.follow(task)
        last = chain[-1]
        # If a chain leads into a circle, only the circle.
        links = tuple(self._link(node) for node in (circle or chain))
        names = [n for node in chain if isinstance(node, Task) for n in (*node.stack, node.wchan)]
        of: dict[str, Value] = {"daemon": daemon.comm}
        if circle and any(name.startswith(INVALIDATES) for name in names):
            reason = Reason(Code.HANG_INVALIDATION, {**of, **self._thread(task)})
            return "invalidation", Cause("invalidation", reason, links)
        if circle:
            return self._circle(task, circle, links, of)
        if isinstance(last, Process) and (halt := self.graph.halt(last)):
            subject = {**of, "comm": last.comm, "pid": last.pid, **_halted(halt)}
            reason = Reason(Code.HANG_PROCESS_HALTED, subject)
            return last.pid, Cause("process", reason, links, restart(last, halt))
        if held := next((n for n in chain if isinstance(n, Task) and n.holders), None):
            return self._file_lock(chain, held, links)
        if below := next((n for n in reversed(chain[-2:]) if isinstance(n, Connection)), None):
            return below.number, self._below(below, links, of)
        assert not isinstance(last, Connection)
        if isinstance(last, Task) and _of_memory(last):
            process = self.graph.processes.get(last.pid)
            group = process.memory or process.cgroup if process else ""
            code = Code.HANG_MEMORY if process and process.memory else Code.HANG_MEMORY_OF
            reason = Reason(code, {**self._thread(last), "group": group})
            return last.tid, Cause("memory", reason, links)
        if isinstance(last, Task) and last.on_frozen:
            reason = Reason(Code.HANG_FROZEN, {**self._thread(last), "path": last.path})
            return "frozen", Cause("file", reason, links, thaw(last.path))
        if isinstance(last, Task) and last.lock:
            return last.tid, Cause("lock", self._waiting(Code.HANG_THREAD, last), links)
        if task.lock:
            # The holder of the lock, or of the lock that the holder waits for.
            holder = next(n for n in chain if isinstance(n, Task) and not n.lock)
            code = Code.HANG_JOIN if task.lock.kind == "thread" else Code.HANG_HOLDER
            reason = self._waiting(code, holder, {**of, "kind": task.lock.kind})
            return last.tid if isinstance(last, Task) else last.pid, Cause("lock", reason, links)
        if isinstance(last, Process):
            subject = {**of, "comm": last.comm, "pid": last.pid}
            return last.pid, Cause("process", Reason(Code.HANG_PROCESS, subject), links)
        if last.pid != daemon.pid:
            reason = self._waiting(Code.HANG_OTHER, last, of)
            return last.tid, Cause("process", reason, links)
        if last is task and in_reload(task):
            # Each thread sleeps 100 ms at a time; the pause is as old as the oldest caller.
            if any(map(is_paused, self.graph.of.get(daemon.pid, ()))):
                fix = Fix(f"kill -USR1 {daemon.pid}", "ends the pause; no request is lost")
                reason = Reason(Code.HANG_RELOAD_PAUSED, {**of, "pid": daemon.pid})
                return "reload", Cause("reload", reason, links, (fix,))
            return "reload", Cause("reload", Reason(Code.HANG_RELOAD, of), links)
        server = self._server(task, callers) if last is task else None
        if server:
            return ("server", server.subject["peer"]), Cause("socket", server, links)
        return last.tid, Cause(kind_of_wait(last), self._waiting(Code.HANG_THREAD, last), links)

    def _file_lock(
        self, chain: list[Node], task: Task, links: tuple[Reason, ...]
    ) -> tuple[object, Cause]:
        """Return the cause of a chain with a thread that waits for a file lock of another
        process."""
        holder = self.graph.processes.get(task.holders[0])
        if holder is None or task.pid in task.holders:
            reason = self._waiting(Code.HANG_THREAD, task)
            return task.tid, Cause("file", reason, links)
        rest = [n for n in chain[chain.index(task) + 1 :] if isinstance(n, Task)]
        subject: dict[str, Value] = {"path": task.path, "comm": holder.comm, "pid": holder.pid}
        subject.update({"doing": wait(self.graph, rest[0]).text} if rest else {})
        what = f"ends {holder.comm}, which releases its lock, unless a child of it has it, too"
        fix = Fix(f"kill {holder.pid}", what)
        return holder.pid, Cause("lock", Reason(Code.HANG_FILE_LOCK, subject), links, (fix,))

    def _below(
        self, connection: Connection, links: tuple[Reason, ...], of: dict[str, Value]
    ) -> Cause:
        """Return the cause of a chain that ends at another mount or its daemon: that mount's own
        cause."""
        subject = {**of, "path": connection.path}
        late = self._late(connection)
        if len(self.below) < DEEPEST and late:
            self.below.append(connection)
            causes = self._why(connection, late)
            self.below.pop()
            for cause in causes[:1]:
                subject["message"] = cause.text
                reason = Reason(Code.HANG_MOUNT, subject, fix=cause.reason.fix)
                return Cause("mount", reason, links, cause.fixes)
        return Cause("mount", Reason(Code.HANG_MOUNT, subject), links)

    def _server(self, task: Task, callers: list[Task]) -> Reason | None:
        """Return the server that a thread waits for, if it waits no longer than the callers do.

        A connection that has been silent since before the callers does not concern them.
        """
        sockets = [fd.socket for fd in task.descriptors if fd.socket and fd.socket.peer]
        peers = {socket.peer for socket in sockets}
        callers = [t for t in callers if not t.in_lock]
        oldest = max((t.age for t in callers if t.age is not None), default=None)
        silent = [socket.silent for socket in sockets if socket.silent is not None]
        if len(peers) != 1 or not silent or oldest is None:
            return None
        if min(silent) > _about(oldest):
            return None
        calls = {_OPERATIONS.get(t.call, t.call) for t in callers}
        subject: dict[str, Value] = {
            **self._thread(task),
            "peer": peers.pop(),
            "wanted": "a download" if downloads(task) else "an answer" if task.user else "",
            "operation": calls.pop() if len(calls) == 1 else "",
        }
        unheard = [socket.unheard for socket in sockets if socket.unheard is not None]
        figures = {"callers": len(callers), "silent_ns": round(1e9 * min(unheard or silent))}
        if unacknowledged := sum(socket.send_queue for socket in sockets):
            figures["unacknowledged_bytes"] = unacknowledged
        return Reason(Code.HANG_SERVER, subject, figures)

    def _circle(
        self, task: Task, circle: list[Node], links: tuple[Reason, ...], of: dict[str, Value]
    ) -> tuple[object, Cause]:
        rings = sorted({node.path for node in circle if isinstance(node, Connection)})
        threads = sorted(node.tid for node in circle if isinstance(node, Task))
        if len(rings) > 1:
            reason = Reason(Code.HANG_MOUNTS, {"paths": tuple(rings)})
            return tuple(rings), Cause("own_mount", reason, links)
        if rings:
            reason = Reason(Code.HANG_OWN_MOUNT, {**of, **self._thread(task)})
            return "own mount", Cause("own_mount", reason, links)
        if len({node.pid for node in circle if not isinstance(node, Connection)}) > 1:
            pids = dict.fromkeys(node.pid for node in circle if not isinstance(node, Connection))
            reason = Reason(Code.HANG_PROCESSES, {"names": tuple(map(self.graph.named, pids))})
            return tuple(threads), Cause("deadlock", reason, links)
        if len(threads) == 1:
            (node,) = {node.tid: node for node in circle if isinstance(node, Task)}.values()
            reason = self._waiting(Code.HANG_LOCK_ITSELF, node)
            return tuple(threads), Cause("deadlock", reason, links)
        reason = Reason(Code.HANG_DEADLOCK, {**of, "tids": tuple(threads)})
        return tuple(threads), Cause("deadlock", reason, links)

    def _with_outside(
        self, daemon: Process, waits: list[Task], callers: list[Task], causes: list[Cause]
    ) -> list[Cause]:
        """Return these causes, completed with the threads that may signal a condition.

        These threads wait for an answer from outside, however long. They come first if that answer
        cannot come now, or if nothing has come since they asked for it.
        """
        silent: dict[object, Cause] = {}
        lines: list[str] = []
        oldest = max((t.age for t in callers if t.age is not None), default=0.0)
        for task in waits:
            chain, circle = self.graph.follow(task)
            last = chain[-1]
            if circle or isinstance(last, Connection):
                continue
            asked = last if isinstance(last, Task) else task
            cannot = any(fd.socket and _is_silent(fd.socket, oldest) for fd in asked.descriptors)
            if cannot or (isinstance(last, Process) and self.graph.halt(last)):
                key, cause = self._cause(daemon, task, callers)
                silent.setdefault(key, cause)
            elif any(ends(fd) or (fd.socket and fd.socket.peer) for fd in task.descriptors):
                lines.append(self._link(task).text)
        if lines:
            figures = {"others": len(lines)}
            link = Reason(Code.LINK_OUTSIDE, {"others": tuple(lines[:3])}, figures)
            at = next(n for n, cause in enumerate(causes) if cause.kind == "condition")
            causes[at] = replace(causes[at], links=(*causes[at].links, link))
        return [*silent.values(), *causes]

    def _thread(self, task: Task) -> dict[str, Value]:
        """Return a thread and the object of its wait, as a reason's subject."""
        waits = wait(self.graph, task)
        start = start_function(task)
        return {
            **({"start_function": start} if start else {}),
            "comm": self.graph.comm(task),
            "pid": task.pid,
            "tid": task.tid,
            "wait": waits.code.value,
            "doing": waits.text,
        }

    def _waiting(self, code: Code, task: Task, more: dict[str, Value] | None = None) -> Reason:
        """Return a reason about a thread, with the object of its wait, and its age unless it
        runs."""
        age = {"age_ns": round(1e9 * task.age)} if task.age is not None else {}
        return Reason(
            code, {**(more or {}), **self._thread(task)}, age if task.state != "R" else {}
        )

    def _link(self, node: Node) -> Reason:
        if isinstance(node, Task):
            age = {} if node.age is None else {"age_ns": round(1e9 * node.age)}
            return Reason(Code.LINK_THREAD, self._thread(node), age)
        if isinstance(node, Connection):
            by = self.graph.named(node.daemon) if node.daemon else node.why
            return Reason(Code.LINK_MOUNT, {"path": node.path, "by": by})
        halt = self.graph.halt(node)
        return Reason(
            Code.LINK_PROCESS,
            {"comm": node.comm, "pid": node.pid, **(_halted(halt) if halt else {})},
        )

    def _general(
        self,
        connection: Connection,
        daemon: Process,
        threads: list[Task],
        late: list[Task],
        known: bool,
    ) -> Iterator[Cause]:
        """Yield causes of the connection as a whole.

        ``known``: the causes of its threads are known.
        """
        of: dict[str, Value] = {"daemon": daemon.comm}
        unseen = set(daemon.threads) & set(self.moment.silent) if threads else set(daemon.threads)
        readers = [task for task in threads if task.reads_device]
        unsure = [task for task in threads if task.may_read_device]
        listening = unsure or [
            task for task in threads if any(fd.link.endswith("/fuse") for fd in task.descriptors)
        ]
        full = sum(cannot_send(task) == "background" for task in late)
        if early := sum(cannot_send(task) == "foreground" for task in late):
            yield Cause("unanswered", Reason(Code.HANG_NOT_READY, of, {"callers": early}))
        unsent = self.graph.unsent(connection, late)
        if full or unsent:
            figures = {"requests": unsent or 0, "callers": full}
            if connection.max_background is not None:
                figures["most"] = connection.max_background
            yield Cause("background", Reason(Code.HANG_BACKGROUND, of, figures))
        if unseen or not threads:
            if not known:
                figures = {"threads": len(unseen)} if threads else {}
                yield Cause("unknown", Reason(Code.HANG_UNEXAMINED, of, figures))
        elif not readers and not listening and connection.mounting:
            if not known:
                subject = {**of, "pid": daemon.pid}
                yield Cause("deadlock", Reason(Code.HANG_INIT, subject, {"threads": len(threads)}))
        elif not readers and not listening:
            subject = dict(of) if known else {**of, "idle": "all"}
            yield Cause("unread", Reason(Code.HANG_UNREAD, subject, {"threads": len(threads)}))
        elif not known:
            subject = dict(of)
            if any(map(idles, threads)):
                subject["runtime"] = "tasks"
            if unsure and not readers:
                subject["waits_in"] = "io_uring"
            if connection.waiting and (full or early or unsent != 0):
                subject["part"] = "sent"
            if self._may_be_older(connection, late):
                subject["reader"] = "unknown"
            figures = {"requests": connection.waiting} if connection.waiting else {}
            if ages := [task.age for task in late if task.age is not None]:
                figures["age_ns"] = round(1e9 * max(ages))
            if ages := [task.age for task in readers if task.age is not None]:
                figures["idle_ns"] = round(1e9 * min(ages))
            yield self._unsettled(connection, subject, figures)


_ORDER = {kind: number for number, kind in enumerate(KINDS)}


def _of_memory(task: Task) -> bool:
    return any(name.startswith(MEMORY) for name in (*task.stack, task.wchan))


def _is_silent(socket: Socket, oldest: float) -> bool:
    """Return whether a peer acknowledges nothing, or has not answered what it was sent since the
    oldest caller began to wait, so many seconds ago."""
    if socket.send_queue or socket.silent is None or socket.unheard is None:
        return bool(socket.send_queue)
    return socket.silent <= _about(oldest) and socket.unheard > socket.silent + SKEW


def _about(age: float) -> float:
    """Return the age of a caller, if another clock may show a smaller one."""
    return age * (1 + PART_TAKEN) + TAKEN


def _peer(task: Task) -> Iterator[bool]:
    return (bool(fd.socket and fd.socket.peer) for fd in task.descriptors)


def _halted(halt: Reason) -> dict[str, Value]:
    return {"halt": halt.code.value, "halted": halt.text}
