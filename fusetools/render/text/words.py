"""Names of stages, their parts, and requests' fates in text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fusetools.figures import duration, number, plural
from fusetools.printable import printable

if TYPE_CHECKING:
    from fusetools.results.request import Request

# Name of a stage, its name within joined stages, its letter in a bar, and its colour in HTML.
WORDS = {
    "vfs_entry": ("VFS entry", "VFS entry", "v", "#9aa5b4"),
    "between": ("between requests", "between", "v", "#c4cad3"),
    "setup": ("setup", "setup", "s", "#6f9fd8"),
    "queue": ("queue", "queue", "q", "#e0a030"),
    "dispatch": ("dispatch", "dispatch", "c", "#c9cf4f"),
    "daemon": ("daemon", "daemon", "d", "#2c8a5b"),
    "reply": ("reply", "reply", "r", "#3fb0b5"),
    "refused": ("since the refused answer", "refused", "x", "#c0504d"),
    "caller_wakeup": ("caller wake-up", "caller wake-up", "w", "#c86a9b"),
    "vfs_exit": ("VFS exit", "VFS exit", "a", "#a58fc8"),
}
# Stages from a request's begin to its end.
IN_REQUEST = tuple(WORDS)[[*WORDS].index("queue") : [*WORDS].index("refused") + 1]


PARTS = {
    "no_thread": "no free thread",
    "runnable": "waiting for CPU",
    "wakeup": "wake-up",
    "copy": "copy",
    "on_cpu": "on CPU",
    "blocked": "blocked",
    "elsewhere": "left by its thread",
    "unknown": "unknown",
}


# Kinds of a caller's time outside of requests.
OUTSIDE = {
    "dirty_throttling": "dirty throttling",
    "page": "page",
    "inode_lock": "inode lock",
    "directory_lock": "directory lock",
    "permission": "permission (fanotify)",
    "passthrough": "file below (passthrough)",
    "other": "something else",
    "blocked": "blocked, not known for what",
    "runnable": "waiting for CPU",
    "on_cpu": "on CPU",
    "unknown": "unknown",
}


REASONS = {
    "unfinished": "not answered by the end",
    "interrupted": "interrupted",
    "aborted": "aborted",
    "no_reply": "expecting no answer",
    "before": "begun before the recording",
    "lost": "with LOST events",
    "unnumbered": "without a number",
}


def aborted(by: str, comm: str, pid: int | None) -> str:
    """Return in words who aborted requests, as in results.request.Aborter."""
    who = printable(comm) or "a process"
    who += f" (pid {pid})" if pid is not None else ""
    return {
        "daemon": "as the daemon ended",
        "timeout": "by the kernel's request timeout",
        "unmount": f"by a forced umount of {who}",
        "fusectl": f"through fusectl, by {who}",
    }.get(by, f"by {who}")


def name_of(stage: str) -> str:
    """Return the name of a stage, or of joined stages."""
    names = stage.split("+")
    if len(names) == 1:
        return WORDS[stage][0]
    words = [WORDS[name][1] for name in names]
    return ", ".join(words) if len(words) < 4 else f"{words[0]} … {words[-1]}"


def short(stage: str) -> str:
    """Return the short name of a stage, or of joined stages."""
    return " and ".join(WORDS[name][1] for name in stage.split("+"))


def unsplit(ns: int) -> list[str]:
    """Return the part of the blocked time that may be waiting for CPU."""
    text = f"blocked: for {duration(ns)} no wake-up was recorded, a part may be waiting for CPU"
    return [text] if ns else []


def names_guessed(guessed: bool, requests: Iterable[Request]) -> str:
    """Return a remark on the source of file names; "" if the recording holds them."""
    files = [(request.path, request.inode) for request in requests]
    if files and all(file == (None, None) for file in files):
        return "File names are not known: no recorded event holds a name or an inode number."
    if guessed and any(path for path, _ in files):
        return "File names are inferred: the recording has no replies to lookups."
    return ""


def data_amount(
    operation: str, answered: int | None, requested: int | None, at: int | None, failed: bool
) -> str:
    """Return the bytes that a read or write moved, of those requested, and their offset, as far as
    known."""
    if operation not in ("read", "write", "readdir", "readdirplus"):
        return ""
    got = None if operation == "write" or failed else answered
    amounts = [amount for amount in (got, requested) if amount is not None]
    if not amounts:
        return ""
    *first, last = amounts
    of = "".join(f"{number(amount)} of " for amount in first)
    return f"{of}{plural(last, 'byte')}{'' if at is None else f' at {number(at)}'}"
