"""Conversion of single requests from the native core's answers to the types of results."""

from __future__ import annotations

import errno
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.figures import signal_name
from fusetools.results.facts import Facts
from fusetools.results.request import (
    Aborter,
    Helper,
    Meanwhile,
    Request,
    StageTime,
    SyscallTime,
)

if TYPE_CHECKING:
    from typing_extensions import Concatenate

    from fusetools.core import Arguments

AnyAnswer = TypeVar("AnyAnswer", bound="core.native.Answer")

# Errors that never reach user space (include/linux/errno.h).
_KERNELS_OWN = {512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 524: "ENOTSUPP"}


# struct fuse_out_header, include/uapi/linux/fuse.h
_OUT_HEADER = 16


class Names(NamedTuple):
    """Mount points by connection, and daemons' names by PID."""

    mounts: dict[int, str]
    daemons: dict[int, str]

    def mount(self, connection: int | None) -> str:
        """Return a connection's mount point, "" if unknown."""
        return "" if connection is None else self.mounts.get(connection, "")

    def daemon(self, pid: int | None) -> str:
        """Return a daemon's name, "" if unknown."""
        return "" if pid is None else self.daemons.get(pid, "")


class RequestQuery:
    """Access to the core's answers about requests.

    ``probes``: the events of requests and of file names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.probes = source.catalogue.named().rows
        daemons = {m.daemon_pid: m.comm for m in source.session.mounts if m.daemon_pid}
        self.names = Names(source.mount_points, daemons)
        self._connections: dict[int | None, dict[int, str]] = defaultdict(dict)
        for known in source.session.peers:
            self._connections[known.pid][known.fd] = known.address

    def __call__(
        self,
        question: Callable[
            Concatenate[str, Sequence[core.native.Probe], core.native.Filters, Arguments], AnyAnswer
        ],
        filters: Filters,
        *arguments: Arguments.args,
        **more: Arguments.kwargs,
    ) -> tuple[AnyAnswer, Facts]:
        """Return the core's answer and the facts of the recording."""
        native = self.source.core_filters(filters)
        answer = core.ask(question, str(self.source.path), self.probes, native, *arguments, **more)
        return answer, self.source.facts(answer, filters)

    def connections_of(self, pid: int | None) -> Mapping[int, str]:
        """Return the peers of a process's connections that were open for the whole recording."""
        return self._connections.get(pid, {})

    @property
    def connected(self) -> core.native.Connected:
        """(PID, descriptor, peer) of the connections that were open for the whole recording, and
        (PID, descriptor, file) of the files."""
        session = self.source.session
        peers = [(known.pid, known.fd, known.address) for known in session.peers]
        return peers, [(file.pid, file.fd, str(file)) for file in session.files]


def answered_bytes(row: core.native.NamedRequest) -> int | None:
    """Return the bytes of the reply without its header; None if unknown."""
    reply = row.reply_len
    return reply - _OUT_HEADER if reply is not None and reply >= _OUT_HEADER else None


def error_name(number: int) -> str:
    """Return the name of an errno, e.g. ENOENT; "" for 0."""
    if not number:
        return ""
    return errno.errorcode.get(number) or _KERNELS_OWN.get(number) or f"errno {number}"


def guessed(probes: Sequence[core.native.Probe]) -> bool:
    """Return whether file names are inferred from the callers' next requests."""
    return not any(probe.role in ("inode", "answered") for probe in probes)


