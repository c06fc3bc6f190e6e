"""Files that may have return probes: none that a return probe could kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusetools.host import uretprobe
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.files import Files
from fusetools.plan.registers import fetch
from fusetools.plan.returns import no_returns
from fusetools.reasons import Code, Reason

FILE = Library("/x/lib.so", "/x/lib.so", 7, "fd:00", machine="x86_64")
MOUNT = Mount("/m", "fuse", "x", 45, daemon_pid=9, comm="x", libraries=(FILE,))
FACTS = HostFacts(
    kernel="6.12.1",
    arch="x86_64",
    cpus=1,
    uid=0,
    uretprobe_filtered=True,
    uretprobe_shadow=False,
    mounts=(MOUNT,),
)


def code(reason: Reason | None) -> Code | None:
    return reason.code if reason else None


@pytest.mark.parametrize("runtime", ["Go", "OCaml", "Haskell", "GraalVM", ".NET"])
def test_runtimes(runtime: str) -> None:
    found = no_returns(FACTS, replace(FILE, runtime=runtime), MOUNT)
    assert found and found.code is Code.RETURNS_RUNTIME
    assert found.subject == {"path": "/m", "file": "lib.so", "runtime": runtime}
    assert no_returns(FACTS, FILE, MOUNT) is None


def test_seccomp() -> None:
    sealed = replace(MOUNT, seccomp=True)
    assert code(no_returns(FACTS, FILE, sealed)) is Code.RETURNS_SECCOMP
    unknown = replace(FACTS, uretprobe_filtered=None)
    assert code(no_returns(unknown, FILE, sealed)) is Code.RETURNS_SECCOMP  # it could not be read
    assert no_returns(replace(FACTS, uretprobe_filtered=False), FILE, sealed) is None
    # 32-bit programs, and other architectures, return by a breakpoint
    assert no_returns(FACTS, replace(FILE, machine="i386"), sealed) is None
    assert no_returns(replace(FACTS, arch="aarch64"), FILE, sealed) is None


def test_shadow_stacks() -> None:
    shadowed = replace(MOUNT, shadow_stack=True)
    assert code(no_returns(FACTS, FILE, shadowed)) is Code.RETURNS_SHADOW_STACK
    assert no_returns(replace(FACTS, uretprobe_shadow=True), FILE, shadowed) is None


def test_return_probes_consider_all_users_of_a_file() -> None:
    """A probe is in the file: another mount's daemon runs it, too."""
    other = replace(MOUNT, path="/n", comm="other", daemon_pid=10, seccomp=True)
    both = replace(FACTS, mounts=(MOUNT, other))
    found = no_returns(both, FILE, MOUNT)
    assert found and found.code is Code.RETURNS_SECCOMP
    assert (found.subject["comm"], found.subject["pid"]) == ("other", 10)
    own = replace(other, libraries=(replace(FILE, inode=8),))
    assert no_returns(replace(FACTS, mounts=(MOUNT, own)), FILE, MOUNT) is None


def test_this_process() -> None:
    assert no_returns(FACTS, FILE) is None
    found = no_returns(replace(FACTS, seccomp=True), FILE)
    assert found and found.code is Code.RETURNS_SECCOMP and "pid" not in found.subject


STATUS = "Name:\tx\nSeccomp:\t{}\nSeccomp_filters:\t1\nx86_Thread_features:\t{}\n"


@pytest.mark.parametrize(
    ("seccomp", "features", "expected"),
    [
        ("0", "", (False, False)),
        ("2", "", (True, False)),
        ("1", "wrss", (True, False)),
        ("0", "shstk wrss", (False, True)),
    ],
)
def test_guards(tmp_path: Path, seccomp: str, features: str, expected: tuple[bool, bool]) -> None:
    """A filter of any thread counts."""
    for name, text in (
        ("9", ("0", "")),
        ("9/task/9", ("0", "")),
        ("9/task/12", (seccomp, features)),
    ):
        folder = tmp_path / "proc" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text(STATUS.format(*text))
    assert uretprobe.guards(Files(tmp_path), 9) == expected
    assert uretprobe.guards(Files(tmp_path), 10) == (False, False)


def test_trial() -> None:
    """A kernel without the system call filters nothing; on this one the trial gives an answer."""
    assert uretprobe.filtered("ffffffff81000000 T __x64_sys_read\n", "x86_64") is False
    assert uretprobe.filtered("", "aarch64") is False
    kallsyms = Path("/proc/kallsyms").read_text()
    assert uretprobe.filtered(kallsyms, "x86_64") in (True, False)
    if "__x64_sys_uprobe\n" in kallsyms:  # Linux 6.18: passed by since 6.14
        assert uretprobe.filtered(kallsyms, "x86_64") is False


def test_registers() -> None:
    assert fetch("+8(arg1):u64", "x86_64") == "+8(%di):u64"
    assert fetch("+8(arg1):u64", "x86_64", "x86_64", "go") == "+8(%ax):u64"
    assert fetch("arg9", "x86_64", "x86_64", "go") == "%r11"
    assert fetch("arg7", "x86_64") is None
    assert fetch("arg2", "aarch64", "aarch64", "go") == "%x1"
    assert fetch("arg2", "aarch64", "aarch64") == "%x1"
    # 32-bit: on the stack, or in other registers
    assert fetch("arg1", "x86_64", "i386") is None
    assert fetch("arg1", "aarch64", "arm") is None
