"""Each request's whole story: from the system call that made it to that call's end, both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusetools.results.rows import Columns


@dataclass(frozen=True, repr=False)
class Stories(Columns):
    """Requests as columns of equal length, by begin; unknown values are 0, or -1 if signed.

    ``marks`` names the columns that are times, in ns on the recording's clock, or 0: what happens
    to a request, in order (core/src/stitch/trace.rs explains each), but its callback may return at
    any time after it replied. ``operation``, ``fate`` and ``comm`` index ``operations``, ``fates``
    and ``comms``. A fate is "matched" (begun and ended), "unfinished" (not ended when the recording
    did), "interrupted" (its caller left without an answer), "aborted" (ended by the kernel, as the
    daemon was gone), "no_reply" (a forget: the callback alone), "before" (begun before the
    recording), "lost" (the recorder dropped its begin or end) or "unnumbered" (the kernel does not
    number it).

    ``until``: when it was over, if known: its end, or without an answer its caller's return or the
    recording's end. ``waits``: 1 if a caller slept until it was answered; ``nth``: number of
    requests that the caller had waited for before in the same system call; ``syscall``: that call's
    number; ``error``: 0 or -errno; ``request_len`` and ``reply_len``: bytes with their headers,
    ``size``: bytes requested from the callback; ``ring``: 1 if the answer came by io_uring, which
    does not tell its ``reply_len``. ns of the time in the queue: the daemon's thread that took it
    did something else (``no_thread``), did so only because it had no CPU (``no_cpu``), was woken
    up, or another thread was (``asleep``). ns between the callback's entry and the reply:
    ``blocked`` while the callback's thread slept, ``runnable`` while it had no CPU, ``elsewhere``
    after it had left the request to another thread.
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
    size: NDArray[np.uint64]
    ring: NDArray[np.uint8]
    request_len: NDArray[np.uint64]
    reply_len: NDArray[np.uint64]
    error: NDArray[np.int32]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    comm: NDArray[np.uint32]
    daemon_pid: NDArray[np.int32]
    daemon_tid: NDArray[np.int32]
    syscall: NDArray[np.int32]
    no_thread: NDArray[np.int64]
    no_cpu: NDArray[np.int64]
    asleep: NDArray[np.int64]
    blocked: NDArray[np.int64]
    runnable: NDArray[np.int64]
    elsewhere: NDArray[np.int64]
    sys_enter: NDArray[np.uint64]
    resumed: NDArray[np.uint64]
    kernel_enter: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    daemon_waking: NDArray[np.uint64]
    daemon_runs: NDArray[np.uint64]
    sent: NDArray[np.uint64]
    read: NDArray[np.uint64]
    callback_enter: NDArray[np.uint64]
    reply: NDArray[np.uint64]
    end: NDArray[np.uint64]
    waking: NDArray[np.uint64]
    runs: NDArray[np.uint64]
    kernel_exit: NDArray[np.uint64]
    sys_exit: NDArray[np.uint64]
    callback_return: NDArray[np.uint64]
    until: NDArray[np.uint64]

    def of(self, operation: str) -> NDArray[np.bool_]:
        """True for the requests of ``operation``: ``stories.begin[stories.of("lookup")]``."""
        import numpy as np

        codes = [i for i, name in enumerate(self.operations) if name == operation]
        return np.isin(self.operation, codes)

    def fated(self, fate: str) -> NDArray[np.bool_]:
        """True for the requests of that fate."""
        import numpy as np

        return np.equal(self.fate, self.fates.index(fate))
