"""The native core: reads recordings and ELF files. Raw events never become Python objects.

Nothing here is public: `fusetools.recording` answers in the types of `fusetools.results`.
Every function that reads a file raises `CoreError` when it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, TypedDict

from typing_extensions import NotRequired, Unpack

__version__: str  # of the sources that it was built from

Row = tuple[str, str, str, str, str]
# Of requests: operations (none: all), ns at least, a regular expression for the whole path.
Wanted = tuple[Sequence[str], int, str | None]

class Filters(TypedDict, total=False):
    """What is asked for; a key that is absent, or an empty list, asks for all.

    A request or system call belongs to who makes it. A daemon's call belongs to the caller of its
    request, which is the open request of the same `unique`: a forget has none.
    """

    pids: Sequence[int]  # calling processes
    comms: Sequence[str]  # calling threads' names
    connections: Sequence[int]
    daemon_pids: Sequence[int]  # in the daemon layer only calls of these processes
    # (process, connection) of daemons, since `unique` repeats between connections. Without it a
    # callback's request is the only open one of that number, or of that number and operation.
    daemons: Sequence[tuple[int, int]]
    from_ns: int | None  # start of the call or request, ns after the recording's first event
    to_ns: int | None
    # For function_graph: (start, name, operation that the name tells or "").
    functions: Sequence[tuple[int, str, str]]
    # Kernel functions apart by operation: that of the requests made inside a call (one with several
    # counts for each), else what the name tells. False: each call once.
    by_operation: bool
    # The daemon layer's series "read to reply", by operation: requests without a callback, from the
    # daemon's read to its reply.
    windows: bool
    # The recording is the end of a longer one: what a thread's first event ends began before.
    begun_before: bool
    # ns that an event, and a callback's two uprobes, were measured to cost; 0: not measured.
    cost: tuple[int, int]
    # Durations are without what `cost` took of them; kernel functions' are as recorded.
    corrected: bool

class Figures(TypedDict):
    """Of durations in ns, as in `Series`."""

    count: int
    min: int | None
    max: int | None
    sum: int
    percentiles: dict[str, int]
    buckets: list[tuple[int, int, int]]

class Series(TypedDict):
    """The calls of a function, the requests of an operation, or system calls that made such.

    Times in ns. `count` of the `entries` have a duration: they were matched, or are among the
    `unanswered`, which count until the recording's or their thread's end, the shortest of them with
    `least` ns. `lost`: `unmatched`, but each call of a kernel function once. Of callbacks that
    replied, `until_reply` and `after_reply` are the parts of the durations. `unmatched` are entries
    whose return was not seen, or not surely theirs (events were lost meanwhile), and returns whose
    entry was not seen. A percentile is the smallest duration that at least so many per cent are at
    or below: exact below 4,096 ns, above at most 1/2048 too high. `buckets` go from the first to
    the last in use.
    """

    layer: str
    function: str
    operation: str
    entries: int
    count: int
    unmatched: int
    unanswered: int
    least: int | None
    lost: int
    until_reply: Figures | None
    after_reply: Figures | None
    min: int | None
    max: int | None
    sum: int
    percentiles: dict[str, int]  # "50", "90", "95", "99", "99.9"; empty when count is 0
    buckets: list[tuple[int, int, int]]  # low, high (both included), calls
    outermost: int  # kernel layer: matched calls that no other one encloses
    self: int | None  # function_graph: ns of all matched calls less those of the calls inside
    address: int | None  # function_graph: of the function

class RequestCounts(TypedDict):
    """`begun - matched` have not ended, `ended - matched` began before the recording or unseen."""

    begun: int
    ended: int
    matched: int
    unanswered: int  # of those begun: unfinished, interrupted or aborted

class Answer(TypedDict):
    """What every pass over a recording reports, whatever the question."""

    first: int  # ns on the recording's clock, of the first and the last event
    last: int
    lost: int
    throttled: int
    warnings: list[str]
    requests: NotRequired[RequestCounts]  # not of Graph

class Scan(Answer):
    events: list[tuple[str, int]]  # all events of the recording with their samples
    series: list[Series]

class CallColumns(TypedDict):
    """By start. Of system calls only those that made a request."""

    layer: bytes  # u8: 0 syscall, 1 kernel, 2 request (never), 3 daemon
    function: bytes  # u16, index into `functions`
    start: bytes  # u64, ns on the recording's clock
    duration: bytes  # u64, ns
    pid: bytes  # i32
    tid: bytes  # i32
    unique: bytes  # u64, 0 where not known

class RequestColumns(TypedDict):
    """By begin. 0 stands for what was not seen."""

    connection: bytes  # u64
    unique: bytes  # u64
    opcode: bytes  # u32
    begin: bytes  # u64, ns on the recording's clock
    end: bytes  # u64
    error: bytes  # i32, negated errno
    pid: bytes  # i32, the caller
    tid: bytes  # i32
    callback_start: bytes  # u64
    callback_end: bytes  # u64
    sent: bytes  # u64, copied to the daemon
    woken: bytes  # u64, the caller runs on

class Columns(TypedDict):
    functions: list[str]
    calls: CallColumns
    requests: RequestColumns

class Stories(Answer):
    """`stories`: columns by start, as `fusetools.results.stories.Stories` describes them."""

    stories: dict[str, bytes]
    operations: list[str]
    fates: list[str]
    marks: list[str]  # the columns of times, in order
    comms: list[str]

class Durations(TypedDict):
    """ns; the percentiles as in Series."""

    count: int
    sum: int
    p50: int | None
    p99: int | None
    max: int | None

class Stage(TypedDict):
    """Of all requests of a group, so that its percentiles are there. `parts`: (requests, ns of
    three parts, ns of the rest). Of the recorder lay in it, over all requests: `events`, `uprobes`
    (quarters of a callback's two), which took `taken` ns by `Filters.cost`."""

    stage: str
    count: int
    sum: int
    p50: int
    p99: int
    max: int
    parts: tuple[int, list[int], int]
    unsplit: int
    events: int
    uprobes: int
    taken: int

class StageGroup(TypedDict):
    """The requests of one operation; `key` is what `by` asks for, None where it is not known."""

    operation: str
    waits: bool
    key: str | int | None
    fates: dict[str, int]
    errors: int
    ring: int
    handed: int
    total: Durations
    least: int | None
    stages: list[Stage]

class Stages(Answer):
    groups: list[StageGroup]
    event_cost: int | None  # ns that an event costs at most

class SingleCalls(TypedDict):
    """Tree by tree in the order of their begin, in each in the order of the entries."""

    function: bytes  # u32, index into `functions`
    level: bytes  # u32, functions around it
    start: bytes  # u64, ns on the recording's clock
    duration: bytes  # u64, ns; 2**64 - 1 where the return was not seen
    tid: bytes  # i32
    cpu: bytes  # u32
    comm: bytes  # u32, index into `comms`

class Graph(Answer):
    """`nodes` are (parent or -1, function, calls, total ns, self ns), a node after its parent."""

    functions: list[str]
    nodes: list[tuple[int, int, int, int, int]]
    unmatched: int  # calls without their return
    full: bool  # some were left out: there were more ways to call than any real kernel has
    calls: SingleCalls  # only if asked for
    comms: list[str]

class Description(TypedDict):
    session: str | None  # JSON
    events: list[str]
    # Start and name, by start, of the kernel's functions that the recording holds symbols of: those
    # of its function_graph events.
    functions: list[tuple[int, str]]
    arch: str | None
    release: str | None
    hostname: str | None
    kernel_place: tuple[str, int] | None  # a symbol of the kernel, and the address it had
    samples: list[tuple[str, bool]]  # events that sample what runs; their period is in ns
    stacks: list[str]  # events whose samples have stacks
    warnings: list[str]  # what is missing of the file

class Ask(TypedDict, total=False):
    graph: str  # "on-cpu", "off-cpu", "off-wake" or "requests"
    all: bool  # also what is of no request, and of neither the workload nor a daemon
    states: Sequence[str]  # "blocked", "runnable", "preempted"; none: all
    who: str | None  # "workload" or "daemon" alone
    workload: Sequence[int]  # its first processes
    filters: Filters
    operations: Sequence[str]
    kallsyms: str  # the recorded kernel's symbols, instead of those in the recording
    symfs: str  # where the files of programs are, instead of what the recording holds of them

class Flame(Answer):
    """Stacks added up. Amounts are (count, ns), for samples (count, sum of periods)."""

    stacks: dict[str, float]  # "comm;outermost;…;innermost": ns, or sum of periods
    shown: tuple[int, int]
    stackless: int
    cut: int  # weight of stacks shown that end before their thread's start
    cut_daemons: int  # the part of `cut` that the daemons waited
    cut_copied: int  # the part of stacks that were copied too short
    cut_unknown: int  # the part of copied stacks that cannot be followed further
    idle: tuple[int, int]
    own: tuple[int, int]
    others: tuple[int, int]
    unfinished: int
    states: dict[str, int]  # of waits: ns
    daemons: int  # the part of the weight shown that the daemons waited
    shared: int
    wakers: int
    wakers_stackless: int
    frames: list[tuple[str, str, bool]]  # name, file or "", of the kernel
    # Whether there were symbols; number of different addresses, and of those without a name.
    kernel: tuple[bool, int, int]
    user: tuple[bool, int, int]
    # Files with nameless addresses: those without any symbols, and those with some.
    without_symbols: list[str]
    stripped: list[str]
    copied: bool  # samples hold copies of user stacks that were not unwound
    full: bool

class MergeOptions(TypedDict, total=False):
    """`kallsyms`: the traced kernel's symbols; those in stacks become a part of the output (without
    it: those of a trace.dat). `maps`: (pid, start, length, offset in the file, path, build id or
    b"", another path of the file or "") of code that was mapped before the recording began.
    `avoid`: mount points below which nothing may be opened; if not None, the recorded programs are
    on this machine: copies of user stacks are unwound to call chains, and the functions in user
    stacks become a part of the output. `bundles`: (event that several probes share, the field with
    a probe's number, (number, event made of it, fields that this event lacks) …). `daemons`:
    processes whose samples are kept in the group fuse_daemon (None: all). `scope`: keep switches,
    wake-ups and system calls only of these processes and of those that they start (None: all).
    `threads`: process by thread, for threads without a record. `window`: (ns, until, since, bytes
    of each CPU's buffer): the inputs come from perf's overwriting buffers; take the last ns until a
    time, nothing from before `since`, as far back as all CPUs' buffers reach (`kept`). `span`:
    leave out samples before the first time and after the second. `opener`: opens the files of
    programs for this process, which closes the descriptor. `packed`: pack the records, as `perf
    record -z`. `private`: the output holds no copies of stacks and registers, user stacks only of
    the processes of `scope`, and in these only addresses of code.
    """

    kallsyms: str | PathLike[str] | None
    maps: Sequence[tuple[int, int, int, int, str, bytes, str]]
    avoid: Sequence[str | PathLike[str]] | None
    bundles: Sequence[tuple[str, str, Sequence[tuple[int, str, Sequence[str]]]]]
    daemons: Sequence[int] | None
    scope: Sequence[int] | None
    threads: Mapping[int, int]
    window: tuple[int, int, int, int] | None
    span: tuple[int, int] | None
    opener: Callable[[Path], int] | None
    packed: bool
    private: bool

class MergeInfo(TypedDict):
    records: int  # written
    warnings: list[str]  # what was left out or corrected
    session_at: list[tuple[int, int]]  # where in the file the session's JSON is, part by part
    left_out: dict[str, int]  # event -> samples of other daemons
    # Number of switches with a stack of their own, with that of a similar wait, without.
    stacks: tuple[int, int, int]
    stacks_ns: int  # cost of taking stacks for the threads they are of, if ftrace recorded all
    missing_switches: int  # of the workload's and the daemons' threads: happened, not recorded
    # Of a window: its begin and end, and whether earlier events were overwritten.
    kept: tuple[int, int, bool] | None

class Kept(TypedDict):
    """A request, as `fusetools.results.request.Request` describes it; None: not known. Times are ns
    on the recording's clock; `stages` are (name, ns, ns of its parts)."""

    operation: str
    fate: str
    waits: bool
    connection: int | None
    unique: int | None
    size: int | None
    offset: int | None
    answer: int | None  # inode that a lookup led to, 0: to none
    request_len: int | None
    reply_len: int | None
    no_thread: int | None
    no_cpu: int | None
    asleep: int | None
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
    path: tuple[str, bool] | None  # whether it begins at the mount point
    name: str | None
    inode: int | None
    duration: int
    marks: dict[str, int]
    until: int | None
    handed: bool
    stages: list[tuple[str, int, list[int] | None]]

class Numbered(Answer):
    kept: list[Kept]
    threads: Threads

class Slowest(Numbered):
    pathless: int  # requests without a path that could be looked at

# Time, thread, CPU, row of the catalogue (-1: a switch, -2: a file's name), values, system call or
# name.
Moment = tuple[int, int, int, int, list[int | None], str | None]

class Threads:
    """The threads of a recording, which was read once."""

    def moments(self, spans: Sequence[tuple[int, int, int]]) -> list[list[Moment]]:
        """What happened in each span (thread, from, to) to its thread."""

class DaemonState(TypedDict):
    """Of a daemon that did not answer all; times in ns after the recording's first event."""

    pid: int
    connection: int
    ran: int | None
    stopped: int | None
    ended: int | None
    unanswered: int
    hangs: bool

class Errors(Answer):
    """`operations`: name, answered requests, lookups of no file, (errno, requests) …, (fate,
    requests) … of those without an answer."""

    operations: list[tuple[str, int, int, list[tuple[int, int]], list[tuple[str, int]]]]
    disconnected: list[tuple[str, int]]  # system call, how many

class MountQueue(TypedDict):
    """`whole` and `parts`: of the time, as `fusetools.results.queue.QueuePart`."""

    connection: int | None
    requests: int
    threads: int
    unanswered: int
    unread: int
    handed: int
    ring: int
    runnable: int
    total: int
    waited: int
    short: int
    whole: list[tuple[float, float, int, int]]
    parts: list[tuple[float, float, int, int]]
    time: bytes  # u64, ns on the recording's clock
    queued: bytes  # u32
    busy: bytes  # u32

class Queue(Answer):
    mounts: list[MountQueue]

class Export(Answer):
    rows: int
    servants: list[tuple[int, int]]  # process and thread of the daemons

class Group(TypedDict):
    """Requests that ended in an interval, times in ns."""

    label: str
    id: int | None
    connection: int | None
    requests: int
    errors: int
    bytes: int
    transfers: int
    total: int
    waited: int
    p50: int
    p99: int
    max: int
    queue: int
    daemon: int
    queued: int
    under_way: int

class Interval(TypedDict):
    total: Group
    rows: list[Group]
    groups: int
    left_out: int

class CoreError(Exception):
    """`args` is `(what, why)`: what could not be done and why, a line each."""

def btf(
    vmlinux: bytes, module: bytes | None, members: Sequence[str], structures: Sequence[str]
) -> tuple[dict[str, tuple[int, int, int]], dict[str, list[str]]]:
    """Of the kernel's BTF, and of a module's, if that is not None: where ``members`` are, such as
    "fuse_req.in.h.unique" (bytes from the structure's begin; of a bit field its first bit in that
    byte and how many, else 0, 0), without those that are not there; and the functions, of the
    module if it is not None, that take a pointer to one of ``structures``, with what each parameter
    points to: the structure's name, "" for anything else. ValueError: it is no BTF, or damaged.
    """

def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Whether the regular expression matches in each, in linear time. ValueError: it is invalid."""

def elf_functions(
    path: str | PathLike[str], debug_path: str | PathLike[str] | None = None
) -> list[tuple[str, int, int, int]]:
    """Functions of .symtab and .dynsym as (name, virtual address, size, file offset), by address.

    Names are as in the file (mangled), without a symbol version; `.cold` halves are left out. The
    file offset is where a uprobe goes: vaddr - p_vaddr + p_offset of the segment, or some
    instructions further, where it is cheap (x86-64) or is passed once (Go). `debug_path` adds the
    symbols of a separate debug file, which must have the same build id.
    """

def elf_stepped(path: str | PathLike[str], offsets: Sequence[int]) -> list[int]:
    """Those of the offsets, as `elf_functions` gives them, at which the kernel single-steps the
    instruction under a probe, which takes longer; none on other architectures than x86-64.
    """

def elf_frame_pointers(path: str | PathLike[str]) -> float | None:
    """Share (0 to 1, by bytes of code) of the functions that use the frame pointer's register which
    keep a frame pointer, by the file's unwind tables; 0 if none uses it, None if unknown.
    """

def elf_build_id(path: str | PathLike[str]) -> str | None:
    """The GNU build id in lower-case hexadecimal."""

def elf_about(path: str | PathLike[str]) -> tuple[str, str, list[str]]:
    """(machine, runtime, imports) of a file.

    The machine is that of `uname -m` ("i386" for x86 of 32 bits); the runtime the language whose
    own runtime does not survive a return probe ("Go" …), or ""; the imports are of libfuse's API.
    """

def demangle(name: str) -> str:
    """A C++ or Rust name without its arguments (`cvmfs::cvmfs_lookup`); any other as it is."""

def syscall_name(machine: str, number: int, narrow: bool) -> str | None:
    """Of system call ``number`` on a machine (as `uname -m` says), or of a 32-bit program's on it;
    None: there is none, or the machine is another one than x86_64 or aarch64."""

def live_stacks(
    code: list[tuple[int, int, int, str, str]],
    threads: list[tuple[int, int, bytes]],
    avoid: list[str],
) -> list[tuple[list[str], bool]]:
    """The functions that threads are in which sleep in the kernel now, without stopping them.

    ``code``: (start, end, offset in the file, path, name of the file here) of what a process has
    mapped executable; ``threads``: (instruction pointer, stack pointer, bytes from there up).
    Innermost first, and whether a stack goes on to where its thread began. x86-64 only. ``avoid``:
    mount points below which no debug file is looked for.
    """

def calibrate(n: int) -> int:
    """Calls the exported, empty function `fusetools_calibrate` n times; ns that took."""

def describe(path: str | PathLike[str]) -> Description:
    """What a recording says of itself: its header, and the records up to the session sample."""

def of_memory(path: str | PathLike[str]) -> list[str]:
    """Names of the events whose samples may hold memory or registers of processes."""

def scan(path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters) -> Scan:
    """One pass over the recording: counts and histograms of what the catalogue names.

    Catalogue rows are (event, layer, function, operation, role). ValueError for a layer, role or
    filter that does not exist.
    """

def columns(path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters) -> Columns:
    """Each matched call and each begun request, as little-endian arrays."""

def stories(path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters) -> Stories:
    """Each request's whole story, as little-endian arrays."""

def flame(path: str | PathLike[str], catalogue: Sequence[Row], ask: Ask) -> Flame:
    """Stacks for a flame graph: of the events that the catalogue has a row "stack" for."""

def stages(
    path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters, by: str
) -> Stages:
    """Where requests' time went. `by`: "", "comm", "pid", "daemon-thread", "mount" or "size"."""

def slowest(
    path: str | PathLike[str],
    catalogue: Sequence[Row],
    filters: Filters,
    wanted: Wanted,
    mounts: Mapping[int, str],
    most: int,
) -> Slowest:
    """The slowest requests, slowest first."""

def numbered(
    path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters, unique: int
) -> Numbered:
    """The requests of a number."""

def daemons(
    path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters
) -> list[DaemonState]:
    """What became of each traced daemon, where it had not answered all."""

def errors(path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters) -> Errors:
    """What requests were answered with."""

def queue(
    path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters, parts: int
) -> Queue:
    """How many requests waited for the daemon, over time; also in so many parts of it."""

def export(
    path: str | PathLike[str],
    catalogue: Sequence[Row],
    filters: Filters,
    output: str | PathLike[str],
    form: str,
) -> Export:
    """Writes each request into a file: "perfetto", "csv" or "json", which lack their end."""

def graph(
    path: str | PathLike[str], catalogue: Sequence[Row], filters: Filters, calls: bool
) -> Graph:
    """What the kernel's functions called: a tree of all ways, and each single call."""

def merge(
    inputs: Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    session: str,
    **more: Unpack[MergeOptions],
) -> MergeInfo:
    """Merges recordings made at once on one machine and clock into one that stock perf reads.

    `session` is the JSON of the `fusetools:session` samples, at most 16 MB, and replaces
    those of the inputs; "" keeps the first of them.
    The output, of mode 0600, takes its place when it is whole and may be an input; on an error
    nothing is left of it. "/proc/self/fd/N" is the open file N, also as the output.
    """

def keep_vdso() -> None:
    """To be called before a process gives up its rights and merges."""

def ring_head(
    header_page: str,
    header_event: str,
    formats: Sequence[tuple[str, str]],
    clock: str,
    uname: str,
    cpus: int,
) -> bytes:
    """What a file of ring_collect begins with. ``formats``: (system, text) of each event."""

def ring_collect(
    instance: str, page: int, limit: int, output: int, control: int
) -> Literal["told", "alone", "full"]:
    """Moves the pages (``page`` bytes each) of an ftrace instance's buffers into the open file
    ``output``, until a byte comes from the socket ``control``, its peer closes it, or the file has
    ``limit`` bytes. Closes both descriptors. Raises OSError."""

class Now:
    """Requests out of what perf writes to a pipe.

    ``servers``: processes whose calls in the daemon layer count, none: all. ``mounts``: mount
    points by connection. ``sums``: for take(). ``wanted``: for lines().
    """

    def __init__(
        self,
        catalogue: Sequence[Row],
        filters: Filters,
        servers: Sequence[int],
        mounts: dict[int, str],
        arch: str,
        sums: bool,
        wanted: Wanted | None,
    ) -> None: ...
    def feed(self, bytes: bytes) -> None: ...
    def complete(self, upto: int) -> None:
        """All that happened up to this time (ns on the recording's clock) has been fed."""

    def by_rounds(self) -> int:
        """Up to when nothing can be missing, as perf's own rounds show; ns on the recording's
        clock, 0: not known."""

    def start(self, upto: int) -> None:
        """Forgets what began or ended before: not all events may have been recorded then."""

    def set_errors(self, errors: Sequence[int]) -> None:
        """Requests that end with one of these (errno) are among the lines(), too."""

    def set_paths(self, on: bool) -> None:
        """Whether take() is to know paths."""

    def lost(self) -> int:
        """Events that the kernel dropped so far."""

    def sums(self) -> list[int]:
        """So far: requests that ended; of them with an error; wanted, but not kept, since too many
        waited; without a path that could be looked at."""

    def callers(self) -> list[int]:
        """Processes that made the requests since the last take(), or wait for one."""

    def lines(self) -> list[Kept]:
        """Wanted requests that ended since the last time, as `slowest` has them."""

    def under_way(self, least: int, most: int) -> tuple[list[tuple[Kept, bool]], int]:
        """Requests that have not ended and are ``least`` ns old, the oldest first, each with
        whether its end may be among what was lost; and how many there are of any age."""

    def take(
        self, by: str, sort: str, most: int, contains: str, labels: dict[int, str]
    ) -> Interval:
        """Sums of the requests that ended since the last time: total, rows, groups (how many rows
        there would be), left_out (requests that were too many). ``labels``: of callers, for
        ``by`` "label"."""
