"""The seccomp filter or security module that refuses something to a root with the capabilities."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fusetools.host.confined import confinement, perf_refused
from fusetools.host.files import Files

# Installs a filter that answers one system call with an errno, and prints who refuses it.
SEALED = """
import ctypes, platform, struct, sys
from fusetools.host.confined import _PERF_EVENT_OPEN, perf_refused
number, refused = _PERF_EVENT_OPEN[platform.machine()], int(sys.argv[1])
# ld [nr]; jeq NUMBER: ret ERRNO; ret ALLOW
program = struct.pack("<HBBI", 0x20, 0, 0, 0) + struct.pack("<HBBI", 0x15, 0, 1, number)
program += struct.pack("<HBBI", 6, 0, 0, 0x00050000 | refused)
program += struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
code = ctypes.create_string_buffer(program)
described = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, described, 0, 0) == 0
print(perf_refused(platform.machine()))
"""


@pytest.mark.parametrize("refused", [1, 38, 13])  # EPERM (Docker), ENOSYS (Podman), EACCES
def test_a_filter_is_seen(refused: int) -> None:
    if not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        pytest.skip("this kernel has no perf events")
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the number of the system call is known on x86_64 and aarch64 only")
    command = [sys.executable, "-c", SEALED, str(refused)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "seccomp\n"


def test_an_unknown_machine_tells_nothing() -> None:
    assert perf_refused("riscv64") == ""


@pytest.mark.parametrize(
    ("label", "enforce", "expected"),
    [
        ("docker-default (enforce)\n", "", "AppArmor's profile docker-default"),
        ("docker-default (complain)\n", "", ""),
        ("unconfined\n", "", ""),
        ("", "", ""),
        ("system_u:system_r:container_t:s0:c1,c2\0", "1", "SELinux's type container_t"),
        ("system_u:system_r:container_t:s0:c1,c2\0", "0", ""),
    ],
)
def test_the_module_is_named(label: str, enforce: str, expected: str, tmp_path: Path) -> None:
    for name, text in (("proc/self/attr/current", label), ("sys/fs/selinux/enforce", enforce)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert confinement(Files(tmp_path)) == expected
