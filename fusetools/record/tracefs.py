"""Probes in tracefs: made, removed, and how often each was hit."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.processes import comm, read_stat, recorders
from fusetools.host.words import is_line
from fusetools.plan.events import RETURN, Probe
from fusetools.plan.kernel import GROUP

PLACE = "/sys/kernel/tracing"
NOT_SUPPORTED = 524  # ENOTSUPP, which the C library does not know
PLACED = "/sys/kernel/debug/kprobes/list"


class Tracefs:
    """The kprobe and uprobe events of a tracefs mounted at ``root``; ours are made since ``since``
    (clock ticks since the boot), by default since this process began. ``theirs``: the processes by
    which other recordings are made now, of their own events alone."""

    def __init__(
        self, root: str, since: int | None = None, theirs: Callable[[], set[int]] = set
    ) -> None:
        self.root = Path(root)
        self._theirs = theirs
        own = read_stat(Files(Path("/")), os.getpid())
        self.since = own.start if since is None and own else since or 0

    def add(self, probe: Probe) -> None:
        """Make one event. Raise Error with the kernel's own reason."""
        definition = probe.definition()
        try:
            self._write(probe.event, definition)
        except OSError as error:
            why = self._kernel_reason() or error.strerror or str(error)
            raise Error(f"the kernel refuses the probe {definition}", why) from error

    def remove(self, events: Iterable[str], patience: float = 5.0) -> list[str]:
        """Remove events ("group:name"). Return those that somebody still holds.

        The kernel refuses that with EBUSY while one is recorded. With an event of several probes it
        frees all but the last before it looks (unregister_trace_uprobe() in
        kernel/trace/trace_uprobe.c): whoever records it then has the daemon run into freed memory.
        So those are left alone while anybody records them.
        """
        left = list(events)
        if not (self.root / "events").exists():
            return left  # unmounted meanwhile: they are still there
        end = time.monotonic() + patience
        while left:
            held = self._held(left)
            left = [event for event in left if event in held or not self._remove(event)]
            if not left or time.monotonic() > end:
                break
            time.sleep(0.05)
        return left

    def _held(self, events: list[str]) -> set[str]:
        """Return the events of several probes that an instance of ftrace has on, or perf may
        have."""
        lines = self._read("uprobe_events").split("\n")
        made = Counter(line.partition(" ")[0].partition(":")[2].replace("/", ":") for line in lines)
        shared = {event for event in events if made[event] > 1}
        on = {event for event in shared if self._is_on(event)}
        if shared and self._recorders():
            on |= {event for event in shared - on if self._perf_has(event)}
        return on

    def _perf_has(self, event: str) -> bool:
        """Return whether perf has a uprobe event open, or this cannot be known.

        The kernel does not switch such an event on for ftrace: EINTR, probe_event_enable() in
        kernel/trace/trace_uprobe.c. If it does, no task passes the filter.
        """
        place = self.root / "events" / event.replace(":", "/", 1)
        try:
            _write_once(place / "filter", "common_pid == 0")
            _write_once(place / "enable", "1")
        except OSError:
            with contextlib.suppress(OSError):
                _write_once(place / "filter", "0")
            return True
        self._switch(event, False)
        return False

    def _is_on(self, event: str) -> bool:
        place = f"events/{event.replace(':', '/', 1)}/enable"
        try:
            instances = [f"instances/{name}/" for name in os.listdir(self.root / "instances")]
        except OSError:
            instances = []
        # "1"; also "0*": on, for a trigger
        return any(self._read(top + place).strip() not in ("", "0") for top in ["", *instances])

    def _recorders(self) -> list[int]:
        pids = recorders(Files(Path("/")), self.since)
        return sorted(set(pids) - self._theirs()) if pids else []

    def users(self) -> str:
        """Return who may record our events now, in words."""
        files = Files(Path("/"))
        named = [f"{comm(files, pid)} (pid {pid})" for pid in self._recorders()[:3]]
        return ", ".join(named) or "somebody (ftrace?)"

    def _remove(self, event: str) -> bool:
        try:
            self._write(event, f"-:{event.replace(':', '/', 1)}")
        except FileNotFoundError:
            return True
        except OSError:
            self._switch(event, False)  # where why_not_on() was killed
            return not self.has(event)
        return True

    def why_not_on(self, probe: Probe) -> str:
        """Switch an event on and off again. Return why that cannot be done, "" if it can."""
        why = self._switch(probe.recorded_as, True)
        self._switch(probe.recorded_as, False)
        return why

    def _switch(self, event: str, on: bool) -> str:
        path = self.root / "events" / event.replace(":", "/", 1) / "enable"
        try:
            path.write_text("1" if on else "0")
        except OSError as error:
            if error.errno == NOT_SUPPORTED:
                return "its first instruction cannot be run apart"
            return error.strerror or str(error)
        return ""

    def has(self, event: str) -> bool:
        return (self.root / "events" / event.replace(":", "/", 1)).exists()

    def hits(self, probes: Iterable[Probe]) -> dict[str, int]:
        """Return the number of hits of each uprobe since it was made, by its event's name."""
        return hits_in(self._read("uprobe_profile"), probes)

    def unplaced(self, probes: Iterable[Probe], placed: str = PLACED) -> list[str]:
        """Kernel functions whose probe is accepted and not in the code (a module's that is not
        there): by debugfs' list of the probes that are. Empty where that cannot be read."""
        try:
            lines = Path(placed).read_text().splitlines()
        except OSError:
            return []
        there = set()
        for line in lines:
            fields = line.split()
            if len(fields) > 2 and "[GONE]" not in line and "[DISABLED]" not in line:
                there.add(fields[2].partition("+")[0])
        return sorted({probe.place for probe in probes if probe.in_kernel} - there)

    def missed_returns(self) -> dict[str, int]:
        """Return the calls whose return was missed, by the event's name without its group."""
        return missed_in(self._read("kprobe_profile"))

    def _write(self, event: str, line: str) -> None:
        if not is_line(line):
            raise OSError(errno.EINVAL, "tracefs does not take it as one line")
        # They are there on every kernel that has such probes; dynamic_events from Linux 5.0.
        kind = "kprobe" if event.startswith(f"{GROUP}:") else "uprobe"
        # open(…, "a") would seek, which tracefs refuses
        descriptor = os.open(self.root / f"{kind}_events", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.encode("utf-8", "surrogateescape") + b"\n")
        finally:
            os.close(descriptor)

    def _read(self, name: str) -> str:
        """Return a file's text, "" where it cannot be read."""
        try:
            return (self.root / name).read_text(errors="surrogateescape")
        except OSError:
            return ""

    def _kernel_reason(self) -> str:
        """Return the last complaint in error_log (Linux 5.2), such as "Invalid register name"."""
        errors = [line for line in self._read("error_log").splitlines() if "error:" in line]
        return errors[-1].partition("error:")[2].strip() if errors else ""


