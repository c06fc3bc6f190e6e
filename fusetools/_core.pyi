"""The native core, which reads recordings and ELF files. Raw events never become Python objects.

Nothing here is public: `fusetools.recording` answers in the types of `fusetools.results`.
Every function that reads a file raises `CoreError` if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict

from typing_extensions import NotRequired, TypeAlias, Unpack

__version__: str  # version of the sources from which it was built
OPCODES: dict[int, str]  # enum fuse_opcode of include/uapi/linux/fuse.h, in lower case

# Fields by name of a type in fusetools.results, or of what the comment names.
Fields = dict[str, Any]

# Wanted requests: operations (none: all), minimum ns, regular expression for the whole path.
Wanted = tuple[Sequence[str], int, str | None]

class Probe:
    """A row of the catalogue: an event of the recording and its meaning."""

    def __init__(
        self, event: str, layer: str, function: str, operation: str, role: str
    ) -> None: ...

    event: str
    layer: str
    function: str
    operation: str
    role: str

    def __hash__(self) -> int: ...

Rows = Sequence[Probe]

class Catalogue:
    """Rows of the catalogue, and the names of a recording's ``events``. Immutable."""

    def __init__(self, rows: Rows, events: Sequence[str] = ()) -> None: ...

    rows: Sequence[Probe]

    def inferred(self, graphed: Sequence[str]) -> Catalogue:
        """Add the events without a row, by their names. ``graphed``: kernel functions that
        function_graph may have recorded, whose kprobes are then left out."""

    def requests(self) -> Catalogue:
        """Return the rows for requests' stories."""

    def named(self) -> Catalogue:
        """Return the rows for requests' stories and for file names."""

    def kernel(self) -> Catalogue:
        """Return the rows for the call tree of kernel functions."""

    def timed(self) -> Catalogue:
        """Leave out functions without a duration: neither a return nor a reply is probed."""

    def plus(self, other: Catalogue) -> Catalogue:
        """Add the rows of another catalogue."""

    def with_events(self, role: str, events: Sequence[str]) -> Catalogue:
        """Add a row with this role for each event."""

    def select(
        self,
        patterns: Sequence[str],
        layers: Sequence[str],
        callers: bool,
        graphed: Sequence[str],
        *,
        by_operation: bool = False,
        windows: bool = False,
        parts: bool = False,
        sent: bool = False,
    ) -> Catalogue:
        """Return the rows that a question about calls needs. Other events are not decoded.

        ``patterns``: regular expressions of operations and functions, none: all; ``callers``: the
        question is only about those of some callers or mounts; ``graphed``: functions of
        function_graph; ``windows``: also the time from a daemon's read to its reply; ``parts``:
        also callbacks' time before and after their reply; ``sent``: also requests' copies."""

class Filters(TypedDict, total=False):
    """A selection of calls and requests. An absent key or an empty list selects all.

    A request or system call belongs to its caller. A daemon's call belongs to the caller of its
    request, which is the open request of the same `unique`; a forget has none.
    """

    pids: Sequence[int]  # calling processes
    comms: Sequence[str]  # calling threads' names
    connections: Sequence[int]
    daemon_pids: Sequence[int]  # in the daemon layer, only calls of these processes
    # (PID, connection) of daemons, since `unique` repeats between connections. Without it, a
    # callback's request is the only open one of this number, or of this number and operation.
    daemons: Sequence[tuple[int, int]]
    # (PID, descriptor, connection) of callers' descriptors on mounts when the recording began.
    opened: Sequence[tuple[int, int, int]]
    from_ns: int | None  # minimum start of a call or request, ns after the recording's first event
    to_ns: int | None
    # Functions of function_graph: (start, name, operation in the name or "").
    functions: Sequence[tuple[int, str, str]]
    # Separate kernel functions by the operation of the requests made inside a call (a call with
    # several counts for each), else by the operation in the name. False: count each call once.
    by_operation: bool
    # Add the daemon layer's series "read to reply" by operation: requests without a callback, from
    # the daemon's read to its reply.
    windows: bool
    # The recording is the end of a longer one: a thread's first event may end a call from before.
    begun_before: bool
    # Measured cost in ns of an event, and of a callback's two uprobes; 0: not measured.
    cost: tuple[int, int]
    # Subtract `cost` from durations, except from kernel functions'.
    corrected: bool

class RequestCounts(TypedDict):
    """Numbers of requests. `begun - matched`: without a seen end; `ended - matched`: without a
    seen begin, e.g. before the recording."""

    begun: int
    ended: int
    matched: int
    unanswered: int  # begun requests that are unfinished, interrupted or aborted

