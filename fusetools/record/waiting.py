"""Recording a mount that is not there yet: autofs makes it when its path is used, or the workload
mounts it. The path itself is never touched: /proc/PID/mountinfo tells."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.mounts import all_namespaces, automounted
from fusetools.host.processes import open_files
from fusetools.plan.options import Caller, Daemons, Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Reason
from fusetools.record import session
from fusetools.record.attached import Gone
from fusetools.record.before import Before, watched
from fusetools.record.callers import GRACE
from fusetools.record.preflight import output_of
from fusetools.record.session import Interrupted, Late
from fusetools.record.signals import ENDING, arrived, held_signals
from fusetools.record.state import Removed
from fusetools.record.workload import Workload, caller
from fusetools.results.record import Outcome

LOOK = 2.0  # seconds between two looks at other mount namespaces, of whose changes nothing tells
TRIES = 25  # looks at who serves mounts, until the same ones do twice
AFTERWARDS = 0.1  # seconds of the daemon, where the workload has ended
STEP = 0.2  # within which a signal, and the workload's end, are seen


def record(
    options: Options,
    arguments: Sequence[str],
    tell: Callable[[ProbePlan, Removed], None],
    warn: Callable[[str], None],
    waited: Callable[[Sequence[int]], list[Reason]],
) -> Outcome:
    """Record as session.record() does, once what options.mounts names is mounted.

    A workload may be what mounts it: it is started immediately, and recorded from then on.
    """
    absent = _absent(options.mounts)
    if not absent:
        return session.record(options, arguments, tell, warn=warn, waited=waited)
    paths = ", ".join(absent)
    with output_of(options) as place:
        if not options.command:
            until_mounted(options.mounts, warn)
            late = Late(absent[0], time.monotonic())
            return session.record(options, arguments, tell, place, warn, late, waited)
        warn(
            f"no FUSE file system is mounted on {paths} yet: the workload starts, and is recorded "
            "from when there is one"
        )
        with _running(options) as workload:
            with watched(options, arguments, workload.pid) as before:
                workload.start()
                began = time.monotonic()
                _wait(options.mounts, workload, before=before)
                mounted = time.monotonic()
                subject, figures = before.told() if before else ({}, {})
            _until_served()
            did = subject, {**figures, "mounted_ns": round(1e9 * (mounted - began))}
            attached = replace(options, kind=Caller(workload.pid))
            late = Late(absent[0], began, did, workload)
            try:
                return session.record(attached, arguments, tell, place, warn, late, waited)
            except Gone as error:
                workload.wait()
                late = Late(absent[0], began, did, ended=workload, until=time.monotonic())
                alone = replace(options, kind=Daemons(), duration=AFTERWARDS)
                try:
                    outcome = session.record(alone, arguments, tell, None, warn, late, waited)
                except Error:  # the mount is gone, too
                    raise _ended(workload, options) from error
                outcome.exit_status = workload.exit_status or 0
                outcome.usage = workload.usage
                return outcome


def _ended(workload: Workload, options: Options) -> Error:
    """The error for a workload that mounted and ended before it was traced, with its exit
    status."""
    status = workload.exit_status or 0
    again = ["fusetools", "record", "--mount", options.mounts[0], "--", "WORKLOAD"]
    error = Error(
        f"the workload ended, with exit status {status}, before tracing began",
        f"it ran until {options.mounts[0]} was mounted, and not much longer",
        f"{shlex.join(again)}   # what uses it, now that it is mounted",
    )
    error.status = status or 1
    return error


def until_mounted(paths: Sequence[str], warn: Callable[[str], None]) -> None:
    """Wait until each is on a FUSE mount."""
    if absent := _absent(paths):
        text = f"waiting for a FUSE file system on {', '.join(absent)} (Ctrl-C ends)"
        _wait(paths, None, partial(warn, text))
        _until_served()


@contextlib.contextmanager
def _running(options: Options) -> Iterator[Workload]:
    """Provide the workload, which waits. Once started it runs to its end, even if it cannot be
    recorded."""
    user = None if options.as_root else caller(os.environ)
    workload = Workload(options.command, user, os.environ)
    try:
        yield workload
    except BaseException:
        with held_signals(Outcome()):
            end = float("inf")
            while workload.started and not workload.poll() and time.monotonic() < end:
                if _pass_on(arrived(STEP), workload):
                    end = time.monotonic() + GRACE
        raise
    finally:
        workload.abandon()


def _absent(paths: Sequence[str]) -> list[str]:
    mounts = all_namespaces(Files(Path("/"))) if paths else []
    return [path for path in paths if not any(mount.holds(path) for mount in mounts)]


def _wait(
    paths: Sequence[str],
    workload: Workload | None,
    tell: Callable[[], None] = lambda: None,
    before: Before | None = None,
) -> None:
    """Wait until each is on a FUSE mount. From ``tell`` on, raise Interrupted if a signal comes,
    which the workload gets, too. Raise Error if the workload has ended."""
    outcome = Outcome()
    with held_signals(outcome), Path("/proc/self/mountinfo").open("rb") as own:
        tell()
        changes = select.poll()
        changes.register(own, select.POLLERR | select.POLLPRI)
        if before:
            changes.register(before.descriptor, select.POLLIN)
        looked, changed = time.monotonic(), True  # changes after open() are reported once
        while not _pass_on(arrived(0), workload):
            if changed or time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                if not _absent(paths):
                    break
            if workload and workload.poll():
                absent = _absent(paths)
                fix = "fusetools doctor   # lists the FUSE mounts"
                if automounted(Files(Path("/")), absent[0]):
                    fix = f"ls {absent[0]}   # autofs mounts it"
                error = Error(
                    f"no FUSE file system is mounted on {', '.join(absent)}",
                    "the workload ended, and nothing was recorded",
                    fix,
                )
                error.status = workload.exit_status or 1
                raise error
            came = [descriptor for descriptor, _ in changes.poll(STEP * 1000)]
            changed = own.fileno() in came
            if before:
                before.take()
        else:
            outcome.interrupted = True
    if outcome.interrupted:  # also by a signal since the last look
        raise Interrupted("interrupted before anything was mounted")


def _until_served() -> None:
    """Wait until a daemon has gone into the background, as it does when it has mounted: it has
    another number then."""
    files = Files(Path("/"))
    serving = open_files(files)
    for _ in range(TRIES):
        time.sleep(STEP)
        earlier, serving = serving, open_files(files)
        if earlier.keys() == serving.keys():
            return


def _pass_on(came: signal.struct_siginfo | None, workload: Workload | None) -> bool:
    """Return whether it is a signal to end; the workload gets it, too."""
    if came is None or came.si_signo not in ENDING:
        return False
    if workload:
        workload.pass_on(came)
    return True
