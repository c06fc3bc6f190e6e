"""Reasons: why something is missing, slow or cut, as a code, its subject and its figures.

Decisions read codes, subjects and figures, never sentences. The sentences are in this module, at
the bottom of the layers, because errors of plan/ and record/ and the JSON of results/ hold them
too; render/ lays them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Union

from fusetools.figures import ago, binary, duration, plural, share, took


class Code(str, Enum):
    """Kind of a reason. JSON has the values: a name that was printed once stays."""

    # An older recording's own words, or a code of a newer version.
    OTHER = "other"

    # A mount's daemon, its files and callbacks
    DAEMON_UNKNOWN = "daemon_unknown"
    LIBRARIES_UNREADABLE = "libraries_unreadable"
    LIBRARY_ABSENT = "library_absent"
    DAEMON_UNSUPPORTED = "daemon_unsupported"
    DAEMON_SHARED = "daemon_shared"
    FILE_UNNAMED = "file_unnamed"
    FILE_UNREADABLE = "file_unreadable"
    STRIPPED = "stripped"
    NO_INODES = "no_inodes"
    NO_REQUESTS_OF_CALLBACKS = "no_requests_of_callbacks"
    RETURNS_RUNTIME = "returns_runtime"
    RETURNS_SECCOMP = "returns_seccomp"
    RETURNS_SHADOW_STACK = "returns_shadow_stack"
    NO_UPROBES = "no_uprobes"
    CALLBACK_REFUSED = "callback_refused"
    CALLBACKS_REFUSED = "callbacks_refused"
    ANOTHER_COPY = "another_copy"
    OTHER_FUNCTIONS = "other_functions"

    # The kernel's functions
    FUNCTION_ABSENT = "function_absent"
    FUNCTION_REFUSED = "function_refused"
    FUNCTION_UNPLACED = "function_unplaced"
    FUNCTION_UNTRACED = "function_untraced"
    TOO_MANY_FUNCTIONS = "too_many_functions"
    NO_FUNCTION_MATCHES = "no_function_matches"
    TRACEPOINTS_ONLY = "tracepoints_only"
    NO_KPROBES = "no_kprobes"
    NO_GRAPH_TRACER = "no_graph_tracer"
    NO_KERNEL_PROBES = "no_kernel_probes"
    NO_TRACE_CMD = "no_trace_cmd"
    NO_FUSE_FUNCTIONS = "no_fuse_functions"
    NO_COMMON_CLOCK = "no_common_clock"
    PID_NAMESPACE = "pid_namespace"
    GRAPH_IN_USE = "graph_in_use"
    KERNEL_STACKS_CUT = "kernel_stacks_cut"

    # Requests and their stages
    STAGE_AMBIGUOUS = "stage_ambiguous"
    STAGE_VARIANT = "stage_variant"
    STAGE_UNTRACEABLE = "stage_untraceable"
    STAGE_NO_LAYOUT = "stage_no_layout"
    STAGE_NO_ARGUMENTS = "stage_no_arguments"
    STAGE_NO_FUNCTION = "stage_no_function"
    STAGE_SILENT = "stage_silent"
    NO_FUSE_TRACEPOINTS = "no_fuse_tracepoints"
    NO_UNIQUE = "no_unique"
    ALREADY_WAITING = "already_waiting"
    MOUNTED_BEFORE_TRACED = "mounted_before_traced"
    MOUNTED_MEANWHILE = "mounted_meanwhile"

    # The workload, tasks and their stacks
    NO_WORKLOAD = "no_workload"
    NO_CGROUP = "no_cgroup"
    NO_THREAD_FILTER = "no_thread_filter"
    CGROUP_REFUSED = "cgroup_refused"
    WORKLOAD_BEFORE_TRACED = "workload_before_traced"
    WORKLOAD_ENDED_BEFORE = "workload_ended_before"
    THREAD_NUMBERS_REUSED = "thread_numbers_reused"
    NO_SCHED_SWITCH = "no_sched_switch"
    NO_RAW_SYSCALLS = "no_raw_syscalls"
    NO_COPIES_APART = "no_copies_apart"
    NO_CONTROL = "no_control"
    TOO_MANY_THREADS = "too_many_threads"
    SWITCHES_MISSING = "switches_missing"
    LOW_DETAIL = "low_detail"

    # A flight recorder's buffers
    BUFFERS_FULL = "buffers_full"
    RECORDER_BEGAN = "recorder_began"
    IN_ANOTHER_RECORDING = "in_another_recording"

    # Limits of a flame graph
    KERNEL_UNNAMED = "kernel_unnamed"
    USER_UNNAMED = "user_unnamed"
    COPIES_NOT_UNWOUND = "copies_not_unwound"
    FILES_NOT_FOUND = "files_not_found"
    FILES_STRIPPED = "files_stripped"
    DEBUGINFOD_SLOW = "debuginfod_slow"
    GENERATED_UNNAMED = "generated_unnamed"
    STACKS_CUT = "stacks_cut"
    STACKS_WITHOUT_TABLES = "stacks_without_tables"
    STACKS_TOO_DEEP = "stacks_too_deep"
    WAKERS_STACKLESS = "wakers_stackless"
    TOO_MANY_STACKS = "too_many_stacks"
    STACKS_SAMPLED = "stacks_sampled"
    WAITS_BY_PERF = "waits_by_perf"

    # Threads and CPU of a daemon: enough or not
    READS_NOT_SEEN = "reads_not_seen"
    REQUESTS_DROPPED = "requests_dropped"
    ANSWERS_REFUSED = "answers_refused"
    CPU_SHORT = "cpu_short"
    CPU_SHORT_AT_TIMES = "cpu_short_at_times"
    THREADS_SHORT = "threads_short"
    THREADS_SHORT_AT_TIMES = "threads_short_at_times"
    THREADS_ENOUGH = "threads_enough"
    THREADS_UNKNOWN_HANDED = "threads_unknown_handed"
    THREADS_UNKNOWN_NO_READ = "threads_unknown_no_read"
    THREADS_UNKNOWN_NO_ANSWER = "threads_unknown_no_answer"
    THREADS_UNKNOWN_UNANSWERED = "threads_unknown_unanswered"

    # No estimate of a replay with other limits
    REPLAY_EMPTY = "replay_empty"
    REPLAY_RING = "replay_ring"
    REPLAY_HANDED = "replay_handed"
    REPLAY_LOCK = "replay_lock"
    REPLAY_DEVIATES = "replay_deviates"
    REPLAY_LIMIT = "replay_limit"
    REPLAY_WRITES = "replay_writes"
    REPLAY_STACKS = "replay_stacks"

    # Requests that belong to no group that has a name
    NO_PATH = "no_path"
    NO_CALLER = "no_caller"
    NOT_NOTED = "not_noted"
    NO_JOB = "no_job"
    NO_HOST = "no_host"

    # Stages that a recording does not separate, because of what it lacks: subject `cause`
    NO_VFS_STAGES = "no_vfs_stages"
    VFS_ENTRY_JOINED = "vfs_entry_joined"
    DAEMON_NOT_SPLIT = "daemon_not_split"
    DAEMON_FROM_READ = "daemon_from_read"
    QUEUE_JOINED = "queue_joined"
    CALLER_WAKEUP_JOINED = "caller_wakeup_joined"

    # Verdicts on two recordings, or on several sides
    DIFF_FASTER = "diff_faster"
    DIFF_SLOWER = "diff_slower"
    DIFF_ALIKE = "diff_alike"
    DIFF_REQUESTS = "diff_requests"
    COMPARED_BEST = "compared_best"
    COMPARED_ALIKE = "compared_alike"
    TOP_MOST = "top_most"
    # Tables as Parquet
    NO_TABLE = "no_table"
    # Files that fleet skips
    FLEET_BROKEN = "fleet_broken"
    FLEET_FOREIGN = "fleet_foreign"
    FLEET_VERSION = "fleet_version"
    FLEET_INCOMPLETE = "fleet_incomplete"
    FLEET_UNKNOWN = "fleet_unknown"

    # Findings: why callers waited
    DAEMON_SLEEPS = "daemon_sleeps"
    DAEMON_LOCK = "daemon_lock"
    DAEMON_WAITS_FOR_PROCESS = "daemon_waits_for_process"
    DAEMON_WAITS_FOR_FUSE = "daemon_waits_for_fuse"
    DAEMON_THREAD_BUSY = "daemon_thread_busy"
    DAEMON_HALTED = "daemon_halted"
    DAEMON_WAITS = "daemon_waits"
    DAEMON_CPU = "daemon_cpu"
    SLOW_SERVER = "slow_server"
    SLOW_DISK = "slow_disk"
    FEW_THREADS = "few_threads"
    CPU_QUOTA = "cpu_quota"
    CPU_TAKEN = "cpu_taken"
    DIRTY_THROTTLING = "dirty_throttling"
    BACKGROUND_LIMIT = "background_limit"
    PAGES_AWAITED = "pages_awaited"
    INODE_LOCK = "inode_lock"
    DIRECTORY_LOCK = "directory_lock"
    ACCESS_PERMISSION = "access_permission"
    PASSTHROUGH_WAITS = "passthrough_waits"
    CALLERS_BLOCKED = "callers_blocked"
    FILE_LOCKS = "file_locks"
    INTERRUPTED = "interrupted"
    RESENT = "resent"
    HAMMER = "hammer"
    MOUNTED_LATE = "mounted_late"
    CACHES_OFF = "caches_off"
    NEGATIVE_LOOKUPS = "negative_lookups"
    SMALL_REQUESTS = "small_requests"
    METADATA_FOR_EACH_WRITE = "metadata_for_each_write"
    ATTRIBUTES_ABSENT = "attributes_absent"
    READ_AGAIN = "read_again"
    STAT_FOR_EACH_ENTRY = "stat_for_each_entry"
    ERRORS_FREQUENT = "errors_frequent"
    CONTENT_REFUSED = "content_refused"
    DISCONNECTED = "disconnected"
    DAEMON_ENDED = "daemon_ended"
    UNANSWERED = "unanswered"
    RECORDING_DISTURBS = "recording_disturbs"

    # Objections to a finding, and causes that a recording cannot show
    WHY_NO_STATES = "why_no_states"
    WHY_NO_FUNCTIONS = "why_no_functions"
    WHY_UNKNOWN = "why_unknown"
    WHY_THREADS_BUSY = "why_threads_busy"

    # Waits of a thread, at a moment
    WAIT_CPU = "wait_cpu"
    WAIT_QUOTA = "wait_quota"
    WAIT_HALTED = "wait_halted"
    WAIT_ENDED = "wait_ended"
    WAIT_REQUEST = "wait_request"
    WAIT_RING = "wait_ring"
    WAIT_JOIN = "wait_join"
    WAIT_LOCK = "wait_lock"
    WAIT_LOCK_ITSELF = "wait_lock_itself"
    WAIT_LOCK_GONE = "wait_lock_gone"
    WAIT_AUTOMOUNT = "wait_automount"
    WAIT_MEMORY = "wait_memory"
    WAIT_FROZEN = "wait_frozen"
    WAIT_INVALIDATION = "wait_invalidation"
    WAIT_KERNEL_LOCK = "wait_kernel_lock"
    WAIT_TO_SEND = "wait_to_send"
    WAIT_ANSWER = "wait_answer"
    WAIT_WORKERS = "wait_workers"
    WAIT_RUNTIME = "wait_runtime"
    WAIT_CONDITION = "wait_condition"
    WAIT_SLEEP = "wait_sleep"
    WAIT_INIT = "wait_init"
    WAIT_FILE_LOCK = "wait_file_lock"
    WAIT_OWN_LOCK = "wait_own_lock"
    WAIT_CALLERS_LOCK = "wait_callers_lock"
    WAIT_CHILD = "wait_child"
    WAIT_DESCRIPTOR = "wait_descriptor"
    WAIT_FILE = "wait_file"
    WAIT_CALL = "wait_call"

    # Halts of a whole process
    HALT_FROZEN = "halt_frozen"
    HALT_TRACED = "halt_traced"
    HALT_STOPPED = "halt_stopped"
    HALT_ZOMBIE = "halt_zombie"
    HALT_KILLED = "halt_killed"

    # Links of a chain of waits
    LINK_THREAD = "link_thread"
    LINK_MOUNT = "link_mount"
    LINK_PROCESS = "link_process"
    LINK_HOLDER = "link_holder"
    LINK_END_THERE = "link_end_there"
    LINK_WAIT_ALIKE = "link_wait_alike"
    LINK_OUTSIDE = "link_outside"

    # Why a mount hangs
    HANG_AUTOFS = "hang_autofs"
    HANG_AUTOFS_UNKNOWN = "hang_autofs_unknown"
    HANG_BEYOND = "hang_beyond"
    HANG_HIDDEN = "hang_hidden"
    HANG_GONE = "hang_gone"
    HANG_DAEMON_HALTED = "hang_daemon_halted"
    HANG_INVALIDATION = "hang_invalidation"
    HANG_MOUNTS = "hang_mounts"
    HANG_OWN_MOUNT = "hang_own_mount"
    HANG_LOCK_ITSELF = "hang_lock_itself"
    HANG_DEADLOCK = "hang_deadlock"
    HANG_PROCESSES = "hang_processes"
    HANG_FILE_LOCK = "hang_file_lock"
    HANG_FILE_LOCKS = "hang_file_locks"
    HANG_PROCESS = "hang_process"
    HANG_PROCESS_HALTED = "hang_process_halted"
    HANG_MOUNT = "hang_mount"
    HANG_FROZEN = "hang_frozen"
    HANG_MEMORY = "hang_memory"
    HANG_MEMORY_OF = "hang_memory_of"
    HANG_THREAD = "hang_thread"
    HANG_HOLDER = "hang_holder"
    HANG_JOIN = "hang_join"
    HANG_OTHER = "hang_other"
    HANG_RELOAD = "hang_reload"
    HANG_RELOAD_PAUSED = "hang_reload_paused"
    HANG_SERVER = "hang_server"
    HANG_NOT_READY = "hang_not_ready"
    HANG_BACKGROUND = "hang_background"
    HANG_INIT = "hang_init"
    HANG_ENDED = "hang_ended"
    HANG_DEAD = "hang_dead"
    ABORT_SOON = "abort_soon"
    MOUNTING = "mounting"
    HANG_UNEXAMINED = "hang_unexamined"
    HANG_UNREAD = "hang_unread"
    HANG_UNANSWERED = "hang_unanswered"
    HANG_OLDER = "hang_older"
    LOCK_HOLDER_UNKNOWN = "lock_holder_unknown"
    CALLER_HALTED = "caller_halted"
    HOLDER_HALTED = "holder_halted"


# Causes, of missing kernel functions, that only another kernel removes. record and doctor report
# them; an answer does not repeat them.
OF_THE_KERNEL = frozenset({Code.NO_GRAPH_TRACER, Code.NO_KERNEL_PROBES})

Value = Union[str, int, "tuple[str | int, ...]"]


@dataclass(frozen=True)
class Reason:
    """Why something is missing, with the command that fixes it (``fix``, may be empty; several
    ways, a line each).

    ``subject``: what it is about: path, comm, pid, function, file, pattern …; ``message``: words of
    the kernel or of a tool. ``figures``: counts; times in ns end in _ns, sizes in _bytes, shares
    (0 to 1) in _share.
    ``layer``: whose figures are incomplete because of it: one of the layers (``names.LAYERS``),
    "off_cpu" (what threads waited for), "stacks", "names" (of files); "" if the figures come from
    elsewhere and lack nothing.
    """

    code: Code
    subject: Mapping[str, str | int | tuple[str | int, ...]] = field(
        default_factory=dict, hash=False
    )
    figures: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    fix: str = ""
    layer: str = ""

    JSON_SHOWN = ("text",)

    @property
    def what(self) -> str:
        """Return the missing part, as a phrase."""
        return self._said(0)

    @property
    def why(self) -> str:
        """The cause: a clause, "" if there is none."""
        return self._said(1)

    @property
    def text(self) -> str:
        """Both in one sentence."""
        return ": ".join(filter(None, (self.what, self.why)))

    def named(self, name: str) -> str:
        """Part of the subject or the figures, as printed."""
        return Words(self)[name]

    def _said(self, part: int) -> str:
        form = SENTENCES[self.code][part]
        words = Words(self)
        return form(words) if callable(form) else form.format_map(words)


class Words(dict[str, str]):
    """Subject and figures as text, for a sentence. Recordings of strangers may lack some."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__((name, _text(value)) for name, value in reason.subject.items())
        self.update((name, _figure(name, n)) for name, n in reason.figures.items())

    def __missing__(self, name: str) -> str:
        return "?"

    def counted(self, name: str, word: str, words: str = "") -> str:
        return plural(int(self.reason.figures.get(name, 0)), word, words)

    def listed(self, name: str, between: str = ", ") -> str:
        return between.join(map(str, self.each(name)))

    def each(self, name: str) -> tuple[str | int, ...]:
        value = self.reason.subject.get(name, ())
        return value if isinstance(value, tuple) else (value,)