class Answer(TypedDict):
    """Facts that every pass over a recording reports."""

    first: int  # time of the first event, ns on the recording's clock
    last: int  # time of the last event
    lost: int
    throttled: int
    warnings: Sequence[str]
    requests: NotRequired[RequestCounts]  # not in Graph

class Scan(Answer):
    events: Sequence[tuple[str, int]]  # all events of the recording, with their number of samples
    series: Sequence[Fields]  # answers/series.py
    callers: Sequence[int]  # processes that made requests, and those that made these

class Stages(Answer):
    groups: Sequence[Fields]  # OperationStages
    calls: Sequence[Fields]  # MountCalls
    event_cost: int | None  # upper bound of an event's cost in ns

class SingleCalls(TypedDict):
    """Columns of single calls: trees in the order of their begin, calls in that of their entry."""

    function: bytes  # u32, index into `functions`
    level: bytes  # u32, number of enclosing calls
    start: bytes  # u64, ns on the recording's clock
    duration: bytes  # u64, ns; 2**64 - 1 if the return was not seen
    tid: bytes  # i32
    cpu: bytes  # u32
    comm: bytes  # u32, index into `comms`

class Graph(Answer):
    """A call tree. `nodes`: (parent or -1, function, calls, total ns, self ns), parents first."""

    functions: Sequence[str]
    nodes: Sequence[tuple[int, int, int, int, int]]
    unmatched: int  # number of calls without a seen return
    full: bool  # nodes were left out: there are more call paths than in any real kernel
    calls: SingleCalls  # only on request
    comms: Sequence[str]

class Description(TypedDict):
    session: str | None  # JSON
    events: Sequence[str]
    sampled: Sequence[str]  # tracepoints of which only some events were sampled
    # (start, name) by start, of kernel functions with symbols: those of function_graph events.
    functions: Sequence[tuple[int, str]]
    arch: str | None
    release: str | None
    hostname: str | None
    kernel_place: tuple[str, int] | None  # a symbol of the kernel, and its address when recorded
    off_cpu: bool  # perf's own event of waits is in it (perf record --off-cpu)
    # Events that sample time on CPU; whether their period is in ns.
    samples: Sequence[tuple[str, bool]]
    stacks: Sequence[str]  # events whose samples have stacks
    warnings: Sequence[str]  # missing parts of the file

class Ask(TypedDict, total=False):
    graph: str  # "on-cpu", "off-cpu", "off-wake" or "requests"
    all: bool  # include stacks outside requests, and of processes other than workload and daemons
    states: Sequence[str]  # "blocked", "runnable", "preempted"; none: all
    who: str | None  # only "workload" or "daemon"; None: both
    workload: Sequence[int]  # PIDs of its first processes
    filters: Filters
    operations: Sequence[str]
    kallsyms: str  # file with the recorded kernel's symbols, instead of those in the recording
    debug: str  # directory with debug files by build id, for what has no name otherwise
    symfs: str  # directory with programs' files, instead of the symbols in the recording

class Amount(TypedDict):
    count: int
    ns: int  # for samples: sum of periods

class Named(TypedDict):
    known: bool  # there were symbols
    addresses: int  # number of different ones
    nameless: int  # number of those without a name

class Flame(Answer):
    """Summed stacks."""

    stacks: dict[str, float]  # "comm;outermost;…;innermost": ns, or sum of periods
    # Stacks in time, thread after thread: index into stacks, weight.
    order: Sequence[tuple[int, int]]
    shown: Amount
    stackless: int
    cut: int  # weight of shown stacks that end before their thread's start
    cut_daemons: int  # the part of `cut` in daemons' waits
    cut_copied: int  # the part of `cut` in stacks whose copies were too short
    cut_unknown: int  # the part of `cut` in copied stacks that cannot be followed further
    idle: Amount
    own: Amount
    outside: Amount  # waits in system calls on mounts outside of requests: blocked ns
    others: Amount
    unfinished: int
    states: dict[str, int]  # of waits: ns
    daemons: int  # the part of the shown weight in daemons' waits
    shared: int
    wakers: int
    wakers_stackless: int
    frames: Sequence[tuple[str, str, bool]]  # name, file or "", whether in the kernel
    kernel: Named
    user: Named
    # Files with nameless addresses: without any symbols, and with some symbols.
    without_symbols: Sequence[str]
    stripped: Sequence[str]
    nameless_ids: Sequence[str]  # build ids of such files
    generated: Sequence[str]
    copied: bool  # samples hold copies of user stacks that were not unwound
    full: bool

