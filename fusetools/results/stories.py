"""All time stamps of requests, from the system call's entry to its exit, on both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusetools.results.rows import Columns


@dataclass(frozen=True, repr=False)
class Stories(Columns):
    """Requests as columns of equal length, by begin. Unknown values are 0, or -1 if signed.

    ``marks``: names of the points of a request, in order (core/src/stitch/trace.rs explains each).
    The column "begin_ns" holds the time of the mark "begin", in ns on the recording's clock. The
    callback may return at any time after its reply. ``operation``, ``fate`` and ``comm`` are
    indices into ``operations``, ``fates`` and ``comms``. The fates are:

    - "matched": begun and ended;
    - "unfinished": still in flight at the recording's end;
    - "interrupted": its caller returned without a reply;
    - "aborted": ended by the kernel, as the daemon was gone;
    - "no_reply": a forget, which has a callback only;
    - "before": begun before the recording;
    - "lost": the recorder dropped its begin or end;
    - "unnumbered": the kernel does not number it.

    ``until_ns``: its end, or without a reply the caller's return or the recording's end. ``waits``:
    1 if a caller slept until the reply. ``nth``: number of earlier requests for which the caller
    waited in the same system call. ``syscall``: that call's number. ``error``: 0 or -errno.
    ``request_bytes`` and ``reply_bytes`` include headers. ``size_bytes``: size requested from the
    callback. ``ring``: 1 if the reply came by io_uring, which does not report ``reply_bytes``.

    Parts of the queue time: ``no_thread_ns`` while the daemon's thread that took it was busy,
    ``no_cpu_ns`` while it was busy only for lack of a CPU, ``asleep_ns`` while this thread or
    another one was being woken up. Parts of the time from callback to reply: ``blocked_ns`` while
    the callback's thread slept, ``runnable_ns`` while it had no CPU, ``elsewhere_ns`` after the
    thread had ended or left the request to another thread.
    """

    operations: tuple[str, ...]
    fates: tuple[str, ...]
    comms: tuple[str, ...]
    marks: tuple[str, ...]
    operation: NDArray[np.uint8]
    opcode: NDArray[np.uint32]
    fate: NDArray[np.uint8]
    waits: NDArray[np.uint8]
    nth: NDArray[np.uint32]
    connection: NDArray[np.uint64]
    unique: NDArray[np.uint64]
    nodeid: NDArray[np.uint64]
    size_bytes: NDArray[np.uint64]
    ring: NDArray[np.uint8]
    request_bytes: NDArray[np.uint64]
    reply_bytes: NDArray[np.uint64]
    error: NDArray[np.int32]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    comm: NDArray[np.uint32]
    daemon_pid: NDArray[np.int32]
    daemon_tid: NDArray[np.int32]
    syscall: NDArray[np.int32]
    no_thread_ns: NDArray[np.int64]
    no_cpu_ns: NDArray[np.int64]
    asleep_ns: NDArray[np.int64]
    blocked_ns: NDArray[np.int64]
    runnable_ns: NDArray[np.int64]
    elsewhere_ns: NDArray[np.int64]
    sys_enter_ns: NDArray[np.uint64]
    resumed_ns: NDArray[np.uint64]
    kernel_enter_ns: NDArray[np.uint64]
    begin_ns: NDArray[np.uint64]
    daemon_waking_ns: NDArray[np.uint64]
    daemon_runs_ns: NDArray[np.uint64]
    sent_ns: NDArray[np.uint64]
    read_ns: NDArray[np.uint64]
    callback_enter_ns: NDArray[np.uint64]
    reply_ns: NDArray[np.uint64]
    end_ns: NDArray[np.uint64]
    waking_ns: NDArray[np.uint64]
    runs_ns: NDArray[np.uint64]
    kernel_exit_ns: NDArray[np.uint64]
    leaves_ns: NDArray[np.uint64]
    sys_exit_ns: NDArray[np.uint64]
    callback_return_ns: NDArray[np.uint64]
    until_ns: NDArray[np.uint64]

    def of(self, operation: str) -> NDArray[np.bool_]:
        """Return a mask for an operation: ``stories.begin_ns[stories.of("lookup")]``."""
        import numpy as np

        codes = [i for i, name in enumerate(self.operations) if name == operation]
        return np.isin(self.operation, codes)

    def fated(self, fate: str) -> NDArray[np.bool_]:
        """Return a mask for a fate."""
        import numpy as np

        return np.equal(self.fate, self.fates.index(fate))
