"""Graph of waiting at a moment: threads, processes and mounts are nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Union

from fusetools.reasons import Code, Reason, Value
from fusetools.stuck.moment import Connection, Descriptor, Moment, Place, Process, Task
from fusetools.stuck.threads import cannot_send, has_request, has_work, start_function

SKEW = 0.02  # maximum difference in seconds between the clocks of CPUs
DEEPEST = 32  # maximum length of a chain

LOCKS = ("d_alloc_parallel", "fuse_lock_inode")
PAGES = ("folio_", "__folio_", "wait_on_page", "__lock_page", "io_schedule", "wait_on_bit")
MEMORY = ("mem_cgroup", "try_charge", "charge_memcg", "__mem_cgroup")
INVALIDATES = ("fuse_notify", "fuse_reverse_inval")
_NOTIFY = (*INVALIDATES, "fuse_dev_do_write")

Node = Union[Task, Process, Connection]


def without_frozen(moment: Moment) -> Moment:
    """Return the moment without the requests that wait only until their frozen callers send them:
    the kernel counts these, too (fs/fuse/dev.c, fuse_get_req).

    Where further requests wait, what the frozen callers wait for is unknown.
    """
    frozen = {process.pid for process in moment.processes if process.frozen}
    unsent: Counter[int] = Counter()
    for task in moment.tasks:
        if task.pid in frozen and cannot_send(task):
            unsent.update([number for place in task.places for number in place.on][:1])
    connections = (
        replace(c, waiting=0) if c.waiting and c.waiting == unsent[c.number] else c
        for c in moment.connections
    )
    return replace(moment, connections=tuple(connections))


class Graph:
    """The graph of a moment. ``older``: seconds after which a caller counts as stuck."""

    def __init__(self, moment: Moment, older: float) -> None:
        self.moment = moment
        self.older = older
        self.processes = {process.pid: process for process in moment.processes}
        self.tasks = {task.tid: task for task in moment.tasks}
        self.connections = {connection.number: connection for connection in moment.connections}
        self.of: dict[int, list[Task]] = {}
        for task in moment.tasks:
            self.of.setdefault(task.pid, []).append(task)
        self.daemons: dict[int, int] = {}  # connections by their daemon
        for connection in moment.connections:
            for pid in (connection.daemon, *connection.holders):
                if pid is not None:
                    self.daemons.setdefault(pid, connection.number)
        # Connection number by thread that waits for a mount.
        self.places: dict[int, int] = {}
        self.unplaced: list[Task] = []
        # Connection number by thread that is halted in a system call on a mount, and waits for no
        # answer.
        self.halted: dict[int, int] = {}
        self._place_all()

    # Mounts that callers wait for

    def _place_all(self) -> None:
        """Find the mounts that threads wait for.

        Paths decide first. Threads whose paths tell nothing (another name of the file, a descriptor
        that is being closed) share the remaining requests: each waiting request belongs to some
        thread.
        """
        mounters = {c.mounting: c.number for c in self.moment.connections if c.mounting}
        self.places.update({tid: n for tid, n in mounters.items() if tid in self.tasks})
        others = [task for task in self.moment.tasks if task.tid not in mounters]
        unknown = [task for task in others if self._place(task)]
        left = {connection.number: connection.waiting for connection in self.moment.connections}
        for tid, number in self.places.items():
            if left[number] and has_request(self.tasks[tid]):
                left[number] = max((left[number] or 0) - 1, 0)
        for task in unknown:
            # A page fault, too, waits because of a request, which is no other caller's.
            own = has_request(task) or any(n.startswith(PAGES) for n in (*task.stack, task.wchan))
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
        """Return whether a thread waits for a FUSE mount that its paths do not show."""
        names = (*task.stack, task.wchan)
        notifies = any(name.startswith(_NOTIFY) for name in names)
        if self._is_halted(task):
            on_mounts = [n for place in task.places for n in place.on if self._is_fuse(n)]
            self.halted.update((task.tid, number) for number in on_mounts[:1])
            return False
        if task.state not in "DS" or task.reads_device or notifies:
            return False
        if task.holders:  # it waits for a lock that the kernel keeps, not for a request
            on_mounts = [n for place in task.places for n in place.on if self._is_fuse(n)]
            self.places.update((task.tid, number) for number in on_mounts[:1])
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

    def _is_halted(self, task: Task) -> bool:
        """Return whether a thread does not run for another reason than a request.

        The kernel may freeze a thread that waits for an answer or until it may send (cgroup v1): no
        request is left once it has the answer, or may send.
        """
        process = self.processes.get(task.pid)
        on_mounts = [n for place in task.places for n in place.on if self._is_fuse(n)]
        answered = [self.connections[number].waiting for number in on_mounts[:1]] == [0]
        frozen = process is not None and bool(process.frozen)
        ended = has_request(task) or bool(cannot_send(task))
        return task.is_halted or (frozen and answered and ended)

    def _is_fuse(self, number: int) -> bool:
        connection = self.connections.get(number)
        return connection is not None and connection.fstype != "autofs"

    @staticmethod
    def _waits_in_kernel(task: Task) -> bool:
        """Return whether a thread may wait for a page or a lock of a file.

        The kernel does not show the functions that take file locks (``__sched``), only that the
        thread cannot be interrupted.
        """
        names = (*task.stack, task.wchan)
        return any(name.startswith((*LOCKS, *PAGES)) for name in names) or (
            task.state == "D" and not any(name.startswith(MEMORY) for name in names)
        )

    def _on(self, place: Place, autofs: bool) -> int | None:
        """Return the connection for which a thread waits on its way to a path: one that has
        requests, or an autofs mount.

        Return None if there are two, one above the other.
        """
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
        """Return whether any thread waits for a mount."""
        return number in self.places.values()

    def callers(self, number: int) -> list[Task]:
        """Return the threads that wait for a mount, the oldest first."""
        tasks = [self.tasks[tid] for tid, place in self.places.items() if place == number]
        return sorted(tasks, key=lambda task: (-(task.age or 0.0), task.tid))

    def unsent(self, connection: Connection, late: list[Task]) -> int | None:
        """Return the minimum number of requests in the background list.

        The kernel sends up to max_background requests that no caller waits for, and counts the
        others as waiting, too (fuse_request_queue_background). Return None if unknown: requests
        come and go, or their callers are invisible.
        """
        most, waiting = connection.max_background, connection.waiting
        if most is None or waiting is None:
            return 0
        callers = self.callers(connection.number)
        own = [
            task
            for task in (*callers, *self.unplaced)
            if has_request(task) or cannot_send(task) or not (task.stack or task.wchan)
        ]
        more = max(waiting - len(own) - most, 0)
        seen = self.moment.root and not self.moment.pid_namespace
        sure = seen and all(task in late for task in callers)
        return more if sure or not more else None

    # Names

    def named(self, pid: int) -> str:
        """Return the name and the number of a process."""
        process = self.processes.get(pid)
        return f"{process.comm} (pid {pid})" if process else f"pid {pid}"

    def who(self, task: Task) -> str:
        """Return the name of a thread's process, its number and its start function."""
        start = start_function(task)
        thread = f"thread {task.tid}" if task.tid != task.pid else f"pid {task.pid}"
        return f"{self.comm(task)} ({thread}{f', {start}' if start else ''})"

    def comm(self, task: Task) -> str:
        process = self.processes.get(task.pid)
        return process.comm if process else task.comm

    # Reasons why a process does not run, and objects that a thread waits for

    def halt(self, process: Process) -> Reason | None:
        """Return the reason why a whole process does not run; None if it runs."""
        if process.frozen:
            return Reason(Code.HALT_FROZEN, {"group": " and ".join(process.frozen)})
        own = self.of.get(process.pid, ())
        left = [task for task in own if task.state not in "ZX"]
        if left and all(task.killed or task.exits for task in left):
            last = max(left, key=lambda task: (task.state == "D", task.tid))
            subject: dict[str, Value] = {"thread": last.tid, "call": _last(last)}
            return Reason(Code.HALT_KILLED, subject, {"threads": len(left)})
        halted = all(task.state in "TtDZX" for task in own)
        if process.state == "t" and process.tracer and halted:
            return Reason(Code.HALT_TRACED, {"tracer": self.named(process.tracer)})
        if (process.state == "T" and halted) or (own and all(task.state in "Tt" for task in own)):
            return Reason(Code.HALT_STOPPED)
        return Reason(Code.HALT_ZOMBIE) if process.state in "ZX" else None

    def halt_of(self, task: Task) -> Reason:
        """Return the reason why a halted thread does not run."""
        process = self.processes.get(task.pid)
        if task.state not in "Tt" or (process and process.frozen):
            groups = process.frozen or (process.cgroup,) if process else ()
            return Reason(Code.HALT_FROZEN, {"group": " and ".join(groups)})
        if task.tracer:
            return Reason(Code.HALT_TRACED, {"tracer": self.named(task.tracer)})
        return Reason(Code.HALT_STOPPED)

    def edges(self, task: Task) -> list[Node]:
        """Return the thread, process or mount that a thread waits for, if any."""
        if task.reads_device or task.state not in "DS":
            return []
        if task.lock and not task.lock.gone and task.lock.owner in self.tasks:
            return [self.tasks[task.lock.owner]]
        if task.tid in self.places and not task.holders:
            return [self.connections[self.places[task.tid]]]
        if any(name.startswith(INVALIDATES) for name in task.stack) and task.pid in self.daemons:
            return [self.connections[self.daemons[task.pid]]]
        pids = [pid for fd in task.descriptors for pid in ends(fd)]
        # A lock of its own process is one that a daemon holds for a caller: no circle.
        pids += [*task.children, *(pid for pid in task.holders if pid != task.pid)]
        return [self.processes[pid] for pid in dict.fromkeys(pids) if pid in self.processes]

    def follow(self, task: Task) -> tuple[list[Node], list[Node]]:
        """Return the chain that starts at a thread, and the circle that ends it (empty if none)."""
        chain: list[Node] = [task]
        while len(chain) < DEEPEST:
            following = self._next(chain[-1], chain)
            if following is None:
                return chain, []
            if following in chain:
                at = chain.index(following)
                return (chain, chain[at:]) if _blocks(chain[at:]) else (chain[: at + 1], [])
            at = _last_of(chain, following.pid) if isinstance(following, Process) else -1
            if at >= 0 and not _blocks(chain[at:]):
                return chain, []
            chain.append(following)
        return chain, []

    def _next(self, node: Node, chain: list[Node]) -> Node | None:
        if isinstance(node, Task):
            following = self.edges(node)
            halted = [n for n in following if isinstance(n, Process) and self.halt(n)]
            # Several holders: any of them may be the cause. An event loop waits for one of several
            # descriptors, so its next node is unknown.
            sure = len(following) == 1 and (all(map(ends, node.descriptors)) or not node.polls)
            return halted[0] if halted else following[0] if sure else None
        if isinstance(node, Connection):
            pid = node.daemon
            process = self.processes.get(pid) if pid is not None else None
            first = chain[0]
            if process and isinstance(first, Task) and first.pid == process.pid:
                return first  # back at the daemon whose thread began
            return process
        # Continue at the process's thread that began to wait last and leads further; idle threads
        # wait longer.
        if self.halt(node):
            return None
        threads = [task for task in self.of.get(node.pid, ()) if has_work(task)]
        for task in sorted(threads, key=lambda task: task.age or 0.0):
            if any(n is not node and n not in chain for n in self._onward(task, chain)):
                return task
        if len(threads) == 1:
            return threads[0]
        # A thread that works for the previous one has not waited for longer.
        since = next((n.age for n in reversed(chain) if isinstance(n, Task)), None)
        recent = [t for t in threads if t.age is None or since is None or t.age <= since + SKEW]
        return recent[0] if len(recent) == 1 else None

    def _onward(self, task: Task, chain: list[Node]) -> list[Node]:
        """Return what a thread waits for, without those on the chain whose requests it awaits."""
        nodes = self.edges(task)
        if not task.takes_data:
            return nodes
        return [n for n in nodes if not isinstance(n, Process) or _last_of(chain, n.pid) < 0]

    def above(self, pid: int) -> list[int]:
        """Return a process and its known ancestors."""
        found: list[int] = []
        while (process := self.processes.get(pid)) and pid not in found:
            found.append(pid)
            pid = process.ppid
        return found

    def threads(self, pids: Iterator[int] | tuple[int, ...]) -> list[Task]:
        """Return the threads of these processes."""
        return [task for pid in pids for task in self.of.get(pid, ())]


def _last(task: Task) -> str:
    """Return the kernel function in which a thread sleeps."""
    return next((name for name in (*task.stack, task.wchan) if name), "")


def _last_of(chain: list[Node], pid: int) -> int:
    """Return the index of a process's last thread on a chain, -1 if there is none."""
    own = [n for n, node in enumerate(chain) if isinstance(node, Task) and node.pid == pid]
    return own[-1] if own else -1


def _blocks(circle: list[Node]) -> bool:
    """Return whether a circle is a deadlock.

    Programs that talk to each other, and of which each waits until the other one sends something,
    are idle.
    """
    return not all(node.takes_data for node in circle if isinstance(node, Task))


def ends(fd: Descriptor) -> tuple[int, ...]:
    """Return the processes at the other end of a pipe or a socket, or those that a pidfd refers
    to."""
    return fd.socket.other if fd.socket and fd.socket.other else fd.other