def _text(value: Value) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _figure(name: str, value: float) -> str:
    if name.endswith("_ns"):
        return took(value / 1e9)
    if name.endswith("_share"):
        return share(value, 1)
    return binary(int(value)) if name.endswith("_bytes") else f"{value:,}"


# A text with the names of subjects and figures, or a function of them.
Form = Union[str, Callable[[Words], str]]


def _skipped(words: Words) -> str:
    """Name a skipped file, and how many there are."""
    others = int(words.reason.figures.get("files", 1)) - 1
    return words["path"] + (f" and {plural(others, 'other')}" if others else "")


def _daemon(words: Words) -> str:
    """Name the daemon, or its callbacks where other events are recorded instead."""
    return f"{words.get('part', 'daemon').replace('_', ' ')} of {words['path']}"


def _requests(words: Words) -> str:
    by = f" by {words['transport']}" if "transport" in words else ""
    return f"requests{by}, {words['stage']}"


def _functions(words: Words) -> str:
    """Kernel functions, or function_graph alone where kprobes record them instead."""
    return "kernel functions" if words.reason.layer == "kernel" else "function_graph"


def _by_process(words: Words) -> str:
    """Return the program whose setting rules return probes out: a daemon, or fusetools."""
    return f"{words['comm']} (pid {words['pid']})" if "pid" in words else "this process"


def _cut_at(words: Words) -> str:
    at = words["function"] if "function" in words else f"{words['functions']} kernel functions"
    return f"on this kernel they end, or lack the caller, at a function with a return probe: {at}"


def _callers(words: Words) -> str:
    """Name the first callers. Their number is a figure."""
    columns = [words.each(name) for name in ("comms", "pids", "tids", "paths", "ages_ns")]
    named = []
    for comm, pid, tid, path, age in zip(*columns):
        thread = f"pid {pid}" if tid == pid else f"thread {tid}"
        since = ago(age / 1e9 if isinstance(age, int) else None)
        named.append(f"{comm} ({thread}{f', {path}' if path else ''}), {since}")
    more = int(words.reason.figures.get("callers", 0)) - len(named)
    rest = f" and {more:,} more" if more > 0 else ""
    return f"it began before the recording: {', '.join(named)}{rest}"


def _files(words: Words, subject: str = "files") -> str:
    files = [str(file) for file in words.each(subject)]
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return f"{', '.join(files[:3])}{more}"


def _cut_stacks(words: Words) -> str:
    daemons = "of the daemon's time: " + words["daemon_share"]
    more = f" ({daemons})" if "daemon_share" in words else ""
    return f"{words['time_share']} of the time has stacks cut before their thread's start{more}"


def _copied(words: Words) -> str:
    size = int(words.reason.figures.get("copied_bytes", 0))
    return f"{words['time_share']} has stacks deeper than the {size:,} bytes copied"


