"""Reasons: each code has a sentence, and no decision depends on a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import golden

import fusetools
from fusetools.reasons import SENTENCES, Code, Reason, Value

SUBJECT: Mapping[str, Value] = {
    "part": "daemon",
    "path": "/mnt",
    "comm": "sshfs",
    "pid": 7,
    "file": "libfuse3.so.3",
    "group": "callbacks",
    "runtime": "Go",
    "function": "fuse_x",
    "variant": "fuse_x.isra.0",
    "pattern": "fuse_*",
    "stage": "queued",
    "detail": "latency",
    "message": "Input/output error",
    "patterns": ("libone.*", "libtwo.*"),
    "others": ("/b", "/c"),
    "comms": ("cat", "ls"),
    "pids": (12, 13),
    "tids": (12, 14),
    "paths": ("/mnt/x", ""),
    "ages_ns": (90_200_000_000, ""),
    "files": ("libone.so", "libtwo.so", "libthree.so", "libfour.so"),
    "daemon": "sshfs",
    "tid": 9,
    "call": "read",
    "mount": "/mnt",
    "holder": "sshfs (thread 8)",
    "holders": ("backup (pid 600)",),
    "kind": "mutex",
    "address": "0x10",
    "tracer": "gdb (pid 5)",
    "children": ("ssh (pid 10)", "sh (pid 11)"),
    "ends": ("10.0.0.1:22 (tcp, ESTABLISHED)",),
    "process": "watchdog (pid 6)",
    "by": "sshfs (pid 7)",
    "halt": "halt_stopped",
    "halted": "stopped (SIGSTOP)",
    "wait": "wait_cpu",
    "doing": "runs on a CPU",
    "thread": 9,
    "server": "sshfs (pid 8)",
    "wanted": "a download",
    "mounter": "mount.cvmfs (pid 10)",
    "what": "an older recording's words",
    "why": "it has sentences alone",
    "version": "4.18",
    "operation": "open",
    "place": "directory",
    "how": "sleep",
    "syscall": "clock_nanosleep",
    "sender": "systemd (pid 1)",
    "ending": "exit status 1",
    "lock": "0x55e7fc91f0a0",
    "peer": "192.0.2.1:22",
    "whose": "daemon",
    "cgroup": "/sys/fs/cgroup/x",
    "names": ("/mnt/a.so", "/mnt/b.so"),
    "processes": ("node", "java"),
    "error": "EIO",
    "fate": "aborted",
    "signal": "SIGALRM",
    "side": "B",
    "label": "find",
    "table": "waits",
}
FIGURES: Mapping[str, int | float] = {
    "mounted_ns": 1_100_000_000,
    "functions": 1200,
    "probed": 400,
    "probes": 28,
    "callers": 5,
    "threads": 2000,
    "cpus": 64,
    "events": 128_000,
    "switches": 3,
    "ago_ns": 1_250_000_000,
    "on_cpu_ns": 1_100_000_000,
    "status": 7,
    "held_ns": 3_200_000_000,
    "ended_ns": 2_500_000_000,
    "before_ns": 12_000_000,
    "oom_kills": 2,
    "wanted_ns": 30_000_000_000,
    "buffer_bytes": 64 << 20,
    "nameless": 900,
    "addresses": 1100,
    "time_share": 0.1234,
    "copied_bytes": 8192,
    "alike": 3000,
    "waits": 9000,
    "error_share": 0.0127,
    "requests": 1500,
    "handed": 1400,
    "ring": 900,
    "deviation_share": 0.375,
    "unanswered": 2,
    "queue_share": 0.5,
    "short_share": 0.25,
    "runnable_share": 0.125,
    "age_ns": 299_000_000_000,
    "server_ns": 298_500_000_000,
    "openers": 4,
    "idle_ns": 300_000_000,
    "silent_ns": 6_000_000_000,
    "limit_ns": 20_000_000_000,
    "least_ns": 14_000_000_000,
    "most_ns": 29_000_000_000,
    "children": 3,
    "descriptors": 5,
    "most": 12,
    "of": 160,
    "distinct": 40,
    "a_ns": 4_000_000_000,
    "b_ns": 1_000_000_000,
    "calls_percent": -95.0,
    "p50_percent": -20.0,
    "points": 6,
    "calls": 2000,
    "in_flight": 1.0,
    "max_background": 1,
    "wins": 5,
    "mean_ns": 20_100_000,
    "times": 9,
    "throttled_ns": 621_000_000,
    "taker_share": 0.75,
    "requests_share": 0.97,
    "same": 74_000,
    "per_second": 74_600,
    "timeout_ns": 1_000_000_000,
    "saved_share": 0.95,
    "lookups_share": 0.995,
    "sequential": 990,
    "size_bytes": 512,
    "opens": 20,
    "each": 196.0,
    "lists": 110,
    "cpu_share": 0.8,
}
# Variants of a code's sentence, by what differs.
OTHERWISE: tuple[tuple[Code, Mapping[str, Value], str], ...] = (
    (Code.STRIPPED, {"part": "callbacks"}, ""),
    (Code.STRIPPED, {"part": "own_callbacks"}, ""),
    (Code.CALLBACKS_REFUSED, {"path": ("/a", "/b")}, ""),
    (Code.STAGE_VARIANT, {"transport": "io_uring or virtiofs"}, ""),
    (Code.NO_KPROBES, {}, "kernel"),
    (Code.VFS_ENTRY_JOINED, {"cause": "no_kprobes"}, "kernel"),
    (Code.QUEUE_JOINED, {"cause": "low_detail"}, "syscall"),
    (Code.LOW_DETAIL, {}, "kernel"),
    (Code.LOW_DETAIL, {}, "off_cpu"),
    (Code.FILES_NOT_FOUND, {"folder": "/srv", "files": ("libone.so",)}, ""),
    (Code.THREADS_SHORT, {"served_by": "io_uring"}, ""),
    (Code.HANG_UNANSWERED, {"part": "sent"}, ""),
    (Code.HANG_UNANSWERED, {"reader": "unknown"}, ""),
    (Code.WAIT_CALLERS_LOCK, {"holders": ()}, ""),
    (Code.HANG_FILE_LOCKS, {"names": ("a (pid 1)", "b (pid 2)"), "paths": ("/m/f", "/m/g")}, ""),
    (Code.WAIT_CALLERS_LOCK, {"holders": ("flock (pid 1)", "sh (pid 2)")}, ""),
    (Code.HANG_UNANSWERED, {"waits_in": "io_uring", "runtime": "tasks"}, ""),
    (Code.DAEMON_SLEEPS, {"place": "file", "helper": "MainDownload"}, ""),
    (Code.DAEMON_SLEEPS, {"helper": "fetch", "start_function": "MainDownload"}, ""),
    (Code.DAEMON_LOCK, {"how": "lock"}, ""),
    (Code.DAEMON_LOCK, {"how": "network", "start_function": "MainDownload"}, ""),
    (Code.HANG_SERVER, {"wanted": ""}, ""),
    (Code.SLOW_DISK, {"how": "page", "place": "mount"}, ""),
    (Code.SLOW_DISK, {"below": "/data/cache/a1", "disk": "/data (ext4, /dev/vdb)"}, ""),
    (Code.SLOW_DISK, {"disk": "/data (ext4, /dev/vdb)"}, ""),
    (Code.ERRORS_FREQUENT, {"place": "background"}, ""),
    (Code.ERRORS_FREQUENT, {"place": "background", "operation": "write"}, ""),
    (Code.CPU_QUOTA, {"whose": "workload"}, ""),
    (Code.CPU_TAKEN, {"whose": "workload"}, ""),
)


def test_each_code_has_a_sentence() -> None:
    assert list(SENTENCES) == list(Code)
    assert len({code.value for code in Code}) == len(Code)


def test_the_sentences() -> None:
    """The only place with the sentences: tests of decisions assert codes, subjects and figures."""
    reasons = [Reason(code, SUBJECT, FIGURES, layer="syscall") for code in Code]
    reasons += [Reason(c, {**SUBJECT, **s}, FIGURES, layer=layer) for c, s, layer in OTHERWISE]
    one = {"switches": 1, "callers": 2}
    reasons += [Reason(c, SUBJECT, one) for c in (Code.SWITCHES_MISSING, Code.ALREADY_WAITING)]
    alone = {name: SUBJECT[name] for name in ("file", "message")}
    reasons += [Reason(c, alone) for c in (Code.CALLBACKS_REFUSED, Code.RETURNS_SECCOMP)]
    reasons.append(Reason(Code.KERNEL_STACKS_CUT, {}, {"functions": 2}))
    shares = {"time_share": 0.5, "daemon_share": 0.75}
    reasons.append(Reason(Code.STACKS_CUT, {}, shares))
    reasons.append(Reason(Code.THREADS_ENOUGH, {}, {**FIGURES, "threads": 1}))
    reasons.append(Reason(Code.THREADS_UNKNOWN_NO_READ))
    incomplete = [r.code for r in reasons[: len(Code)] if re.search(r"(?<!\w)\?", r.text)]
    assert not incomplete
    golden.check("reasons.txt", "".join(f"{r.code.value}: {r.what} | {r.why}\n" for r in reasons))


def test_two_reasons_are_equal_by_their_parts() -> None:
    one, other = (Reason(Code.STRIPPED, {"path": path}) for path in ("/a", "/b"))
    assert one != other and len({one, other, Reason(Code.STRIPPED, {"path": "/a"})}) == 2


# Sentences of reasons and errors.
TEXTS = {"what", "why", "text", "problem"}
READS = {"startswith", "endswith", "partition", "rpartition", "split", "replace", "find", "count"}
READS |= {"match", "fullmatch", "search", "removeprefix", "removesuffix", "index"}
ROOT = Path(fusetools.__file__).parent


def of_text(node: ast.AST) -> bool:
    """Return whether a part of an expression is a sentence, and not a call of a method of that
    name."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    return any(
        isinstance(n, ast.Attribute) and n.attr in TEXTS and id(n) not in called
        for n in ast.walk(node)
    )


def decides(node: ast.AST) -> bool:
    """Return whether an expression compares a sentence, or searches for words in it."""
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        words = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        named = any(isinstance(side, ast.Name) and side.id in TEXTS - {"text"} for side in sides)
        attribute = any(isinstance(side, ast.Attribute) and of_text(side) for side in sides)
        return attribute or (words and named)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in READS and any(map(of_text, (node.func.value, *node.args)))
    return False


def test_nothing_decides_by_a_sentence() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if decides(node)
    }
    assert found == set()
