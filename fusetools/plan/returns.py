"""Whether a file's functions may have return probes, which can kill the program."""

from __future__ import annotations

from fusetools.host.facts import HostFacts, Library, Mount


def no_returns(facts: HostFacts, library: Library, mount: Mount | None = None) -> str:
    """Why a file's functions may have only entry probes; "" if they may have both.

    A probe is set in a file, so in every process that maps it: ``mount``'s daemon, and those of all
    other mounts. None: only this process. Sources: host/uretprobe.py.
    """
    if library.runtime:
        return (
            f"it is a {library.runtime} program, whose own stack handling no return probe survives"
        )
    daemons = [mount] if mount else []
    daemons += [
        other
        for other in facts.mounts
        if any(
            (file.inode, file.device) == (library.inode, library.device) for file in other.libraries
        )
    ]
    seccomp = [other for other in daemons if other.seccomp]
    wide = library.machine in ("x86_64", "")  # 32-bit return probes use no system call
    if facts.uretprobe_filtered is not False and facts.arch == "x86_64" and wide:
        if seccomp:
            return (
                f"{_who(seccomp[0])} has a seccomp filter, which this kernel lets return probes hit"
            )
        if not mount and facts.seccomp:
            return "this process has a seccomp filter, which this kernel lets return probes hit"
    shadow = [other for other in daemons if other.shadow_stack]
    if shadow and not facts.uretprobe_shadow:
        return (
            f"{_who(shadow[0])} has a shadow stack, which this kernel's return probes do not keep"
        )
    return ""


def _who(mount: Mount) -> str:
    return f"{mount.comm} (pid {mount.daemon_pid})"