def _at_work(words: Words) -> str:
    """Return the threads that were busy while requests waited."""
    if words.get("served_by") == "io_uring":
        return "the thread of their ring was at work."
    if words.reason.figures.get("threads") == 1:
        return "its only thread was at work."
    return f"all {words['threads']} threads were at work."


def _short(words: Words) -> str:
    waited = f"requests waited in its queue for {words['short_share']} of their time"
    return f"{waited} while {_at_work(words)}"


def _unknown(words: Words, why: str) -> str:
    queued = f" Requests waited in its queue for {words['queue_share']} of their time."
    return f"{why}.{queued if 'queue_share' in words else ''}"


def _cause(default: str) -> Callable[[Words], str]:
    """Return why the recording lacks what would separate stages, if it says so."""

    def said(words: Words) -> str:
        reason = words.reason
        cause = next((code for code in Code if code == reason.subject.get("cause")), None)
        if cause is None or cause in JOINED:
            return default
        return Reason(cause, reason.subject, reason.figures, layer=reason.layer).why

    return said


def _who(words: Words) -> str:
    """Name a thread: its process's name, its number and its start function."""
    thread = "pid" if words["tid"] == words["pid"] else "thread"
    start = f", {words['start_function']}" if "start_function" in words else ""
    return f"{words['comm']} ({thread} {words['tid']}{start})"


def _waits(words: Words) -> str:
    """Describe a thread: its name, what it waits for, and since when."""
    return f"{_who(words)} {words['doing']}{_since(words)}"


def _took_longest(words: Words) -> str:
    """Name the process that took the longest before a mount was there, and what it called."""
    figures = words.reason.figures
    if "span_ns" not in figures:
        return ""
    text = "; {comm} (pid {pid}) took {span_ns} of it, {blocked_ns} of it blocked".format_map(words)
    if "call" in words:
        at_least = "at least " if figures.get("lost") else ""
        times = words.counted("calls", "time")
        text += f", and called {words['call']} {at_least}{times}, for {words['calls_ns']} in all"
        failed = figures.get("failed", 0)
        if failed and 2 * failed >= figures["calls"]:
            text += f" ({'all' if failed == figures['calls'] else words['failed']} failed)"
    return text


def _returned_later(words: Words) -> str:
    """Say who gets the error of requests in the background, or that nobody does."""
    if words.get("place") != "background":
        return ""
    if words["operation"] == "write":
        return "in the background: a later write, fsync or close of the file returns it"
    return "in the background: no caller waited for them"


def _mounting(words: Words) -> str:
    ran = words.reason.figures.get("on_cpu_ns", 0)
    ran_for = f", {duration(ran)} of it on a CPU" if ran else ""
    if words.get("sign", "device") in ("helper", "device"):
        path = words["path"] or "something"
        return f"{words['mounter']} mounts {path}{_since(words)}{ran_for}, not mounted yet"
    loaded = "has loaded libfuse and " if words["sign"] == "library" else ""
    return (
        f"{words['mounter']}, which {loaded}names {words['path']} on its command line, has run"
        f"{_since(words, ' for {}')}{ran_for} without a FUSE connection"
    )


def _which_waits(words: Words) -> str:
    return f"{_who(words)}, which {words['doing']}{_since(words)}"


def _since(words: Words, form: str = ", for {}") -> str:
    age = words.reason.figures.get("age_ns")
    return "" if age is None else form.format(ago(age / 1e9))


def _seconds(words: Words, name: str) -> str:
    return f"{words.reason.figures.get(name, 0) / 1e9:.0f} s"


def _in(words: Words) -> str:
    return f" in {words['call']}" if "call" in words else ""


def _file(words: Words) -> str:
    return words.get("path", "a file whose path is unknown")


def _answer(words: Words) -> str:
    file, mount = _file(words), words["mount"]
    return f"waits{_in(words)} for {file}" + ("" if file.startswith(mount) else f", on {mount}")


def _more(words: Words, name: str) -> str:
    """How many more there are than those that are named."""
    more = int(words.reason.figures.get(name, 0)) - len(words.each(name))
    return f" and {more:,} more" if more > 0 else ""


def _child(words: Words) -> str:
    one = words.reason.figures.get("children") == 1
    whose = "its child" if one else "one of its children"
    return f"waits for {whose} {words.listed('children')}{_more(words, 'children')}"


def _descriptors(words: Words) -> str:
    more = int(words.reason.figures.get("descriptors", 0)) - len(words.each("ends"))
    rest = f" and {more:,} more" if more > 0 else ""
    return f"waits in {words['call']} for {words.listed('ends')}{rest}"


def _process(words: Words) -> str:
    halted = f" is {words['halted']}" if "halted" in words else ""
    return f"{words['comm']} (pid {words['pid']}){halted}"


def _autofs(words: Words) -> str:
    paths = words.each("paths")
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    some = ", ".join(map(str, paths[:3]))
    return f"autofs waits for its daemon to mount {f'{some}{more}' or 'what callers asked for'}"


def _background(words: Words) -> str:
    figures = words.reason.figures
    limit = f" ({words.counted('most', 'request')})" if "most" in figures else ""
    held = []
    if figures.get("requests"):
        held.append(f"{words.counted('requests', 'request')} more cannot be sent")
    if figures.get("callers"):
        held.append(f"{words.counted('callers', 'caller')} cannot even send theirs")
    return f"the background list is full{limit}: {', and '.join(held)}"


def _older(words: Words) -> str:
    figures = words.reason.figures
    age, server = figures.get("age_ns", 0), figures.get("server_ns", 0)
    return (
        f"the request of {_who(words)}, {ago(age / 1e9)} old, is older than its server "
        f"{words['server']}, which began {duration(age - server)} later"
    )


def _callers_lock(words: Words) -> str:
    """Only the daemon knows the lock: any process that has the file open may hold it."""
    waits = f"waits{_in(words)} for a lock on {_file(words)}"
    holders = words.each("holders")
    if not holders:
        alike = int(words.reason.figures.get("alike", 0))
        others = f"all {alike:,} others that have it open wait, too"
        if words.reason.figures.get("again"):
            others = "this process has it open several times, and may hold the lock itself"
        elif alike == 1:
            others = "the only other process that has it open waits, too"
        elif not alike:
            others = "no other process here has it open"
        return f"{waits}; {others}"
    if len(holders) == 1:
        return f"{waits}, held by {holders[0]}, the only other process that has it open"
    more = int(words.reason.figures.get("openers", 0)) - len(holders)
    rest = f" or {more:,} more" if more > 0 else ""
    return f"{waits}, held by one of those that have it open: {words.listed('holders')}{rest}"


def _holder_unknown(words: Words) -> str:
    figures = words.reason.figures
    here = "all processes here that have the file open wait for it"
    if figures.get("again"):
        here = "its process has the file open several times, and may hold it by another descriptor"
    elif not figures.get("alike"):
        here = "no other process here has the file open"
    return f"{here}; it may be a caller on another host, or the daemon has lost a release"


def _file_locks(words: Words) -> str:
    """Return callers that wait for each other, each with the file whose lock it waits for."""
    waits = [f"{who} for {path}" for who, path in zip(words.each("names"), words.each("paths"))]
    return f"each waits for a file lock that the next one holds: {', '.join(waits)}"


def _unanswered(words: Words) -> str:
    count = int(words.reason.figures.get("requests", 0))
    which = f"{count:,} requests that it has" if count else "requests that it has"
    which = "1 request that it has" if count == 1 else which
    if "part" in words:
        which = f"those of {count:,} requests that were sent to it and that it has"
    where = "io_uring_enter for new requests, or for something else"
    waits = f"waits in {where}" if "waits_in" in words else "waits for new requests"
    waits = "answers later requests" if "later" in words else waits
    idle = words.reason.figures.get("idle_ns")
    waits += "" if idle is None else f" (for {ago(idle / 1e9)})"
    verb = "has" if count == 1 and "part" not in words else "have"
    age = _since(words, " for {}")
    if "reader" in words:  # whoever served before may have read them
        which = f"{which.partition(' that it has')[0]} that it or its predecessor has"
    return f"{words['daemon']} {waits}, and {which} read {verb} waited for an answer{age}"


def _of_server(words: Words) -> str:
    name = words["operation"] or "caller"
    one = words.reason.figures.get("callers") == 1
    silent = ago(words.reason.figures.get("silent_ns", 0) / 1e9)
    wanted = f"{words['wanted']} from " if words["wanted"] else ""
    unknown = "" if wanted else " (the stack of the thread could not be read)"
    sent = int(words.reason.figures.get("unacknowledged_bytes", 0))
    unsent = f"; {plural(sent, 'byte')} sent to it not acknowledged" if sent else ""
    return (
        f"{words.counted('callers', name)} wait{'s' if one else ''} for {wanted}{words['peer']}, "
        f"no byte for {silent}{unsent}{unknown}"
    )


def _unexamined(words: Words) -> str:
    which = f"{words['threads']} of its threads" if "threads" in words else "its threads"
    return f"{which} could not be looked at"


def _unread(words: Words) -> str:
    text = f"none of the {words['threads']} threads of {words['daemon']} reads /dev/fuse"
    if words.reason.figures.get("threads") == 1:
        text = f"the only thread of {words['daemon']} does not read /dev/fuse"
    if "idle" in words:
        text += (
            ", and works for no caller: the mount's daemon may have ended and left it the open file"
        )
    return text


def _length(words: Words) -> str:
    return f"{words['b_ns']} instead of {words['a_ns']}"