# `window` of MergeOptions. Extent: its begin, its end, whether earlier events were overwritten, and
# bytes per second of the CPU with the most.
Window = tuple[int, int, int, int, bool]
Extent = tuple[int, int, bool, int]

class MergeOptions(TypedDict, total=False):
    """Options of merge().

    `kallsyms`: the traced kernel's symbols; the output includes those in stacks (None: those of a
    trace.dat). `maps`: (pid, start, length, offset in the file, path, build id or b"", another path
    of the file or "") of code that was mapped before the recording began. `avoid`: mount points
    below which nothing may be opened. If it is not None, the recorded programs are on this machine:
    copies of user stacks are unwound to call chains, and the output includes the functions in user
    stacks. `bundles`: (event that several probes share, field with a probe's number, (number,
    resulting event, fields that this event lacks) …). `daemons`: processes whose samples are kept
    in the group fuse_daemon (None: all). `scope`: keep switches, wake-ups and system calls only of
    these processes and their descendants (None: all). `threads`: process by thread, for threads
    without a record. `window`: (ns, until, since, bytes of each CPU's buffer), for inputs from
    perf's overwriting buffers: keep the last ns before `until`, from `since` on, as far back as all
    CPUs' buffers reach (`kept`); its last item: whether the last input holds what Now.held()
    returned, of which what is older is kept. `span`: leave out samples before the first time and
    after the second. `opener`: opens the files of programs for this process, which closes the
    descriptor. `packed`: pack the records, as `perf record -z`. `private`: the output holds no
    copies of stacks and registers, user stacks only of the processes of `scope`, and in these only
    addresses of code. `for_perf`: the version of the perf that shall read the output, at least 4.1.
    """

    kallsyms: str | PathLike[str] | None
    maps: Sequence[tuple[int, int, int, int, str, bytes, str]]
    avoid: Sequence[str | PathLike[str]] | None
    bundles: Sequence[tuple[str, str, Sequence[tuple[int, str, Sequence[str]]]]]
    daemons: Sequence[int] | None
    scope: Sequence[int] | None
    threads: Mapping[int, int]
    for_perf: tuple[int, int] | None
    window: Window | None
    span: tuple[int, int] | None
    opener: Callable[[Path], int] | None
    packed: bool
    private: bool

class MergeInfo(TypedDict):
    records: int  # number of written records
    warnings: Sequence[str]  # omissions and corrections
    session_at: Sequence[tuple[int, int]]  # places of the session's JSON in the file, part by part
    left_out: dict[str, int]  # number of samples of other daemons, by event
    # Number of switches with a stack of their own, with that of a similar wait, without a stack.
    stacks: tuple[int, int, int]
    stacks_ns: int  # time that stacks took from their threads, if ftrace recorded all switches
    missing_switches: int  # switches of workload and daemons that happened and were not recorded
    kept: Extent | None  # for a window

class NamedRequest:
    """A request with its names, as in `fusetools.results.request.Request`. None: unknown.

    Times are ns on the recording's clock."""

    operation: str
    fate: str
    waits: bool
    connection: int | None
    unique: int | None
    size: int | None
    offset: int | None
    answer: int | None  # inode that a lookup found, 0: none
    reply_len: int | None
    blocked: int | None
    runnable: int | None
    elsewhere: int | None
    unsplit: int
    error: int  # negated errno
    comm: str
    pid: int | None
    tid: int | None
    daemon_pid: int | None
    daemon_tid: int | None
    reader: int | None
    replier: int | None
    syscall: str | None
    path: tuple[str, bool] | None  # path, and whether it begins at the mount point
    name: str | None
    inode: int | None
    duration: int
    marks: Sequence[tuple[str, int]]  # in the order of fusetools.results.stories
    until: int | None
    handed: bool
    left: int | None
    refused: int
    dropped: bool
    resent: bool
    first_reader: int | None
    first_read: int | None
    signals: int
    signal: int  # the first one
    interrupted: bool  # the daemon read an INTERRUPT
    aborter: int | None
    aborter_comm: str
    aborter_call: str | None
    aborted_by_daemon: bool
    # Name, ns, its named parts and their ns.
    stages: Sequence[tuple[str, int, Sequence[tuple[str, int]]]]
    meanwhile: Meanwhile | None

Connected: TypeAlias = tuple[Sequence[tuple[int, int, str]], Sequence[tuple[int, int, str]]]

class Meanwhile:
    """As in `fusetools.results.request`. `syscalls`: (name, number, ns), longest first."""

    on_cpu: int | None
    syscalls: Sequence[tuple[str, int, int]]
    peers: Sequence[str] | None
    files: Sequence[str]
    helpers: Sequence[Helper]

