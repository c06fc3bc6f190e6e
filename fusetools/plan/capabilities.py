"""The capabilities of a host: its layers, what is missing and how to fix it."""

from __future__ import annotations

import errno
import os
import shlex
from dataclasses import dataclass

from fusetools.figures import plural
from fusetools.host.facts import VIRTIOFS, HostFacts, Mount, Tool
from fusetools.plan.ftrace import by_perf
from fusetools.reasons import Code, Reason

# One function of each group begins or ends a request (which one depends on the kernel version).
BEGIN = ("queue_request_and_unlock", "queue_request", "fuse_dev_queue_req", "fuse_simple_request")
END = ("fuse_request_end", "request_end")

# (distribution, install command, name of perf's package); the first that matches ID, ID_LIKE.
INSTALLERS = (
    ("ubuntu", "apt-get install -y", "linux-tools-$(uname -r)"),
    ("debian", "apt-get install -y", "linux-perf"),
    ("fedora", "dnf install -y", "perf"),
    ("rhel", "yum install -y", "perf"),
    ("suse", "zypper install -y", "perf"),
    ("opensuse", "zypper install -y", "perf"),
    ("arch", "pacman -S", "perf"),
    ("alpine", "apk add", "perf"),
)

NEWER_PERF = "install perf 5.10 or later: any perf runs on any kernel"
NO_UPROBES = Reason(
    Code.NO_UPROBES, fix="boot a kernel built with CONFIG_UPROBE_EVENTS=y", layer="daemon"
)
# Reports the connection of FUSE's descriptors in fdinfo (Linux 6.18)
SHOWS_CONNECTION = "fuse_dev_show_fdinfo"
_PRIVILEGED = "run it outside of the container, or in a privileged one"
_RUN_WITH = "run it outside of the container, or run the container with --security-opt"
# Capabilities without which a recording of root fails or lacks the daemon (docs/containers.md).
_NEEDED = (
    ("cap_ipc_lock", "the kernel may refuse perf's buffers"),
    ("cap_sys_ptrace", "daemons cannot be found"),
)


@dataclass(frozen=True)
class Layer:
    """``how``: the means by which it is shown, or why it is not."""

    name: str
    available: bool
    how: str


@dataclass(frozen=True)
class Advice:
    """Something missing. ``needed``: recording does not work without it."""

    problem: str
    fix: str
    needed: bool


@dataclass(frozen=True)
class Diagnosis:
    """``works``: recording works, with a layer that shows requests and, if something is mounted
    whose daemon is here, at least one traceable daemon."""

    works: bool
    layers: tuple[Layer, ...]
    advice: tuple[Advice, ...]


def diagnose(facts: HostFacts) -> Diagnosis:
    layers = (
        _syscalls(facts),
        _kernel(facts),
        _requests(facts),
        _daemon(facts),
        _off_cpu(facts),
    )
    can = {layer.name for layer in layers if layer.available}
    elsewhere = {mount.fstype for mount in facts.mounts} == {VIRTIOFS}
    answered = "daemon" in can or elsewhere
    works = not obstacles(facts) and answered and bool(can & {"requests", "kernel"})
    return Diagnosis(works, layers, tuple(_advice(facts)))


def obstacles(facts: HostFacts, command: str = "doctor") -> list[Advice]:
    """Return what prevents any recording from starting: `doctor` reports it, `record` stops at it.

    The most basic obstacle comes first: fixing it may fix the following ones.

    ``command``: the fusetools command to run as root instead.
    """
    advice = []
    if facts.perf is None:
        advice.append(Advice(facts.perf_why, installs(facts, "perf"), True))
    if facts.uid != 0:
        return [*advice, not_root(command)]
    if facts.tracefs is None:
        advice.append(_no_tracefs(facts))
    elif not facts.tracefs_writable:
        advice.append(_read_only(facts, facts.tracefs))
    if facts.perf and facts.tracefs is not None and _events(facts):
        advice.append(_perf_advice(facts))
    return advice


def not_root(command: str) -> Advice:
    problem = "not root: no probes, no events of all CPUs, no daemons of other users"
    return Advice(problem, f"sudo fusetools {command}", True)


def traceable(mount: Mount) -> bool:
    """Return whether the mount's daemon is known, and at least one of its files can be probed."""
    return mount.daemon_pid is not None and any(library.host_path for library in mount.libraries)


def _events(facts: HostFacts) -> str:
    """Return why no event can be recorded at all; "" if events can."""
    if facts.perf is None:
        return facts.perf_why or "perf is not installed"
    if facts.tracefs is None:
        return "tracefs is not readable"
    return "" if facts.perf_can_record else "perf may not record"


