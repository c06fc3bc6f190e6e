"""function_graph, recorded by trace-cmd: its command line, a running one, and tracefs as it was.

trace-cmd is started before perf and stopped after it: the stacks that perf records are cut where
function_graph began later. While perf does not record it is paused: on a mount that is always busy
it would show calls whose requests nobody saw. It sets what it needs in the top instance of tracefs,
which others may use: whoever does is named and left alone, and what was set before is set again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.host.processes import until_ended
from fusetools.host.words import is_pattern
from fusetools.record.program import Program

TRACER = "function_graph"
LARGEST, SMALLEST = 16 << 20, 256 << 10  # bytes of ring buffer on each CPU
BUFFERS = 256 << 20  # on all of them
KEPT = 48 << 20  # bytes of disk that are left free: trace-cmd writes kallsyms and formats last

# The files that steer function_graph; trace-cmd empties them.
FILTERS = (
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_graph_function",
    "set_graph_notrace",
    "set_ftrace_pid",
    "set_event",
)
# Counts of a CPU's ring buffer (tracing_stats_read() in kernel/trace/trace.c).
LOST = re.compile(rb"^(?:overrun|commit overrun|dropped events): (\d+)$", re.MULTILINE)
RECORDED = re.compile(rb"^(?:entries|overrun|read events): (\d+)$", re.MULTILINE)
# The settings that it changes, in the order in which they are restored.
SETTINGS = ("current_tracer", "trace_clock", "buffer_size_kb", "tracing_on")


def command_line(
    tool: Tool, output: str, functions: Sequence[str], clock: str, buffer: int
) -> list[str]:
    """`trace-cmd record` until SIGINT. ``functions``: as in KernelPlan.graph; ``buffer``: bytes on
    each CPU."""
    argv = [tool.path, "record", "-p", TRACER, "-C", clock, "-b", str(buffer >> 10), "-o", output]
    if since_3_0(tool):  # before there was no other version
        argv += ["--file-version", "6"]
    for function in functions:
        name = function.lstrip("!")
        if not is_pattern(name):
            raise Error(f"cannot trace {function}", "it is no name or pattern of kernel functions")
        argv += ["-l" if name == function else "-n", name]
    return argv


def since_3_0(tool: Tool) -> bool:
    return "--file-version" in tool.options


def buffer_size(cpus: int, free: int) -> int:
    """Return the bytes of ring buffer for each CPU, with so many free on the disk: what is in the
    buffers at the end is still written there."""
    size = LARGEST
    while size > SMALLEST and size * cpus > min(BUFFERS, free // 16):
        size //= 2
    return size


def room(parts: int, buffers: int) -> int:
    """Return the bytes of disk needed to keep what trace-cmd has written and has in its buffers. It
    merges its parts, which takes up to seven times their size."""
    return 8 * (parts + buffers) + KEPT


def settings(root: Path) -> dict[str, str]:
    """Return the values of SETTINGS, as they are to be written again."""
    values = {}
    for name in SETTINGS:
        text = _read(root / name)
        if name == "trace_clock":
            match = re.search(r"\[(\S+)\]", text)
        elif name == "buffer_size_kb":  # "7 (expanded: 1408)": never to be had again
            match = re.search(r"expanded: (\d+)", text) or re.fullmatch(r"(\d+)", text)
        else:
            match = re.fullmatch(r"(\S+)", text)
        if match:
            values[name] = match[1]
    return values


def restore(root: Path, before: Mapping[str, str]) -> list[str]:
    """Restore the changed settings, and empty the filters. Return the names of what was changed."""
    changed = []
    now = settings(root)
    for name in SETTINGS:
        if name in before and now.get(name) != before[name] and _write(root / name, before[name]):
            changed.append(name)
    for name in FILTERS[:-1]:
        if _entries(root / name) and _write(root / name, "", empty=True):
            changed.append(name)
    return changed


def users(root: Path) -> list[str]:
    """Return who uses ftrace's top instance, a few words each."""
    reasons = []
    tracer = _read(root / "current_tracer")
    if tracer not in ("nop", ""):
        reasons.append(f"the tracer {tracer} is on (current_tracer)")
    for name in FILTERS:
        entries = _entries(root / name)
        if entries:
            more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
            reasons.append(f"{entries[0]}{more} in {name}")
    return reasons


def check_free(root: Path, others: Sequence[str]) -> None:
    """Raise Error if somebody uses ftrace. ``others``: HostFacts.ftrace_users."""
    # their own trace-cmd or perf, whose stacks our function_graph would cut
    holders = [other for other in others if re.match(r"(trace-cmd|perf) \(pid \d+\) holds", other)]
    holders += [other for other in others if " of tracefs" in other and other not in holders]
    reasons = users(root) + holders
    if reasons:
        raise Error(
            "ftrace is in use",
            "; ".join(reasons),
            "end that, or go without it: fusetools record --backend kprobe -- …",
        )


