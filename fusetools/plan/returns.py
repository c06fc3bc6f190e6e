"""Return probes can kill the program: which files may have them."""

from __future__ import annotations

import os

from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.reasons import Code, Reason


def no_returns(facts: HostFacts, library: Library, mount: Mount | None = None) -> Reason | None:
    """Return why a file's functions may have only entry probes; None if they may have both.

    A probe is set in a file, so in every process that maps it: ``mount``'s daemon, and those of all
    other mounts. None: only this process. Sources: host/uretprobe.py.
    """

    def because(code: Code, **subject: str | int) -> Reason:
        path = mount.path if mount else ""
        about = {"path": path, "file": os.path.basename(library.path), **subject}
        return Reason(code, about, layer="daemon")

    if library.runtime:
        return because(Code.RETURNS_RUNTIME, runtime=library.runtime)
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
            return because(Code.RETURNS_SECCOMP, **_who(seccomp[0]))
        if not mount and facts.seccomp:
            return because(Code.RETURNS_SECCOMP)
    shadow = [other for other in daemons if other.shadow_stack]
    if shadow and not facts.uretprobe_shadow:
        return because(Code.RETURNS_SHADOW_STACK, **_who(shadow[0]))
    return None


def _who(mount: Mount) -> dict[str, str | int]:
    return {"comm": mount.comm or "", "pid": mount.daemon_pid or 0}