def steerable(perf: Tool | None) -> bool:
    """Return whether perf takes commands while it records (perf 5.10 and later)."""
    return perf is None or "--control" in perf.options


def _probes(facts: HostFacts) -> str:
    """Return why no probe can be made although events can be recorded; "" if probes can."""
    if facts.tracefs is None:
        return "tracefs is not readable"
    return "" if facts.tracefs_writable else f"{facts.tracefs} is not writable"


def _syscalls(facts: HostFacts) -> Layer:
    why = _events(facts)
    if not why and "raw_syscalls:sys_enter" not in facts.tracepoints:
        why = "this kernel has no raw_syscalls tracepoints (CONFIG_FTRACE_SYSCALLS)"
    return Layer("syscalls", not why, why or "raw_syscalls tracepoints")


def _kernel(facts: HostFacts) -> Layer:
    hows = []
    if "function_graph" in facts.tracers and facts.trace_cmd and facts.tracefs_writable:
        hows.append(f"function_graph ({plural(len(facts.filter_functions_fuse), 'function')})")
    if "kprobe" in facts.dynamic_events and not (_events(facts) or _probes(facts)):
        hows.append("kprobes")
    if hows:
        return Layer("kernel", True, ", ".join(hows))
    if "function_graph" in facts.tracers or "kprobe" in facts.dynamic_events:
        missing = "" if facts.trace_cmd else "trace-cmd is not installed"
        return Layer("kernel", False, _probes(facts) or _events(facts) or missing)
    if facts.tracefs is None:
        return Layer("kernel", False, _probes(facts))
    return Layer("kernel", False, "this kernel has neither function_graph nor kprobes")


def _dearer(facts: HostFacts) -> str:
    why = by_perf(facts)
    return f"; by perf alone, which costs more: {why}" if why else ""


def _requests(facts: HostFacts) -> Layer:
    why = _events(facts)
    if why:
        return Layer("requests", False, why)
    points = [
        name for name in ("send", "sent", "end") if f"fuse:fuse_request_{name}" in facts.tracepoints
    ]
    functions = set(facts.kallsyms_fuse)
    begin = next((name for name in BEGIN if name in functions), None)
    end = next((name for name in END if name in functions), None)
    kprobes = "kprobe" in facts.dynamic_events and not _probes(facts) and begin and end
    if "send" in points and "end" in points:
        how = f"fuse:fuse_request_* tracepoints ({', '.join(points)})"
        if facts.fuse_send_unique is False:
            how += "; send has no unique here: " + (
                f"kprobe on {begin}" if kprobes else "send and end are not joined"
            )
        return Layer("requests", True, how + _dearer(facts))
    if kprobes:
        how = f"kprobes on {begin}, {end}; no fuse:* tracepoints"
        return Layer("requests", True, how + _dearer(facts))
    if not facts.fuse:
        return Layer("requests", False, "the kernel has no FUSE file system loaded")
    return Layer("requests", False, "this kernel has neither fuse:* tracepoints nor kprobes")


def _daemon(facts: HostFacts) -> Layer:
    why = _probes(facts) or _events(facts)
    if not why and "uprobe" not in facts.dynamic_events:
        why = NO_UPROBES.why
    if why:
        return Layer("daemon", False, why)
    count = sum(traceable(mount) for mount in facts.mounts)
    if not facts.mounts:
        return Layer("daemon", True, "uprobes; no FUSE file system is mounted now")
    if not count:
        return Layer("daemon", False, "uprobes, but no mount whose daemon can be traced")
    return Layer("daemon", True, f"uprobes, {count} of {plural(len(facts.mounts), 'mount')}")


def _off_cpu(facts: HostFacts) -> Layer:
    why = _events(facts)
    if not why and "sched:sched_switch" not in facts.tracepoints:
        why = "this kernel has no sched:sched_switch tracepoint"
    how = "sched_switch with stacks, of kernel and user"
    return Layer("off-CPU", not why, why or how)


