"""What is stuck at a moment: a pure function, so that each pattern is tested from facts.

Who waits for whom: callers for their mount's daemon; a daemon's threads for locks and so for their
holders, for the other ends of sockets and pipes, for children, for other mounts, for their own
mount. A chain ends in a circle (a deadlock), or in a thread that waits for something outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fusetools.host.mounts import is_on
from fusetools.now.moment import Connection, Descriptor, Moment, Process, Task
from fusetools.results.stuck import KINDS, Blocked, Cause, Fix, Stuck, StuckMount, ago

OLDER = 1.0  # seconds after which a caller counts as stuck
SKEW = 0.02  # seconds by which the clocks of CPUs may differ,
# The same if interrupts or a hypervisor took a CPU: the clock of a thread's CPU stands still then,
# and a caller kept from going to sleep seems to wait for less. In s, and as a part of the age.
TAKEN, PART_TAKEN = 0.1, 0.05
DEEPEST = 32  # of a chain

_LOCKS = ("rwsem_", "down_", "__down_", "mutex_lock", "__mutex_lock", "d_alloc_parallel", "inode_")
_PAGES = ("folio_", "__folio_", "wait_on_page", "__lock_page", "io_schedule", "wait_on_bit")
_MEMORY = ("mem_cgroup", "try_charge", "charge_memcg", "__mem_cgroup")
_NOTIFY = ("fuse_notify", "fuse_reverse_inval", "fuse_dev_do_write")
_TIMED = ("nanosleep", "clock_nanosleep")


def stuck(moment: Moment, mounts: Iterable[str] = (), older: float = OLDER) -> Stuck:
    """What is stuck on all mounts, or on those on ``mounts`` (mount points)."""
    graph = _Graph(moment, older)
    paths = set(mounts)
    results = tuple(
        graph.mount(connection)
        for connection in moment.connections
        if (not paths or connection.path in paths)
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
        for task in moment.tasks:
            self._place(task)

    # Where callers wait

    def _on(self, path: str, autofs: bool) -> Connection | None:
        """The connection that a path lies on; ``autofs``: only among autofs mounts."""
        best = None
        for connection in self.moment.connections:
            if not connection.path or (connection.fstype == "autofs") != autofs:
                continue
            longer = best is None or len(connection.path) > len(best.path)
            if longer and is_on(path, connection.path):
                best = connection
        return best

    def _place(self, task: Task) -> None:
        if task.state not in "DS" or task.reads_device:
            return
        names = (*task.stack, task.wchan)
        in_fuse = task.in_fuse and not any(name.startswith(_NOTIFY) for name in names)
        waits = in_fuse or any(name.startswith((*_LOCKS, *_PAGES)) for name in names)
        if not waits and not task.in_autofs:
            return
        connection = self._on(task.path, task.in_autofs) if task.path else None
        if connection is None and in_fuse:
            # Its path is unknown: only mounts that somebody waits for are possible.
            candidates = [c for c in self.moment.connections if c.waiting or c.waiting is None]
            if len(candidates) == 1:
                connection = candidates[0]
        if connection is not None:
            self.places[task.tid] = connection.number
        elif in_fuse and (task.age is None or task.age >= self.older):
            self.unplaced.append(task)

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
        if process.state == "t" and process.tracer:
            tracer = self.processes.get(process.tracer)
            return f"stopped by its tracer, pid {process.tracer}" + (
                f" ({tracer.comm})" if tracer else ""
            )
        own = self.of.get(process.pid, ())
        if process.state in "Tt" or (own and all(task.state in "Tt" for task in own)):
            return "stopped (SIGSTOP)"
        if process.state in "ZX":
            return "a zombie: it has ended, and its parent has not noticed"
        return ""

    def edges(self, task: Task) -> list[Task | Process | Connection]:
        """What a thread waits for, if that is a thread, a process or a mount."""
        if task.reads_device or task.state not in "DS":
            return []
        if task.lock and task.lock.owner in self.tasks:
            return [self.tasks[task.lock.owner]]
        if task.tid in self.places:
            return [self.connections[self.places[task.tid]]]
        if any(name.startswith(_NOTIFY[:2]) for name in task.stack) and task.pid in self.daemons:
            return [self.connections[self.daemons[task.pid]]]
        pids = [pid for fd in task.descriptors for pid in _ends(fd)] + list(task.children)
        return [self.processes[pid] for pid in dict.fromkeys(pids) if pid in self.processes]

    def waits(self, task: Task) -> str:
        """What a thread waits for; follows its name."""
        if task.state == "R":
            return "runs on a CPU"
        if task.state in "Tt":
            return "is stopped"
        if task.state in "ZX":
            return "has ended"
        if task.reads_device:
            return "waits for its next request"
        if task.may_read_device:
            return f"waits in {task.call} for its next request, or for something else"
        if task.lock:
            owner = self.tasks.get(task.lock.owner)
            held = self.who(owner) if owner else f"thread {task.lock.owner}"
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
            if any(name.startswith((*_LOCKS, "fuse_lock_inode")) for name in names[:3]):
                return f"waits{how} for a lock of {what}, on {connection.path}"
            if any(name.startswith("fuse_get_req") for name in names):
                return f"waits{how} to send a request for {what}"
            return f"waits{how} for {what}" + (
                "" if what.startswith(connection.path) else f", on {connection.path}"
            )
        if self._waits_for_workers(task):
            return "waits for its worker threads to end"
        if task.call == "futex":
            return "waits for a condition, a semaphore or a lock that does not name its holder"
        if task.call in _TIMED:
            return f"sleeps in {task.call}"
        if task.children and task.call in ("wait4", "waitid"):
            return f"waits for its child {', '.join(map(self._process, task.children[:3]))}"
        ends = [self._end(fd) for fd in task.descriptors[:3]]
        if ends:
            more = len(task.descriptors) - 3
            rest = f" and {more} more" if more > 0 else ""
            return f"waits in {task.call or task.wchan} for {', '.join(ends)}{rest}"
        if task.path:
            return f"waits in {task.call} for {task.path}"
        return f"waits in {task.call or task.wchan or 'the kernel'}"

    @staticmethod
    def _waits_for_workers(task: Task) -> bool:
        """libfuse's main thread, which lets others work (libfuse's lib/fuse_loop_mt.c)."""
        loops = ("fuse_session_loop_mt", "fuse_loop_mt")
        return task.call == "futex" and any(name.startswith(loops) for name in task.user)

    @staticmethod
    def _in_reload(task: Task) -> bool:
        """The CernVM-FS loader's fence, at the entry of its callbacks (cvmfs/fence.h)."""
        names = [name.partition("(")[0].rpartition("::")[2] for name in task.user]
        return any(
            inner in ("SafeSleepMs", "Enter") and outer.startswith("stub_")
            for inner, outer in zip(names, names[1:])
        )

    def _process(self, pid: int) -> str:
        process = self.processes.get(pid)
        return f"{process.comm} (pid {pid})" if process else f"pid {pid}"

    def _end(self, fd: Descriptor) -> str:
        socket = fd.socket
        others = [pid for pid in _ends(fd) if pid in self.processes][:2]
        by = f" of {', '.join(map(self._process, others))}" if others else ""
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
        late = [
            task
            for task in callers
            if (task.age is None or task.age >= self.older)
            and (task.tid not in own or task.in_fuse)
        ]
        causes = self.causes(connection, late)
        state = "stuck" if causes else "busy" if callers or connection.waiting else "quiet"
        outside = [task for task in callers if task.tid not in own]
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
        return Cause("autofs", text, why.chain, why.fixes)

    def _why(self, connection: Connection, late: list[Task]) -> list[Cause]:
        autofs = connection.fstype == "autofs"
        daemon = self.processes.get(connection.daemon) if connection.daemon is not None else None
        abort = () if autofs else _abort(connection, self.moment.fusectl)
        if daemon is None:
            if not late:
                return []
            text = f"no process is known that answers {connection.path or 'it'}: {connection.why}"
            return [Cause("gone", text, fixes=abort)]
        if (text := self.state(daemon)) and (late or not autofs):
            kinds = (("frozen", "frozen"), ("tracer", "traced"), ("zombie", "gone"))
            kind = next((kind for word, kind in kinds if word in text), "stopped")
            if kind == "gone" and not late:
                return []
            others = [pid for pid in connection.holders if pid != daemon.pid]
            chain = [f"{self._process(pid)} has its /dev/fuse open, too" for pid in others]
            what = f"the daemon {daemon.comm} (pid {daemon.pid}) is {text}"
            return [Cause(kind, what, tuple(chain), (*_restart(daemon, kind), *abort))]
        if not late:
            return []
        by_key: dict[object, Cause] = {}
        counts: Counter[object] = Counter()
        threads = self.of.get(daemon.pid, [])
        oldest = max((task.age for task in late if task.age is not None), default=None)
        waits = [
            task
            for task in threads
            if not task.reads_device
            and not task.may_read_device
            and not self._waits_for_workers(task)
            and task.state not in "Tt"
        ]
        waits.sort(key=lambda task: -(task.age or 0.0))
        # A thread that waits for longer than the oldest caller does not work for any of them. Their
        # clocks may differ: a thread that seems to wait for a little longer counts if there is no
        # other.
        for most in (SKEW, TAKEN + PART_TAKEN * (oldest or 0.0)):
            for task in waits:
                if task.age is None or oldest is None or task.age <= oldest + most:
                    key, cause = self._cause(connection, daemon, task)
                    counts[key] += 1
                    if key not in by_key or _ORDER[cause.kind] < _ORDER[by_key[key].kind]:
                        by_key[key] = cause
            if by_key:
                break
        many = f" of {len(threads)} threads of {daemon.comm}"
        for key, cause in by_key.items():
            if counts[key] > 1:
                lines = (*cause.chain, f"{counts[key]}{many} end there")
                by_key[key] = replace(cause, chain=lines)
        causes = sorted(by_key.values(), key=lambda cause: _ORDER[cause.kind])
        sure = [cause for cause in causes if _ORDER[cause.kind] < _ORDER["sleep"]]
        causes = sure or causes
        if causes and causes[0].kind == "condition":
            causes = self._with_outside(connection, daemon, waits, causes)
        if autofs:
            text = f"which of the threads of {daemon.comm} should mount it cannot be known"
            return causes or [Cause("unanswered", text)]
        causes += self._general(connection, daemon, threads, late, bool(causes))
        kill = Fix(f"kill -9 {daemon.pid}", f"ends {daemon.comm}: all files on the mount fail then")
        return [
            Cause(c.kind, c.text, c.chain, c.fixes or ((*abort, kill) if not n else ()))
            for n, c in enumerate(causes)
        ]

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
            them = ", ".join(map(str, threads))
            text = f"deadlock: the threads {them} of {daemon.comm} wait for each other"
            return tuple(threads), Cause("deadlock", text, lines)
        if isinstance(last, Process):
            state = self.state(last)
            text = f"{daemon.comm} waits for {last.comm} (pid {last.pid})"
            if state:
                text = f"{last.comm} (pid {last.pid}), which {daemon.comm} waits for, is {state}"
            fixes = _restart(last, "frozen" if last.frozen else "stopped") if state else ()
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
        if task.lock:
            text = f"a {task.lock.kind} is held by {self.who(last)}, which {self.waits(last)}{age}"
            return last.tid, Cause("lock", text, lines)
        if last.pid != daemon.pid:
            text = f"{daemon.comm} waits for {self.who(last)}, which {self.waits(last)}{age}"
            return last.tid, Cause("process", text, lines)
        if last is task and self._in_reload(task):
            # Each thread sleeps 100 ms at a time; the pause is as old as the oldest caller.
            text = (
                f"{daemon.comm} is being reloaded, or was left so: the CernVM-FS loader lets no "
                "request into the file system's library until the new one is loaded"
            )
            return "reload", Cause("reload", text, lines)
        kind = "unknown"
        if last.state == "R":
            kind = "on_cpu"
        elif any(fd.socket for fd in last.descriptors):
            kind = "socket"
        elif last.call in _TIMED:
            kind = "sleep"
        elif last.call == "futex":
            kind = "condition"
        elif last.path or last.state == "D" or last.descriptors:
            kind = "file"
        return last.tid, Cause(kind, text, lines)

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
            causes = [replace(causes[0], chain=(*causes[0].chain, text)), *causes[1:]]
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
            return (stopped or following or [None])[0]
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
        threads = [
            task
            for task in self.of.get(node.pid, ())
            if task.state in "DS" and not task.reads_device and not task.may_read_device
        ]
        for task in sorted(threads, key=lambda task: task.age or 0.0):
            ends = [n for n in self.edges(task) if n is not node]
            fresh = [n for n in ends if n not in chain]
            if fresh:
                return task
        return min(threads, key=lambda task: task.age or 0.0) if len(threads) == 1 else None

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
        """Causes of the connection as a whole."""
        readers = [task for task in threads if task.reads_device]
        unsure = [task for task in threads if task.may_read_device]
        listening = unsure or [
            task for task in threads if any(fd.link.endswith("/fuse") for fd in task.descriptors)
        ]
        full = [t for t in late if any(n.startswith("fuse_get_req") for n in (*t.stack, t.wchan))]
        if full:
            most = connection.max_background
            yield Cause(
                "background",
                f"the background list is full ({most if most is not None else 'its'} requests): "
                f"{len(full)} callers cannot even send theirs",
            )
        if not readers and not listening:
            if threads:
                text = f"none of the {len(threads)} threads of {daemon.comm} reads /dev/fuse"
                yield Cause("unread", text)
        elif not known:
            count = connection.waiting
            requests = "the requests" if not count else f"all {count} requests that wait"
            more = "waits for more"
            if unsure and not readers:
                more = "waits in io_uring_enter for more, or for something else"
            yield Cause(
                "unanswered",
                f"{daemon.comm} has read {requests} and {more}: which of its threads "
                "should answer cannot be known",
            )


_ORDER = {kind: number for number, kind in enumerate(KINDS)}


def _ends(fd: Descriptor) -> tuple[int, ...]:
    return fd.socket.other if fd.socket and fd.socket.other else fd.other


def _restart(process: Process, kind: str) -> tuple[Fix, ...]:
    if kind == "frozen" and process.frozen:
        name = "freezer.state" if "/freezer/" in process.frozen else "cgroup.freeze"
        value = "THAWED" if name == "freezer.state" else "0"
        return (Fix(f"echo {value} > {process.frozen}/{name}", "lets the cgroup run again"),)
    if kind == "stopped":
        return (Fix(f"kill -CONT {process.pid}", f"lets {process.comm} run again"),)
    return ()


def _abort(connection: Connection, fusectl: str) -> tuple[Fix, ...]:
    what = "ends each request on it with an error; the mount can only be unmounted then"
    if fusectl:
        return (Fix(f"echo 1 > {fusectl}/{connection.number}/abort", what),)
    place = "/sys/fs/fuse/connections"
    command = f"mount -t fusectl fusectl {place} && echo 1 > {place}/{connection.number}/abort"
    return (Fix(command, what),)