class Helper:
    """As in `fusetools.results.request`, times in ns."""

    tid: int
    waited: int
    syscalls: Sequence[tuple[str, int, int]]
    peers: Sequence[str] | None
    files: Sequence[str]
    on_cpu: int | None
    runnable: int | None
    blocked: int | None

class Slowest(Answer):
    rows: Sequence[NamedRequest]
    calls: Sequence[Fields]  # SlowCall, with `connection` instead of `mount`
    pathless: int  # number of requests skipped, as their path is unknown or incomplete

class Action(TypedDict):
    """An action of a thread. ``code`` says which other fields have a meaning."""

    code: str
    name: str  # function or system call
    peer: str | None  # of the socket in a system call
    tid: int | None  # thread that is woken up, or that wakes this one
    number: int | None  # CPU, signal, result, or negated errno
    unique: int | None  # of another request than the one shown
    file: str | None  # name of a file or an attribute in `inode`
    inode: int | None
    size: int | None
    offset: int | None

class Line(TypedDict):
    time: int  # ns on the recording's clock
    caller: Action | None
    daemon: Action | None

class Numbered(Answer):
    """Requests of a number. ``lines``: timeline of a single one."""

    rows: Sequence[NamedRequest]
    lines: Sequence[Line]

class Signal(TypedDict):
    """Signal to a daemon: its number and si_code, the process that ran when it was sent, and the
    time in ns on the recording's clock."""

    number: int
    code: int
    pid: int
    comm: str
    time: int

class DaemonState(TypedDict):
    """State of a daemon that did not answer all requests.

    Times are ns on the recording's clock."""

    pid: int
    connection: int
    ran: int | None
    stopped: int | None
    ended: int | None
    signal: Signal | None
    unanswered: int
    hangs: bool

class Daemons(Answer):
    daemons: Sequence[DaemonState]

class Errors(Answer):
    """Rows of `fusetools.results.errors`, with numbers of errors and signals."""

    operations: Sequence[Fields]
    disconnected: Sequence[tuple[str, int]]  # (system call, number)
    refused: Sequence[Fields]
    dropped: Sequence[Fields]
    aborted: Sequence[Fields]  # of the aborter: pid, comm, call, daemon; requests
    contradicted: Sequence[Fields]
    interrupts: Sequence[Fields]

class Queue(Answer):
    # MountQueue, with `connection`; `time`, `queued` and `busy`: columns of the levels
    mounts: Sequence[Fields]

class Replay(TypedDict):
    """Result of a replay. Times are in ns; `operations`: (requests, ns) by name."""

    waited: int
    no_cpu: int
    operations: dict[str, tuple[int, int]]

class MountReplays(TypedDict):
    """A mount's requests: recorded, replayed, and replayed with a change; replays on the host's
    CPUs, and on any number. The numbers as in `fusetools.results.whatif.MountReplay`."""

    connection: int | None
    requests: int
    left_out: int
    handed: int
    ring: int
    writes: int  # asynchronous ones
    unsure: int  # reads that may be asynchronous ones
    threads: int
    callers: int
    saved: int
    recorded: Replay
    same: Sequence[Replay]
    changed: Sequence[Replay]

class WhatIf(Answer):
    mounts: Sequence[MountReplays]
    cpus: int | None

class Caches(Answer):
    """As in `fusetools.results.cache`; `saved`: (seconds, requests) of each timeout."""

    calls: Sequence[Fields]  # CachedCalls
    asked: Sequence[Fields]  # AskedAgain
    transfers: Sequence[Fields]  # Transfer
    unknown: int

class Heat(Answer):
    column: int  # ns
    rows: Sequence[tuple[int, int, Sequence[int]]]  # from, to in ns, requests by column

class Groups(Answer):
    # RequestGroup, with numbers of errors, and in `lacks` what the recording lacks for a label:
    # "path", "caller" or "label". The last one sums up those that are not listed.
    groups: Sequence[Fields]
    pathless: int
    inherited: int  # requests of processes that have the label of the one that made them
    full: bool

# Function, file, whether it is the kernel's; outermost first.
_Frames = Sequence[tuple[str, str, bool]]
_Total = tuple[int, int, int]  # requests, their ns, failed ones

class _Brought(TypedDict, total=False):
    part: float  # of its requests' time, in which callers waited for what they brought

class Cause(_Brought):
    """A cause of waiting: native/core/src/answers/why.rs. None: unknown, or it does not apply."""

    what: str
    how: str
    connection: int | None
    syscall: str | None
    fd: int | None
    peer: str | None
    lock: int | None
    timed_out: bool
    helper: bool
    background: bool
    pid: int | None
    signal: int
    ns: int
    requests: int
    own: Sequence[tuple[_Frames, int]]  # with their ns
    last: _Frames
    operations: Sequence[tuple[str, int]]  # operation, ns
    places: Sequence[tuple[str, int, int, int]]  # operation, file, requests, ns
    callers: Sequence[tuple[int, int, int]]  # process, requests, ns

