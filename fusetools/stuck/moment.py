"""One moment of a host, as far as it explains a hang: plain facts, to and from JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Function in which a caller waits until automount or systemd has mounted a file system.
AUTOFS = ("autofs_wait", "autofs4_wait")
_FAULTS = ("filemap_fault", "__do_fault", "do_fault", "handle_mm_fault", "__handle_mm_fault")
_READS = ("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "recv")
_UNMOUNTS = "fuse_kill_sb"  # it calls what ends a mount: its requests, and much else
# Functions in which a frozen thread waits: with cgroup v2 (the first may be inlined), and v1.
_FREEZER = ("do_freezer_trap", "get_signal", "__refrigerator")
# A writer waits here for a frozen file system (sb_start_write and the like in include/linux/fs.h,
# which are inlined), and so in one of those. The same lock guards other things elsewhere.
_SEMAPHORE = ("percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read", "__sb_start_write")
_WRITES = re.compile(
    r"(__)?mnt_want_write|(__)?sb_start|(vfs|do)_\w*write|(vfs|do)_(fallocate|truncate|sendfile|splice)"
    r"|(vfs|do)_copy_file_range|do_splice|iter_file_splice_write|\w+_page_mkwrite"
    r"|\w*journal_start|xfs_trans_alloc|start_transaction|btrfs_start_transaction"
)
RING = "anon_inode:[io_uring]"
RING_WAIT = "io_cqring_wait"  # functions in which a thread waits for completions of a ring


@dataclass(frozen=True)
class Socket:
    """A socket.

    ``protocol``: tcp, udp, unix …; ``peer``: its address or the path of its server; ``state``: as
    in /proc/net/tcp (SYN-SENT …; for unix only LISTEN); queues in bytes. ``other``: the pids at its
    other end, if that is on this host, or those that listen there if it is not ``accepted``.
    ``silent`` and ``unheard``: seconds since it received or sent data, and since it received some,
    None if unknown.
    """

    protocol: str
    peer: str = ""
    state: str = ""
    send_queue: int = 0
    receive_queue: int = 0
    accepted: bool = True
    other: tuple[int, ...] = ()
    silent: float | None = None
    unheard: float | None = None


@dataclass(frozen=True)
class Descriptor:
    """A descriptor that a thread waits for or works on.

    ``number``, and the text of its link in /proc; ``other``: the pids at the other end of a pipe,
    or those that a pidfd refers to; ``own``: both ends of a pipe or socket belong to this process
    alone, which wakes itself up by it.
    """

    number: int
    link: str
    socket: Socket | None = None
    other: tuple[int, ...] = ()
    own: bool = False


@dataclass(frozen=True)
class Lock:
    """A lock that a thread waits for.

    ``kind``: mutex, rwlock, or thread (a join); ``owner``: the thread that holds the lock, or that
    is joined; ``gone``: no thread has the number of the holder; ``sure``: the holder is known
    unless the thread's stack shows another kind of wait; ``shared``: with other processes.
    """

    kind: str
    address: int
    owner: int
    gone: bool = False
    sure: bool = True
    shared: bool = False


@dataclass(frozen=True)
class Place:
    """A path in a thread's system call.

    ``on``: the FUSE connections and autofs mounts on the way to it, the last one first.
    """

    path: str
    on: tuple[int, ...] = ()


def is_32bit(sp: int, pc: int) -> bool:
    """Return whether a thread with these stack and instruction pointers runs a 32-bit program."""
    return 0 < sp < 1 << 32 and 0 < pc < 1 << 32


@dataclass(frozen=True)
class Mounting:
    """A FUSE mount that mount(2) or fsconfig(2) is making. ``connection``: None if unknown."""

    path: str
    fstype: str = ""
    source: str = ""
    connection: int | None = None


@dataclass(frozen=True)
class Task:
    """A thread.

    ``age``: seconds since it last ran, None if the kernel does not show it. ``stack``: the kernel's
    functions, innermost first; ``user``: its own functions, if they could be read; ``sp`` and
    ``pc``: its stack and instruction pointers. ``places``: paths of its system call; ``children``:
    it waits for one of these; ``mounts``: its call makes a mount; ``locks``: its call waits for a
    file lock; ``holders``: the processes that hold that lock, according to the kernel; ``openers``:
    the processes that have the file open and may hold the lock, if only the file system's daemon
    knows the holder; ``alike``: number of further ones, which wait for it, too; ``again``: its own
    process has the file open by several descriptors; ``killed``: it ends as soon as it leaves the
    kernel.
    """

    pid: int
    tid: int
    comm: str
    state: str
    wchan: str = ""
    stack: tuple[str, ...] = ()
    call: str = ""
    age: float | None = None
    sp: int = 0
    pc: int = 0
    places: tuple[Place, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    lock: Lock | None = None
    children: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()
    openers: tuple[int, ...] = ()
    alike: int = 0
    again: bool = False
    locks: bool = False
    mounts: Mounting | None = None
    killed: bool = False
    tracer: int = 0
    connects: str = ""  # it connects to a unix socket of that path
    user: tuple[str, ...] = ()
    user_whole: bool = False

    @property
    def is_32bit(self) -> bool:
        """Return whether its program is a 32-bit one."""
        return is_32bit(self.sp, self.pc)

    @property
    def path(self) -> str:
        """Return the first of several."""
        return self.places[0].path if self.places else ""

    @property
    def in_fuse(self) -> bool:
        """Return whether it waits inside the kernel's FUSE client.

        A daemon that waits for its next request does not, nor does an unmount whose requests have
        ended.
        """
        waits = ("fuse_", "request_wait_answer", "__fuse_")
        names = (name for name in (*self.stack, self.wchan) if not name.startswith(_UNMOUNTS))
        return not self.reads_device and any(name.startswith(waits) for name in names)

    @property
    def in_lock(self) -> bool:
        """Return whether it waits until another caller releases a lock of a file on a FUSE mount.

        Its daemon answers then, or the kernel lets it continue.
        """
        return bool(self.holders) or (self.locks and self.in_fuse)

    @property
    def is_halted(self) -> bool:
        """Return whether a signal or a tracer stopped it, or the freezer, and no request of it
        waits."""
        frozen = any(name.startswith(_FREEZER) for name in (*self.stack[:2], self.wchan))
        return (self.state in "Tt" or frozen) and not self.in_fuse

    @property
    def exits(self) -> bool:
        """Return whether it exits, and closes its open files."""
        return any(name.startswith(("do_exit", "do_group_exit")) for name in self.stack)

    @property
    def polls(self) -> bool:
        """Return whether it waits for any of its descriptors."""
        return "poll" in self.call or "select" in self.call

    @property
    def takes_data(self) -> bool:
        """Return whether it waits until the other end of a pipe or socket sends something."""
        ends = (fd.socket or (fd.other and "pidfd" not in fd.link) for fd in self.descriptors)
        return (self.polls or self.call in _READS) and not self.in_fuse and any(ends)

    @property
    def in_fault(self) -> bool:
        """Return whether it waits for a page of a file that its process has mapped."""
        return self.state == "D" and any(name.startswith(_FAULTS) for name in self.stack)

    @property
    def on_frozen(self) -> bool:
        """Return whether it waits until a file system is no longer frozen (fsfreeze(8))."""
        rest = [name for name in self.stack if not name.startswith(_SEMAPHORE)]
        waits = len(rest) < len(self.stack) and self.stack[0].startswith(("schedule", *_SEMAPHORE))
        return waits and bool(_WRITES.match(next(iter(rest), "")))

    @property
    def in_autofs(self) -> bool:
        """Return whether it waits for an automount."""
        return any(name.startswith(AUTOFS) for name in (*self.stack, self.wchan))

    @property
    def reads_device(self) -> bool:
        """Return whether it is a daemon's thread that waits for its next request."""
        return self.on_device and self.state not in "Tt"

    @property
    def on_device(self) -> bool:
        """Return whether it is a server's thread: it waits for its next request, or was stopped
        while it did."""
        names = (*self.stack, self.wchan)
        if any(name.startswith("fuse_dev_do_read") for name in names):
            return True
        answers = self.call in ("write", "writev") or (
            self.call == "io_uring_enter"
            and any(names)
            and not any(name.startswith(RING_WAIT) for name in names)
        )
        # Others may wake it up, as in an event loop.
        links = [fd.link for fd in self.descriptors if not fd.own]
        return bool(links) and not answers and all(link.endswith("/fuse") for link in links)

    @property
    def may_read_device(self) -> bool:
        """Return whether it waits for a ring of io_uring, which may deliver requests or other
        events."""
        return any(fd.link == RING for fd in self.descriptors) and not self.reads_device