def request(row: core.native.NamedRequest, first: int, names: Names) -> Request:
    """Convert a request of the core. ``first``: the recording's first event, in ns."""
    marks = {name: time - first for name, time in row.marks}
    start = marks.get("begin", min(marks.values(), default=0))
    path, whole = row.path or (None, False)
    # The first argument of libfuse's high-level callbacks is the file's path, not an attribute.
    of_path = row.operation.endswith("xattr") and (row.name or "").startswith("/")
    return Request(
        operation=row.operation,
        unique=row.unique,
        mount=names.mount(row.connection),
        fate=row.fate,
        until_ns=None if row.until is None else row.until - first,
        handed=row.handed,
        reader=row.reader,
        replier=row.replier,
        refused=error_name(abs(row.refused)),
        dropped=row.dropped,
        left_ns=None if row.left is None else row.left - first,
        resent=row.resent,
        first_reader=row.first_reader,
        first_read_ns=None if row.first_read is None else row.first_read - first,
        signals=row.signals,
        signal=signal_name(row.signal),
        interrupted=row.interrupted,
        aborter=_aborter(row),
        start_ns=start,
        duration_ns=row.duration,
        error=error_name(-row.error),
        waits=row.waits,
        comm=row.comm,
        pid=row.pid,
        tid=row.tid,
        syscall=row.syscall or "",
        daemon_comm=names.daemon(row.daemon_pid),
        daemon_pid=row.daemon_pid,
        daemon_tid=row.daemon_tid,
        path=path,
        whole=whole,
        name=None if of_path else row.name,
        inode=row.inode,
        size_bytes=row.size,
        offset_bytes=row.offset,
        answered_bytes=answered_bytes(row),
        negative=row.operation == "lookup" and row.answer == 0 and not row.error,
        marks_ns=marks,
        stages=tuple(StageTime(name, ns) for name, ns, _ in row.stages),
        parts_ns=tuple(dict(parts) for *_, parts in row.stages),
        meanwhile=_meanwhile(row),
    )


def threads_of(shown: Request) -> list[int | None]:
    """Return the daemon's threads that an answer about a request names."""
    helpers = shown.meanwhile.helpers if shown.meanwhile else ()
    return [shown.daemon_tid, *(helper.tid for helper in helpers)]


def with_starts(shown: Request, starts: Mapping[int, str]) -> Request:
    """Return the request with the start functions of its daemon's threads."""
    meanwhile = shown.meanwhile
    if meanwhile:
        helpers = [replace(h, start_function=starts.get(h.tid, "")) for h in meanwhile.helpers]
        meanwhile = replace(meanwhile, helpers=tuple(helpers))
    own = starts.get(-1 if shown.daemon_tid is None else shown.daemon_tid, "")
    return replace(shown, meanwhile=meanwhile, start_function=own)


def _aborter(row: core.native.NamedRequest) -> Aborter | None:
    if row.fate != "aborted":
        return None
    return aborter(row.aborted_by_daemon, row.aborter_comm, row.aborter, row.aborter_call)


def aborter(daemon: bool, comm: str, pid: int | None, call: str | None) -> Aborter:
    """Return who aborted a request. ``call``: the process's system call, None if unknown."""
    if daemon:
        by = "daemon"
    elif comm.startswith("kworker/"):
        # Only the request timeout aborts from there (fuse_check_timeout in fs/fuse/dev.c).
        by = "timeout"
    else:
        by = {"umount2": "unmount", "write": "fusectl"}.get(call or "", "process")
    return Aborter(by, comm, pid)


def _meanwhile(row: core.native.NamedRequest) -> Meanwhile | None:
    did = row.meanwhile
    if did is None:
        return None
    return Meanwhile(
        on_cpu_ns=did.on_cpu,
        runnable_ns=row.runnable,
        blocked_ns=row.blocked,
        elsewhere_ns=row.elsewhere,
        unsplit_ns=row.unsplit,
        syscalls=_syscalls(did.syscalls),
        helpers=tuple(map(_helper, did.helpers)),
        peers=_peers(did.peers),
        files=tuple(did.files),
    )


def _helper(helper: core.native.Helper) -> Helper:
    return Helper(
        tid=helper.tid,
        waited_ns=helper.waited,
        syscalls=_syscalls(helper.syscalls),
        peers=_peers(helper.peers),
        files=tuple(helper.files),
        on_cpu_ns=helper.on_cpu,
        runnable_ns=helper.runnable,
        blocked_ns=helper.blocked,
    )


def _syscalls(rows: Sequence[tuple[str, int, int]]) -> tuple[SyscallTime, ...]:
    return tuple(SyscallTime(*row) for row in rows)


def _peers(peers: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if peers is None else tuple(peers)


def column(raw: bytes, kind: str) -> array[int]:
    """Unpack a little-endian column of the core; ``kind`` is a type code of array."""
    values = array(kind)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