class Again(TypedDict):
    """Questions of one operation."""

    operation: str
    negative: bool
    requests: int
    ns: int
    keys: int
    saved: Sequence[int]  # with a timeout of 1 s, of 60 s
    saved_ns: int
    most: Sequence[tuple[int, str | None, int]]  # file, name in it, requests

class Transfers(TypedDict):
    """Reads or writes."""

    operation: str
    waits: bool
    requests: int
    ns: int
    bytes: int
    sized: int
    sequential: int
    largest: int
    sizes: Sequence[tuple[int, int]]  # bytes, requests
    files: Sequence[tuple[int, FileSums]]

class FileSums(TypedDict):
    requests: int
    ns: int
    bytes: int
    opens: int
    end: int

class InFlight(TypedDict):
    """Reads in the background."""

    connection: int | None
    requests: int
    most: int  # in flight at once
    mean: float
    ns: int  # with any in flight

class Why(Answer):
    """Time that callers waited, by cause. Files are indices into ``nodes``."""

    waited: tuple[int, int]  # requests, ns
    recording: int
    operations: Sequence[tuple[str, _Total]]
    asynchronous: Sequence[tuple[str, _Total]]
    errors: Sequence[tuple[str, int, bool, _Total]]  # operation, error, whether nobody waited
    refused: Sequence[tuple[str, str, int]]  # operation, system call, calls that failed with EIO
    disconnected: int  # system calls that failed with ENOTCONN
    fates: Sequence[tuple[str, _Total]]
    calls: Sequence[tuple[str, str, _Total]]
    processes: Sequence[tuple[int, int, int]]
    of_process: Sequence[tuple[int, str, int, int, int]]
    classes: Sequence[tuple[str, str, int, int, int]]
    class_places: Sequence[tuple[str, str, int, int, int]]
    listed: tuple[int, _Total]
    threads: Sequence[tuple[int | None, int]]  # connection, number that served
    waiters: Sequence[tuple[int | None, int]]  # callers that waited for one
    comms: Sequence[tuple[int, str]]
    nodes: Sequence[tuple[int | None, tuple[str, bool] | None]]  # connection, (path, whether whole)
    causes: Sequence[Cause]
    asked: Sequence[Again]
    background: Sequence[InFlight]
    transfers: Sequence[Transfers]

class Export(Answer):
    rows: int

class Distribution(TypedDict):
    # `sum` in ns; number of durations by the smallest n of which 2^n us (`classic`; 27: any) or
    # 2^(n/8) s (`native`) is not exceeded; `zeros`: durations of 0 ns, in no native bucket
    count: int
    sum: int
    classic: dict[int, int]
    native: dict[int, int]
    zeros: int

class Measured(TypedDict):
    # `queue` and `daemon`: of requests with a known begin in the daemon; `errors`: by errno
    connection: int
    operation: str
    whole: Distribution
    queue: Distribution
    daemon: Distribution
    bytes: int
    errors: dict[int, int]

class Pending(TypedDict):
    # `queued`: requests that no thread of the daemon has begun, None: unknown; `oldest`: ns
    connection: int
    requests: int
    queued: int | None
    oldest: int

class Metrics(TypedDict):
    measured: tuple[Measured, ...]
    in_flight: tuple[Pending, ...]
    left_out: int

class FilesRead(Answer):
    files: list[tuple[int, str, int]]  # connection, path, ns that callers waited for it
    unnamed: int  # further files, whose whole path is unknown

class Interval(TypedDict):
    # Row, with `connection` and sums of ns: `total`, `waited`, `queue`, `daemon`; `queued`: number
    # of requests in the last two
    total: Fields
    rows: Sequence[Fields]
    groups: int
    left_out: int

class CoreError(Exception):
    """A failure. `args`: (what failed, why), one line each."""

class OtherHostError(CoreError):
    """The recordings are of different hosts."""

def btf(
    vmlinux: bytes, module: bytes | None, members: Sequence[str], structures: Sequence[str]
) -> tuple[dict[str, tuple[int, int, int]], dict[str, list[str]]]:
    """Read the kernel's BTF, and that of ``module`` if it is not None.

    Return the places of the existing ``members``, such as "fuse_req.in.h.unique": byte offset, and
    for a bit field its first bit in this byte and its width, else 0, 0. Return also the functions
    (of the module, if given) with a pointer to one of ``structures`` among their parameters: the
    structure to which each parameter points, "" for anything else. ValueError: invalid BTF.
    """