def _changed(words: Words) -> str:
    """Describe the operation whose time changed most: its number of calls, and their duration."""
    if "operation" not in words:
        return ""
    figures, operation, parts = words.reason.figures, words["operation"], []
    for name, more, less in (
        ("calls_percent", "more", "fewer"),
        ("p50_percent", "slower", "faster"),
        ("mean_percent", "slower", "faster"),
    ):
        change = figures.get(name, 0)
        if abs(change) >= 10:
            parts.append(
                (name.partition("_")[0], f"{abs(change):.0f} % {more if change > 0 else less}")
            )
    kinds = {"p50": "median", "mean": "mean"}
    if not parts:
        time = figures.get("time_percent")
        if time is None:
            return f"{operation}, which A lacks"
        return f"{abs(time):.0f} % {'more' if time > 0 else 'less'} time in {operation}"
    (first, text), *others = parts
    said = f"{text} {operation}" if first == "calls" else f"{kinds[first]} of {operation} {text}"
    return ", ".join([said, *(f"its {kinds[name]} {text}" for name, text in others)])


def _best(words: Words) -> str:
    """Return the best side, by how much, and at how many points of a sweep."""
    operation = "operation" in words
    what = f"others' median of {words['operation']} is up to" if operation else "others take up to"
    points = int(words.reason.figures.get("points", 1))
    where = f"; best at {words['wins']} of {points} points" if points > 1 else ""
    return f"{what} {words['times']} times as long{where}"


def _at(words: Words, preposition: str = "below") -> str:
    """Return the operation and the file, directory or mount that a finding is about."""
    if "path" not in words:
        return f"{words['operation']}"
    kind = words.get("place", "")
    by = {"file": "of", "mount": "on"}.get(kind, preposition)
    return f"{words['operation']} {by} {words['path']}"


def _others(words: Words) -> str:
    """Return the other operations that a finding is about."""
    return f", and {words.listed('others')}" if words.get("others") else ""


def _of_time(words: Words) -> str:
    return f"{words['time_share']} of the callers' waiting is {_at(words)}{_others(words)}"


def _none_free(threads: int) -> str:
    if threads < 2:
        return "its only thread was at work" if threads else "no thread was free"
    return f"none of {threads:,} threads was free"


def _each(words: Words) -> str:
    which = f"{words['operation']} request" if words.get("others") else "request"
    requests = f"{words['requests']} of {words.counted('of', which)}"
    saved = f", of which the fix saves {words['saved_share']}" if "saved_share" in words else ""
    return f"{requests}, {words['mean_ns']} each{saved}"


def _kept(words: Words) -> str:
    """Return who had read a request that was sent again."""
    reader = "some process" if "pid" not in words else f"pid {words['pid']}"
    if words.get("comm"):
        reader = f"{words['comm']} ({reader})"
    return f"{reader} had read and not answered"


def _under(words: Words, of: str = "") -> str:
    """Return the function in which a thread waits: of the helper, the daemon's other thread, where
    there is one. ``of``: the word that holds the function."""
    of = of or ("helper" if "helper" in words else "function")
    part = _part_of(words) if of == "function" else ""
    return f" under {words[of]}{part}" if of in words else ""


def _part_of(words: Words) -> str:
    """Return the function's share, where others have a part."""
    return f" ({words['function_share']} of it)" if "function_share" in words else ""


def _began(words: Words) -> str:
    """Return the start function of a thread, to follow its name."""
    return f" ({words['start_function']})" if "start_function" in words else ""


def _in_syscall(words: Words) -> str:
    return f" in {words['syscall']}" if "syscall" in words else ""


def _until(words: Words) -> str:
    """Return how the waits of a finding ended, if by a timeout."""
    return ", until its timeout" if words.get("ended_by") == "timeout" else ""


def _by_helper(words: Words) -> str:
    """Return who waits: the daemon, or one of its threads for which the others wait."""
    if "helper" in words:
        own = _under(words, "function")
        return f"{words['daemon']} waits{own} for another of its threads{_began(words)}, which"
    return words["daemon"]


def _sleeps(words: Words) -> str:
    return f"{_each(words)}; {_by_helper(words)} sleeps in {words['syscall']}{_under(words)}"


_FATES = {
    "unfinished": "had no answer by the recording's end",
    "interrupted": "{were} interrupted before the daemon took them",
    "aborted": "{were} aborted with {their} connection",
    "daemon_ended": "{were} aborted as the daemon ended",
    "timeout": "{were} aborted with {their} connection by the kernel's request timeout",
    "refused": "had an answer that the kernel refused: callers waited on",
    "dropped": "{were} read by the daemon and never answered: its thread went on to others",
}


def _fate(words: Words) -> str:
    text = _FATES.get(words.get("fate", ""), "had no answer")
    one = words.reason.figures.get("requests") == 1
    return text.format(were="was" if one else "were", their="its" if one else "their")


_NO_ANSWER = {
    "ended": "{daemon} had ended",
    "stopped": "{daemon} was stopped by a signal or a debugger",
    "idle": "{daemon} did not run: it is stopped or hangs",
}


def _silent(words: Words) -> str:
    """Return what the daemon did that did not answer, "" if unknown."""
    text = _NO_ANSWER.get(words.get("how", ""), "")
    return f"; {text.format(daemon=words['daemon'])}" if text else ""


_DOING = {
    "sleep": "sleeps",
    "network": "waits for the network",
    "disk": "waits for a file system below",
    "page": "waits for a page of memory",
    "kernel_lock": "waits for a lock in the kernel",
    "process": "waits for another process",
    "fuse": "waits for a FUSE mount",
    "on_cpu": "is on a CPU",
}


def _lock(words: Words) -> str:
    """Return the lock, what its holder does, and that more threads would not help."""
    taken = f", taken in {words['function']}{_part_of(words)}" if "function" in words else ""
    doing = _DOING.get(words.get("how", ""), "")
    call = _in_syscall(words) if doing else ""
    under = f" under {words['holder']}" if words.get("holder") else ""
    holder = f"; its holder{_began(words)} {doing}{call}{under}" if doing else ""
    lock = f"{words['daemon']} waits for one lock ({words['lock']}){taken}{holder}"
    return f"{_each(words)}; {lock}; more threads would not help"


def _server(words: Words) -> str:
    peer = words.get("peer", "the network (which peer is not known)")
    waits = f"{_by_helper(words)} waits for {peer} in {words['syscall']}"
    return f"{_each(words)}; {waits}{_until(words)}"


def _disk(words: Words) -> str:
    what = "a page of a file that is mapped" if words.get("how") == "page" else words["syscall"]
    fstype = f"{words['fstype']} " if "fstype" in words else ""
    below = words.get("disk", f"the {fstype}file system below")
    if "below" in words:
        below = f"{words['below']} on {below}"
    return f"{_each(words)}; {_by_helper(words)} waits for {below}, in {what}"


def _for_process(words: Words) -> str:
    if "pid" in words:
        other = f"{words['comm']} (pid {words['pid']})"
    elif "comm" in words:
        other = f"{words['comm']} ({words.counted('processes', 'process', 'processes')})"
    else:
        other = "a child of its own"
    return f"{_each(words)}; {_by_helper(words)} waits{_in_syscall(words)} for {other}"


def _in_call(words: Words) -> str:
    call = _in_syscall(words)
    lock = " for a lock in the kernel" if words.get("how") == "kernel_lock" else ""
    waits = f"{_by_helper(words)} waits{call}{lock}{_under(words)}"
    return f"{_each(words)}; {waits}{_until(words)}"


def _halted(words: Words) -> str:
    """Return what held the daemon, and who ended that."""
    who = f"{words['comm']} (pid {words['pid']})" if "pid" in words else words.get("comm", "")
    if words["how"] == "stopped":
        return "a signal stopped it" + (f", {who} let it continue" if who else "")
    if words["how"] == "traced":
        return f"a tracer held it{f': {who}' if who else ' (a debugger, strace)'}"
    return "the freezer of its cgroup held it" + (f" until {who} thawed it" if who else "")


def _held(words: Words, lock: str) -> str:
    """Return the lock, and the requests that its holders made."""
    text = f"{words['syscall']} waited for {lock}"
    if "operation" in words:
        text += f"; meanwhile {words['operation']} took {words['mean_ns']} each"
    doing = _DOING.get(words.get("how", ""))
    return text + (f", in which {words['daemon']} {doing}" if doing else "")


def _taken(words: Words) -> str:
    if "comm" not in words:
        return ""
    before = f"{words['comm']} (pid {words['pid']}) had it"
    others = f", others were {words['others']}" if words.get("others") else ""
    yields = f"; the daemon runs with {words['priority']}" if words.get("priority") else ""
    return f"{before} for {words['taker_share']} of this time{others}{yields}"


def _whose(words: Words) -> str:
    return "callers" if words.get("whose") == "workload" else "the daemon"


def _ended(words: Words, served: str = "") -> str:
    """Return which daemon ended, and when."""
    when = " {ended_ns} after the recording's begin".format_map(words) * ("ended_ns" in words)
    return f"{words['comm'] or 'the daemon'} (pid {words['pid']}){served} ended{when}"


def _how_ended(words: Words) -> str:
    """Return how a daemon ended, and who sent the signal that ended it."""
    how, sender = words.get("ending", ""), words.get("sender", "")
    if sender and how.startswith(words["signal"]):
        how += f", {'raised' if sender == 'itself' else 'sent'} by {sender}"
    elif sender:
        after = "{before_ns} after {signal} from {sender}".format_map(words)
        how = ", ".join(filter(None, (how, after)))
    if "oom_kills" in words:
        killed = words.counted("oom_kills", "process", "processes")
        how += f"; memory was used up: the kernel killed {killed} meanwhile"
    return how or "how is unknown"


def _answers_since(words: Words) -> str:
    return f"; pid {words['follower']} answers there since" if "follower" in words else ""


def _disconnected(words: Words) -> str:
    """Return why system calls failed with ENOTCONN."""
    connection = f"the connection of {words.get('path', 'a mount')}"
    if "ended_ns" in words or "ending" in words:
        gone = "was gone" if "follower" in words else "is gone"
        return f"{connection} {gone}: {_ended(words)}: {_how_ended(words)}{_answers_since(words)}"
    if "follower" in words:
        return (
            f"{connection} was gone until pid {words['follower']} answered there: the daemon "
            "before it had ended"
        )
    return f"{connection} is gone: its daemon has ended, or the mount was aborted"