class TraceCmd(Program):
    """A `trace-cmd record` that runs."""

    noise = ("plugin", "Hit Ctrl")

    def __init__(self, root: Path, directory: Path) -> None:
        super().__init__(directory / "trace-cmd.log")
        self.root = root
        self.output = directory / "trace.dat"
        self.buffers = 0  # bytes, of all CPUs
        self.lost = 0

    def wait_until_on(self, patience: float = 120.0) -> None:
        """Wait until function_graph is on, for the chosen functions alone, and pause it. Raise
        Error if that does not happen."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self.ended:
                why = self.complaint() or "it said nothing"
                raise Error("trace-cmd cannot record function_graph", why)
            on = _read(self.root / "current_tracer"), _read(self.root / "tracing_on")
            if on == (TRACER, "1"):
                self.pause()
                break
            time.sleep(0.01)
        else:
            raise Error("trace-cmd cannot record function_graph", "it did not begin to")
        if not _entries(self.root / "set_ftrace_filter"):
            raise Error("trace-cmd cannot record function_graph", "it did not choose functions")

    def pause(self) -> None:
        """Record nothing from now on, and stay armed."""
        _write(self.root / "tracing_on", "0")

    def resume(self) -> None:
        _write(self.root / "tracing_on", "1")

    def functions(self) -> set[str]:
        """Return the functions that the kernel says it traces."""
        lines = _entries(self.root / "set_ftrace_filter")
        return {line.replace("\t", " ").split(" ")[0] for line in lines}

    def stop(self) -> bool:
        """Stop tracing, and let trace-cmd write its data. Return whether it ended well."""
        if self.process is None:
            return True
        self.pause()
        self.lost = lost(self.root)
        return self.end(180.0) and self.output.exists()

    def _until_done(self, seconds: float) -> None:
        """Switch the tracer off as soon as the buffers have been read, before trace-cmd does it: it
        empties the filters first, for which the kernel changes the code of all its functions, and
        then changes it back."""
        end = time.monotonic() + seconds
        while not self.done and not self._buffers_are_read():
            if (left := end - time.monotonic()) <= 0:
                return
            until_ended(self._pid, min(left, 0.01))
        # The kernel empties its buffers when the tracer changes.
        if not self.done and _read(self.root / "current_tracer") == TRACER:
            _write(self.root / "current_tracer", "nop")
        super()._until_done(max(0.0, end - time.monotonic()))

    def _buffers_are_read(self) -> bool:
        """Return whether its children have all ended, which read the buffers until they are empty.
        Return False on kernels that do not list children."""
        try:
            return not Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text()
        except OSError:
            return False

    @property
    def _pid(self) -> int:
        assert self.process is not None
        return self.process.pid


CHECKED = 200  # calls that clocks_disagree() compares

Spans = Sequence[tuple[int, int, int]]  # (thread, begin, duration in ns)


def clocks_disagree(function: str, probed: Spans, graphed: Spans) -> str:
    """Return why function_graph is not on the clock of kprobes recorded at the same time; empty: it
    is.

    ``probed``, ``graphed``: the calls of ``function`` by its kprobes and by function_graph. The
    kprobes fire before and after function_graph's own: each of its calls must begin inside one of
    theirs. Those before the first of theirs say nothing where others do: perf began later.
    """
    if not probed:
        return ""
    spans: dict[int, list[tuple[int, int]]] = {}
    for thread, begin, duration in probed:
        spans.setdefault(thread, []).append((begin, begin + duration))
    first = min(begin for _, begin, _ in probed)
    known = [(spans[thread], begin) for thread, begin, _ in graphed if thread in spans]
    before = sum(begin < first for _, begin in known)
    later = [one for one in known if one[1] >= first][:CHECKED]
    inside = sum(any(begin <= at <= end for begin, end in calls) for calls, at in later)
    if len(later) > 2 * inside or (before and not inside):
        return (
            f"its clock is not perf's: of {len(later) + before} calls of {function} "
            f"{inside} lie inside those that kprobes saw"
        )
    return ""


def lost(root: Path) -> int:
    """Return how many events the ring buffers of all CPUs overwrote or dropped since tracing
    began."""
    return sum(counted(path, LOST) for path in root.glob("per_cpu/cpu*/stats"))


def counted(statistics: os.PathLike[str], which: re.Pattern[bytes]) -> int:
    """Return the sum of these counts of a CPU's ring buffer, 0 if they cannot be read."""
    try:
        descriptor = os.open(statistics, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return sum(map(int, which.findall(os.read(descriptor, 4096))))
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def _entries(path: Path) -> list[str]:
    """Return a filter's lines, without what the kernel writes where there is none."""
    return [
        line for line in _read(path).splitlines() if line and not line.startswith(("#", "no pid"))
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _write(path: Path, text: str, empty: bool = False) -> bool:
    """Return whether the kernel took it. Opening a file of functions with O_TRUNC empties it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (os.O_TRUNC if empty else 0))
    except OSError:
        return False
    try:
        if not empty:
            os.write(descriptor, text.encode() + b"\n")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
