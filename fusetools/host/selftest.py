"""Self-test: does fuse:fuse_request_send report a request's ``unique`` on this kernel?

The test uses a mount of its own: no daemon of the host is asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fusetools.host.files import Files, end_children, keep_only
from fusetools.host.messages import Incoming, send
from fusetools.host.mounts import parse_mountinfo

# include/uapi/linux/fuse.h, include/uapi/linux/mount.h, include/uapi/linux/prctl.h
_IN, _OUT = struct.Struct("<IIQ"), struct.Struct("<IiQ")
_STATFS, _INIT = 17, 26
_ANSWERS = {_STATFS: bytes(80), _INIT: struct.pack("<IIIIHHI", 7, 12, 0, 0, 0, 0, 4096)}
_ENOSYS = 38
_LARGEST = 1 << 17
_CLONE_NEWNS, _PRIVATE = 0x20000, 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_PDEATHSIG, _SIGKILL = 1, 9
_PLACE = "/proc"  # a directory that exists everywhere
_BEGIN = 2.0  # timeout in seconds for mounting


def self_test_unique(seconds: float = 5.0) -> bool | None:
    """Return whether the tracepoint reports ``unique``; None if unknown.

    Some kernels (6.12, 6.14) always report 0, as the event fires before the number is set. Record
    one statfs (as root, with perf). The answer is unknown if no request was seen (no permission, no
    tracepoint).
    """
    with _own_mount() as mount:
        if mount is None:
            return None
        path, connection = mount
        # As root, do not use TMPDIR of sudo's caller.
        place = "/run" if os.geteuid() == 0 and Path("/run").is_dir() else None
        with tempfile.TemporaryDirectory(prefix="fusetools-", dir=place) as directory:
            data = str(Path(directory) / "perf.data")
            record = ["perf", "record", "-q", "-N", "-B", "--no-bpf-event", "-a", "-o", data]
            for name in ("send", "end"):
                only = f"connection=={connection}"
                record += ["-e", f"fuse:fuse_request_{name}", "--filter", only]
            script = ["perf", "script", "-i", data, "-F", "event,trace"]
            files = Files(Path("/"))
            if files.start(*record, "--", "stat", "-f", path).get(seconds)[0]:
                return None
            return judge_unique(files.start(*script).get(seconds)[1])


def judge_unique(text: str) -> bool | None:
    """Return whether, in printed fuse:* events, each send has a ``unique`` that an end has, too."""
    sent = re.findall(r"fuse_request_send:.*?\breq (\d+)", text)
    ended = set(re.findall(r"fuse_request_end:.*?\breq (\d+)", text))
    if not sent or not ended:
        return None
    return "0" not in sent and bool(ended & set(sent))


@contextlib.contextmanager
def _own_mount() -> Iterator[tuple[str, int] | None]:
    """Yield the path and the connection of a FUSE mount that a child serves in its own mount
    namespace.

    Yield None if the mount cannot be made.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            keep_only(writer)
            _serve(writer, parent)
        finally:
            os._exit(1)
    os.close(writer)
    try:
        answer = Incoming(64)
        end = time.monotonic() + _BEGIN
        while not answer.complete and (left := end - time.monotonic()) > 0:
            if not select.select([reader], [], [], left)[0] or not answer.take(reader):
                break
        yield (f"/proc/{child}/root{_PLACE}", int(answer.data)) if answer.complete else None
    finally:
        os.close(reader)
        end_children([child])


def _serve(writer: int, parent: int) -> None:
    """Mount, report the connection, and answer requests until killed. For a child."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return
    mounts = os.open("/proc/self/mountinfo", os.O_RDONLY)
    if libc.mount(b"fusetools", _PLACE.encode(), b"fuse", 0, options.encode()):
        return
    text = b""
    while part := os.read(mounts, _LARGEST):
        text += part
    ours = [m for m in parse_mountinfo(text.decode(errors="replace")) if m.path == _PLACE]
    send(writer, str(ours[-1].connection).encode())
    while request := os.read(device, _LARGEST):
        _, opcode, unique = _IN.unpack_from(request)
        body = _ANSWERS.get(opcode)
        error = 0 if body is not None else -_ENOSYS
        os.write(device, _OUT.pack(_OUT.size + len(body or b""), error, unique) + (body or b""))