def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether the regular expression matches in it, in linear time.

    ValueError: it is invalid."""

def elf_functions(
    path: str | PathLike[str], debug_path: str | PathLike[str] | None = None
) -> list[tuple[str, int, int, int]]:
    """Return functions of .symtab and .dynsym: (name, virtual address, size, file offset).

    They are sorted by address. Names are as in the file (mangled), without a symbol version;
    `.cold` halves are omitted. The file offset is the place for a uprobe: vaddr - p_vaddr +
    p_offset of the segment, or some instructions further, where a probe is cheap (x86-64) or is
    passed once (Go). `debug_path`: a separate debug file with the same build ID for more symbols.
    """

def elf_stepped(path: str | PathLike[str], offsets: Sequence[int]) -> list[int]:
    """Return the file offsets at which the kernel single-steps an instruction under a probe.

    This takes longer. `offsets`: as from `elf_functions`. Other architectures than x86-64 have
    none.
    """

def elf_exported(
    path: str | PathLike[str], name: str
) -> tuple[list[tuple[int, int, int]], int | None]:
    """Return (segments of code, virtual address of the variable ``name`` that the file exports).

    A segment is (virtual address, size in the file, offset in it). None: it exports no such
    variable.
    """

def elf_starts(path: str | PathLike[str], addresses: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return those virtual addresses at which a function starts, by the file's unwind tables.

    Each is (address, size, file offset for a uprobe, as from `elf_functions`).
    """

def elf_frame_pointers(path: str | PathLike[str]) -> float | None:
    """Return the share of functions with a frame pointer, of those that use its register.

    It is 0 to 1, by bytes of code, from the file's unwind tables; 0 if no function uses the
    register, None if unknown.
    """

def elf_build_id(path: str | PathLike[str]) -> str | None:
    """Return the GNU build ID in lower-case hexadecimal."""

def elf_about(path: str | PathLike[str]) -> tuple[str, str, list[str]]:
    """Return (machine, runtime, imports) of a file.

    Machine: as in `uname -m` ("i386" for 32-bit x86). Runtime: a language whose own runtime does
    not survive a return probe ("Go" …), or "". Imports: functions of libfuse's API.
    """

def demangle(name: str) -> str:
    """Demangle a C++ or Rust name, without arguments (`cvmfs::cvmfs_lookup`); keep others."""

def syscall_name(machine: str, number: int, is_32bit: bool) -> str | None:
    """Return the name of a system call on a machine (as in `uname -m`).

    ``is_32bit``: of a 32-bit program. None: there is no such call, or the machine is neither x86_64
    nor aarch64."""

def live_stacks(
    code: list[tuple[int, int, int, str, str]],
    threads: list[tuple[int, int, bytes]],
    avoid: list[str],
) -> list[tuple[list[str], bool]]:
    """Return user stacks of threads that sleep in the kernel, without stopping them.

    A stack is its functions, innermost first, and whether it reaches its thread's start. ``code``:
    (start, end, offset in the file, path, name of the file here) of a process's executable
    mappings; ``threads``: (instruction pointer, stack pointer, bytes from there up). ``avoid``:
    mount points below which no debug file is searched. x86-64 only.
    """

def calibrate(n: int) -> int:
    """Call the exported, empty function `fusetools_calibrate` n times. Return the ns."""

def describe(path: str | PathLike[str]) -> Description:
    """What a recording says of itself: its header, and the records up to the session sample."""

def kept(path: str | PathLike[str], window: Window) -> Extent:
    """Return what merge() would keep of a recording from overwriting buffers."""

def of_memory(path: str | PathLike[str]) -> list[str]:
    """Names of the events whose samples may hold memory or registers of processes."""

def operation_of(function: str) -> str:
    """Return the FUSE operation after which a callback or a kernel function is named, or ""."""

