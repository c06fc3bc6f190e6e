"""Which files may have return probes: what could be killed by one has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusetools.host import uretprobe
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.files import Files
from fusetools.plan.registers import fetch
from fusetools.plan.returns import no_returns

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


@pytest.mark.parametrize("runtime", ["Go", "OCaml", "Haskell", "GraalVM", ".NET"])
def test_runtimes(runtime: str) -> None:
    assert f"a {runtime} program" in no_returns(FACTS, replace(FILE, runtime=runtime), MOUNT)
    assert no_returns(FACTS, FILE, MOUNT) == ""


def test_seccomp() -> None:
    sealed = replace(MOUNT, seccomp=True)
    assert "seccomp" in no_returns(FACTS, FILE, sealed)
    unknown = replace(FACTS, uretprobe_filtered=None)
    assert "seccomp" in no_returns(unknown, FILE, sealed)  # it could not be shown
    assert no_returns(replace(FACTS, uretprobe_filtered=False), FILE, sealed) == ""
    # those of 32 bits, and other machines, return by a breakpoint
    assert no_returns(FACTS, replace(FILE, machine="i386"), sealed) == ""
    assert no_returns(replace(FACTS, arch="aarch64"), FILE, sealed) == ""


def test_shadow_stacks() -> None:
    shadowed = replace(MOUNT, shadow_stack=True)
    assert "shadow stack" in no_returns(FACTS, FILE, shadowed)
    assert no_returns(replace(FACTS, uretprobe_shadow=True), FILE, shadowed) == ""


def test_who_shares_the_file() -> None:
    """A probe is in the file: another mount's daemon has it too."""
    other = replace(MOUNT, path="/n", comm="other", daemon_pid=10, seccomp=True)
    both = replace(FACTS, mounts=(MOUNT, other))
    assert no_returns(both, FILE, MOUNT).startswith("other (pid 10) has a seccomp filter")
    own = replace(other, libraries=(replace(FILE, inode=8),))
    assert no_returns(replace(FACTS, mounts=(MOUNT, own)), FILE, MOUNT) == ""


def test_this_process() -> None:
    assert no_returns(FACTS, FILE) == ""
    assert "this process" in no_returns(replace(FACTS, seccomp=True), FILE)


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
    """Of any thread."""
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
    """A kernel without the system call filters nothing; on this one the trial has an answer."""
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
    # of 32 bits: on the stack, or in other registers
    assert fetch("arg1", "x86_64", "i386") is None
    assert fetch("arg1", "aarch64", "arm") is None