@dataclass(frozen=True)
class Process:
    """A process.

    ``frozen``, ``memory`` and ``quota``: its cgroup, or an ancestor, that is frozen, has full
    memory, or limits its CPUs; all frozen ones, the outermost first.
    """

    pid: int
    ppid: int
    comm: str
    state: str
    uid: int | None = None
    user: str = ""
    cgroup: str = ""
    frozen: tuple[str, ...] = ()
    memory: str = ""
    quota: tuple[str, float] | None = None
    tracer: int = 0
    since: float | None = None  # seconds since it began
    ran: float = 0.0  # seconds on a CPU, of all its threads
    fuse: tuple[int | None, ...] = ()  # connections of its /dev/fuse descriptors, None: unknown
    threads: tuple[int, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Connection:
    """A FUSE connection and its mount point, or an autofs mount that a caller waits for.

    ``waiting``: number of requests, None if unknown; ``also``: its other mount points; ``hidden``:
    an invisible process may answer it; ``holders``: processes that have it open; ``servers``: those
    of the holders that read its requests, as far as visible, including ``daemon``.
    """

    number: int
    path: str
    fstype: str
    source: str
    seen_by: int | None = None  # a process whose mount namespace has the mount, if ours does not
    waiting: int | None = None
    max_background: int | None = None
    daemon: int | None = None
    holders: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    why: str = ""  # the reason why no daemon is known
    also: tuple[str, ...] = ()
    hidden: bool = False
    user: int | None = None  # the user who mounted it
    client: tuple[tuple[str, str], ...] = ()  # answers of its CernVM-FS client to commands
    dead: bool = False  # the connection was aborted, according to its daemon's descriptor
    mounting: int | None = None  # the thread that is in mount(2) for it
    settled: bool = False  # it had no request for a moment after the look
    late: bool = False  # not all processes that may answer it could be examined in time
    covered: bool = False  # another mount lies on each of its mount points


@dataclass(frozen=True)
class Mounter:
    """A process that mounts something without a connection yet.

    ``path``: the mount point, "" if unknown. ``sign``: why it counts as such: "helper" (mount(8) or
    a mount.TYPE), "device" (it has FUSE's device open without a connection), "library" (it has
    loaded libfuse, and its command line ends with a path), or "named" (its command line has a path
    that was asked for).
    """

    pid: int
    path: str = ""
    sign: str = "helper"


@dataclass(frozen=True)
class Moment:
    """The facts of a moment.

    ``silent``: processes and threads that did not answer in time. Those of them that may wait for a
    mount: ``unseen``, of which nothing is known, and ``hidden``, which were not examined closely;
    ``whose``: the users of both and how many each has. ``served``: callers that got an answer while
    this moment was read. ``counted``: the kernel's list of
    connections was read; ``unread``: mount namespaces that were not read; ``autofs``: there is an
    autofs mount here; ``own``: processes of fusetools.
    """

    kernel: str
    connections: tuple[Connection, ...]
    processes: tuple[Process, ...]
    tasks: tuple[Task, ...]
    silent: tuple[int, ...] = ()
    root: bool = True
    pid_namespace: bool = False  # processes outside our pid namespace are invisible
    fusectl: str = ""  # directory of the connections' files
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    unseen: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    whose: tuple[tuple[str, int], ...] = ()
    counted: bool = True
    unread: int = 0
    autofs: bool = False
    own: frozenset[int] = frozenset()
    served: frozenset[int] = frozenset()
    timeout: int = 0  # seconds that a request of a new mount may take (fs.fuse.*_request_timeout)
    mounting: tuple[Mounter, ...] = ()

    @property
    def partial(self) -> bool:
        """Return whether a caller may wait that was not examined."""
        return bool(self.unseen or self.hidden) or not self.root or self.pid_namespace

    def is_own(self, task: Task) -> bool:
        """Return whether a thread belongs to fusetools: not to a workload that is still being
        loaded."""
        loads = task.call.startswith("exec") or any("exec" in name for name in task.stack)
        return task.pid in self.own and not loads