def scan(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> Scan:
    """Return counts and histograms of the catalogue's functions, in one pass.

    ValueError: a filter does not exist.
    """

class Table:
    """A table: a pass over the recording for each stream (Arrow PyCapsule interface)."""

    def columns(self) -> list[str]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

def requests(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    mounts: Mapping[int, str],
) -> Table:
    """Return the requests, in order of completion. ``mounts``: mount points by connection."""

def calls(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> Table:
    """Return the matched calls of all layers, in order of completion."""

def waits(path: str | PathLike[str], catalogue: Rows, ask: Ask) -> Table:
    """Return the waits of the graph "off-cpu", as soon as each is known to be shown."""

def stacks(weight: str, stacks: Sequence[tuple[str, int]]) -> Table:
    """Return given stacks. ``weight``: name of the weights' column."""

def durations(
    path: str | PathLike[str], catalogue: Rows, filters: Filters, daemon: bool
) -> dict[str, bytes]:
    """Return little-endian u64 by operation: ns of requests by begin.

    ``daemon``: of the daemon's callbacks instead."""

def lengths(
    path: str | PathLike[str], catalogue: Rows, filters: Filters
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Return (requests, their bytes with headers) by operation: of requests, and of replies.

    Only requests without an error whose length is known count."""

def spans(path: str | PathLike[str], catalogue: Rows, function: str) -> list[tuple[int, int, int]]:
    """Return (thread, begin, ns) of each call of a function in the catalogue.

    If nothing in it has a return: of each request."""

def flame(path: str | PathLike[str], catalogue: Rows, ask: Ask) -> Flame:
    """Return stacks for a flame graph, of the events with a row "stack" in the catalogue."""

def stages(
    path: str | PathLike[str], catalogue: Rows, filters: Filters, by: str, pair: int
) -> Stages:
    """Return requests' time by stage.

    `by`: "", "comm", "pid", "daemon-thread", "mount" or "size". `pair`: ns of a callback's two
    uprobes, to estimate the overhead where `Filters.cost` is not given."""

def slowest(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    wanted: Wanted,
    mounts: Mapping[int, str],
    connected: Connected,
    most: int,
) -> Slowest:
    """Return the slowest requests, slowest first.

    ``connected``: (PID, descriptor, peer) of connections that were open for the whole recording,
    and the same of files."""

def starts(
    path: str | PathLike[str], catalogue: Rows, threads: Sequence[int]
) -> list[tuple[int, list[str]]]:
    """Return the functions of threads, outermost first and without the C library's; of those whose
    recorded stacks reach the thread's start."""

def numbered(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    connected: Connected,
    unique: int,
) -> Numbered:
    """Return the requests of a number; ``connected`` as in `slowest`."""

def daemons(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> Daemons:
    """Return the states of traced daemons that did not answer all requests; none if the
    recording's end shows that all of them work until then."""

def errors(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> Errors:
    """Count the replies by operation and error."""

def queue(path: str | PathLike[str], catalogue: Rows, filters: Filters, parts: int) -> Queue:
    """Return the number of requests in the daemon's queue over time, and means of ``parts``."""

def whatif(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    change: tuple[int, int, int, int, int],
    limits: dict[int, int],
) -> WhatIf:
    """Replay the requests. ``change``: threads, timeouts in ns of names, attributes and names that
    do not exist, and asynchronous requests in flight; 0: as recorded. ``limits``: the recorded
    number of the latter by connection."""

def caches(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> Caches:
    """Count what the kernel's caches save."""

def heat(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    operations: list[str],
    columns: int,
) -> Heat:
    """Count requests by the time of their begin and by their duration."""

def groups(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    wanted: tuple[list[str], int, str | None],
    mounts: dict[int, str],
    by: tuple[str, dict[int, str]],
    listing: tuple[str, int],
) -> Groups:
    """Group requests. ``wanted``: as in slowest(). ``by``: "file", "directory", "process", "comm",
    "label" (of processes, by pid; "user" if these are users) or "" (one group). ``listing``:
    "time", "requests", "slowest" or "errors", and how many groups to list; the others are summed.
    """

def why(path: str | PathLike[str], catalogue: Rows, filters: Filters, long: int) -> Why:
    """Divide the time that callers waited among its causes.

    ``long``: ns on a CPU from which on a request's work in the daemon is computing."""

def export(
    path: str | PathLike[str],
    catalogue: Rows,
    filters: Filters,
    output: str | PathLike[str],
    form: str,
    named: tuple[Mapping[int, str], Mapping[int, str]],
    states: tuple[Rows, Ask] | None = None,
) -> Export:
    """Write all requests to a file: "perfetto", "csv" or "json". The caller writes the end of JSON.

    ``named``: mount points by connection, and daemons by PID. ``states``: of a trace, the rows and
    the question for the states of threads."""

def files(path: str | PathLike[str], catalogue: Rows, filters: Filters) -> FilesRead:
    """Return the files that were opened or read, by their first request."""

def graph(path: str | PathLike[str], catalogue: Rows, filters: Filters, calls: bool) -> Graph:
    """Return the call tree of kernel functions and, if ``calls``, all single calls."""

def merge(
    inputs: Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    session: str,
    **more: Unpack[MergeOptions],
) -> MergeInfo:
    """Merge simultaneous recordings of one machine and clock into one that stock perf reads.

    `session`: JSON for the `fusetools:session` samples, at most 16 MB, which replaces that of the
    inputs; "" keeps the first one. The output has mode 0600 and may be an input: it is replaced
    once it is complete, and an error leaves no partial file. "/proc/self/fd/N" is the open file N,
    also as the output.
    """

def keep_vdso() -> None:
    """Read the vDSO. Call this before a process drops its privileges and merges."""

def ring_head(
    header_page: str,
    header_event: str,
    formats: Sequence[tuple[str, str]],
    clock: str,
    uname: str,
    cpus: int,
) -> bytes:
    """Return the head of a file of ring_collect. ``formats``: (system, text) of each event."""

def ring_collect(
    instances: Sequence[str], page: int, limit: int, output: int, control: int
) -> Literal["told", "alone", "full"]:
    """Move the pages (``page`` bytes each) of at most two ftrace instances' buffers to the file
    ``output``.

    It ends when a byte comes from the socket ``control``, when its peer closes it, or when the file
    has ``limit`` bytes. It closes both descriptors. OSError: it failed."""

class ProcessBefore(TypedDict):
    # Times in ns. `blocked_ns`: summed over its threads; `for_children_ns`: in waits for its
    # children, which are not in `calls`
    pid: int
    comm: str
    span_ns: int
    blocked_ns: int
    for_children_ns: int
    calls: Sequence[Fields]  # name, calls, failed, total_ns; the greatest total first

class Before:
    """System calls of the process ``pid`` and of all that it starts, from perf's output to a
    pipe."""

    def __init__(self, catalogue: Rows, pid: int, arch: str) -> None: ...
    def feed(self, bytes: bytes) -> None: ...
    def finish(self) -> Sequence[ProcessBefore]:
        """Return the processes, once perf has ended: those that took the longest first, apart from
        their waits for children."""

    def lost(self) -> int:
        """Number of events that the kernel dropped."""

class Now:
    """Requests from perf's output to a pipe.

    ``servers``: processes whose calls in the daemon layer count, none: all. ``mounts``: mount
    points by connection. ``sums``: keep sums for take(). ``wanted``: requests for lines().
    """

    def __init__(
        self,
        catalogue: Rows,
        filters: Filters,
        servers: Sequence[int],
        mounts: dict[int, str],
        arch: str,
        sums: bool,
        wanted: Wanted | None,
    ) -> None: ...
    def feed(self, bytes: bytes) -> None: ...
    def complete(self, upto: int) -> None:
        """Process the events up to this time (ns on the recording's clock), which all are fed."""

    def by_rounds(self) -> int:
        """Return the time up to which perf's rounds show that no event is missing.

        It is in ns on the recording's clock; 0: unknown."""

    def start(self, upto: int) -> None:
        """Discard requests from before a time: their events may not all have been recorded."""

    def forget(self, connections: Sequence[int], before: int) -> None:
        """Give up the requests of these connections that began before a time (ns on the recording's
        clock) when the kernel had none in flight there."""

    def hold(self) -> None:
        """Hold the records of requests in flight, and of wanted ones, from here on."""

    def held(self) -> bytes | None:
        """Return a recording of what is held: begins of requests in flight; begins and ends of
        wanted requests since the last call. None: nothing is held."""

    def set_errors(self, errors: Sequence[int]) -> None:
        """Add requests that end with one of these errors (errno) to lines()."""

    def set_paths(self, on: bool) -> None:
        """Set whether take() needs paths."""

    def lost(self) -> int:
        """Return the number of events that the kernel has dropped so far."""

    def sums(self) -> list[int]:
        """Return four numbers of requests so far.

        They are: ended; ended with an error; wanted, but dropped as too many waited; skipped as
        their path is unknown or incomplete."""

    def callers(self) -> list[int]:
        """Return the processes that made requests since the last take(), or wait for one."""

    def lines(self) -> list[NamedRequest]:
        """Return wanted requests that ended since the last call, as `slowest` does."""

    def under_way(self, least: int, most: int) -> tuple[list[tuple[NamedRequest, bool]], int]:
        """Return requests in flight for ``least`` ns or longer, oldest first, and the number of any
        age. Each request comes with whether its end may be among lost events."""

    def measure(self) -> Metrics:
        """Return distributions of the requests that ended since the last call, and those in
        flight. It takes what take() would."""

    def take(
        self, by: str, sort: str, most: int, contains: str, labels: dict[int, str]
    ) -> Interval:
        """Return sums of the requests that ended since the last call.

        ``groups``: number of rows without a limit; ``left_out``: number of requests that were too
        many. ``labels``: of callers, for ``by`` "label"."""