def _advice(facts: HostFacts) -> list[Advice]:
    """Yield advice, the most basic problem first: fixing it may fix the following ones."""
    advice = obstacles(facts)
    if facts.uid != 0:
        return advice
    if not advice and "uprobe" not in facts.dynamic_events:
        advice.append(Advice(NO_UPROBES.why, NO_UPROBES.fix, True))
    if not facts.fuse:
        advice.append(Advice("the kernel's FUSE is not loaded", "modprobe fuse", True))
    for name, effect in _NEEDED:
        if facts.capabilities and name not in facts.capabilities:
            fix = f"run the container with --cap-add {name[len('cap_') :].upper()}"
            advice.append(Advice(f"this root lacks {name.upper()}: {effect}", fix, False))
    if facts.perf and facts.perf_can_record and not steerable(facts.perf):
        problem = (
            f"perf {facts.perf.version} takes no commands while it records: no top, no trace, no "
            "count --live; record measures less of what it costs"
        )
        advice.append(Advice(problem, NEWER_PERF, False))
    if facts.trace_cmd is None:
        problem = "trace-cmd is not installed: no function_graph"
        advice.append(Advice(problem, installs(facts, "trace-cmd"), False))
    if facts.tracefs and "kprobe" not in facts.dynamic_events:
        problem = "this kernel was built without kprobes: its own functions are not shown"
        kernel = "boot a kernel built with CONFIG_KPROBES=y, as distributions' are"
        advice.append(Advice(problem, kernel, False))
    if facts.kallsyms_fuse and not facts.addresses:
        problem = "kernel symbols are hidden: addresses will not be named"
        advice.append(Advice(problem, "sysctl kernel.kptr_restrict=0", False))
    if facts.own_events:
        problem = f"{plural(len(facts.own_events), 'probe')} of a recording, running or killed"
        advice.append(Advice(problem, "fusetools clean   # once no recording runs", False))
    none = facts.mounts and not any(traceable(mount) for mount in facts.mounts)
    for mount in facts.mounts:
        if mount.fstype == VIRTIOFS:
            continue  # nothing here answers it, and its requests can be recorded
        if mount.daemon_pid is None:
            problem = f"the daemon of {mount.path} is not known"
            fix = "fusetools record --pid PID -- …"
            if SHOWS_CONNECTION in facts.kallsyms_fuse:  # so PID is none that runs here
                problem += ": no process that can be seen here has the connection open"
                fix = "run fusetools where the daemon runs; if it has ended: "
                fix += f"umount -l {shlex.quote(mount.path)}"
            advice.append(Advice(problem, fix, bool(none)))
        elif not traceable(mount):
            problem = f"{mount.path}: the files of {mount.comm} cannot be reached from here"
            advice.append(
                Advice(problem, "run fusetools as root, outside of containers", bool(none))
            )
    return advice


def _no_tracefs(facts: HostFacts) -> Advice:
    refused = [why for path, why in facts.unreadable if "/tracing/" in path]
    if refused and "cap_sys_admin" not in facts.capabilities:
        problem = f"tracefs is not readable ({refused[0]}): this root has few capabilities"
        return Advice(problem, _PRIVILEGED, True)
    if refused and facts.confined:
        return _confined(facts, "does not let this process read tracefs")
    return Advice("tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing", True)


def _read_only(facts: HostFacts, tracefs: str) -> Advice:
    if facts.lockdown == "confidentiality":
        return Advice("the kernel is locked down", "boot it with lockdown=integrity", True)
    contained = "cap_sys_admin" not in facts.capabilities
    refused = [why for path, why in facts.unreadable if path.startswith(tracefs)]
    if not contained and facts.confined and os.strerror(errno.EACCES) in refused:
        return _confined(facts, f"does not let this process write to {tracefs}")
    remount = _PRIVILEGED if contained else f"mount -o remount,rw {tracefs}"
    return Advice(f"{tracefs} cannot be written", remount, True)


def _perf_advice(facts: HostFacts) -> Advice:
    if facts.perf and facts.perf.libtraceevent is False:
        problem = f"{facts.perf.path} was built without libtraceevent: it has no tracepoints"
        return Advice(problem, installs(facts, "perf"), True)
    if "cap_perfmon" not in facts.capabilities and "cap_sys_admin" not in facts.capabilities:
        problem = f"perf cannot record ({facts.perf_why}): this root lacks CAP_PERFMON"
        return Advice(problem, _PRIVILEGED, True)
    if facts.perf_refused == "seccomp":
        problem = "perf cannot record: a seccomp filter refuses perf_event_open"
        return Advice(problem, f"{_RUN_WITH} seccomp=unconfined", True)
    if facts.perf_refused and facts.confined:
        return _confined(facts, "refuses perf events to this process")
    return Advice(
        f"perf cannot record: {facts.perf_why}",
        "perf record -a -e sched:sched_switch -o /dev/null true   # says more",
        True,
    )


def _confined(facts: HostFacts, effect: str) -> Advice:
    off = "label=disable" if facts.confined.startswith("SELinux") else "apparmor=unconfined"
    return Advice(f"{facts.confined} {effect}", f"{_RUN_WITH} {off}", True)


def installs(facts: HostFacts, tool: str) -> str:
    """Return the command that installs "perf" or "trace-cmd" on this distribution."""
    for name in facts.distribution:
        for distribution, command, perf in INSTALLERS:
            if name == distribution:
                return f"{command} {perf if tool == 'perf' else tool}"
    return f"install {tool} with your distribution's package manager"
