"""Tables for pyarrow, polars, pandas, DuckDB and others.

Columns of the requests' table; those of the same name in `fusetools export` are equal:

- ``operation``, ``opcode``, ``connection``, ``unique``, ``mount``;
- ``fate``: "matched" (begun and ended), "unfinished" (still in flight at the recording's end),
  "interrupted" (its caller returned without a reply), "aborted" (ended by the kernel, as the
  daemon was gone), "no_reply" (a forget, which has a callback only), "before" (begun before the
  recording), "lost" (the recorder dropped its begin or end), "unnumbered" (the kernel does not
  number it);
- ``error``: 0 or -errno; ``ring``: the reply came by io_uring;
- the caller: ``comm``, ``pid``, ``tid``, ``syscall``; ``waits``: it slept until the reply; ``nth``:
  number of earlier requests for which it waited in the same system call;
- the daemon's thread: ``daemon_pid``, ``daemon_tid``;
- the file: ``path``, ``path_whole`` (up to the mount point), ``name``, ``inode``;
- ``size_bytes`` and ``offset_bytes``: requested from the callback; ``request_bytes`` and
  ``reply_bytes``: transferred, with headers;
- ``duration_ns``: from ``begin_ns`` until ``until_ns``, which is its end, or without a reply the
  caller's return or the recording's end;
- ``stage_*_ns``: stages; a stage that cannot be separated from the next is part of the next;
- parts of the queue: ``no_thread_ns`` (the daemon's thread that took it was busy), ``no_cpu_ns``
  (it was busy only for lack of a CPU), ``asleep_ns`` (it was being woken up); of the daemon's
  stage: ``blocked_ns``, ``runnable_ns``, ``elsewhere_ns`` (the thread had left the request to
  another one); of the others: ``stage_*_blocked_ns``, ``stage_*_runnable_ns``;
- ``negative``: a lookup answered without an error and without an inode; ``whole_ns``: sum of the
  stages; ``bucket`` and ``whole_bucket``: of ``duration_ns`` and ``whole_ns``, numbers of
  fusetools.results.buckets;
- the time of each mark: ``sys_enter_ns`` to ``callback_return_ns`` (requests/stitch/trace.rs).

Columns of the calls' table: ``layer``, ``function``, ``begin_ns``, ``duration_ns``, ``pid``,
``tid``, ``unique``. System calls are included if they made a request.

Columns of the waits' table: ``side`` ("workload", "daemon", "other"), ``comm``, ``pid``, ``tid``,
``state`` (one of STATES in results/flame.py), ``begin_ns``, ``duration_ns``, ``stack`` (outermost
function first, separated by ";").
"""

from __future__ import annotations

from fusetools import core


class Table:
    """Rows of a recording, handed out through the Arrow PyCapsule interface without a copy.

    Each use reads the recording again, in batches of bounded size. ``columns``: names of the
    columns, with units. Times are ns on the recording's clock; an unknown value is null; texts are
    dictionary-encoded.
    """

    def __init__(self, name: str, of: str, made: core.native.Table) -> None:
        self._name, self._of, self._made = name, of, made

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._made.columns())

    def __repr__(self) -> str:
        return f"<Table of {self._of}: {self._name}, {len(self.columns)} columns>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return core.ask(self._made.__arrow_c_stream__, requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._made.__arrow_c_schema__()
