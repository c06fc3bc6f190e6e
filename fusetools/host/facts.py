"""Everything that a host can trace, in one frozen record.

probe.py reads the record once; the planner uses it without the host. Each field holds the result of
a trial on the machine, not a guess from its version. A record round-trips through JSON, so the plan
for any kernel is tested on stored facts of that kernel (tests/host_facts).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

from fusetools.host.paths import VIRTIOFS as VIRTIOFS
from fusetools.host.paths import is_on

T = TypeVar("T")


@dataclass(frozen=True)
class Tool:
    """An installed command that runs.

    ``options``: the options that fusetools may use and that this version knows, as typed.
    ``libtraceevent``, ``zstd``: the tool is linked with the library; None if the tool does not
    report it. perf without libtraceevent has no tracepoints; perf without zstd cannot read
    compressed records.
    """

    path: str
    version: str
    options: tuple[str, ...] = ()
    libtraceevent: bool | None = None
    zstd: bool | None = None


@dataclass(frozen=True)
class Library:
    """A file that a daemon has mapped executable: a library, or the daemon's own program.

    The file is known by ``inode`` and ``device`` ("major:minor", hexadecimal, as /proc/PID/maps
    prints them): a copy or a replacement under the same name is another file, and a probe on it
    never fires. ``path`` is the daemon's name for it, ``host_path`` a name that reaches the same
    file from here in characters that tracefs accepts ("" if there is none).

    ``machine``, ``runtime`` and ``imports`` are as native.elf_about returns them: the architecture
    ("x86_64"), a language runtime that crashes on return probes ("Go", "Go (before 1.18)" …, or
    ""), and the imported functions of libfuse's API.

    ``frame_pointers``: the share of functions that keep a frame pointer, of those that use its
    register (0 to 1, by bytes of code); None: unknown.
    """

    path: str
    host_path: str
    inode: int
    device: str
    build_id: str | None = None
    machine: str = ""
    runtime: str = ""
    imports: tuple[str, ...] = ()
    frame_pointers: float | None = None

    @property
    def go(self) -> bool:
        return self.runtime.startswith("Go")

    @property
    def go_registers(self) -> bool:
        """Return whether the program's functions get their arguments as in Go's ABIInternal."""
        return self.runtime == "Go"


@dataclass(frozen=True)
class Mount:
    """A mounted FUSE file system and the process that answers its requests.

    ``connection`` is the number in fuse:* events and /sys/fs/fuse/connections: the superblock's
    device number in the kernel's own encoding (major << 20 | minor). ``path`` is the path in the
    mount namespace of process ``seen_by``; None means this process's namespace. ``also``: other
    paths there on which the file system, or a part of it, is mounted. ``why``: the reason why
    ``daemon_pid`` is None, else "". Only ``user`` and ``group`` reach the mount's files unless
    ``allow_other``: the kernel refuses others, also root, without asking the daemon. ``program``:
    the path of the daemon's program, as in ``libraries``. ``seccomp``, ``shadow_stack``: a thread
    of the daemon has a seccomp filter, a user shadow stack. ``servers``: all processes that have
    the connection open, including the daemon. ``streams``: the daemon's descriptors of sockets, and
    of pipes into which another process writes, except those that a thread was reading from.
    ``options``: the daemon's arguments that set its number of threads (THREADING).
    """

    path: str
    fstype: str
    source: str
    connection: int
    daemon_pid: int | None = None
    comm: str | None = None
    libraries: tuple[Library, ...] = ()
    why: str = ""
    seen_by: int | None = None
    user: int | None = None
    group: int | None = None
    allow_other: bool = True
    program: str = ""
    seccomp: bool = False
    shadow_stack: bool = False
    servers: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def holds(self, path: str) -> int:
        """Return the length of the mount point that an absolute path is on; 0: it is on none."""
        return max((len(at) for at in (self.path, *self.also) if is_on(path, at)), default=0)


@dataclass(frozen=True)
class HostFacts:
    """Everything that decides what can be traced here.

    Host: ``kernel`` (uname -r), ``arch``, ``cpus`` online, ``distribution`` (ID and ID_LIKE of
    /etc/os-release, most specific first), effective ``uid``, effective ``capabilities``
    ("cap_sys_admin" …), ``lockdown`` ("none", "integrity", "confidentiality"; None: the kernel has
    none), ``confined``: the security module that confines this process, and by what, and
    ``perf_refused``: "seccomp" or "module" refuses perf_event_open to it (see host/confined.py),
    ``perf_event_paranoid`` and ``kptr_restrict`` (None: not readable).

    tracefs: ``tracefs`` is its directory if readable (None: there is none), ``tracefs_writable`` (a
    file that adds events could be opened for writing), ``tracers``, ``dynamic_events``, some of
    "kprobe", "uprobe", "fprobe", "eprobe", "tprobe", "synthetic", ``fetch_args``: the supported
    arguments of events, as the kernel's README writes them ("$arg<N>", "$comm", "string",
    "ustring", "symstr", "%pd/%pD", "<argname>": BTF names), and "return $arg<N>" if return probes
    support arguments; ``uretprobe_filtered``: a seccomp filter sees the system call that a user
    return probe makes, which harms a process that has one (None: unknown), ``uretprobe_shadow``: a
    user return probe keeps shadow stacks right (see host/uretprobe.py), ``seccomp``: this process
    has a filter; ``maxactive``: a return probe may set how many instances it needs;
    ``unwinds_kretprobes``: a kernel stack goes on below a function with a return probe; ``clocks``
    of ftrace, ``instances``: ftrace has instances, and reports new threads in them;
    ``graph_options`` (funcgraph-args …), ``pid_max``: the upper limit of thread numbers, where they
    wrap, ``sample_rate``: the maximum number of samples that perf may take per second;
    ``pid_namespace``: threads have different numbers here and in ftrace's ring buffers,
    ``tracepoints``: the relevant ones ("system:name").

    Kernel's FUSE: ``fuse`` (the kernel knows the file system), ``fuse_module`` (it is a module),
    ``fuse_send_unique`` (fuse_request_send's ``unique`` is right; None: unknown, see
    selftest.self_test_unique), ``kallsyms_fuse`` and ``filter_functions_fuse`` (function names,
    with suffixes; twice if two functions have the name), ``addresses`` (kallsyms shows real ones),
    ``btf`` of the kernel, ``btf_modules`` of "fuse"; read from it where there are kprobes:
    ``fuse_members`` (member, byte offset, bit, bits) and ``fuse_functions`` (function, what each of
    its parameters points to), see btf.read_fuse.

    Tools: ``perf``, ``trace_cmd`` (None: not found), ``perf_can_record`` (it recorded a tracepoint
    system-wide in a trial), ``perf_why`` (perf's message when it could not).

    ``mounts``: every FUSE mount. ``ftrace_users``: other users of ftrace or perf, a line each.
    ``own_events``: dynamic events ("group/name") of a recording of fusetools, running or killed.
    ``unreadable``: (path, reason) of each file that could not be used.
    """

    kernel: str
    arch: str
    cpus: int
    uid: int
    distribution: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    lockdown: str | None = None
    confined: str = ""
    perf_refused: str = ""
    perf_event_paranoid: int | None = None
    kptr_restrict: int | None = None
    tracefs: str | None = None
    tracefs_writable: bool = False
    tracers: tuple[str, ...] = ()
    dynamic_events: tuple[str, ...] = ()
    fetch_args: tuple[str, ...] = ()
    maxactive: bool = False
    uretprobe_filtered: bool | None = None
    uretprobe_shadow: bool = False
    seccomp: bool = False
    unwinds_kretprobes: bool = False
    clocks: tuple[str, ...] = ()
    instances: bool = False
    graph_options: tuple[str, ...] = ()
    pid_namespace: bool = False
    pid_max: int = 0
    sample_rate: int = 0
    tracepoints: tuple[str, ...] = ()
    fuse: bool = False
    fuse_module: bool = False
    fuse_send_unique: bool | None = None
    kallsyms_fuse: tuple[str, ...] = ()
    filter_functions_fuse: tuple[str, ...] = ()
    addresses: bool = False
    btf: bool = False
    btf_modules: tuple[str, ...] = ()
    fuse_members: tuple[tuple[str, int, int, int], ...] = ()
    fuse_functions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    perf: Tool | None = None
    trace_cmd: Tool | None = None
    perf_can_record: bool = False
    perf_why: str = ""
    mounts: tuple[Mount, ...] = ()
    ftrace_users: tuple[str, ...] = ()
    own_events: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """Return the record as one JSON object, with keys in the order of the fields."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> HostFacts:
        """Return the record from its JSON.

        A missing field gets its default. Raise ValueError for an unknown field, a value of another
        type, or a text that is no such record.
        """
        data = _record(json.loads(text))
        data["perf"] = _tool(data.get("perf"))
        data["trace_cmd"] = _tool(data.get("trace_cmd"))
        data["mounts"] = tuple(_mount(mount) for mount in _list(data.get("mounts", [])))
        return built(cls, data)


def _tool(data: object) -> Tool | None:
    return None if data is None else built(Tool, _record(data))


def _mount(data: object) -> Mount:
    row = _record(data)
    libraries = tuple(built(Library, _record(item)) for item in _list(row.get("libraries", [])))
    return built(Mount, {**row, "libraries": libraries})


def _record(data: object) -> dict[str, object]:
    if not isinstance(data, dict):
        raise ValueError("not a record of host facts")
    return data


def _list(data: object) -> list[object]:
    if not isinstance(data, list):
        raise ValueError("not a list of host facts")
    return data


def built(cls: type[T], data: dict[str, object]) -> T:
    """Return a frozen record from its JSON object, whose lists become tuples.

    Raise ValueError for an unknown field, or a value of another type than the field's.
    """
    known = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    unknown = set(data) - known.keys()
    if unknown:
        raise ValueError(f"{cls.__name__}: unknown field {', '.join(sorted(unknown))}")
    values = {key: _tuples(value) for key, value in data.items()}
    for key, value in values.items():
        if not _fits(value, known[key]):
            raise ValueError(f"{cls.__name__}: {key} is no {known[key]}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(str(error)) from error


_SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
}


def _fits(value: object, kind: str) -> bool:
    """Return whether a value is of a field's type, as it is written in this file."""
    if kind.startswith("tuple["):
        parts = re.findall(r"[^,\[\] ]+(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])?", kind[6:-1])
        if not isinstance(value, tuple):
            return False
        if parts[-1] == "...":
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    names = kind.split(" | ")
    if isinstance(value, bool):  # no number
        return "bool" in names
    of_class = type(value).__name__ in names
    return of_class or any(isinstance(value, _SCALARS.get(name, ())) for name in names)


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