def hits_in(profile: str, probes: Iterable[Probe]) -> dict[str, int]:
    """Return how often each uprobe was hit, by its event's name: from tracefs' uprobe_profile.

    It has a line for each, in the order in which they were made, and names no group: where others
    have events of the same name, those are left out.
    """
    counts: dict[str, list[int]] = defaultdict(list)
    for fields in (line.rsplit(None, 2) for line in profile.split("\n")):
        if len(fields) == 3 and fields[2].isdecimal():
            counts[fields[1]].append(int(fields[2]))
    ours: dict[str, list[str]] = defaultdict(list)
    for probe in probes:
        ours[probe.recorded_as.partition(":")[2]].append(probe.event)
    return {
        event: count
        for name, events in ours.items()
        if len(events) == len(counts[name])
        for event, count in zip(events, counts[name])
    }


def missed_in(profile: str) -> dict[str, int]:
    """Return the calls whose entry a kretprobe saw but, for lack of an instance, not the return, by
    the event's name without its group: from tracefs' kprobe_profile.

    Its last column is of all that the probe missed. Until Linux 5.14 that holds page faults in a
    handler as well, which miss nothing (kprobe_fault_handler in arch/x86/kernel/kprobes/core.c). A
    miss of the place, and not of the return, is in the column of the entry's probe too.
    """
    fields = [line.split() for line in profile.splitlines()]
    missed = {row[0]: int(row[2]) for row in fields if len(row) == 3 and row[2].isdecimal()}
    return {
        name: n - missed.get(name[: -len(RETURN)], 0)
        for name, n in missed.items()
        if name.endswith(RETURN)
    }


def _write_once(path: Path, text: str) -> None:
    """Write to a file of tracefs. os.write() would try again after EINTR, endlessly."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if libc.write(descriptor, text.encode(), len(text)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def mount() -> bool:
    """Mount tracefs at its usual place, as distributions do at boot. Return whether that worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.mount(b"nodev", PLACE.encode(), b"tracefs", 0, None) == 0)


def unmount() -> None:
    ctypes.CDLL(None, use_errno=True).umount2(PLACE.encode(), 0)