def _outside_of_requests(words: Words) -> str:
    where = f" on {words['path']}" if "path" in words else ""
    calls = words.counted("calls", "call")
    return f"{words['time_share']} of the callers' waiting{where} is in no request: {calls}"


_SILENT = "none of its {probes} probes fired though there were requests: "
_DURATIONS = "durations of the callbacks of {path}"
_NO_RETURNS = "no return probes in {file}: "
_REFUSED = "the kernel refuses a probe on it: {message}"
_WHETHER = "Whether the daemon has enough threads cannot be known"
_REPLAY = "How long callers would wait cannot be known"
_EARLIER = "what happened earlier than {held_ns} before its end"

# Parts that little detail leaves out, by layer.
LOW_DETAIL = {
    "syscall": "system calls",
    "kernel": "kernel functions",
    "off_cpu": "switches of tasks",
}

_RUNNABLE = (
    "for {runnable_share} of the requests' time the thread that had them was ready to run and had "
    "no CPU."
)

# By code: what is missing, and why.
SENTENCES: dict[Code, tuple[Form, Form]] = {
    Code.OTHER: (lambda words: words.get("what", ""), lambda words: words.get("why", "")),
    Code.DAEMON_UNKNOWN: (_daemon, "{message}"),
    Code.LIBRARIES_UNREADABLE: (_daemon, "its libraries cannot be read"),
    Code.LIBRARY_ABSENT: (
        _daemon,
        lambda words: (
            f"{words['comm']} (pid {words['pid']}) has no library "
            f"{' or '.join(map(str, words.each('patterns')))}"
        ),
    ),
    Code.DAEMON_UNSUPPORTED: (
        _daemon,
        "{comm} (pid {pid}) does not use libfuse's library for requests, and no probe set knows "
        "its functions",
    ),
    Code.DAEMON_SHARED: (
        "which mount the calls of {comm} are for",
        "its process (pid {pid}) also serves {others}, which is not recorded",
    ),
    Code.FILE_UNNAMED: (
        _daemon,
        "cannot read {file}: its file is gone, was replaced, or cannot be named to the kernel",
    ),
    Code.FILE_UNREADABLE: (_daemon, "cannot read {file}: {message}"),
    Code.STRIPPED: (_daemon, "{file} of {comm} is stripped, it has no symbol for its {group}"),
    Code.NO_INODES: ("inodes of {path}", "{file} does not show the function that tells them"),
    Code.NO_REQUESTS_OF_CALLBACKS: (
        "the callbacks' requests of {path}",
        "{file} does not show the function that tells them",
    ),
    Code.RETURNS_RUNTIME: (
        _DURATIONS,
        _NO_RETURNS + "it is a {runtime} program, whose own stack handling no return probe "
        "survives",
    ),
    Code.RETURNS_SECCOMP: (
        _DURATIONS,
        lambda words: (
            f"{_NO_RETURNS.format_map(words)}{_by_process(words)} has a seccomp filter, which this "
            "kernel lets return probes hit"
        ),
    ),
    Code.RETURNS_SHADOW_STACK: (
        _DURATIONS,
        lambda words: (
            f"{_NO_RETURNS.format_map(words)}{_by_process(words)} has a shadow stack, which this "
            "kernel's return probes do not keep"
        ),
    ),
    Code.NO_UPROBES: ("daemon", "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)"),
    Code.CALLBACK_REFUSED: ("callback {function}", _REFUSED),
    Code.CALLBACKS_REFUSED: (
        lambda words: _daemon(words) if "path" in words else f"probes in {words['file']}",
        _REFUSED,
    ),
    Code.ANOTHER_COPY: (_daemon, _SILENT + "it runs another copy of its library"),
    Code.OTHER_FUNCTIONS: (_daemon, _SILENT + "it answers them by other functions of its own"),
    Code.FUNCTION_ABSENT: (
        "kernel function {pattern}",
        "this kernel has none of that name to trace",
    ),
    Code.FUNCTION_REFUSED: ("kernel function {function}", _REFUSED),
    Code.FUNCTION_UNPLACED: (
        "kernel function {function}",
        "the kernel took a probe on it, and has not placed it: it can never fire",
    ),
    Code.FUNCTION_UNTRACED: (
        "kernel function {pattern}",
        "the kernel took it and traces no function of that name",
    ),
    Code.TOO_MANY_FUNCTIONS: (
        "some kernel functions",
        "{functions} functions match, {probed} are probed",
    ),
    Code.NO_FUNCTION_MATCHES: (_functions, "no function matches"),
    Code.TRACEPOINTS_ONLY: (_functions, "only tracepoints were asked for"),
    Code.NO_KPROBES: (_functions, "this kernel has no kprobes"),
    Code.NO_GRAPH_TRACER: (_functions, "the kernel lacks it (CONFIG_FUNCTION_GRAPH_TRACER)"),
    Code.NO_KERNEL_PROBES: (_functions, "this kernel has neither kprobes nor function_graph"),
    Code.NO_TRACE_CMD: (_functions, "trace-cmd, which records it, is not installed"),
    Code.NO_FUSE_FUNCTIONS: (
        _functions,
        "the kernel lists no FUSE function to trace (is fuse loaded?)",
    ),
    Code.NO_COMMON_CLOCK: (_functions, "its clocks are not perf's"),
    Code.PID_NAMESPACE: (
        _functions,
        "in a pid namespace it and perf have other numbers for the same thread",
    ),
    Code.GRAPH_IN_USE: (
        _functions,
        "another recording runs, whose stacks it would cut: kernel functions are recorded by "
        "kprobes",
    ),
    Code.KERNEL_STACKS_CUT: ("the callers in kernel stacks", _cut_at),
    Code.STAGE_AMBIGUOUS: (_requests, "{functions} functions are called {function}"),
    Code.STAGE_VARIANT: (
        _requests,
        "it is there only as {variant}, whose arguments may have moved",
    ),
    Code.STAGE_UNTRACEABLE: (_requests, "the kernel does not let {function} be traced"),
    Code.STAGE_NO_LAYOUT: (
        _requests,
        "no BTF of fuse, and no known layout has {function}: which request is it?",
    ),
    Code.STAGE_NO_ARGUMENTS: (_requests, "what {function} takes is not known"),
    Code.STAGE_NO_FUNCTION: (_requests, "the kernel has none of the functions known"),
    Code.STAGE_SILENT: (_requests, "the kernel took the probe on {function}, and it never fired"),
    Code.NO_FUSE_TRACEPOINTS: (
        "requests",
        "the kernel has no fuse tracepoints (Linux 6.12 has)",
    ),
    Code.NO_UNIQUE: (
        "durations of requests",
        "this kernel's fuse:fuse_request_send does not tell which request it is (unique is 0)",
    ),
    Code.ALREADY_WAITING: (
        lambda words: (
            f"what {words.counted('callers', 'caller')} waited for on {words['path']} already"
        ),
        _callers,
    ),
    Code.MOUNTED_BEFORE_TRACED: (
        "the first requests of {path}",
        "it was mounted {ago_ns} before it was traced",
    ),
    Code.MOUNTED_MEANWHILE: (
        "mount {path}",
        "it was mounted during the recording: its requests are not in it",
    ),
    Code.NO_WORKLOAD: (
        "off-CPU and system calls of the callers",
        "there is no workload: only the daemon's are recorded",
    ),
    Code.NO_CGROUP: (
        "the workload apart from others",
        "no cgroup can be made for it: those of all processes are recorded",
    ),
    Code.NO_THREAD_FILTER: (
        "the workload apart from others",
        "threads cannot be filtered by number here: those of all are recorded",
    ),
    Code.CGROUP_REFUSED: (
        "the workload's switches and system calls apart",
        "no cgroup can be made for it: {message}; all processes are recorded",
    ),
    Code.WORKLOAD_BEFORE_TRACED: (
        "the workload's beginning",
        lambda words: (
            "it began {ago_ns} before {path} was mounted and traced, and ran {on_cpu_ns} "
            "on the CPU until then".format_map(words)
            + _took_longest(words)
        ),
    ),
    Code.WORKLOAD_ENDED_BEFORE: (
        "the workload",
        lambda words: (
            "it ended, with exit status {status}, before {path} was traced: it took "
            "{ago_ns}, {on_cpu_ns} of it on the CPU".format_map(words)
            + _took_longest(words)
        ),
    ),
    Code.THREAD_NUMBERS_REUSED: (
        "some of the workload's processes",
        "{threads} threads were started meanwhile, and their numbers began anew",
    ),
    Code.NO_SCHED_SWITCH: ("off-CPU", "the kernel shows no tracepoint sched:sched_switch"),
    Code.NO_RAW_SYSCALLS: ("system calls", "the kernel shows no raw_syscalls tracepoints"),
    Code.NO_COPIES_APART: (
        "copies of the workload's stacks",
        "ftrace cannot record the events apart from their stacks here",
    ),
    Code.NO_CONTROL: (
        "what an event costs",
        "perf {version} takes no commands while it records (--control, perf 5.10 and later)",
    ),
    Code.TOO_MANY_THREADS: (
        "copies of the daemon's stacks",
        "{threads} threads on {cpus} CPUs would need {events} perf events",
    ),
    Code.SWITCHES_MISSING: (
        "the end of some waits",
        lambda words: (
            f"{words.counted('switches', 'switch', 'switches')} of its threads and the daemon's "
            f"{'was' if words['switches'] == '1' else 'were'} not recorded"
        ),
    ),
    Code.LOW_DETAIL: (
        lambda words: LOW_DETAIL.get(words.reason.layer, words.reason.layer),
        "recorded with --detail {detail}",
    ),
    Code.BUFFERS_FULL: (
        _EARLIER,
        "the buffers of {buffer_bytes} were full ({wanted_ns} were wanted)",
    ),
    Code.RECORDER_BEGAN: (_EARLIER, "the flight recorder had begun then"),
    Code.IN_ANOTHER_RECORDING: (_EARLIER, "another recording holds it"),
    Code.KERNEL_UNNAMED: (
        "{nameless} of {addresses} kernel addresses have no name",
        "the recording holds no kernel symbols; --kallsyms FILE takes them from a copy of its "
        "host's /proc/kallsyms of that boot",
    ),
    Code.USER_UNNAMED: (
        "{nameless} of {addresses} user addresses have no name",
        "the recording holds no user symbols; --symfs DIR takes them from the programs' files "
        "below DIR",
    ),
    Code.COPIES_NOT_UNWOUND: ("copies of user stacks are not unwound", ""),
    Code.FILES_NOT_FOUND: (
        lambda words: (
            ("not below " + words["folder"] if "folder" in words else "not in the recording")
            + ", or another file"
        ),
        lambda words: f"{_files(words)}; --symfs DIR names them by files in DIR",
    ),
    Code.FILES_STRIPPED: (
        lambda words: f"no symbols for a part of {_files(words)}",
        "record with their debug symbols installed, or set DEBUGINFOD_URLS (debuginfod-find(1))",
    ),
    Code.DEBUGINFOD_SLOW: (
        lambda words: f"no debug symbols for {words.counted('files', 'file')}",
        lambda words: f"the servers in DEBUGINFOD_URLS took over {_seconds(words, 'limit_ns')}",
    ),
    Code.GENERATED_UNNAMED: (
        lambda words: f"no names of code that {_files(words, 'processes')} generated",
        "perf-PID.map or a jitdump names it: node --perf-basic-prof, python3 -X perf, "
        "java -XX:+DumpPerfMapAtExit",
    ),
    Code.STACKS_CUT: (_cut_stacks, ""),
    Code.STACKS_WITHOUT_TABLES: (
        "{time_share} has stacks that cannot be followed through code without unwind tables (made "
        "at run time, or by hand)",
        "",
    ),
    Code.STACKS_TOO_DEEP: (_copied, ""),
    Code.WAKERS_STACKLESS: ("the wakers' stacks were not recorded", ""),
    Code.TOO_MANY_STACKS: ("too many different stacks", "some are cut"),
    Code.STACKS_SAMPLED: (
        "stacks were sampled",
        "{alike} of {waits} waits have that of another wait alike (same process, system call and "
        "operation); times are exact, shares of stacks within {error_share} (95 % confidence)",
    ),
    Code.WAITS_BY_PERF: (
        "waits by perf record --off-cpu, with and without a request",
        "it adds up waits shorter than 0.5 s, and records neither their state nor kernel stacks",
    ),
    Code.READS_NOT_SEEN: (
        lambda words: (
            f"Of {words.counted('requests', 'request')} it is not known when the daemon read them"
        ),
        "they are not in these figures.",
    ),
    Code.REQUESTS_DROPPED: (
        lambda words: f"The daemon read {words.counted('requests', 'request')} without answering",
        "the thread that read them went on to others.",
    ),
    Code.ANSWERS_REFUSED: (
        lambda words: f"The kernel refused {words.counted('requests', 'answer')} of the daemon",
        "their callers got none. See: fusetools errors",
    ),
    Code.CPU_SHORT: ("The daemon is short of CPU", _RUNNABLE),
    Code.CPU_SHORT_AT_TIMES: ("The daemon is short of CPU at times", _RUNNABLE),
    Code.THREADS_SHORT: ("The daemon is short of threads", _short),
    Code.THREADS_SHORT_AT_TIMES: ("The daemon is short of threads at times", _short),
    Code.THREADS_ENOUGH: (
        "The daemon has enough threads",
        lambda words: (
            f"requests waited in its queue for {words['queue_share']} of their time, but for "
            f"{words['short_share']} while {_at_work(words)}"
        ),
    ),
    Code.THREADS_UNKNOWN_HANDED: (
        _WHETHER,
        lambda words: _unknown(
            words,
            f"{words['handed']} of {words.counted('requests', 'request')} were answered by another "
            "thread than the one that read them",
        ),
    ),
    Code.THREADS_UNKNOWN_NO_READ: (
        _WHETHER,
        lambda words: _unknown(words, "no request's read was seen"),
    ),
    Code.THREADS_UNKNOWN_NO_ANSWER: (
        _WHETHER,
        lambda words: _unknown(words, "it answered no request"),
    ),
    Code.THREADS_UNKNOWN_UNANSWERED: (
        _WHETHER,
        lambda words: _unknown(
            words,
            f"of {words.counted('requests', 'request')} {words['unanswered']} had no answer",
        ),
    ),
    Code.REPLAY_EMPTY: (
        _REPLAY,
        lambda words: f"callers waited for none of {words.counted('requests', 'request')}",
    ),
    Code.REPLAY_RING: (
        _REPLAY,
        lambda words: (
            f"{words['ring']} of {words.counted('requests', 'request')} went by io_uring, where "
            "each CPU has its own thread"
        ),
    ),
    Code.REPLAY_HANDED: (
        _REPLAY,
        lambda words: (
            f"{words['handed']} of {words.counted('requests', 'request')} were answered by another "
            "thread than the one that read them"
        ),
    ),
    Code.REPLAY_LOCK: (
        _REPLAY,
        lambda words: "the daemon's threads wait for a lock, and more of them would wait longer",
    ),
    Code.REPLAY_DEVIATES: (
        _REPLAY,
        lambda words: (
            f"a replay without a change deviates by {words['deviation_share']} from the recording"
        ),
    ),
    Code.REPLAY_LIMIT: (
        _REPLAY,
        lambda words: "the recording does not hold the mount's max_background",
    ),
    Code.REPLAY_WRITES: (
        _REPLAY,
        lambda words: (
            f"the kernel wrote dirty pages in {words.counted('requests', 'asynchronous request')}; "
            "the recording does not show since when they waited in its background list"
        ),
    ),
    Code.REPLAY_STACKS: (
        _REPLAY,
        lambda words: (
            f"callers slept during {words.counted('requests', 'read')} without a recorded stack: "
            "for the answer or for the page cache, which reads in the background"
        ),
    ),
    Code.NO_PATH: ("path not recorded", lambda words: "no recorded lookup leads to the file"),
    Code.NO_CALLER: ("caller not recorded", lambda words: "no event shows who made the request"),
    Code.NOT_NOTED: (
        "process not known",
        lambda words: (
            "it ended before record noted its user, cgroup and job, and the process that "
            "started it does not tell"
        ),
    ),
    Code.NO_JOB: ("no job", lambda words: "neither its cgroup nor its environment names one"),
    Code.NO_HOST: ("host not recorded", lambda words: "the recording does not name its host"),
    Code.NO_VFS_STAGES: (
        "VFS entry and VFS exit are not recorded",
        _cause("no system calls are recorded"),
    ),
    Code.VFS_ENTRY_JOINED: (
        "VFS entry and setup cannot be separated in this recording",
        _cause("no kernel functions are recorded"),
    ),
    Code.DAEMON_NOT_SPLIT: (
        "time in the daemon cannot be broken down",
        _cause("no callbacks are recorded"),
    ),
    Code.DAEMON_FROM_READ: (
        "the daemon's time begins when it reads a request",
        _cause("no callbacks are recorded"),
    ),
    Code.QUEUE_JOINED: (
        "queue and dispatch cannot be separated in this recording",
        _cause("no system calls are recorded"),
    ),
    Code.CALLER_WAKEUP_JOINED: (
        "caller wake-up and VFS exit cannot be separated; waits have no states",
        _cause("sched_switch is not recorded"),
    ),
    Code.DIFF_FASTER: (
        lambda words: f"B is {words['times']} times faster, {_length(words)}",
        _changed,
    ),
    Code.DIFF_SLOWER: (
        lambda words: f"B is {words['times']} times slower, {_length(words)}",
        _changed,
    ),
    Code.DIFF_ALIKE: (lambda words: f"B takes about as long as A, {_length(words)}", _changed),
    Code.DIFF_REQUESTS: ("B", _changed),
    Code.COMPARED_BEST: ("{side} is best ({path})", _best),
    Code.COMPARED_ALIKE: ("no median differs between the sides by more than noise", ""),
    Code.TOP_MOST: (
        "{callers} callers wait at once, {time_share} of it for {by} {label}",
        lambda words: f"{words['queue_share']} in the queue" if "queue_share" in words else "",
    ),
    Code.NO_TABLE: ("no {table}", "{why}"),
    Code.FLEET_BROKEN: (_skipped, "damaged or no Parquet file"),
    Code.FLEET_FOREIGN: (_skipped, "fusetools export did not write it"),
    Code.FLEET_VERSION: (_skipped, "written by another version of fusetools export"),
    Code.FLEET_INCOMPLETE: (_skipped, "its export did not end"),
    Code.FLEET_UNKNOWN: ("{by} unknown", "the recordings do not hold it"),
    Code.DAEMON_SLEEPS: (_of_time, _sleeps),
    Code.DAEMON_LOCK: (_of_time, _lock),
    Code.DAEMON_WAITS_FOR_PROCESS: (_of_time, _for_process),
    Code.DAEMON_WAITS_FOR_FUSE: (
        _of_time,
        lambda words: (
            f"{_each(words)}; {_by_helper(words)} itself waits for a FUSE mount, in "
            f"{words['syscall']}{_under(words)}"
        ),
    ),
    Code.DAEMON_THREAD_BUSY: (
        _of_time,
        lambda words: (
            f"{_each(words)}; {words['daemon']} waits{_under(words, 'function')} for another of "
            f"its threads{_began(words)}, which is on a CPU{_in_syscall(words)}"
        ),
    ),
    Code.DAEMON_HALTED: (
        "for {time_share} of the callers' waiting, {daemon} was not allowed to run",
        _halted,
    ),
    Code.DAEMON_WAITS: (_of_time, _in_call),
    Code.DAEMON_CPU: (
        _of_time,
        lambda words: f"{_each(words)}; {words['daemon']} computes all that time on a CPU",
    ),
    Code.SLOW_SERVER: (_of_time, _server),
    Code.SLOW_DISK: (_of_time, _disk),
    Code.FEW_THREADS: (
        "for {time_share} of the callers' waiting, no thread of {daemon} was free",
        # The threads may work on requests that nobody waits for, or still after a reply.
        lambda words: (
            f"{words.counted('callers', 'caller')} waited while "
            + _none_free(int(words.reason.figures.get("threads", 0)))
        ),
    ),
    Code.CPU_QUOTA: (
        lambda words: (
            f"for {words['time_share']} of the callers' waiting, a CPU quota stopped "
            f"{_whose(words)}"
        ),
        lambda words: (
            f"{words.counted('times', 'time')}, {words['throttled_ns']} in all, by the quota of "
            f"{words['cgroup']}"
        ),
    ),
    Code.CPU_TAKEN: (
        lambda words: (
            f"for {words['time_share']} of the callers' waiting, {_whose(words)} "
            f"{'were' if words.get('whose') == 'workload' else 'was'} ready to run and had no CPU"
        ),
        _taken,
    ),
    Code.DIRTY_THROTTLING: (
        _outside_of_requests,
        "{syscall} waited until the kernel had written dirty pages: dirty limits",
    ),
    Code.BACKGROUND_LIMIT: (
        _outside_of_requests,
        lambda words: (
            f"{words.counted('callers', 'caller')} waited for pages while {words['in_flight']} "
            f"asynchronous requests were in flight: max_background is {words['max_background']}"
        ),
    ),
    Code.PAGES_AWAITED: (
        _outside_of_requests,
        "{syscall} waited for pages that others read or write",
    ),
    Code.INODE_LOCK: (
        _outside_of_requests,
        lambda words: _held(words, "the lock of an inode, which another caller held"),
    ),
    Code.DIRECTORY_LOCK: (
        _outside_of_requests,
        lambda words: _held(
            words,
            "other lookups and lists in the same directory, as the mount allows one at a time "
            "(no FUSE_PARALLEL_DIROPS)",
        ),
    ),
    Code.ACCESS_PERMISSION: (
        _outside_of_requests,
        "{syscall} waited until a program had permitted the access (fanotify), such as a virus "
        "scanner",
    ),
    Code.PASSTHROUGH_WAITS: (
        _outside_of_requests,
        "{syscall} waited for the file below, which the kernel reads and writes itself, without "
        "the daemon (passthrough)",
    ),
    Code.CALLERS_BLOCKED: (
        _outside_of_requests,
        "{syscall} waited in the kernel for something else",
    ),
    Code.FILE_LOCKS: (
        "{time_share} of the callers' waiting is for file locks",
        lambda words: (
            f"{words.counted('calls', 'call')} of {words['syscall']}, until other callers released "
            "theirs; the kernel keeps these locks, without the daemon"
            if "syscall" in words
            else f"{_each(words)}: setlkw, which is answered once the lock is free"
        ),
    ),
    Code.INTERRUPTED: (
        "{time_share} of the callers' waiting is in vain: {signal} interrupted {operation}",
        lambda words: f"{_each(words)}; {words['daemon']} answered EINTR, and callers ask again",
    ),
    Code.RESENT: (
        lambda words: (
            f"{words['time_share']} of the callers' waiting is for "
            f"{words.counted('requests', 'request')} that {_kept(words)}"
        ),
        "{mean_ns} each until sent a second time (FUSE_NOTIFY_RESEND)",
    ),
    Code.HAMMER: (
        "{comm} (pid {pid}) makes {requests_share} of all requests",
        lambda words: (
            f"{words['same']} times {_at(words, 'of')}, {words['per_second']} requests a second; "
            f"{words['time_share']} of the callers' waiting"
        ),
    ),
    Code.MOUNTED_LATE: (
        "the workload had run for {mounted_ns} when {path} was mounted",
        lambda words: _took_longest(words).removeprefix("; "),
    ),
    Code.CACHES_OFF: (
        "{time_share} of the callers' waiting is asking again what no caller had changed",
        lambda words: (
            f"{words['operation']} was asked {words['times']} times for each of "
            f"{words.counted('distinct', 'file')}; a timeout of {words['timeout_ns']} would save "
            f"{words['saved_share']} of all requests"
        ),
    ),
    Code.NEGATIVE_LOOKUPS: (
        "{lookups_share} of lookups find nothing, {time_share} of the callers' waiting",
        lambda words: (
            f"{words.counted('distinct', 'name')}, each asked {words['times']} times"
            + (f" ({words['names']} …)" if "names" in words else "")
            + f"; a negative timeout of {words['timeout_ns']} would save {words['saved_share']}"
        ),
    ),
    Code.SMALL_REQUESTS: (
        lambda words: f"{words['time_share']} of the callers' waiting is small {_at(words)}",
        lambda words: (
            f"{words['sequential']} of {words.counted('requests', 'request')} go on where the last "
            f"one ended, {words['alike']} with {words['size_bytes']} bytes"
        ),
    ),
    Code.METADATA_FOR_EACH_WRITE: (
        "{time_share} of the callers' waiting is {operation} inside {syscall}",
        "the kernel asks for security.capability before each of {requests} writes",
    ),
    Code.ATTRIBUTES_ABSENT: (
        "{time_share} of the callers' waiting is {operation} of attributes that files do not have",
        lambda words: (
            f"{_each(words)}; answered with {words['error']}, which the kernel does not cache"
        ),
    ),
    Code.READ_AGAIN: (
        lambda words: (
            f"{words.get('path', 'one file')} is read {words['times']} times over, in "
            f"{words.counted('opens', 'open')}"
        ),
        lambda words: (
            f"{words.counted('requests', 'request')}, {words['time_share']} of the callers' "
            "waiting; its pages were not in the page cache"
        ),
    ),
    Code.STAT_FOR_EACH_ENTRY: (
        "{time_share} of the callers' waiting is lookup of each entry of a listed directory",
        lambda words: f"{words['each']} for each of {words.counted('lists', 'readdir request')}",
    ),
    Code.ERRORS_FREQUENT: (
        lambda words: (
            f"{words['requests']} of {words.counted('of', words['operation'] + ' request')} fail "
            f"with {words['error']}"
        ),
        _returned_later,
    ),
    Code.CONTENT_REFUSED: (
        lambda words: (
            f"{words['syscall']} failed with EIO {words.counted('calls', 'time')} though "
            f"{words['operation']} was answered without an error"
        ),
        "the kernel refused what the answer contained (attributes, size, type, node)",
    ),
    Code.DISCONNECTED: (
        lambda words: f"{words.counted('calls', 'system call')} failed with ENOTCONN",
        _disconnected,
    ),
    Code.DAEMON_ENDED: (
        lambda words: _ended(words, f", which served {words['path']},"),
        lambda words: _how_ended(words) + _answers_since(words),
    ),
    Code.UNANSWERED: (
        lambda words: f"{words['requests']} of {words.counted('of', 'request')} {_fate(words)}",
        lambda words: (
            f"{words['mean_ns']} each, {words['time_share']} of the callers' waiting"
            + _silent(words)
        ),
    ),
    Code.RECORDING_DISTURBS: (
        "recording itself took {time_share} of the callers' waiting",
        lambda words: (
            f"for {words['on_cpu_ns']} its own programs had the CPU that callers or the daemon "
            "needed"
            if "on_cpu_ns" in words
            else ""
        ),
    ),
    Code.WHY_NO_STATES: (
        "what the daemon and the callers waited for",
        "recorded with --detail {detail}: no system calls, no switches of tasks",
    ),
    Code.WHY_NO_FUNCTIONS: (
        "in which functions the daemon waited",
        "recorded with --detail {detail}: no stacks",
    ),
    Code.WHY_UNKNOWN: (
        "the cause of {time_share} of the callers' waiting",
        "the recording does not show which thread of the daemon worked on these requests",
    ),
    Code.WHY_THREADS_BUSY: (
        "its threads were on a CPU for {cpu_share} of their time with requests",
        "on {cpus} CPUs more threads would compete for them",
    ),
    Code.WAIT_CPU: ("runs on a CPU", ""),
    Code.WAIT_QUOTA: (
        "runs, or waits for a CPU",
        lambda words: (
            f"its cgroup {words['group']} may use {words.reason.figures.get('cpus', 0):g} CPUs"
        ),
    ),
    Code.WAIT_HALTED: (
        lambda words: (
            "is stopped" + (f" by its tracer, {words['tracer']}" if "tracer" in words else "")
        ),
        "",
    ),
    Code.WAIT_ENDED: ("has ended", ""),
    Code.WAIT_REQUEST: ("waits for its next request", ""),
    Code.WAIT_RING: ("waits in {call} for its next request, or for something else", ""),
    Code.WAIT_JOIN: ("waits for the end of {holder}", ""),
    Code.WAIT_LOCK: ("waits for the {kind} {address}, held by {holder}", ""),
    Code.WAIT_LOCK_ITSELF: ("waits for the {kind} {address}, held by itself", ""),
    Code.WAIT_LOCK_GONE: (
        "waits for the {kind} {address}, held by {holder}, which its process does not have (any "
        "more)",
        "",
    ),
    Code.WAIT_AUTOMOUNT: ("waits for automount", lambda words: words.get("path", "path unknown")),
    Code.WAIT_MEMORY: ("waits for memory of its cgroup", ""),
    Code.WAIT_FROZEN: (
        lambda words: (
            f"waits{_in(words)} until the file system"
            + (f" of {words['path']}" if "path" in words else "")
            + " is thawed"
        ),
        "",
    ),
    Code.WAIT_INVALIDATION: (
        "tells the kernel to drop something from its cache, and waits for a lock there",
        "",
    ),
    Code.WAIT_KERNEL_LOCK: (
        lambda words: f"waits{_in(words)} for a lock of {_file(words)}, on {words['mount']}",
        "",
    ),
    Code.WAIT_TO_SEND: (
        lambda words: f"waits{_in(words)} to send a request for {_file(words)}",
        "",
    ),
    Code.WAIT_ANSWER: (_answer, ""),
    Code.WAIT_WORKERS: ("waits for its worker threads to end", ""),
    Code.WAIT_RUNTIME: ("waits for a task of its runtime (Go, tokio)", ""),
    Code.WAIT_CONDITION: (
        "waits for a condition, a semaphore or a lock that does not name its holder",
        "",
    ),
    Code.WAIT_SLEEP: ("sleeps in {call}", ""),
    Code.WAIT_INIT: (
        lambda words: f"waits{_in(words)} until {words['mount'] or 'it'} is mounted: for FUSE_INIT",
        "",
    ),
    Code.WAIT_FILE_LOCK: (
        lambda words: (
            f"waits in {words['call']} for a lock of {words.get('path', 'a file')}, held by "
            f"{words.listed('holders')}"
        ),
        "",
    ),
    Code.WAIT_OWN_LOCK: (
        lambda words: (
            f"waits in {words['call']} for a lock of {words.get('path', 'a file')} that its own "
            "process holds for another caller"
        ),
        "",
    ),
    Code.WAIT_CALLERS_LOCK: (_callers_lock, ""),
    Code.WAIT_CHILD: (_child, ""),
    Code.WAIT_DESCRIPTOR: (_descriptors, ""),
    Code.WAIT_FILE: ("waits in {call} for {path}", ""),
    Code.WAIT_CALL: (lambda words: f"waits in {words.get('call', 'the kernel')}", ""),
    Code.HALT_FROZEN: ("frozen by the cgroup {group}", ""),
    Code.HALT_TRACED: ("stopped by its tracer, {tracer}", ""),
    Code.HALT_STOPPED: ("stopped (SIGSTOP)", ""),
    Code.HALT_ZOMBIE: ("a zombie", "it has ended, and its parent has not noticed"),
    Code.HALT_KILLED: (
        "killed",
        "thread {thread} is still in the kernel ({call}) and keeps the connection: only an abort "
        "ends it",
    ),
    Code.LINK_THREAD: (
        lambda words: f"{_who(words)} {words['doing']}{_since(words, ' ({})')}",
        "",
    ),
    Code.LINK_MOUNT: ("{path}", "{by}"),
    Code.LINK_PROCESS: (_process, ""),
    Code.LINK_HOLDER: ("{process} has its /dev/fuse open, too", ""),
    Code.LINK_END_THERE: ("{alike} of {threads} threads of {daemon} end there", ""),
    Code.LINK_WAIT_ALIKE: ("{alike} of {threads} threads of {daemon} wait like that", ""),
    Code.LINK_OUTSIDE: (
        "what ends it may come from one of",
        lambda words: f"{words.listed('others')}{_more(words, 'others')}",
    ),
    Code.HANG_AUTOFS: (_autofs, "{message}"),
    Code.HANG_AUTOFS_UNKNOWN: (
        "which of the threads of {daemon} should mount it cannot be known",
        "",
    ),
    Code.HANG_BEYOND: ("{path} is not answered", "{message}"),
    Code.HANG_HIDDEN: ("which process answers {path} cannot be known", "{message}"),
    Code.HANG_GONE: ("no process is known that answers {path}", "{message}"),
    Code.HANG_DAEMON_HALTED: ("the daemon {comm} (pid {pid}) is {halted}", ""),
    Code.HANG_INVALIDATION: (
        lambda words: (
            f"{_who(words)} invalidates something in the kernel's cache, which is locked by a "
            f"caller that waits for {words['daemon']}"
        ),
        "",
    ),
    Code.HANG_MOUNTS: (
        "deadlock",
        lambda words: f"the daemons of {words.listed('paths', ' and ')} wait for each other",
    ),
    Code.HANG_OWN_MOUNT: (
        "deadlock: {daemon} waits for its own mount",
        lambda words: f"{_who(words)} {words['doing']}",
    ),
    Code.HANG_LOCK_ITSELF: (
        "deadlock",
        lambda words: f"{_who(words)} {words['doing']}{_since(words, ' ({})')}",
    ),
    Code.HANG_DEADLOCK: ("deadlock", "the threads {tids} of {daemon} wait for each other"),
    Code.HANG_PROCESSES: (
        "deadlock",
        lambda words: f"{words.listed('names', ' and ')} wait for each other",
    ),
    Code.HANG_FILE_LOCK: (
        lambda words: (
            f"a lock of {words['path'] or 'a file'} is held by {words['comm']} (pid {words['pid']})"
            + (f", which {words['doing']}" if "doing" in words else "")
        ),
        "",
    ),
    Code.HANG_FILE_LOCKS: ("deadlock of callers", _file_locks),
    Code.HANG_PROCESS: ("{daemon} waits for {comm} (pid {pid})", ""),
    Code.HANG_PROCESS_HALTED: (
        "{comm} (pid {pid}), which {daemon} waits for, is {halted}",
        "",
    ),
    Code.HANG_MOUNT: ("{daemon} waits for {path}", lambda words: words.get("message", "")),
    Code.HANG_FROZEN: (
        lambda words: f"the file system of {words['path'] or 'its file'} is frozen",
        lambda words: f"{_who(words)} waits to write (fsfreeze(8), or a snapshot under way)",
    ),
    Code.HANG_MEMORY: (
        lambda words: f"{_who(words)} waits for memory",
        "its cgroup {group} is full",
    ),
    Code.HANG_MEMORY_OF: (
        lambda words: f"{_who(words)} waits for memory of its cgroup {words['group']}",
        "",
    ),
    Code.HANG_THREAD: (_waits, ""),
    Code.HANG_HOLDER: (lambda words: f"a {words['kind']} is held by {_which_waits(words)}", ""),
    Code.HANG_JOIN: (
        lambda words: f"{words['daemon']} waits for the end of {_which_waits(words)}",
        "",
    ),
    Code.HANG_OTHER: (lambda words: f"{words['daemon']} waits for {_which_waits(words)}", ""),
    Code.HANG_RELOAD: (
        "{daemon} is being reloaded, or was left so",
        "the CernVM-FS loader lets no request into the file system's library until the new one is "
        "loaded",
    ),
    Code.HANG_RELOAD_PAUSED: (
        "the reload of {daemon} (pid {pid}) is paused",
        "the CernVM-FS loader waits for SIGUSR1, and lets no request into the file system's "
        "library",
    ),
    Code.HANG_SERVER: (_of_server, ""),
    Code.HANG_NOT_READY: (
        "{daemon} has not answered the mount's first request (FUSE_INIT), or its rings of io_uring "
        "are not ready",
        lambda words: f"{words.counted('callers', 'caller')} cannot send theirs",
    ),
    Code.HANG_BACKGROUND: (_background, ""),
    Code.HANG_INIT: (
        "{daemon} (pid {pid}) waits in mount(2) for its own answer to FUSE_INIT",
        "no other thread of it reads /dev/fuse",
    ),
    Code.HANG_ENDED: (
        "its daemon has ended",
        "no process has its connection open, and each call on it fails (ENOTCONN)",
    ),
    Code.HANG_DEAD: (
        "the connection is dead, its daemon {comm} (pid {pid}) lives",
        "aborted by the kernel's request timeout (fs.fuse.max_request_timeout), umount -f or "
        "fusectl; each call on it fails",
    ),
    Code.ABORT_SOON: (
        lambda words: (
            f"the kernel aborts this connection in {_seconds(words, 'least_ns')} to "
            f"{_seconds(words, 'most_ns')}"
        ),
        lambda words: (
            f"a request may take {_seconds(words, 'limit_ns')} (fs.fuse.max_request_timeout), if "
            "this was set before it was mounted"
        ),
    ),
    Code.MOUNTING: (
        _mounting,
        lambda words: f"{_who(words)} {words['doing']}",
    ),
    Code.HANG_UNEXAMINED: ("what {daemon} does cannot be known", _unexamined),
    Code.HANG_UNREAD: (_unread, ""),
    Code.HANG_UNANSWERED: (
        _unanswered,
        lambda words: (
            "what those of its tasks wait for that have no thread cannot be known"
            if "runtime" in words
            else "whether it dropped or keeps them, or the kernel refused its answers, cannot be "
            "known at a moment; a recording of COMMAND, which repeats the call, shows it"
        ),
    ),
    Code.HANG_OLDER: (
        _older,
        "its reader has ended, and only FUSE_NOTIFY_RESEND or an abort ends it, unless {server} "
        "itself read it when it began",
    ),
    Code.LOCK_HOLDER_UNKNOWN: (
        "who holds the lock of {path} that {comm} (pid {pid}) waits for cannot be known",
        _holder_unknown,
    ),
    Code.CALLER_HALTED: (
        lambda words: (
            f"{_who(words)} is {words['halted']}{_in(words)} of {_file(words)}"
            f"{_since(words, ' for {}')}"
        ),
        "no request of it waits for an answer",
    ),
    Code.HOLDER_HALTED: (
        "{comm} (pid {pid}), which holds a lock on {path}, is {halted}",
        "",
    ),
}
JOINED = frozenset(
    {
        Code.NO_VFS_STAGES,
        Code.VFS_ENTRY_JOINED,
        Code.DAEMON_NOT_SPLIT,
        Code.DAEMON_FROM_READ,
        Code.QUEUE_JOINED,
        Code.CALLER_WAKEUP_JOINED,
    }
)
# Calls are counted but not timed.
UNTIMED = frozenset(
    {
        Code.NO_UNIQUE,
        Code.RETURNS_RUNTIME,
        Code.RETURNS_SECCOMP,
        Code.RETURNS_SHADOW_STACK,
    }
)


def of_daemon(reason: Reason) -> bool:
    """Return whether all calls of a mount's daemon are missing (``path`` of the subject)."""
    return reason.subject.get("part") == "daemon"
