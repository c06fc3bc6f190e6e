"""Reads the machine into HostFacts. Tries everything and changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fusetools.figures import plural
from fusetools.host.btf import Functions, Members, read_fuse
from fusetools.host.confined import confinement, perf_refused
from fusetools.host.facts import HostFacts
from fusetools.host.files import Files, Meanwhile
from fusetools.host.mounts import mounted, read_mounts
from fusetools.host.processes import PERF_EVENT, TRACEFS, comm, in_pid_namespace, open_files
from fusetools.host.tools import Tools
from fusetools.host.uretprobe import IS_CALL, KEEPS_SHADOW, filtered, guards
from fusetools.names import CONNECT, LOCKS, READS, RINGS, SIGNAL

OWN_GROUPS = ("fuse_daemon", "fuse_kernel")  # the event groups that fusetools makes

# include/uapi/linux/capability.h, in the order of their bits
# fmt: off
CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid",
    "setuid", "setpcap", "linux_immutable", "net_bind_service", "net_broadcast",
    "net_admin", "net_raw", "ipc_lock", "ipc_owner", "sys_module", "sys_rawio",
    "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write",
    "audit_control", "setfcap", "mac_override", "mac_admin", "syslog", "wake_alarm",
    "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore",
)
# fmt: on

# Functions of fs/fuse that bracket a stage and lack "fuse" in their names, and the function in
# which a reader of cached pages sleeps.
NAMED = {
    "copy_out_args",
    "end_requests",
    "flush_bg_queue",
    "folio_wait_bit_common",
    "queue_request",
    "queue_request_and_unlock",
    "request_end",
    "request_find",
    "request_wait_answer",
    "virtio_fs_send_req",
    "wait_answer_interruptible",
    "wait_on_page_bit_common",
}

# With this function the unwinder finds the return address that a return probe has replaced (since
# Linux 5.18). Without it, kernel stacks end at the probe, or go on without the caller. Ubuntu's
# 5.15 has kretprobe_find_ret_addr of 5.16, but not the unwinder's part of the change.
RECOVER = "rethook_find_ret_addr"

# Lines of /proc/kallsyms, from the type on: one regular expression for 200,000 lines.
_LOOKED_AT = re.compile(
    rf" [tTwW] (.*fuse.*|(?:{'|'.join(sorted(NAMED))})(?:[.\t].*|$)"
    rf"|(?:{'|'.join((RECOVER, KEEPS_SHADOW, IS_CALL))})$)",
    re.MULTILINE,
)

# Supported arguments of events, as Documentation/trace/kprobetrace.rst and tracefs's README write
# them.
FETCH_ARGS = (
    "$arg<N>",
    "$comm",
    "$retval",
    "<argname>",
    "string",
    "ustring",
    "symstr",
    "%pd/%pD",
    "imm-value",
)


def read_host(
    root: Path = Path("/"), trial: bool = True, paths: Sequence[str] | None = None
) -> HostFacts:
    """Return the facts of this host, or of a stored tree of one (as tests/host_facts/make.py lays
    out).

    ``trial``: run perf, which takes half a second; else assume that perf can record. ``paths``: as
    in mounts.read_mounts().
    """
    files = Files(root)
    # The kernel takes a while to generate them.
    of_kernel = Meanwhile(lambda: looked_at(files.read("/proc/kallsyms") or ""))
    status = files.read("/proc/self/status", quiet=True) or ""
    tracefs = _tracefs(files)
    at = tracefs or "/nowhere"
    fetch_args, kinds, maxactive = parse_readme(files.read(f"{at}/README") or "")
    kinds = tuple(kind for kind in ("kprobe", "uprobe") if files.exists(f"{at}/{kind}_events")) + (
        kinds
    )
    writable = tracefs is not None and any(
        files.exists(name) and files.writable(name)
        for name in (f"{at}/{kind}_events" for kind in ("dynamic", "kprobe", "uprobe"))
    )
    users, own = _ftrace_users(files, tracefs)
    # Start perf last: a perf that opens tracepoints delays readers of tracefs.
    tools = Tools(files, tracefs is not None, trial)
    descriptors = open_files(files)
    mounts = read_mounts(files, descriptors, paths)
    # Records the reasons of failures
    kallsyms = of_kernel.get(30.0) or looked_at(files.read("/proc/kallsyms") or "")
    symbols, addresses, module = parse_kallsyms(kallsyms)
    perf, can_record, perf_why = tools.perf()
    members, functions = _btf(files) if "kprobe" in kinds else ((), ())
    arch = os.uname().machine if files.live else files.start("uname", "-m").get()[1].strip()
    return HostFacts(
        kernel=_line(files, "/proc/sys/kernel/osrelease") or "",
        arch=arch,
        cpus=_cpus(_line(files, "/sys/devices/system/cpu/online") or "0"),
        uid=int(_field(status, "Uid", 1) or -1),
        distribution=_distribution(files.read("/etc/os-release", quiet=True) or ""),
        capabilities=capabilities(int(_field(status, "CapEff") or "0", 16)),
        confined=confinement(files),
        perf_refused=perf_refused(arch) if files.live else "",
        lockdown=_bracketed(_line(files, "/sys/kernel/security/lockdown") or ""),
        perf_event_paranoid=_integer(_line(files, "/proc/sys/kernel/perf_event_paranoid")),
        kptr_restrict=_integer(_line(files, "/proc/sys/kernel/kptr_restrict")),
        tracefs=tracefs,
        tracefs_writable=writable,
        tracers=tuple((_line(files, f"{at}/available_tracers") or "").split()),
        dynamic_events=kinds,
        fetch_args=fetch_args,
        maxactive=maxactive,
        uretprobe_filtered=filtered(kallsyms, arch) if files.live else None,
        uretprobe_shadow=f" {KEEPS_SHADOW}\n" in kallsyms,
        seccomp=guards(files, os.getpid())[0] if files.live else False,
        unwinds_kretprobes=f" {RECOVER}\n" in kallsyms,
        clocks=tuple(re.sub(r"[][]", "", _line(files, f"{at}/trace_clock") or "").split()),
        instances=all(
            files.exists(f"{at}/{name}") for name in ("instances", "events/task/task_newtask")
        ),
        graph_options=tuple(
            name for name in files.list(f"{at}/options") if name.startswith("funcgraph-")
        ),
        pid_namespace=in_pid_namespace(files),
        pid_max=_number(files, "/proc/sys/kernel/pid_max"),
        sample_rate=_number(files, "/proc/sys/kernel/perf_event_max_sample_rate"),
        tracepoints=_tracepoints(files, at),
        fuse="fuse" in (files.read("/proc/filesystems", quiet=True) or "").split(),
        fuse_module=module,
        kallsyms_fuse=symbols,
        addresses=addresses,
        filter_functions_fuse=_fuse_names(
            (files.read(f"{at}/available_filter_functions") or "").splitlines()
        ),
        btf=files.exists("/sys/kernel/btf/vmlinux"),
        btf_modules=("fuse",) if files.exists("/sys/kernel/btf/fuse") else (),
        fuse_members=members,
        fuse_functions=functions,
        perf=perf,
        trace_cmd=tools.trace_cmd(),
        perf_can_record=can_record,
        perf_why=perf_why,
        mounts=mounts,
        ftrace_users=users + _perf_users(files, descriptors, tools.pids),
        own_events=own,
        unreadable=tuple(sorted(files.unreadable.items())),
    )


def _btf(files: Files) -> tuple[Members, Functions]:
    """Return FUSE's structures and functions in BTF; nothing for a module without BTF of its own,
    as vmlinux lacks its structures."""
    vmlinux = files.read_bytes("/sys/kernel/btf/vmlinux")
    return read_fuse(vmlinux, files.read_bytes("/sys/kernel/btf/fuse", quiet=True))


def _line(files: Files, name: str) -> str | None:
    text = files.read(name)
    return None if text is None else text.strip()


def _field(status: str, name: str, index: int = 0) -> str | None:
    match = re.search(rf"^{name}:\s*(.*)$", status, re.MULTILINE)
    return match[1].split()[index] if match else None


def _distribution(text: str) -> tuple[str, ...]:
    values = dict(re.findall(r"""^(ID|ID_LIKE)=["']?([^"'\n]*)""", text, re.MULTILINE))
    return tuple(f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".split())


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def _bracketed(text: str) -> str | None:
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else None


def _cpus(online: str) -> int:
    """Return the length of a list such as 0-3,8."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", online)
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)


def capabilities(mask: int) -> tuple[str, ...]:
    return tuple("cap_" + name for bit, name in enumerate(CAPABILITIES) if mask >> bit & 1)


def _tracefs(files: Files) -> str | None:
    """Return a directory where tracefs can be read.

    That is its usual place, another mount point, or a directory of debugfs (before Linux 4.1).
    """
    for place in tracefs_places(files):
        if files.read(f"{place}/available_tracers") is not None:
            return place
    return None


def _number(files: Files, path: str) -> int:
    text = (files.read(path, quiet=True) or "").strip()
    return int(text) if text.isdecimal() else 0


def tracefs_places(files: Files) -> list[str]:
    """Return the directories where tracefs may be."""
    return ["/sys/kernel/tracing", *mounted(files, "tracefs"), "/sys/kernel/debug/tracing"]


def _tracepoints(files: Files, tracefs: str) -> tuple[str, ...]:
    wanted = ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup"]
    wanted += [CONNECT, LOCKS, SIGNAL, *READS, *RINGS.values()]
    for system in ("fuse", "raw_syscalls"):
        names = files.list(f"{tracefs}/events/{system}")
        wanted += [f"{system}:{name}" for name in names if name not in ("enable", "filter")]
    return tuple(
        name
        for name in sorted(wanted)
        if files.exists(f"{tracefs}/events/{name.replace(':', '/')}/format")
    )


def parse_readme(text: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return (fetch arguments, kinds of dynamic events except kprobe and uprobe, maxactive).

    They stand in the README of tracefs; older kernels' README lacks them.
    """
    _, _, rest = text.partition("accepts: event-definitions")
    definitions, _, _ = rest.partition("  set_event\t")
    definitions, _, _ = definitions.partition("  events/\t")
    formats, _, arguments = definitions.partition("fetcharg:")
    words = set(re.findall(r"<argname>|imm-value|%pd/%pD|\$?\w+(?:<N>)?", arguments))
    fetch_args = [argument for argument in FETCH_ARGS if argument in words]
    for_returns = re.search(r"return probes support:(.*)", arguments)
    if for_returns and "$arg<N>" in for_returns[1]:
        fetch_args.append("return $arg<N>")
    kinds = tuple(
        kind
        for letter, kind in (("f", "fprobe"), ("e", "eprobe"), ("t", "tprobe"), ("s", "synthetic"))
        if re.search(rf"\s{letter}(\[:|:\[)", formats)
    )
    return tuple(fetch_args), kinds, "r[maxactive]" in formats


def looked_at(text: str) -> str:
    """Return the lines of /proc/kallsyms that matter here."""
    hits = _LOOKED_AT.finditer(text)
    return "".join(text[text.rfind("\n", 0, m.start()) + 1 : m.end()] + "\n" for m in hits)


def parse_kallsyms(text: str) -> tuple[tuple[str, ...], bool, bool]:
    """Return (functions of FUSE, whether addresses are shown, whether fuse is a module)."""
    hits = list(_LOOKED_AT.finditer(text))
    lines = [match[1] for match in hits]
    addresses = any(text[text.rfind("\n", 0, m.start()) + 1 : m.start()].strip("0") for m in hits)
    module = any(line.endswith("[fuse]") for line in lines)
    return _fuse_names(lines), addresses, module


def _fuse_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return sorted names from "name" or "name [module]", without paddings and trampolines.

    A name occurs twice if two functions have it: the kernel refuses a probe on such a name.
    """
    names = []
    for line in lines:
        name, _, module = line.replace("\t", " ").partition(" ")
        if name.startswith(("__pfx_", "__cfi_", "__SCT__")):
            continue
        if (
            module.strip() == "[fuse]"
            or name.startswith("fuse_")
            or "_fuse_" in name
            or name.partition(".")[0] in NAMED
        ):
            names.append(name)
    return tuple(sorted(names))


def _ftrace_users(files: Files, tracefs: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (other users of ftrace, a line each; dynamic events of fusetools)."""
    if tracefs is None:
        return (), ()
    users = _instance_users(files, tracefs, "")
    for name in files.list(f"{tracefs}/instances"):
        users += _instance_users(files, f"{tracefs}/instances/{name}", f" in instance {name}")
    enabled = (files.read(f"{tracefs}/enabled_functions") or "").splitlines()
    if enabled:
        first = ", ".join(line.split(" ")[0] for line in enabled[:3])
        users.append(f"{plural(len(enabled), 'function')} traced (enabled_functions): {first}")
    own: list[str] = []
    others: list[str] = []
    text = files.read(f"{tracefs}/dynamic_events")
    if text is None:
        text = "".join(
            files.read(f"{tracefs}/{kind}_events") or "" for kind in ("kprobe", "uprobe")
        )
    for group, event in re.findall(r"^\w+:([^/\s]+)/(\S+)", text, re.MULTILINE):
        (own if group in OWN_GROUPS else others).append(f"{group}/{event}")
    if others:
        users.append(f"{plural(len(others), 'probe')} of others: {', '.join(others[:3])}")
    return tuple(users), tuple(own)


def _instance_users(files: Files, directory: str, where: str) -> list[str]:
    users = []
    tracer = _line(files, f"{directory}/current_tracer")
    if tracer and tracer != "nop":
        users.append(f"the tracer {tracer} is on{where} (current_tracer)")
    functions = [
        line
        for line in (files.read(f"{directory}/set_ftrace_filter") or "").splitlines()
        if not line.startswith("#")
    ]
    if functions:
        users.append(f"{plural(len(functions), 'function')} in set_ftrace_filter{where}")
    events = (files.read(f"{directory}/set_event") or "").split()
    if events:
        users.append(
            f"{plural(len(events), 'event')} on{where} (set_event): {' '.join(events[:3])}"
        )
    return users


def _perf_users(
    files: Files, descriptors: dict[int, list[tuple[str, str]]], ours: set[int]
) -> tuple[str, ...]:
    users = []
    for pid, opened in descriptors.items():
        events = sum(link == PERF_EVENT for _, link in opened)
        tracing = [link.partition(TRACEFS)[2] for _, link in opened if TRACEFS in link]
        if pid in ours or pid == os.getpid() or not (events or tracing):
            continue
        holds = [plural(events, "perf event")] if events else []
        holds += [f"{tracing[0]} of tracefs"] if tracing else []
        users.append(f"{comm(files, pid)} (pid {pid}) holds {' and '.join(holds)}")
    return tuple(users)
