"""Work in a child process, so that all memory it takes is freed when the child exits."""

from __future__ import annotations

import os
import pickle
import select
import signal
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from fusetools.errors import Error
from fusetools.host.files import keep_only
from fusetools.host.messages import receive, send
from fusetools.record.signals import SI_KERNEL, end_with

T = TypeVar("T")


class Forked(Generic[T]):
    """A call of ``function()`` in a child process, which dies with this process.

    The child keeps only the descriptors ``kept``. It may stay behind in a sleep that not even
    SIGKILL ends, and must then hold no lock, no client, and no standard output.
    """

    def __init__(self, function: Callable[[], T], kept: tuple[int, ...] = ()) -> None:
        self._reader, writer = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        try:
            end_with(parent, signal.SIGKILL)
            keep_only(writer, *kept)
            send(writer, _outcome(function))
        finally:
            os._exit(0)

    def ready(self, seconds: float) -> bool:
        """Wait up to ``seconds``. Return whether result() will return without waiting."""
        return bool(select.select([self._reader], [], [], seconds)[0])

    def pass_on(self, came: signal.struct_siginfo) -> None:
        """Send a signal to the child, unless the terminal has sent it to both."""
        if came.si_code != SI_KERNEL:
            os.kill(self.pid, came.si_signo)

    def result(self) -> T:
        """Return the function's result, or raise its error.

        Call it once. Raise Error if the child died.
        """
        try:
            data = receive(self._reader)
        finally:
            os.close(self._reader)
        _, status = os.waitpid(self.pid, 0)
        if not data:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an exit"
            raise Error("the recording was not written", f"its process was ended by {how}")
        value, error, trace = pickle.loads(data)
        if error is not None:
            raise error from _Trace(trace)
        result: T = value
        return result


class _Trace(Exception):
    """The child's traceback, for debugging."""


def _outcome(function: Callable[[], object]) -> bytes:
    """Return the function's result, its error and the error's traceback, pickled."""
    try:
        return pickle.dumps((function(), None, ""))
    except Exception as error:
        trace = traceback.format_exc()
        try:
            data = pickle.dumps((None, error, trace))
            pickle.loads(data)
            return data
        except Exception:  # the error cannot be pickled
            why = f"{type(error).__name__}: {error}"
            return pickle.dumps((None, Error("the recording was not written", why), trace))
