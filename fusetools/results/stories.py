"""Each request's whole story: from the system call that made it to that call's end, both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusetools.results.rows import Columns


@dataclass(frozen=True, repr=False)
class Stories(Columns):
    """Requests as columns of equal length, by begin; unknown values are 0, or -1 if signed.

    ``marks`` names what happens to a request, in order (core/src/stitch/trace.rs explains each);
    the column "begin_ns" of the mark "begin" is when, in ns on the recording's clock, or 0. The
    callback may return at any time after its reply. ``operation``, ``fate`` and ``comm`` index
    ``operations``, ``fates`` and ``comms``. A fate is "matched" (begun and ended), "unfinished"
    (not ended when the recording did), "interrupted" (its caller left without an answer), "aborted"
    (ended by the kernel, as the daemon was gone), "no_reply" (a forget: the callback alone),
    "before" (begun before the recording), "lost" (the recorder dropped its begin or end) or
    "unnumbered" (the kernel does not number it).

    ``until_ns``: when it was over, if known: its end, or without an answer its caller's return or
    the recording's end. ``waits``: 1 if a caller slept until it was answered; ``nth``: number of
    requests that the caller had waited for before in the same system call; ``syscall``: that call's
    number; ``error``: 0 or -errno; ``request_bytes`` and ``reply_bytes``: with their headers,
    ``size_bytes``: requested from the callback; ``ring``: 1 if the answer came by io_uring, which
    does not report its ``reply_bytes``. Parts of the time in the queue: the daemon's thread that
    took it did something else (``no_thread_ns``), did so only because it had no CPU
    (``no_cpu_ns``), was woken up, or another thread was (``asleep_ns``). Parts of the time from the
    callback's entry to the reply: ``blocked_ns`` while the callback's thread slept, ``runnable_ns``
    while it had no CPU, ``elsewhere_ns`` after it had left the request to another thread, or ended.
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
    sys_exit_ns: NDArray[np.uint64]
    callback_return_ns: NDArray[np.uint64]
    until_ns: NDArray[np.uint64]

    def of(self, operation: str) -> NDArray[np.bool_]:
        """True for the requests of ``operation``: ``stories.begin_ns[stories.of("lookup")]``."""
        import numpy as np

        codes = [i for i, name in enumerate(self.operations) if name == operation]
        return np.isin(self.operation, codes)

    def fated(self, fate: str) -> NDArray[np.bool_]:
        """True for the requests of that fate."""
        import numpy as np

        return np.equal(self.fate, self.fates.index(fate))
