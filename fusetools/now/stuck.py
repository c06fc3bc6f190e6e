"""What is stuck at a moment: a pure function, so that each pattern is tested from facts.

Who waits for whom: callers for their mount's daemon; a daemon's threads for locks and so for their
holders, for the other ends of sockets and pipes, for children, for other mounts, for their own
mount. A chain ends in a circle (a deadlock), or in a thread that waits for something outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fusetools.figures import ago, plural
from fusetools.host.facts import VIRTIOFS
from fusetools.now import verdict
from fusetools.now.fixes import abort, restart
from fusetools.now.moment import Connection, Descriptor, Moment, Place, Process, Task
from fusetools.now.threads import (
    SLEEPS,
    cannot_send,
    has_request,
    has_work,
    idles,
    in_callback,
    in_reload,
    kind_of_wait,
    waits_for_workers,
)
from fusetools.results.stuck import KINDS, Blocked, Cause, Fix, Stuck, StuckMount

OLDER = 1.0  # seconds after which a caller counts as stuck
SKEW = 0.02  # seconds by which the clocks of CPUs may differ,
# The same if interrupts or a hypervisor took a CPU: the clock of a thread's CPU stands still then,
# and a caller kept from going to sleep seems to wait for less. In s, and as a part of the age.
TAKEN, PART_TAKEN = 0.1, 0.05
DEEPEST = 32  # of a chain

_LOCKS = ("d_alloc_parallel", "fuse_lock_inode")
_PAGES = ("folio_", "__folio_", "wait_on_page", "__lock_page", "io_schedule", "wait_on_bit")
_MEMORY = ("mem_cgroup", "try_charge", "charge_memcg", "__mem_cgroup")
_NOTIFY = ("fuse_notify", "fuse_reverse_inval", "fuse_dev_do_write")


def stuck(moment: Moment, mounts: Iterable[str] = (), older: float = OLDER) -> Stuck:
    """What is stuck on all mounts, or on those on ``mounts`` (mount points)."""
    graph = _Graph(moment, older)
    paths = set(mounts)
    results = tuple(
        graph.mount(connection)
        for connection in moment.connections
        if (not paths or paths & {connection.path, *connection.also})
        and (connection.fstype != "autofs" or graph.waited_for(connection.number))
    )
    return Stuck(
        kernel=moment.kernel,
        mounts=results,
        unplaced=tuple(graph.blocked(task) for task in graph.unplaced),
        silent=moment.silent,
        older_seconds=older,
        seconds=moment.seconds,
        notes=moment.notes,
        unknown=verdict.unknown(moment, results, all_mounts=not paths),
        unread=moment.unread,
    )


class _Graph:
    def __init__(self, moment: Moment, older: float) -> None:
        self.moment = moment
        self.older = older
        self.processes = {process.pid: process for process in moment.processes}
        self.tasks = {task.tid: task for task in moment.tasks}
        self.connections = {connection.number: connection for connection in moment.connections}
        self.of: dict[int, list[Task]] = {}
        for task in moment.tasks:
            self.of.setdefault(task.pid, []).append(task)
        self.daemons: dict[int, int] = {}  # connection by its daemon
        for connection in moment.connections:
            for pid in (connection.daemon, *connection.holders):
                if pid is not None:
                    self.daemons.setdefault(pid, connection.number)
        # By thread that waits for a mount: the connection's number.
        self.places: dict[int, int] = {}
        self.unplaced: list[Task] = []
        self._place_all()

    # Where callers wait

    def _place_all(self) -> None:
        """Finds the mounts that threads wait for: by their paths, then of those whose paths say
        nothing (another name of the file, a descriptor that is being closed) by what is left: each
        request that waits is somebody's."""
        unknown = [task for task in self.moment.tasks if self._place(task)]
        left = {connection.number: connection.waiting for connection in self.moment.connections}
        for tid, number in self.places.items():
            if left[number] and has_request(self.tasks[tid]):
                left[number] = max((left[number] or 0) - 1, 0)
        for task in unknown:
            # A page, too, is waited for because of a request, which is no other caller's.
            own = has_request(task) or any(n.startswith(_PAGES) for n in (*task.stack, task.wchan))
            possible = [
                connection
                for connection in self.moment.connections
                if connection.fstype != "autofs"
                and (left[connection.number] if own else connection.waiting) != 0
            ]
            if len(possible) == 1:
                self.places[task.tid] = possible[0].number
            elif (task.age is None or task.age >= self.older) and not self.moment.is_own(task):
                self.unplaced.append(task)

    def _place(self, task: Task) -> bool:
        """Whether a thread waits for a FUSE mount, but its paths do not show for which."""
        names = (*task.stack, task.wchan)
        notifies = any(name.startswith(_NOTIFY) for name in names)
        if task.state not in "DS" or task.reads_device or notifies or task.holders:
            return False
        if not task.in_fuse and not task.in_autofs and not self._waits_in_kernel(task):
            return False
        on: dict[int, Place] = {}
        for place in task.places:
            number = self._on(place, task.in_autofs)
            if number is not None:
                on.setdefault(number, place)
        if len(on) != 1:
            return task.in_fuse
        ((number, place),) = on.items()
        self.places[task.tid] = number
        others = tuple(other for other in task.places if other is not place)
        task = replace(task, places=(place, *others))
        self.tasks[task.tid] = task
        self.of[task.pid] = [task if own.tid == task.tid else own for own in self.of[task.pid]]
        return False

    @staticmethod
    def _waits_in_kernel(task: Task) -> bool:
        """Whether a thread may wait for a page or a lock of a file: the kernel does not show the
        functions that take its locks (``__sched``), only that it cannot be interrupted."""
        names = (*task.stack, task.wchan)
        return any(name.startswith((*_LOCKS, *_PAGES)) for name in names) or (
            task.state == "D" and not any(name.startswith(_MEMORY) for name in names)
        )

    def _on(self, place: Place, autofs: bool) -> int | None:
        """The connection for which a thread waits on its way to a place: one that has requests; or
        an autofs mount. None if there are two, one above the other."""
        possible = [
            connection
            for connection in (self.connections.get(number) for number in place.on)
            if connection
            and (connection.fstype == "autofs") == autofs
            and (autofs or connection.waiting != 0)
        ]
        above = len(possible) > 1 and possible[0].path == possible[1].path
        return possible[0].number if possible and not above else None

    def waited_for(self, number: int) -> bool:
        """Whether anybody waits for a mount."""
        return number in self.places.values()

    def _callers(self, number: int) -> list[Task]:
        tasks = [self.tasks[tid] for tid, place in self.places.items() if place == number]
        return sorted(tasks, key=lambda task: (-(task.age or 0.0), task.tid))

    # What a thread waits for, in words and as edges

    def who(self, task: Task) -> str:
        process = self.processes.get(task.pid)
        name = process.comm if process else task.comm
        thread = f"thread {task.tid}" if task.tid != task.pid else f"pid {task.pid}"
        return f"{name} ({thread})"

    def state(self, process: Process) -> str:
        """What keeps a whole process from running; "" if nothing does."""
        if process.frozen:
            return f"frozen by the cgroup {process.frozen}"
        own = self.of.get(process.pid, ())
        halted = all(task.state in "TtDZX" for task in own)
        if process.state == "t" and process.tracer and halted:
            return f"stopped by its tracer, {self._process(process.tracer)}"
        if (process.state == "T" and halted) or (own and all(task.state in "Tt" for task in own)):
            return "stopped (SIGSTOP)"
        if process.state in "ZX":
            return "a zombie: it has ended, and its parent has not noticed"
        return ""

    def edges(self, task: Task) -> list[Task | Process | Connection]:
        """What a thread waits for, if that is a thread, a process or a mount."""
        if task.reads_device or task.state not in "DS":
            return []
        if task.lock and not task.lock.gone and task.lock.owner in self.tasks:
            return [self.tasks[task.lock.owner]]
        if task.tid in self.places:
            return [self.connections[self.places[task.tid]]]
        if any(name.startswith(_NOTIFY[:2]) for name in task.stack) and task.pid in self.daemons:
            return [self.connections[self.daemons[task.pid]]]
        pids = [pid for fd in task.descriptors for pid in _ends(fd)]
        pids += [*task.children, *task.holders]
        return [self.processes[pid] for pid in dict.fromkeys(pids) if pid in self.processes]

    def waits(self, task: Task) -> str:
        """What a thread waits for; follows its name."""
        if task.state == "R":
            process = self.processes.get(task.pid)
            if process and process.quota:
                group, most = process.quota
                return f"runs, or waits for a CPU: its cgroup {group} may use {most:g} CPUs"
            return "runs on a CPU"
        if task.state in "Tt":
            by = f" by its tracer, {self._process(task.tracer)}" if task.tracer else ""
            return f"is stopped{by}"
        if task.state in "ZX":
            return "has ended"
        if task.reads_device:
            return "waits for its next request"
        if task.may_read_device:
            return f"waits in {task.call} for its next request, or for something else"
        if task.lock:
            owner = None if task.lock.gone else self.tasks.get(task.lock.owner)
            held = self.who(owner) if owner else f"thread {task.lock.owner}"
            if task.lock.kind == "thread":
                return f"waits for the end of {held}"
            if owner is task:
                held = "itself"
            elif task.lock.gone:
                held += ", which its process does not have (any more)"
            return f"waits for the {task.lock.kind} {task.lock.address:#x}, held by {held}"
        names = (*task.stack, task.wchan)
        if task.in_autofs:
            return f"waits for automount: {task.path or 'path unknown'}"
        if any(name.startswith(_MEMORY) for name in names):
            return "waits for memory of its cgroup"
        if any(name.startswith(_NOTIFY[:2]) for name in names):
            return "tells the kernel to drop something from its cache, and waits for a lock there"
        if task.tid in self.places:
            connection = self.connections[self.places[task.tid]]
            what = task.path or "a file whose path is unknown"
            how = f" in {task.call}" if task.call else ""
            locked = any(name.startswith(_LOCKS) for name in names[:3])
            if locked or not (task.in_fuse or any(name.startswith(_PAGES) for name in names)):
                return f"waits{how} for a lock of {what}, on {connection.path}"
            if any(name.startswith("fuse_get_req") for name in names):
                return f"waits{how} to send a request for {what}"
            return f"waits{how} for {what}" + (
                "" if what.startswith(connection.path) else f", on {connection.path}"
            )
        if waits_for_workers(task):
            return "waits for its worker threads to end"
        if idles(task):
            return "waits for a task of its runtime (Go, tokio)"
        if task.call == "futex":
            return "waits for a condition, a semaphore or a lock that does not name its holder"
        if task.call in SLEEPS:
            return f"sleeps in {task.call}"
        if task.holders:
            held = ", ".join(map(self._process, task.holders[:3]))
            return f"waits in {task.call} for a lock of {task.path or 'a file'}, held by {held}"
        if task.children:
            most = len(task.children) - 3
            rest = f" and {most} more" if most > 0 else ""
            whose = "its child" if len(task.children) == 1 else "one of its children"
            return f"waits for {whose} {', '.join(map(self._process, task.children[:3]))}{rest}"
        ends = [self._end(fd) for fd in task.descriptors[:3]]
        if ends:
            more = len(task.descriptors) - 3
            rest = f" and {more} more" if more > 0 else ""
            return f"waits in {task.call or task.wchan} for {', '.join(ends)}{rest}"
        if task.path:
            return f"waits in {task.call} for {task.path}"
        return f"waits in {task.call or task.wchan or 'the kernel'}"

    def _process(self, pid: int) -> str:
        process = self.processes.get(pid)
        return f"{process.comm} (pid {pid})" if process else f"pid {pid}"

    def _end(self, fd: Descriptor) -> str:
        socket = fd.socket
        others = [pid for pid in _ends(fd) if pid in self.processes][:2]
        by = f" of {', '.join(map(self._process, others))}" if others else ""
        by = " of its own" if fd.own else by
        if socket is None:
            if fd.link.startswith("pipe:"):
                return f"a pipe{by}"
            if fd.link.startswith("socket:"):
                return "a socket"
            return fd.link
        notes = [socket.protocol] + ([socket.state] if socket.state else [])
        if socket.send_queue:
            notes.append(f"{socket.send_queue:,} bytes not acknowledged")
        if socket.receive_queue:
            notes.append(f"{socket.receive_queue:,} bytes not read")
        if not socket.accepted:
            notes.append("not accepted yet")
        where = socket.peer or "a socket"
        return f"{where}{by} ({', '.join(notes)})"

    def blocked(self, task: Task) -> Blocked:
        process = self.processes.get(task.pid)
        uid = process.uid if process else None
        return Blocked(
            pid=task.pid,
            tid=task.tid,
            comm=task.comm,
            state=task.state,
            waits=self.waits(task),
            call=task.call,
            path=task.path,
            age_seconds=task.age,
            uid=uid,
            user=process.user if process else "",
            cgroup=process.cgroup if process else "",
            holder=task.lock.owner if task.lock else None,
            stack=task.stack,
            user_stack=task.user,
        )

    # The answer for one mount

    def mount(self, connection: Connection) -> StuckMount:
        callers = self._callers(connection.number)
        daemon = self.processes.get(connection.daemon) if connection.daemon is not None else None
        threads = self.of.get(daemon.pid, []) if daemon else []
        own = {task.tid for task in threads}
        old = [
            task
            for task in callers
            if (task.age is None or task.age >= self.older)
            and (task.tid not in own or task.in_fuse)
        ]
        late = [task for task in old if not self.moment.is_own(task)]
        causes = self.causes(connection, late)
        ours = len(old) - len(late)
        state = verdict.state(self.moment, connection, bool(causes), len(callers), ours)
        outside = [task for task in callers if task.tid not in own and not self.moment.is_own(task)]
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
            causes=tuple(causes),
            callers=tuple(self.blocked(task) for task in outside),
            threads=tuple(self.blocked(task) for task in threads),
            own=ours,
        )

    def causes(self, connection: Connection, late: list[Task]) -> list[Cause]:
        """Why callers wait, the surest first; none if nobody waits and the daemon can answer."""
        if connection.fstype == "autofs":
            causes = self._why(connection, late)
            return [self._autofs(connection, late, cause) for cause in causes[:1]]
        return self._why(connection, late)

    def _autofs(self, connection: Connection, late: list[Task], why: Cause) -> Cause:
        paths = sorted({task.path for task in late if task.path})
        what = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        text = (
            f"autofs waits for its daemon to mount {what or 'what callers asked for'}: {why.text}"
        )
        return replace(why, kind="autofs", text=text)

    def _why(self, connection: Connection, late: list[Task]) -> list[Cause]:
        autofs = connection.fstype == "autofs"
        daemon = self.processes.get(connection.daemon) if connection.daemon is not None else None
        ends = () if autofs else abort(connection, self.moment.fusectl)
        if daemon is None:
            if not late:
                return []
            path = connection.path or "it"
            if connection.fstype == VIRTIOFS:  # whose connections fusectl does not have
                return [Cause("unanswered", f"{path} is not answered: {connection.why}")]
            if connection.hidden:
                text = f"which process answers {path} cannot be known: {connection.why}"
                return [Cause("unknown", text, fixes=ends)]
            text = f"no process is known that answers {path}: {connection.why}"
            return [Cause("gone", text, fixes=ends)]
        if (text := self.state(daemon)) and (late or not autofs):
            kinds = (("frozen", "frozen"), ("tracer", "traced"), ("zombie", "gone"))
            kind = next((kind for word, kind in kinds if word in text), "stopped")
            if kind == "gone" and not late:
                return []
            others = [pid for pid in connection.holders if pid != daemon.pid]
            chain = [f"{self._process(pid)} has its /dev/fuse open, too" for pid in others]
            what = f"the daemon {daemon.comm} (pid {daemon.pid}) is {text}"
            return [Cause(kind, what, tuple(chain), (*restart(daemon, kind), *ends))]
        if not late:
            return []
        threads = self.of.get(daemon.pid, [])
        waits = [task for task in threads if has_work(task)]
        waits.sort(key=lambda task: (not in_callback(task), -(task.age or 0.0)))
        causes = self._of_threads(connection, daemon, waits, late)
        if any(cause.kind == "condition" for cause in causes):
            causes = self._with_outside(connection, daemon, waits, causes)
        if autofs:
            text = f"which of the threads of {daemon.comm} should mount it cannot be known"
            return causes or [Cause("unanswered", text)]
        causes += self._general(connection, daemon, threads, late, bool(causes))
        ends = (*ends, *self._kill(connection, daemon))
        return [
            replace(cause, fixes=cause.fixes or (ends if not n else ()))
            for n, cause in enumerate(causes)
        ]

    def _of_threads(
        self, connection: Connection, daemon: Process, waits: list[Task], late: list[Task]
    ) -> list[Cause]:
        """Why the daemon's threads that wait do not answer, one cause for all that wait for the
        same; the sure ones alone, if there are any."""
        by_key: dict[object, Cause] = {}
        tids: dict[object, list[int]] = {}
        oldest = max((task.age for task in late if task.age is not None), default=None)

        # A thread that waits for longer than the oldest caller works for none of them. Clocks may
        # differ: one a little longer counts if there is no other, or if it ends where another does.
        def within(most: float) -> list[Task]:
            return [t for t in waits if t.age is None or oldest is None or t.age <= oldest + most]

        about = within(TAKEN + PART_TAKEN * (oldest or 0.0))
        ends = {task.tid: self._cause(connection, daemon, task) for task in about}
        known = {ends[task.tid][0] for task in within(SKEW)}
        for tid, (key, cause) in ends.items():
            if known and key not in known:
                continue
            tids.setdefault(key, []).append(tid)
            if key not in by_key or _ORDER[cause.kind] < _ORDER[by_key[key].kind]:
                by_key[key] = cause
        many = f" of {len(self.of.get(daemon.pid, ()))} threads of {daemon.comm}"
        for key, cause in by_key.items():
            more = (f"{len(tids[key])}{many} end there",) if len(tids[key]) > 1 else ()
            by_key[key] = replace(cause, chain=cause.chain + more, threads=tuple(tids[key]))
        # Threads at their own ends that wait for the same are one cause.
        alike: dict[str, list[object]] = {}
        for key, cause in by_key.items():
            if len(cause.chain) == 1 and isinstance(key, int) and key in self.tasks:
                alike.setdefault(self.waits(self.tasks[key]), []).append(key)
        for first, *rest in alike.values():
            if rest:
                line = f"{1 + len(rest)}{many} wait like that"
                all_ = tuple(tid for key in (first, *rest) for tid in tids[key])
                chain = (*by_key[first].chain, line)
                by_key[first] = replace(by_key[first], chain=chain, threads=all_)
            by_key = {key: cause for key, cause in by_key.items() if key not in rest}
        causes = sorted(by_key.values(), key=lambda cause: _ORDER[cause.kind])
        sure = [cause for cause in causes if _ORDER[cause.kind] < _ORDER["sleep"]]
        return sure or causes

    def _kill(self, connection: Connection, daemon: Process) -> tuple[Fix, ...]:
        """Kills all that have the connection open. Not while one of their threads waits in a FUSE
        mount: it does so even then."""
        pids = [daemon.pid, *(pid for pid in connection.holders if pid != daemon.pid)]
        threads = [task for pid in pids for task in self.of.get(pid, ())]
        if any(task.in_fuse for task in threads):
            return ()
        names = dict.fromkeys(self.processes[pid].comm for pid in pids if pid in self.processes)
        what = f"ends {' and '.join(names)}: all files on the mount fail then"
        if any(task.state == "D" for task in threads):
            what += " (unless a thread in state D cannot be interrupted)"
        return (Fix(f"kill -9 {' '.join(map(str, pids))}", what),)

    def _cause(self, connection: Connection, daemon: Process, task: Task) -> tuple[object, Cause]:
        """Why one of the daemon's threads does not answer, after a key that is the same for all
        threads whose chains end alike."""
        chain, circle = self._follow(task)
        last = chain[-1]
        # Of a chain that leads into a circle, only the circle.
        lines = tuple(self._line(node) for node in (circle or chain))
        names = [n for node in chain if isinstance(node, Task) for n in (*node.stack, node.wchan)]
        if circle and any(name.startswith(_NOTIFY[:2]) for name in names):
            text = (
                f"{self.who(task)} invalidates something in the kernel's cache, which is locked by "
                f"a caller that waits for {daemon.comm}"
            )
            return "invalidation", Cause("invalidation", text, lines)
        if circle:
            rings = sorted({node.path for node in circle if isinstance(node, Connection)})
            threads = sorted(node.tid for node in circle if isinstance(node, Task))
            if len(rings) > 1:
                text = f"deadlock: the daemons of {' and '.join(rings)} wait for each other"
                return tuple(rings), Cause("own_mount", text, lines)
            if rings:
                text = f"deadlock: {daemon.comm} waits for its own mount: {self.who(task)} "
                text += self.waits(task)
                return "own mount", Cause("own_mount", text, lines)
            if len(threads) == 1:
                return tuple(threads), Cause("deadlock", f"deadlock: {lines[0]}", lines)
            them = ", ".join(map(str, threads))
            text = f"deadlock: the threads {them} of {daemon.comm} wait for each other"
            return tuple(threads), Cause("deadlock", text, lines)
        if isinstance(last, Process):
            state = self.state(last)
            text = f"{daemon.comm} waits for {last.comm} (pid {last.pid})"
            if state:
                text = f"{last.comm} (pid {last.pid}), which {daemon.comm} waits for, is {state}"
            fixes = restart(last, "frozen" if last.frozen else "stopped") if state else ()
            return last.pid, Cause("process", text, lines, fixes)
        if isinstance(last, Connection):
            text = f"{daemon.comm} waits for {last.path}"
            return last.number, Cause("mount", text, lines)
        process = self.processes.get(last.pid)
        if process and any(name.startswith(_MEMORY) for name in (*last.stack, last.wchan)):
            text = f"{self.who(last)} waits for memory: its cgroup {process.memory} is full"
            if not process.memory:
                text = f"{self.who(last)} waits for memory of its cgroup {process.cgroup}"
            return last.tid, Cause("memory", text, lines)
        age = f", for {ago(last.age)}" if last.age is not None and last.state != "R" else ""
        text = f"{self.who(last)} {self.waits(last)}{age}"
        if last.lock:
            return last.tid, Cause("lock", text, lines)
        if task.lock:
            # Whoever holds it, or the lock that its holder waits for.
            holder = next((n for n in chain if isinstance(n, Task) and not n.lock), last)
            age = f", for {ago(holder.age)}" if holder.age and holder.state != "R" else ""
            text = f"{self.who(holder)}, which {self.waits(holder)}{age}"
            text = (
                f"{daemon.comm} waits for the end of {text}"
                if task.lock.kind == "thread"
                else f"a {task.lock.kind} is held by {text}"
            )
            return last.tid, Cause("lock", text, lines)
        if last.pid != daemon.pid:
            text = f"{daemon.comm} waits for {self.who(last)}, which {self.waits(last)}{age}"
            return last.tid, Cause("process", text, lines)
        if last is task and in_reload(task):
            # Each thread sleeps 100 ms at a time; the pause is as old as the oldest caller.
            text = (
                f"{daemon.comm} is being reloaded, or was left so: the CernVM-FS loader lets no "
                "request into the file system's library until the new one is loaded"
            )
            return "reload", Cause("reload", text, lines)
        return last.tid, Cause(kind_of_wait(last), text, lines)

    def _with_outside(
        self, connection: Connection, daemon: Process, waits: list[Task], causes: list[Cause]
    ) -> list[Cause]:
        """These, of threads that wait for others to end a condition, with those others: threads
        that wait for an answer from outside, however long; first if that cannot come now."""
        silent: dict[object, Cause] = {}
        lines: list[str] = []
        for task in waits:
            chain, circle = self._follow(task)
            last = chain[-1]
            if circle:
                continue
            if isinstance(last, Process):
                cannot = bool(self.state(last))
            elif isinstance(last, Task):
                cannot = any(fd.socket and fd.socket.send_queue for fd in last.descriptors)
            else:
                continue
            if cannot:
                key, cause = self._cause(connection, daemon, task)
                silent.setdefault(key, cause)
            elif any(_ends(fd) or (fd.socket and fd.socket.peer) for fd in task.descriptors):
                lines.append(self._line(task))
        if lines:
            more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
            text = f"what ends it may come from one of: {', '.join(lines[:3])}{more}"
            at = next(n for n, cause in enumerate(causes) if cause.kind == "condition")
            causes[at] = replace(causes[at], chain=(*causes[at].chain, text))
        return [*silent.values(), *causes]

    def _follow(
        self, task: Task
    ) -> tuple[list[Task | Process | Connection], list[Task | Process | Connection]]:
        """The chain from a thread on, and its end again if that is a circle."""
        chain: list[Task | Process | Connection] = [task]
        while len(chain) < DEEPEST:
            following = self._next(chain[-1], chain)
            if following is None:
                return chain, []
            if following in chain:
                return chain, chain[chain.index(following) :]
            chain.append(following)
        return chain, []

    def _next(
        self, node: Task | Process | Connection, chain: list[Task | Process | Connection]
    ) -> Task | Process | Connection | None:
        if isinstance(node, Task):
            following = self.edges(node)
            stopped = [n for n in following if isinstance(n, Process) and self.state(n)]
            # Of several, any may be the one: nobody knows which. Nor does anybody know what a
            # loop of events waits for, if it waits for more than that.
            sure = len(following) == 1 and (all(map(_ends, node.descriptors)) or not node.polls)
            return stopped[0] if stopped else following[0] if sure else None
        if isinstance(node, Connection):
            pid = node.daemon
            process = self.processes.get(pid) if pid is not None else None
            first = chain[0]
            if process and isinstance(first, Task) and first.pid == process.pid:
                return first  # back to the daemon whose thread began
            return process
        # A process: its thread that began to wait last and leads further; idle ones wait longer.
        if self.state(node):
            return None
        threads = [task for task in self.of.get(node.pid, ()) if has_work(task)]
        for task in sorted(threads, key=lambda task: task.age or 0.0):
            ends = [n for n in self.edges(task) if n is not node]
            fresh = [n for n in ends if n not in chain]
            if fresh:
                return task
        if len(threads) == 1:
            return threads[0]
        # Who works for the one before has not waited for longer.
        since = next((n.age for n in reversed(chain) if isinstance(n, Task)), None)
        recent = [t for t in threads if t.age is None or since is None or t.age <= since + SKEW]
        return recent[0] if len(recent) == 1 else None

    def _line(self, node: Task | Process | Connection) -> str:
        if isinstance(node, Task):
            age = f" ({ago(node.age)})" if node.age is not None else ""
            return f"{self.who(node)} {self.waits(node)}{age}"
        if isinstance(node, Connection):
            return f"{node.path}: {self._process(node.daemon) if node.daemon else node.why}"
        state = self.state(node)
        return f"{node.comm} (pid {node.pid})" + (f" is {state}" if state else "")

    def _general(
        self,
        connection: Connection,
        daemon: Process,
        threads: list[Task],
        late: list[Task],
        known: bool,
    ) -> Iterator[Cause]:
        """Causes of the connection as a whole. ``known``: those of its threads are."""
        unseen = set(daemon.threads) & set(self.moment.silent) if threads else set(daemon.threads)
        readers = [task for task in threads if task.reads_device]
        unsure = [task for task in threads if task.may_read_device]
        listening = unsure or [
            task for task in threads if any(fd.link.endswith("/fuse") for fd in task.descriptors)
        ]
        full = [task for task in late if cannot_send(task) == "background"]
        if early := sum(cannot_send(task) == "foreground" for task in late):
            text = f"{daemon.comm} has not answered the mount's first request (FUSE_INIT), or its "
            text += f"rings of io_uring are not ready: {plural(early, 'caller')} cannot send theirs"
            yield Cause("unanswered", text)
        unsent = self._unsent(connection, late)
        if full or unsent:
            most = connection.max_background
            limit = f" ({plural(most, 'request')})" if most is not None else ""
            held = [f"{plural(unsent, 'request')} more cannot be sent"] if unsent else []
            held += [f"{plural(len(full), 'caller')} cannot even send theirs"] if full else []
            text = f"the background list is full{limit}: {', and '.join(held)}"
            yield Cause("background", text)
        if unseen or not threads:
            if not known:
                which = f"{len(unseen)} of its threads" if threads else "its threads"
                text = f"what {daemon.comm} does cannot be known: {which} could not be looked at"
                yield Cause("unknown", text)
        elif not readers and not listening:
            text = f"none of the {len(threads)} threads of {daemon.comm} reads /dev/fuse"
            if len(threads) == 1:
                text = f"the only thread of {daemon.comm} does not read /dev/fuse"
            yield Cause("unread", text)
        elif not known:
            count = connection.waiting
            requests = f"all {count} requests that wait" if count else "the requests"
            requests = "the request that waits" if count == 1 else requests
            if count and (full or early or unsent != 0):
                requests = f"those of the {count} requests that were sent to it"
                requests = "all that was sent to it" if count == 1 else requests
            whose = "which of its threads should answer cannot be known"
            if any(map(idles, threads)):
                whose = "what those of its tasks wait for that have no thread cannot be known"
            more = "waits for more"
            if unsure and not readers:
                more = "waits in io_uring_enter for more, or for something else"
            text = f"{daemon.comm} has read {requests} and {more}: {whose}"
            yield Cause("unanswered", text)

    def _unsent(self, connection: Connection, late: list[Task]) -> int | None:
        """Requests that the background list holds back, at least: the kernel sends max_background
        of those that no caller waits for itself, and counts the others as waiting, too
        (fuse_request_queue_background). None: cannot be known, as requests come and go, or whose
        they are cannot be seen."""
        most, waiting = connection.max_background, connection.waiting
        if most is None or waiting is None:
            return 0
        callers = self._callers(connection.number)
        own = [
            task
            for task in (*callers, *self.unplaced)
            if has_request(task) or cannot_send(task) or not (task.stack or task.wchan)
        ]
        more = max(waiting - len(own) - most, 0)
        seen = self.moment.root and not self.moment.pid_namespace
        sure = seen and all(task in late for task in callers)
        return more if sure or not more else None


_ORDER = {kind: number for number, kind in enumerate(KINDS)}


def _ends(fd: Descriptor) -> tuple[int, ...]:
    return fd.socket.other if fd.socket and fd.socket.other else fd.other
