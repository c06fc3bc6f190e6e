"""Reads a moment of this host. Never touches a mount, stops no thread, leaves nothing behind.

A child with a time limit reads files that may block: a process's memory and command line while a
page fault on a hung mount locks its memory map, and all files of a process that is in execve.
Sources: proc(5), Documentation/filesystems/proc.rst and fuse/fuse.rst, fs/fuse/control.c.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Optional, TypeVar

from fusetools.figures import plural
from fusetools.host import cgroup
from fusetools.host.facts import VIRTIOFS
from fusetools.host.files import Files
from fusetools.host.fusectl import counter, fusectl
from fusetools.host.limits import request_timeout
from fusetools.host.mounts import (
    BEYOND,
    covered,
    named_mounts,
    parse_autofs,
    parse_mountinfo,
)
from fusetools.host.owners import users as users_of
from fusetools.host.processes import could_serve, in_pid_namespace, shows_connections
from fusetools.stuck import arguments, cgroups, children, sockets, syscalls, talk, taskstats
from fusetools.stuck.bounded import BUSY, Asker, Limit, each
from fusetools.stuck.census import Census, by_suspicion
from fusetools.stuck.moment import (
    AUTOFS,
    Connection,
    Descriptor,
    Lock,
    Moment,
    Mounter,
    Mounting,
    Place,
    Process,
    Task,
    is_32bit,
)
from fusetools.stuck.own import own_processes
from fusetools.stuck.places import Table
from fusetools.stuck.threads import in_callback

LIMIT = 1.8  # limit in seconds for everything, without waits for a CPU
PATIENCE = 0.25  # limit for one process or thread
# Share of the limit at which each step after the census ends.
MOUNTS, TASKS, CALLS = 0.65, 0.85, 0.95
AGAIN = 0.2  # seconds until a second look at a thread
# Seconds that requests get to end, if callers wait for so long, or may not have been examined
SETTLES, LATE = 0.5, 0.2
MOST_THREADS = 4096  # threads that are examined closely
MOST_AWAKE = 16  # daemons' threads that are examined several times
MOST_MOUNTERS = 32  # processes that are about to serve a mount
MOST_CLIENTS = 8  # CernVM-FS clients that are asked
CLIENTS = 0.5  # limit in seconds for all of them
MOST_STACKS = 128  # mappings of a process
MOST_USERS = 3  # threads and processes that are named in place of those that could not be examined

T = TypeVar("T")
R = TypeVar("R")


# A thread, its system call if known, and the call's arguments.
_Called = tuple[Task, Optional[syscalls.Call], list[int]]


class _View(NamedTuple):
    """The view of a process: its mount namespace and root directory."""

    namespace: str
    root: str


def read(limit: float = LIMIT, asked: Iterable[str] = ()) -> Moment:
    """Read this moment of this host. ``asked``: mount points that may not be mounted yet."""
    return _Reader(limit, asked).moment()


class _Reader(Asker):
    def __init__(self, limit: float, asked: Iterable[str] = ()) -> None:
        super().__init__(limit, PATIENCE)
        self.asked = frozenset(asked)
        self.begin = time.monotonic()
        self.dated = 0.0  # the time to which ages of daemons and callers refer
        self.switches: dict[int, int] = {}  # numbers of switches of the threads then
        self.hidden: list[int] = []  # threads that may wait but were not examined closely
        self.near: set[int] = set()  # processes with informative threads: daemons
        self.unread = 0  # mount namespaces
        self.kernel: set[int] = set()  # the kernel's own threads
        self.notes: list[str] = []
        self.machine = os.uname().machine
        self.own = _View(children.link("/proc/self/ns/mnt"), children.link("/proc/self/root"))
        self.mountinfo = children.text("/proc/self/mountinfo", 16 << 20)
        self.host = Table(self.mountinfo, file_of=_file_of)
        self.tables: dict[_View, Table] = {self.own: self.host}
        self.views: dict[int, _View] = {}
        self.children: dict[int, list[int]] = {}  # descriptors of each process
        self.known: set[int] = set()  # numbers of FUSE connections and autofs mounts
        self.fuse: set[int] = set()  # numbers of FUSE connections
        self.points: list[str] = []  # mount points of both that are visible here

    def moment(self) -> Moment:
        with fusectl() as (place, directory):
            # Read waiting requests first: they decide what must be examined, whatever other
            # users do.
            listed = {} if directory is None else _listed(directory)
            pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
            others = [pid for pid in pids if pid != os.getpid()]
            census = Census(self, others)
            rows = census.rows
            self.kernel = census.kernel
            self.views = {
                pid: _View(row["mnt"], row["root"]) for pid, row in rows.items() if row["mnt"]
            }
            for row in rows.values():
                self.children.setdefault(row["ppid"], []).append(row["pid"])
            census.look_closer(parse_mountinfo(self.mountinfo), listed)
            mounts = self._mounts(census)
            if directory is not None:
                mounts += _unmounted(listed, {mount.number for mount in mounts})
                mounts = [_counted(mount, directory) for mount in mounts]
            moment = self._examined(census, mounts)
            if directory is not None and moment.partial:
                moment = self._settled(moment, directory)
        moment = self._served(moment)
        return replace(
            moment,
            fusectl=place,
            counted=directory is not None,
            seconds=time.monotonic() - self.begin,
        )

    def _examined(self, census: Census, mounts: list[Connection]) -> Moment:
        """Return the moment, with close looks at daemons' threads and at threads that may wait for
        a mount."""
        processes = self._processes(census)
        named = _named(mounts, processes)
        connections = [_with_daemon(mount, processes, named, census.unasked) for mount in mounts]
        if census.unasked:
            connections = [replace(c, late=c.hidden) for c in connections]
        self.fuse = {connection.number for connection in connections}
        rows = [row for own in census.threads.values() for row in own]
        if any(wchan.startswith(AUTOFS) for _, _, wchan in rows):
            connections += self._autofs(processes)
        self.known = {connection.number for connection in connections}
        ours = [c for c in connections if c.path and c.seen_by is None]
        self.points = [path for c in ours for path in (c.path, *c.also)]
        holders = {pid for connection in connections for pid in connection.holders}
        own = own_processes(census.rows.values())
        mounting = self._mounters(census, processes, connections, own)
        near = _family((holders - {1}) | mounting.keys(), self.children) | (holders & {1})
        self.near = near - self.kernel
        of = {tid: pid for pid, process in processes.items() for tid in process.threads}
        suspects = {tid for tid, state, _ in rows if state not in "Tt"}
        wanted = by_suspicion(census.threads, near, processes)
        if len(wanted) > MOST_THREADS:
            self.notes.append(f"only {MOST_THREADS:,} of {len(wanted):,} threads were examined")
            self.hidden += [tid for _, tid in wanted[MOST_THREADS:]]
            wanted = wanted[:MOST_THREADS]
        tasks = self._stacks(self._tasks(wanted, processes), near)
        # They may wait for a process that has not been examined yet.
        seen = {task.tid for task in tasks}
        further = [
            (pid, tid)
            for pid in _family(_waited_for(tasks, of) - near, self.children)
            if pid in processes
            for tid in processes[pid].threads
            if tid not in seen
        ]
        tasks += self._stacks(self._tasks(further[:MOST_THREADS], processes), near)
        tasks = self._faults([_with_lock(task, of) for task in tasks])
        tasks = self._openers(tasks)
        connections = [_with_servers(c, processes, tasks) for c in connections]
        connections = [_mounted_by(c, connections, tasks) for c in connections]
        connections = self._dead(connections, census)
        self._date({pid for c in connections if c.waiting for pid in c.servers}, processes)
        interesting = near | {pid for task in tasks for pid in (task.pid, task.tracer)}
        interesting |= {pid for task in tasks for pid in task.openers}
        interesting |= {process.tracer for process in processes.values()}
        hidden = suspects.intersection(self.hidden)
        names = users()
        owners = census.owners([*dict.fromkeys(census.unseen), *hidden])
        whose = sorted(owners.items(), key=lambda pair: -pair[1])[:MOST_USERS]
        return Moment(
            kernel=os.uname().release,
            connections=tuple(_with_clients(connections, processes)),
            processes=self._with_cgroups(processes, near, interesting),
            tasks=tuple(tasks),
            silent=tuple(dict.fromkeys(self.silent)),
            root=os.geteuid() == 0,
            pid_namespace=in_pid_namespace(Files(Path("/"))),
            notes=tuple(dict.fromkeys(self.notes)),
            unseen=tuple(dict.fromkeys(census.unseen)),
            hidden=tuple(sorted(hidden)),
            whose=tuple((names.get(uid, str(uid)), count) for uid, count in whose),
            unread=self.unread,
            autofs=bool(parse_autofs(self.mountinfo)),
            own=own,
            timeout=request_timeout(Files(Path("/"))),
            mounting=tuple(mounting.values()),
        )

    def _settled(self, moment: Moment, directory: int) -> Moment:
        """Return the moment, with the connections marked that had no request for a moment
        meanwhile.

        None of the requests of such a connection waits for long.
        """
        left = {c.number for c in moment.connections if c.waiting}
        gone: set[int] = set()
        end = time.monotonic() + SETTLES
        while left - gone and time.monotonic() < end:
            gone |= {n for n in left - gone if counter(directory, n, "waiting") in (0, None)}
            time.sleep(0.02)
        return replace(
            moment,
            connections=tuple(
                replace(c, settled=True) if c.number in gone else c for c in moment.connections
            ),
        )

    def _served(self, moment: Moment) -> Moment:
        """Return the moment, with the callers marked that got an answer within SETTLES.

        A caller sleeps until its request is answered, so one that has run again has its answer.
        """
        late = [
            (task.pid, task.tid)
            for task in moment.tasks
            if task.in_fuse and not task.in_lock and (task.age is None or task.age >= LATE)
        ]
        if not late:
            return moment
        time.sleep(max(self.dated + SETTLES - time.monotonic(), 0.0))
        rows = each(late, children.task, PATIENCE, Limit(SETTLES))
        found = {tid: row[2] for (_, tid), row in rows if row}
        ran = (
            tid for tid, row in found.items() if not row or row["switches"] != self.switches[tid]
        )
        return replace(moment, served=frozenset(ran))

    def _with_cgroups(
        self, processes: dict[int, Process], near: set[int], interesting: set[int]
    ) -> tuple[Process, ...]:
        """Return these processes with the restrictions of their cgroups: a cgroup may lie deep."""
        mounted = cgroups.hierarchies()
        wanted = [
            processes[pid]
            for pid in sorted(interesting, key=lambda pid: pid not in near)
            if pid in processes
        ]
        texts = list(dict.fromkeys(process.cgroup for process in wanted))
        known = dict(self.each(texts, lambda text: (text, cgroups.about(text, mounted))))
        return tuple(
            replace(process, **known.get(process.cgroup) or {"cgroup": cgroup.name(process.cgroup)})
            for process in wanted
        )

    def _processes(self, census: Census) -> dict[int, Process]:
        names, closer = users(), census.closer
        # Only an old kernel does not show the connections.
        unknown = [pid for pid, row in closer.items() if any(n is None for _, n in row["fuse"])]
        commands = dict(self.each(unknown, children.arguments, MOUNTS))
        processes = {}
        now, ticks = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
        now -= time.monotonic() - self.begin
        for pid, row in census.rows.items():
            more = closer.get(pid)
            uid = more["uid"] if more else None
            uid = row["owner"] if uid is None else uid
            processes[pid] = Process(
                pid=pid,
                ppid=row["ppid"],
                comm=row["comm"],
                state=row["state"],
                uid=uid,
                user="" if uid is None else names.get(uid, str(uid)),
                cgroup=more["cgroup"] if more else "",
                tracer=more["tracer"] if more else 0,
                since=max(now - row["start"] / ticks, 0.0),
                ran=row["ran"] / ticks,
                fuse=tuple(number for _, number in more["fuse"]) if more else (),
                threads=tuple(row["threads"]),
                arguments=tuple(commands.get(pid, ())),
            )
        return processes

    def _autofs(self, processes: dict[int, Process]) -> list[Connection]:
        """Return the autofs mounts of our mount namespace, and their mounters (automount or
        systemd)."""
        connections = {}
        for number, path, group in parse_autofs(self.mountinfo):
            holders = (group,) if group in processes else ()
            why = "" if holders else f"process {group}, which mounted it, has ended"
            connections[number] = Connection(
                number,
                path,
                "autofs",
                "autofs",
                daemon=group if holders else None,
                holders=holders,
                why=why,
            )
        return list(connections.values())

    def _mounts(self, census: Census) -> list[Connection]:
        """Return each FUSE connection once.

        Connections of our own mount namespace come first, then those that daemons and callers see:
        the tables of other namespaces may be many and large.
        """
        first = census.in_fuse | {pid for pid, row in census.closer.items() if row["fuse"]}
        namespaces = {self.own.namespace: os.getpid()}
        for row in sorted(census.rows.values(), key=lambda row: row["pid"] not in first):
            if row["mnt"]:
                namespaces.setdefault(row["mnt"], row["pid"])
        own = (self.own.namespace, os.getpid(), children.only_fuse(self.mountinfo))
        others = list(namespaces.items())[1:]
        tables = [own, *self.each(others, children.of_fuse, MOUNTS)]
        self.unread = len(namespaces) - len(tables)
        connections: dict[int, Connection] = {}
        also: dict[int, list[str]] = {}
        for name, pid, text in tables:
            below = covered(self.mountinfo if name == self.own.namespace else text)
            for mount in parse_mountinfo(text):
                known = connections.setdefault(
                    mount.connection,
                    Connection(
                        number=mount.connection,
                        path=mount.path,
                        fstype=mount.fstype,
                        source=mount.source,
                        seen_by=None if name == self.own.namespace else pid,
                        user=mount.user,
                        covered=mount.connection in below,
                    ),
                )
                if mount.path != known.path and known.seen_by == (
                    None if name == self.own.namespace else pid
                ):
                    also.setdefault(mount.connection, []).append(mount.path)
        return [
            replace(known, also=tuple(dict.fromkeys(also.get(number, ()))))
            for number, known in connections.items()
        ]

    def _tasks(
        self, wanted: Sequence[tuple[int, int]], processes: dict[int, Process]
    ) -> list[Task]:
        tasks: list[_Called] = []
        undated: dict[int, int] = {}
        self.dated = self.dated or time.monotonic()  # all ages refer to the first looks
        rows = [
            (pid, tid, row)
            for pid, tid, row in self.each(wanted, children.task, TASKS, self.hidden)
            if row and pid in processes
        ]
        awake = [
            (pid, tid)
            for pid, tid, row in rows
            if pid in self.near and row["state"] in "RS" and not children.sleeps(row)
        ]
        limit, patience = self.limit.part(CALLS), BUSY * children.AWAKE + PATIENCE
        looks = each(awake[:MOST_AWAKE], children.task_asleep, patience, limit)
        again = {tid: found[2] for (_, tid), found in looks if found}
        rows = [(pid, tid, again.get(tid) or row) for pid, tid, row in rows]
        cpus = sorted({str(row["cpu"]) for _, _, row in rows if row["ran"]})
        clocks = {
            cpu: clock - (at - self.dated) * 1e3
            for cpu, at, clock in self.each(cpus, children.clock, CALLS)
        }
        for pid, tid, row in rows:
            self.switches[tid] = row["switches"]
            number, values, sp, pc = row["syscall"]
            if pid in self.kernel:
                number = None
            known = None
            # io_uring's workers have the numbers of their process, and no stack.
            if number is not None and number >= 0:
                known = syscalls.call(self.machine, number, is_32bit(sp or 0, pc or 0))
            age = None
            if row["ran"] and row["cpu"] in clocks:
                age = max((clocks[row["cpu"]] - row["ran"]) / 1e3, 0.0)
            task = Task(
                pid=pid,
                tid=tid,
                comm=row["comm"],
                state=row["state"],
                wchan=row["wchan"],
                stack=tuple(row["stack"]),
                call=known.name if known else "",
                age=age,
                sp=sp or 0,
                pc=pc or 0,
                tracer=row["tracer"],
                killed=row["killed"],
            )
            if task.exits:
                task = replace(task, call="exit")
            tasks.append((task, known, values))
            if not row["ran"]:
                undated[tid] = row["switches"]
        tasks = self._dated(tasks, undated)
        return self._peers(self._locked(self._arguments(tasks, processes)))

    def _dated(self, tasks: list[_Called], undated: dict[int, int]) -> list[_Called]:
        """Some callers have no stamp: those that were moved to another CPU while they went to
        sleep, and all callers if the kernel shows no stamps (CONFIG_SCHED_DEBUG). A caller that has
        run again a moment later waits for no longer than that moment."""
        wanted = [
            (task.pid, task.tid) for task, *_ in tasks if task.tid in undated and task.in_fuse
        ]
        if not wanted:
            return tasks
        time.sleep(AGAIN)
        ran = {
            tid
            for _, tid, row in self.each(wanted, children.task, CALLS)
            if not row or row["switches"] != undated[tid]
        }
        return [
            (replace(task, age=0.0) if task.tid in ran else task, call, values)
            for task, call, values in tasks
        ]

    def _arguments(
        self,
        tasks: list[_Called],
        processes: dict[int, Process],
    ) -> list[Task]:
        """Return the tasks with paths, descriptors, locks and children from their system calls'
        arguments."""
        by_tid = {task.tid: task for task, _, _ in tasks}
        calls = {task.tid: (call, values) for task, call, values in tasks}
        waiting = [(task.pid, task.tid) for task, call, _ in tasks if call and task.state in "SDTt"]

        def details(item: tuple[int, int]) -> tuple[int, arguments.Details]:
            pid, tid = item
            call, values = calls[tid]
            assert call is not None
            below = tuple(self.children.get(pid, ()))
            threads = processes[pid].threads
            return tid, arguments.details(by_tid[tid], call, values, threads, below)

        rows = self.each(waiting, details, CALLS, self.hidden)
        self._load({by_tid[tid].pid for tid, row in rows if row["places"]})
        for tid, row in rows:
            task = by_tid[tid]
            below = tuple(self.children.get(task.pid, ()))
            by_tid[tid] = replace(
                task,
                places=tuple(self._place(task.pid, place) for place in row["places"]),
                descriptors=tuple(
                    Descriptor(number, link, other=(pid,) if pid > 0 else ())
                    for number, link, pid in row["descriptors"]
                ),
                lock=Lock(**row["lock"]) if row["lock"] else None,
                connects=row["connects"],
                locks=row["locks"],
                mounts=self._mounting_of(task, row),
                children=below if row["child"] < 0 else (row["child"],) if row["child"] else (),
            )
        return [self._of_kernel(task) for task in by_tid.values()]

    def _mounting_of(self, task: Task, row: arguments.Details) -> Mounting | None:
        if not row["mounts"] or not task.in_fuse:
            return None
        path = self._place(task.pid, row["places"][0]).path if row["places"] else ""
        return Mounting(path, **row["mounts"])

    def _load(self, pids: set[int]) -> None:
        """Read the tables of mounts that these processes see."""
        views = {self.views[pid]: pid for pid in pids if pid in self.views}
        wanted = [(pid, pid) for view, pid in views.items() if view not in self.tables]
        for _, pid, text in self.each(wanted, children.mountinfo, CALLS):
            self.tables[self.views[pid]] = Table(text, self.host, _file_of)

    def _place(self, pid: int, place: arguments.PlaceRow) -> Place:
        view = self.views.get(pid, self.own)
        own = self.tables.get(view, self.host)
        # The file's name in our namespace, below our root, is a link.
        ours = self.host if view.namespace == self.own.namespace else own
        path = place["path"]
        if place["mount"]:
            devices = own.of_file(place["mount"], path) or ours.of_file(place["mount"], path) or []
        elif place["rooted"]:
            devices = own.along(path)
        else:  # relative to the working directory
            devices = ours.along(path, inside=True)
        return Place(path, tuple(number for number in devices if number in self.known))

    def _faults(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks with the paths of page faults.

        Do this last, as a list of mappings may be locked.
        """
        faults = [(task.pid, task.tid) for task in tasks if task.in_fault]
        places = {
            tid: self._mapped(files)
            for tid, files in self.each(faults, _mapped, unknown=self.hidden)
        }
        return [replace(task, places=places.get(task.tid, task.places)) for task in tasks]

    def _mapped(self, files: list[tuple[int, str]]) -> tuple[Place, ...]:
        """Return the path of a page fault: a file on a FUSE connection, if there is only one."""
        paths: dict[int, list[str]] = {}
        for device, path in files:
            if device in self.fuse:
                paths.setdefault(device, []).append(path)
        return tuple(
            Place(names[0] if len(names) == 1 else "", (device,)) for device, names in paths.items()
        )

    def _of_kernel(self, task: Task) -> Task:
        """Return the task of a kernel thread with its mount.

        The name of a kernel thread tells if it writes a file system back or serves a loop device.
        """
        match = _WORKER.fullmatch(task.comm)
        if not match or task.pid not in self.kernel:
            return task
        if match["loop"]:
            path = _file_of(match["loop"])
            return replace(
                task, places=(self._place(0, {"path": path, "mount": 0, "rooted": False}),)
            )
        return replace(task, places=(Place("", (int(match[1]) << 20 | int(match[2]),)),))

    def _locked(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks with the holders of the file locks that they wait for."""
        if not any(task.call in ("flock", "fcntl") for task in tasks):
            return tasks
        found = self.each(["/proc/locks"], arguments.waiting_for_locks, CALLS)
        holders = {pid: tuple(others) for rows in found for pid, others in rows}
        return [
            replace(task, holders=holders.get(task.pid, ()))
            if task.call in ("flock", "fcntl")
            else task
            for task in tasks
        ]

    def _dead(self, connections: list[Connection], census: Census) -> list[Connection]:
        """Return the connections with the aborted ones marked: no request waits there."""
        items = {
            connection.number: (number, pid)
            for connection in connections
            if not connection.waiting and connection.fstype not in ("autofs", VIRTIOFS)
            for pid in connection.servers
            for number, of in (census.closer[pid]["fuse"] if pid in census.closer else ())
            if of == connection.number
        }
        dead = {pid for rows in self.each(items.values(), children.aborted) for pid in rows}
        return [
            replace(c, dead=c.number in items and items[c.number][1] in dead) for c in connections
        ]

    def _mounters(
        self,
        census: Census,
        processes: dict[int, Process],
        connections: list[Connection],
        own: frozenset[int],
    ) -> dict[int, Mounter]:
        """Return the processes that mount something without a connection yet; of nested ones the
        outermost.

        The mount point is an argument of the mount helper (mount(8): mount.TYPE SOURCE DIRECTORY
        …).
        """
        serving = _connected(processes)
        found = _mounting(census, processes, self.children, serving)
        commands = dict(self.each(list(found), children.arguments))
        mounters = {
            pid: Mounter(pid, _target(commands.get(pid, []), comm), _sign(comm))
            for pid, comm in found.items()
        }
        # A process with a thread in state D may not answer: its memory map may be locked.
        waits = census.threads.items()
        blocked = {pid for pid, rows in waits for _, state, _ in rows if state == "D"}
        parents = {child: pid for pid, inner in self.children.items() for child in inner}
        skipped = {
            *_family(found, self.children),
            *blocked,
            *census.in_fuse,
            *self.kernel,
            *own,
            os.getppid(),
            *_above(os.getppid(), parents),
        }
        items = [(self.asked, pid) for pid in processes if pid not in skipped]
        mounts = [c for c in connections if c.fstype != "autofs"]
        mounted = {path for c in mounts for path in (c.path, *c.also)}
        for _, rows in each(items, children.mounter, PATIENCE, self.limit.part(MOUNTS)):
            for pid, path, sign in rows or ():
                if path not in mounted and serving.isdisjoint(_family([pid], self.children)):
                    mounters[pid] = Mounter(pid, path, sign)
        outer = _outermost(mounters, self.children)
        return {pid: mounters[pid] for pid in outer[:MOST_MOUNTERS]}

    def _date(self, pids: set[int], processes: dict[int, Process]) -> None:
        """Note when these processes began, to the microsecond if the kernel reports it."""
        later = self.dated - self.begin
        for pid in pids & processes.keys():
            since = processes[pid].since
            processes[pid] = replace(processes[pid], since=None if since is None else since + later)
        for rows in self.each([sorted(pids)] if pids else [], taskstats.began):
            for pid, start in rows:
                processes[pid] = replace(processes[pid], since=max(self.dated - start, 0.0))

    def _openers(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks with the possible holders of locks that only a FUSE daemon knows.

        Possible holders are other processes that have the file open, by any descriptor.
        """
        waiters = {task.tid: task.descriptors[0].link for task in tasks if _of_daemon(task)}
        held = self._holders(set(waiters.values()))
        waiting: dict[str, set[int]] = {}
        for task in tasks:
            if task.tid in waiters:
                waiting.setdefault(waiters[task.tid], set()).add(task.pid)
        parents = {child: pid for pid, own in self.children.items() for child in own}

        def with_openers(task: Task) -> Task:
            link = waiters[task.tid]
            having = held.get(link, {})
            # A file that a parent has opened is the same open file for its children: they share its
            # flock locks. A process that waits for the lock does not hold it.
            same = {pid for one in waiting[link] for pid in (one, *_above(one, parents))}
            others = having.keys() - same
            if task.call == "flock":
                others = {pid for pid in others if others.isdisjoint(_above(pid, parents))}
            alike = len((waiting[link] & having.keys()) - {task.pid})
            again = len(having.get(task.pid, "").split()) > 1
            return replace(task, openers=tuple(sorted(others)), alike=alike, again=again)

        return [with_openers(task) if task.tid in waiters else task for task in tasks]

    def _stacks(self, tasks: list[Task], near: set[int]) -> list[Task]:
        """Return the tasks with user stacks of daemons' threads, except those that wait for
        requests."""
        if self.machine != "x86_64":
            return tasks
        by_pid: dict[int, list[Task]] = {}
        for task in tasks:
            wanted = task.pid in near and task.state in "DS" and task.sp and not task.is_32bit
            if (
                wanted
                and not task.reads_device
                and len(by_pid.setdefault(task.pid, [])) < MOST_STACKS
            ):
                by_pid[task.pid].append(task)
        stacks = {}
        self._load(set(by_pid))
        for process in by_pid:  # one child for each thread: it drops its rights

            def stacks_of(
                pid: int, tasks: list[Task] = by_pid[process]
            ) -> list[tuple[int, list[str], bool]]:
                return children.user_stacks(pid, tasks, self._hangs(pid), self.points)

            for rows in self.each([process], stacks_of):
                stacks.update({tid: (tuple(names), whole) for tid, names, whole in rows})
        return [
            replace(task, user=stacks[task.tid][0], user_whole=stacks[task.tid][1])
            if task.tid in stacks
            else task
            for task in tasks
        ]

    def _hangs(self, pid: int) -> Callable[[int, str], bool]:
        """Return whether a mapped file (its device, its path) lies on a FUSE mount, or on an
        overlay of one.

        The kernel shows the device of either file system (Linux 6.8).
        """
        view = self.views.get(pid, self.own)
        ours = view.namespace == self.own.namespace
        table = self.host if ours else self.tables.get(view, self.host)
        known = dict.fromkeys(self.fuse, True)

        def hangs(device: int, path: str) -> bool:
            if device not in known:
                known[device] = not self.fuse.isdisjoint(table.along(path))
            return known[device]

        return hangs

    def _holders(self, links: set[str]) -> dict[str, dict[int, str]]:
        """Return the processes that have these links of descriptors open, and how: "r", "w" or "rw"
        for each descriptor."""
        holders: dict[str, dict[int, str]] = {}
        wanted = frozenset(links)
        pids = (int(name) for name in os.listdir("/proc") if name.isdecimal() and links)
        left = [((0, wanted), pid) for pid in pids]
        while left:  # examine some descriptors of each process at a time
            answers = self.each(left, children.holding)
            for pid, rows, _ in answers:
                for link, mode in rows:
                    own_modes = holders.setdefault(link, {})
                    own_modes[pid] = f"{own_modes.get(pid, '')} {mode}"
            left = [((following, wanted), pid) for pid, _, following in answers if following]
        return holders

    def _peers(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks with the other ends of sockets and pipes."""
        links = {(task.pid, task.tid, fd.link) for task in tasks for fd in task.descriptors}
        inodes = {link for *_, link in links if link.startswith(("socket:[", "pipe:["))}
        if not inodes:
            return tasks
        tables: dict[str, sockets.Socket] = {}
        namespaces: dict[str, tuple[int, int]] = {}
        for pid, tid, link in links:
            if link.startswith("socket:["):
                namespaces.setdefault(children.link(f"/proc/{pid}/task/{tid}/ns/net"), (pid, tid))
        own = children.link("/proc/self/ns/net")
        wanted = {int(link[8:-1]): "" for link in inodes if link.startswith("socket:[")}
        for task in tasks:
            for fd in task.descriptors:
                if task.connects and fd.link.startswith("socket:["):
                    wanted[int(fd.link[8:-1])] = task.connects
        others: dict[str, list[int]] = {}  # inodes at the other end, by the link of a socket
        items = [
            (f"/proc/{pid}/task/{tid}", name == own) for name, (pid, tid) in namespaces.items()
        ]
        unknown = "which process is at the other end of a unix socket cannot be known: "
        for table, why in self.each(items, lambda item: sockets.read(item[0], item[1], wanted)):
            if why:
                self.notes.append(unknown + why)
            for inode, fields, ends_of in table:
                tables[f"socket:[{inode}]"] = sockets.Socket(*fields)
                others[f"socket:[{inode}]"] = ends_of
        # As old as the threads' waits
        heard = {
            f"socket:[{inode}]": (max(self.dated - sent, 0.0), max(self.dated - received, 0.0))
            for rows in self.each(
                [(place, same, list(wanted)) for place, same in items if wanted],
                lambda item: sockets.silence(*item),
            )
            for inode, sent, received in rows
        }
        ends = {link for link in inodes if link.startswith("pipe:[")}
        ends |= {f"socket:[{inode}]" for numbers in others.values() for inode in numbers}
        holders = self._holders(ends)

        def ended(task: Task, fd: Descriptor) -> Descriptor:
            if fd.link.startswith("pipe:["):
                # A reader waits for processes that can write, and a writer for those that can read.
                mode = "r" if task.call in ("write", "writev", "sendfile") else "w"
                held = holders.get(fd.link, {})
                other = tuple(p for p, m in held.items() if mode in m and p != task.pid)
                return replace(fd, other=other, own=held.keys() == {task.pid})
            socket = tables.get(fd.link)
            if socket:
                # A connection that is not accepted yet has no owner: take its listener's.
                held_by = (holders.get(f"socket:[{inode}]") for inode in others[fd.link])
                pids = next(filter(None, held_by), {})
                ages = heard.get(fd.link)
                socket = replace(
                    socket,
                    other=tuple(p for p in pids if p != task.pid),
                    silent=min(ages) if ages else None,
                    unheard=ages[1] if ages else None,
                )
                return replace(fd, socket=socket, own=pids.keys() == {task.pid})
            return fd

        return [
            replace(task, descriptors=tuple(ended(task, fd) for fd in task.descriptors))
            for task in tasks
        ]


def _file_of(loop: str) -> str:
    """Return the file of a loop device, "" if unknown."""
    return children.text(f"/sys/block/{loop}/loop/backing_file").rstrip("\n")


def _of_daemon(task: Task) -> bool:
    """Return whether a task waits for a file lock that only a FUSE daemon knows."""
    return task.in_lock and not task.holders and bool(task.descriptors)


# flush-MAJOR:MINOR: writeback of a file system; loopN: requests of a loop device.
_WORKER = re.compile(r"(?:kworker/.*[+-])?(?:flush-([0-9]+):([0-9]+)|(?P<loop>loop[0-9]+))")
_MUTEX = re.compile(r"_*(?:GI_+)?pthread_mutex_\w*lock")


def _with_lock(task: Task, of: dict[int, int]) -> Task:
    """Return the task, with its lock only if that is one. ``of``: the process of each thread."""
    lock = task.lock
    if lock is None or lock.sure:
        return task
    if not any(_MUTEX.match(name) for name in task.user[:3]):
        return replace(task, lock=None)
    own = of.get(lock.owner) == task.pid
    return replace(
        task, lock=replace(lock, gone=not own and not (lock.shared and lock.owner in of))
    )


def _waited_for(tasks: list[Task], of: dict[int, int]) -> set[int]:
    """Return the processes that threads may wait for. ``of``: the process of each thread."""
    pids = {
        pid
        for task in tasks
        for fd in task.descriptors
        for pid in (*fd.other, *(fd.socket.other if fd.socket else ()))
    }
    pids |= {pid for task in tasks for pid in task.holders}
    return pids | {of[task.lock.owner] for task in tasks if task.lock and task.lock.owner in of}


def users() -> dict[int, str]:
    """Return names by uid, only from /etc/passwd: other databases may hang."""
    return users_of(children.text("/etc/passwd"))


def owner(pid: int) -> tuple[int | None, str]:
    """Return a process's user and cgroup; None and "" if it has ended.

    Reading these files does not need the lock of the process's memory map.
    """
    uid = re.search(r"^Uid:\s*(\d+)", children.text(f"/proc/{pid}/status"), re.MULTILINE)
    if not uid:
        return None, ""
    return int(uid[1]), cgroup.name(children.text(f"/proc/{pid}/cgroup")) or "/"


def _mapped(item: tuple[int, int]) -> tuple[int, list[tuple[int, str]]]:
    return arguments.mapped(*item)


def _named(mounts: list[Connection], processes: dict[int, Process]) -> dict[int, set[str]]:
    """Return the mount points that the command lines of possible daemons name, by pid.

    Possible daemons have FUSE's device open. Omit paths on which two mounts lie. Return {} if this
    kernel shows the connections of descriptors.
    """
    holders = [p for p in processes.values() if p.fuse]
    unknown = [p for p in holders if set(p.fuse) == {None}]
    if not unknown or len(unknown) < len(holders) or shows_connections(Files(Path("/"))):
        return {}
    times = Counter(mount.path for mount in mounts if mount.path)
    named = named_mounts(((p.pid, p.arguments) for p in unknown), times)
    return {pid: {path for path in own if times[path] == 1} for pid, own in named.items()}


def _with_daemon(
    mount: Connection, processes: dict[int, Process], named: dict[int, set[str]], silent: int
) -> Connection:
    """Return the mount with the process that answers it, and all that have its /dev/fuse open.

    ``silent``: how many processes could not be examined.
    """
    if mount.fstype == VIRTIOFS:
        return replace(mount, why=BEYOND)
    holders = [p for p in processes.values() if p.fuse]
    own = [p for p in holders if mount.number in p.fuse]
    if not own:
        unknown = [p for p in holders if p.pid in named]
        own = [p for p in unknown if mount.path in named[p.pid] and could_serve(p.uid, mount.user)]
        if not own:
            why, hidden = "no process here has its connection open", False
            if unknown:
                why, hidden = "this kernel does not show which process answers it", True
            elif silent:
                who = plural(silent, "process", "processes")
                why, hidden = f"{who} could not be looked at in time", True
            elif os.geteuid() != 0:
                why, hidden = "only root sees the files that others have open", True
            return replace(mount, why=why, hidden=hidden)
    # CernVM-FS has a watchdog beside its client: the client has the threads.
    alive = [p for p in own if p.state != "Z"] or own
    daemon = max(alive, key=lambda p: (len(p.threads), -p.pid))
    return replace(mount, daemon=daemon.pid, holders=tuple(sorted(p.pid for p in own)))


def _mounted_by(
    connection: Connection, connections: list[Connection], tasks: list[Task]
) -> Connection:
    """Return a connection that is not mounted yet, with the mount that a thread makes of it.

    Its first request (FUSE_INIT) is sent meanwhile.
    """
    if connection.path or connection.fstype:
        return connection
    alone = sum(not (c.path or c.fstype) for c in connections) == 1
    for task in tasks:
        made = task.mounts
        if made and (made.connection == connection.number or (made.connection is None and alone)):
            return replace(
                connection,
                path=made.path,
                fstype=made.fstype,
                source=made.source,
                mounting=task.tid,
            )
    return connection


def _with_clients(connections: list[Connection], processes: dict[int, Process]) -> list[Connection]:
    """Return the connections with the answers of their CernVM-FS clients, those with waiting
    requests first.

    A client that does not answer delays nothing else: this step has a limit of its own.
    """
    pids = {
        pid: None
        for connection in sorted(connections, key=lambda c: not c.waiting)
        for pid in connection.servers
        if pid in processes and "cvmfs" in f"{connection.source} {processes[pid].comm}"
    }
    told: dict[int, tuple[tuple[str, str], ...]] = {}
    limit = Limit(CLIENTS)
    for pid in list(pids)[:MOST_CLIENTS]:  # one child for each client: it drops its rights
        for _, rows in each([pid], talk.ask, PATIENCE, limit):
            told[pid] = tuple((command, text) for command, text in rows[1]) if rows else ()
    return [
        replace(c, client=next((told[pid] for pid in c.servers if told.get(pid)), ()))
        for c in connections
    ]


# Helpers of mount(8) for the kernel's own file systems.
_KERNEL_HELPERS = {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "ocfs2", "gfs2", "zfs", "crypt"}


def _connected(processes: dict[int, Process]) -> set[int]:
    """Return the processes that may have a FUSE connection."""
    shown = any(number is not None for process in processes.values() for number in process.fuse)
    shown = shown or shows_connections(Files(Path("/")))
    # An old kernel does not show whether a descriptor has a connection.
    return {
        pid
        for pid, process in processes.items()
        if any(number is not None or not shown for number in process.fuse)
    }


def _mounting(
    census: Census, processes: dict[int, Process], below: dict[int, list[int]], serving: set[int]
) -> dict[int, str]:
    """Return the mount helpers without a connection yet, and the processes that have FUSE's device
    open without one, with their names. ``serving``: processes that may have a connection."""

    def helps(pid: int) -> bool:
        comm = census.rows[pid]["comm"]
        if comm == "mount":  # it waits for a helper, or is itself in mount(2)
            inner = [census.rows[child]["comm"] for child in below.get(pid, ())]
            return any(c != comm and c.partition("mount.")[2] not in _KERNEL_HELPERS for c in inner)
        kind = comm.partition("mount.")[2] if comm.startswith("mount.") else ""
        return bool(kind) and kind not in _KERNEL_HELPERS

    return {
        pid: row["comm"]
        for pid, row in census.rows.items()
        if row["state"] not in "ZX"
        and (helps(pid) or None in processes[pid].fuse)
        and serving.isdisjoint(_family([pid], below))
    }


def _sign(comm: str) -> str:
    return "helper" if comm == "mount" or comm.startswith("mount.") else "device"


def _family(pids: Iterable[int], below: dict[int, list[int]]) -> set[int]:
    """Return these processes and all their descendants: ssh below sshfs, a daemon's helper."""
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += below.get(pid, [])
    return found


def _outermost(pids: Iterable[int], below: dict[int, list[int]]) -> list[int]:
    """Return those of these processes that are no descendants of another one."""
    pids = list(pids)
    inner = _family((child for pid in pids for child in below.get(pid, ())), below)
    return [pid for pid in pids if pid not in inner]


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    """Return all ancestors of a process."""
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _target(command: list[str], comm: str) -> str:
    """Return the directory that a mount helper's command line names."""
    at = next((n for n, word in enumerate(command) if word.rpartition("/")[2] == comm), None)
    if comm == "mount":
        return children.last_path(command)
    words = command[at + 1 : at + 3] if at is not None else []
    return words[1] if len(words) == 2 and words[1].startswith("/") else ""


# System calls of a process that only supervises another one: it waits for a child or a signal.
_SUPERVISES = {"wait4", "waitid", "pause", "rt_sigsuspend", "rt_sigtimedwait"}


def _with_servers(
    mount: Connection, processes: dict[int, Process], tasks: list[Task]
) -> Connection:
    """Return the mount with the processes that read its requests.

    These have a thread that waits for a request, or was stopped while it did; else take the process
    that most probably works on a request.
    """
    holders = [processes[pid] for pid in mount.holders if pid in processes]
    if mount.daemon is None or mount.fstype == "autofs" or not holders:
        return mount
    of: dict[int, list[Task]] = {process.pid: [] for process in holders}
    for task in tasks:
        if task.pid in of:
            of[task.pid].append(task)
    reading = {pid for pid, own in of.items() if any(task.on_device for task in own)}

    def rank(process: Process) -> tuple[bool, bool, bool, bool, bool, int, int]:
        own = of[process.pid]
        return (
            process.state not in "ZX",
            process.pid in reading,
            any(map(in_callback, own)),
            not own or any(task.call not in _SUPERVISES for task in own),
            process.state == "T",  # a caller waits for it
            len(process.threads),
            -process.pid,
        )

    daemon = max(holders, key=rank)
    return replace(mount, daemon=daemon.pid, servers=tuple(sorted({daemon.pid, *reading})))


def _counted(connection: Connection, directory: int) -> Connection:
    waiting, limit = (
        counter(directory, connection.number, name) for name in ("waiting", "max_background")
    )
    return replace(connection, waiting=waiting, max_background=limit)


def _unmounted(numbers: Iterable[int], known: set[int]) -> list[Connection]:
    """Return connections without a mount: a caller still waits on one that was unmounted."""
    return [Connection(number, "", "", "") for number in numbers if number not in known]


def _listed(directory: int) -> dict[int, int | None]:
    """Return the number of waiting requests of each connection."""
    numbers = [int(name) for name in os.listdir(directory) if name.isdecimal()]
    return {number: counter(directory, number, "waiting") for number in numbers}
