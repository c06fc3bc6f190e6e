"""Merging by hand: recordings of perf and trace-cmd, made at once, into one perf.data."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fusetools.core import native
from fusetools.errors import RECORD, Error
from fusetools.host import debuginfod
from fusetools.host.files import (
    Files,
    by_descriptor,
    check_readable,
    command_path,
    open_regular,
    tool_environment,
)
from fusetools.names import TRACE_DAT
from fusetools.output import Output, new_directory
from fusetools.reasons import Code, Reason
from fusetools.record.merger import Opener
from fusetools.record.symbols import KALLSYMS, kernel_address
from fusetools.results.merge import Merged


def merge(
    inputs: Sequence[str],
    output: str,
    progress: Callable[[float], None] | None = None,
    for_perf: tuple[int, int] | None = None,
) -> Merged:
    """Merge perf.data and trace.dat files into ``output``, which may be one of them.

    ``for_perf``: the version of an older perf that is to read it.

    On the host where they were recorded, what names their stacks becomes a part of it. The names in
    stripped files are also asked for from debuginfod servers.

    ``progress`` is called with the share that is done, twice a second from the first second on.
    Raises Error; then ``output`` is as it was.
    """
    for path in inputs:
        check_readable(Path(path))
    with Output(output) as target, _folder(target) as folder:
        at = by_descriptor(folder)
        readable = [_of_version_6(path, at / f"{i}.dat") for i, path in enumerate(inputs)]
        try:
            with _watched(readable, str(at / "merged"), progress):
                info = _merged(readable, str(at / "merged"), for_perf)
            if target.printed:
                with (at / "merged").open("rb") as file:
                    shutil.copyfileobj(file, target.stream.buffer)
            else:
                target.take(folder, "merged")
        except native.CoreError as error:
            what, why = (text.replace(str(at / "merged"), output) for text in error.args)
            fix = RECORD if isinstance(error, native.OtherHostError) else ""
            raise Error(what, why, fix) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Error(f"cannot write {output}", error.strerror or str(error)) from error
    return Merged(info["records"], tuple(info["warnings"]))


@contextmanager
def _folder(target: Output) -> Iterator[int]:
    """Provide a temporary directory, where the output goes or, if it is printed, where there is
    room."""
    parent = target.directory if not target.printed else os.open("/var/tmp", os.O_RDONLY)
    name = f".fusetools-{os.urandom(4).hex()}"
    try:
        folder = new_directory(parent, name)
        try:
            yield folder
        finally:
            for file in os.listdir(folder):
                os.unlink(file, dir_fd=folder)
            os.close(folder)
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
    finally:
        if target.printed:
            os.close(parent)


def _merged(
    inputs: list[str], output: str, for_perf: tuple[int, int] | None = None
) -> native.MergeInfo:
    added = _host(inputs)
    if for_perf:
        added["for_perf"] = for_perf
    if "avoid" not in added:
        return native.merge(inputs, output, "", **added)
    asked = debuginfod.program()
    servers = debuginfod.Servers(asked) if asked else None
    with Opener() as opener:  # programs may lie on a file system that hangs
        added["opener"] = partial(_open, opener, servers, threading.Lock())
        info = native.merge(inputs, output, "", **added)
    if servers and servers.unasked:
        figures = {"files": servers.unasked, "limit_ns": round(1e9 * debuginfod.SECONDS)}
        slow = Reason(Code.DEBUGINFOD_SLOW, {}, figures)
        info["warnings"] = [*info["warnings"], slow.text]
    return info


def _open(
    opener: Opener, servers: debuginfod.Servers | None, lock: threading.Lock, path: Path
) -> int:
    """Open a program, or a separate debug file: that of a server if there is none here. Raise
    OSError."""
    try:
        return opener(path)
    except OSError:
        build_id = debuginfod.build_id_at(str(path))
        if servers is None or build_id is None:
            raise
        with lock:  # the core asks from several threads
            found = servers.find(build_id)
        if not found:
            raise
        return open_regular(found)


def _host(inputs: Sequence[str]) -> native.MergeOptions:
    """Return a merge's options with facts of this host; none if an input is of another one."""
    here = os.uname()
    for path in inputs:
        try:
            described = native.describe(path)
        except native.CoreError:
            continue  # a trace.dat
        if (described["release"], described["hostname"]) != (here.release, here.nodename):
            return {}
        files = Files(Path("/"))
        added: native.MergeOptions = {"avoid": []}
        symbol, address = described["kernel_place"] or ("", 0)
        if symbol and kernel_address(files, symbol) == address:  # and not an earlier boot
            added["kallsyms"] = KALLSYMS
        return added
    return {}


def _of_version_6(path: str, converted: Path) -> str:
    """Return a path that the core can read: ``path``, or ``converted`` after converting it."""
    # After the magic stands the version as text (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)).
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        head = file.read(len(TRACE_DAT) + 8) or b""
    if not head.startswith(TRACE_DAT) or head[len(TRACE_DAT) :].split(b"\0")[0] == b"6":
        return path
    tool = shutil.which("trace-cmd", path=command_path())
    command = ["trace-cmd", "convert", "--file-version", "6", "-i", path, "-o"]
    what = f"cannot read {path}"
    if tool is None:
        raise Error(
            what,
            "it is no trace.dat of version 6, and there is no trace-cmd here to convert it",
            shlex.join([*command, "v6.dat"]) + "   # where trace-cmd is",
        )
    done = subprocess.run(
        [tool, *command[1:], str(converted)],
        capture_output=True,
        text=True,
        errors="replace",
        env=tool_environment(),
    )
    # trace-cmd exits with 0 on some errors.
    if done.returncode or not converted.exists():
        complaint = (done.stderr or done.stdout).strip().splitlines()
        why = f"trace-cmd convert: {complaint[-1].strip() if complaint else 'it failed'}"
        raise Error(what, why, shlex.join([*command, "v6.dat"]))
    return str(converted)


@contextmanager
def _watched(
    inputs: Sequence[str], output: str, progress: Callable[[float], None] | None
) -> Iterator[None]:
    """Report the progress, by how much of the output there is."""
    if progress is None:
        yield
        return
    target = Path(output)
    partial = target.with_name(f".{target.name}.{os.getpid()}")  # where the core writes
    whole = sum(os.path.getsize(path) for path in inputs) or 1
    done = threading.Event()

    def watch() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.5
            try:
                size = partial.stat().st_size
            except OSError:
                continue
            progress(min(size / whole, 0.99))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
