"""One moment of a host, as far as it explains a hang: plain facts, to and from JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

# Where a caller waits until automount or systemd has mounted what it needs.
AUTOFS = ("autofs_wait", "autofs4_wait")
_FAULTS = ("filemap_fault", "__do_fault", "do_fault", "handle_mm_fault", "__handle_mm_fault")
RING = "anon_inode:[io_uring]"
RING_WAIT = "io_cqring_wait"  # where a thread waits for what a ring brings


@dataclass(frozen=True)
class Socket:
    """A socket: ``protocol`` is tcp, udp, unix …; ``peer`` its address or the path of its server,
    ``state`` as in /proc/net/tcp (SYN-SENT …; of unix only LISTEN), queues in bytes; ``other``: the
    pids that have its other end, if that is on this host, or that listen there if it is not
    ``accepted``; ``silent``: seconds since it received or sent data, None if unknown."""

    protocol: str
    peer: str = ""
    state: str = ""
    send_queue: int = 0
    receive_queue: int = 0
    accepted: bool = True
    other: tuple[int, ...] = ()
    silent: float | None = None


@dataclass(frozen=True)
class Descriptor:
    """What a thread waits for or works on: ``number``, and the text of its link in /proc;
    ``other``: the pids that have the other end of a pipe, or that a pidfd stands for; ``own``: both
    ends of a pipe or socket are this process's alone, which wakes itself up by it."""

    number: int
    link: str
    socket: Socket | None = None
    other: tuple[int, ...] = ()
    own: bool = False


@dataclass(frozen=True)
class Lock:
    """``kind``: mutex, rwlock, or thread: whose end is waited for; ``owner``: the thread that holds
    it, or is it; ``gone``: no thread has that number that could hold it; ``sure``: unless the
    thread's stack shows another kind of wait; ``shared``: with other processes."""

    kind: str
    address: int
    owner: int
    gone: bool = False
    sure: bool = True
    shared: bool = False


@dataclass(frozen=True)
class Place:
    """A path that a thread's system call is about; ``on``: the FUSE connections and autofs mounts
    that the way to it leads over, the last one first."""

    path: str
    on: tuple[int, ...] = ()


def is_narrow(sp: int, pc: int) -> bool:
    """Whether a thread with these stack and instruction pointers runs a program of 32 bits."""
    return 0 < sp < 1 << 32 and 0 < pc < 1 << 32


@dataclass(frozen=True)
class Mounting:
    """A FUSE mount that mount(2) or fsconfig(2) makes; ``connection``: None if unknown."""

    path: str
    fstype: str = ""
    source: str = ""
    connection: int | None = None


@dataclass(frozen=True)
class Task:
    """A thread. ``age``: s since it last ran, None if the kernel does not show it; ``stack``: the
    kernel's functions, innermost first, ``user`` its own, if they could be read; ``sp`` and ``pc``:
    its stack and instruction pointers; ``places``: of its call's paths; ``children``: one of which
    it waits for; ``mounts``: its call mounts that; ``locks``: its call waits until it gets a file
    lock; ``holders``: the processes that hold that lock, as the kernel knows, ``openers``: those
    that have the file open and may hold it, where only its file system's daemon knows; ``killed``:
    it ends as soon as it leaves the kernel."""

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
    locks: bool = False
    mounts: Mounting | None = None
    killed: bool = False
    tracer: int = 0
    connects: str = ""  # to a unix socket of that path
    user: tuple[str, ...] = ()
    user_whole: bool = False

    @property
    def narrow(self) -> bool:
        """Its program is one of 32 bits."""
        return is_narrow(self.sp, self.pc)

    @property
    def path(self) -> str:
        """Of several, the first."""
        return self.places[0].path if self.places else ""

    @property
    def in_fuse(self) -> bool:
        """It waits inside the kernel's FUSE client (not as a daemon for its next request)."""
        waits = ("fuse_", "request_wait_answer", "__fuse_")
        return not self.reads_device and any(
            name.startswith(waits) for name in (*self.stack, self.wchan)
        )

    @property
    def in_lock(self) -> bool:
        """It waits until another caller gives up a lock of a file on a FUSE mount: its daemon
        answers then, or the kernel lets it go on."""
        return bool(self.holders) or (self.locks and self.in_fuse)

    @property
    def exits(self) -> bool:
        """It ends, and closes what it has open."""
        return any(name.startswith(("do_exit", "do_group_exit")) for name in self.stack)

    @property
    def polls(self) -> bool:
        """It waits for any of its descriptors."""
        return "poll" in self.call or "select" in self.call

    @property
    def in_fault(self) -> bool:
        """It waits for a page of a file that its process has mapped."""
        return self.state == "D" and any(name.startswith(_FAULTS) for name in self.stack)

    @property
    def in_autofs(self) -> bool:
        """It waits until something is mounted."""
        return any(name.startswith(AUTOFS) for name in (*self.stack, self.wchan))

    @property
    def reads_device(self) -> bool:
        """A daemon's thread that waits for its next request."""
        return self.on_device and self.state not in "Tt"

    @property
    def on_device(self) -> bool:
        """It waits for its next request, or was stopped while it did: it is a server's thread."""
        names = (*self.stack, self.wchan)
        if any(name.startswith("fuse_dev_do_read") for name in names):
            return True
        answers = self.call in ("write", "writev") or (
            self.call == "io_uring_enter"
            and any(names)
            and not any(name.startswith(RING_WAIT) for name in names)
        )
        links = [fd.link for fd in self.descriptors]
        return bool(links) and not answers and all(link.endswith("/fuse") for link in links)

    @property
    def may_read_device(self) -> bool:
        """It waits for a ring of io_uring, which may bring requests or something else."""
        return any(fd.link == RING for fd in self.descriptors) and not self.reads_device


@dataclass(frozen=True)
class Process:
    """``frozen``, ``memory`` and ``quota``: its cgroup, or one above it, that is frozen, has full
    memory, or may use only so many CPUs."""

    pid: int
    ppid: int
    comm: str
    state: str
    uid: int | None = None
    user: str = ""
    cgroup: str = ""
    frozen: str = ""  # the cgroup that is frozen
    memory: str = ""
    quota: tuple[str, float] | None = None
    tracer: int = 0
    since: float | None = None  # seconds since it began
    fuse: tuple[int | None, ...] = ()  # connections of its /dev/fuse descriptors, None: unknown
    threads: tuple[int, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Connection:
    """A FUSE connection and where it is mounted; or an autofs mount for which somebody waits.
    ``waiting``: requests, None if unknown; ``also``: its other mount points; ``hidden``: a process
    that cannot be seen may answer it; ``holders``: processes that have it open, ``servers``: those
    that read its requests, as far as can be seen, ``daemon`` among them."""

    number: int
    path: str
    fstype: str
    source: str
    seen_by: int | None = None  # a process whose mount namespace has it, if not ours
    waiting: int | None = None
    max_background: int | None = None
    daemon: int | None = None
    holders: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    why: str = ""  # why no daemon is known
    also: tuple[str, ...] = ()
    hidden: bool = False
    user: int | None = None  # who mounted it
    client: tuple[tuple[str, str], ...] = ()  # what its CernVM-FS client answers to commands
    dead: bool = False  # it was aborted: its daemon's descriptor says so
    mounting: int | None = None  # the thread that is in mount(2) for it
    settled: bool = False  # it had no request for a moment after the look
    late: bool = False  # not all that may answer it could be looked at in time


@dataclass(frozen=True)
class Mounter:
    """A process that mounts something, which no connection stands for yet: a mount helper
    (mount.TYPE), or one that has FUSE's device open without a connection; ``path``: where, "" if
    unknown."""

    pid: int
    path: str = ""


@dataclass(frozen=True)
class Moment:
    """``silent``: processes and threads that did not answer in time. Those that may wait for a
    mount nevertheless: ``unseen``, of which nothing is known, ``hidden``, which were not examined
    closely; ``whose``: users and how many of these they have. ``counted``: the kernel's list of
    connections was read; ``unread``: mount namespaces that were not; ``autofs``: there is such a
    mount here; ``own``: processes of fusetools."""

    kernel: str
    connections: tuple[Connection, ...]
    processes: tuple[Process, ...]
    tasks: tuple[Task, ...]
    silent: tuple[int, ...] = ()
    root: bool = True
    pid_namespace: bool = False  # processes outside ours cannot be seen
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
    timeout: int = 0  # seconds that a request of a new mount may take (fs.fuse.*_request_timeout)
    mounting: tuple[Mounter, ...] = ()

    @property
    def partial(self) -> bool:
        """Somebody may wait who was not examined."""
        return bool(self.unseen or self.hidden) or not self.root or self.pid_namespace

    def is_own(self, task: Task) -> bool:
        """Whether a thread is one of fusetools: not of a workload that is still being loaded."""
        loads = task.call.startswith("exec") or any("exec" in name for name in task.stack)
        return task.pid in self.own and not loads
