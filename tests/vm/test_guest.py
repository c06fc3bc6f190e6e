"""The virtual machine has the properties that the other tests assume."""

from __future__ import annotations

from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS, REPOSITORY

DEMO = REPOSITORY / "samples/recordings/demo.data"
pytestmark = pytest.mark.vm


def test_guest_boots_the_kernel_on_the_hosts_files(kernel: vm.Kernel, tmp_path: Path) -> None:
    mark = Path("/fusetools-vm-test")
    result = vm.run(
        kernel,
        f"""set -e
        uname -r; pwd; id -u; nproc
        cat /sys/devices/system/clocksource/clocksource0/current_clocksource
        cmp {__file__} {REPOSITORY}/tests/vm/test_guest.py
        echo kept > shared
        echo lost > {mark}; cat {mark}
        echo apart >&2
        exit 7""",
        tmp_path,
    )
    assert result.rc == 7, result
    assert result.stdout.split() == [kernel.release, str(tmp_path), "0", "2", "tsc", "lost"]
    assert result.stderr == "apart\n"
    assert (tmp_path / "shared").read_text() == "kept\n"
    assert not mark.exists()


def test_kernel_has_the_full_path(guest: vm.Guest) -> None:
    """Else the tests of kprobes and function_graph would test nothing."""
    tracers, filesystems, functions = guest(
        """set -e
        cd /sys/kernel/tracing
        tr '\\n' ' ' < available_tracers; echo
        tr '\\n' ' ' < /proc/filesystems; echo
        echo 'p:fusetools_test/lookup fuse_lookup' > dynamic_events
        ls events/fusetools_test; echo > dynamic_events
        grep -cE '^fuse_' available_filter_functions"""
    ).stdout.split("\n", 2)
    assert "function_graph" in tracers.split()
    assert "fuse" in filesystems.split()
    assert "lookup" in functions.split()
    assert int(functions.split()[-1]) > 200


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *scripts: str) -> vm.Kernel:
    """A kernel for `vm.run` whose machines are shell scripts, one after the other."""
    (tmp_path / "initramfs").touch()
    left = list(scripts)
    monkeypatch.setattr(vm, "_qemu", lambda *_: ["sh", "-c", f"echo vm-init: ready; {left.pop(0)}"])
    return vm.Kernel("none", "0", tmp_path)


def test_a_lockup_gets_one_fresh_try_and_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    lockup = "echo 'watchdog: BUG: soft lockup - CPU#1 stuck for 22s!'; exec sleep 60"
    good = f"cd {folder}/.vm; echo out > stdout; touch stderr; echo 3 clean > rc"
    kernel = stand_in(monkeypatch, tmp_path, lockup, good, lockup, lockup)
    with pytest.warns(vm.VMRetry, match="soft lockup"):
        result = vm.run(kernel, "true", folder)
    assert (result.rc, result.stdout, result.tries) == (3, "out\n", 2)
    with pytest.warns(vm.VMRetry), pytest.raises(vm.Lockup, match="soft lockup"):
        vm.run(kernel, "true", folder)


@pytest.mark.parametrize("hang", ["exec sleep 60", "while :; do :; done"])
def test_no_end_within_the_time_is_a_lockup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hang: str
) -> None:
    """A guest that sleeps exceeds the limit of time, another that of CPU time."""
    kernel = stand_in(monkeypatch, tmp_path, hang, hang)
    monkeypatch.setattr(vm, "WAITING", 0.3 if "sleep" in hang else 60.0)
    with pytest.warns(vm.VMRetry), pytest.raises(vm.Lockup, match="no end within the time"):
        vm.run(kernel, "true", tmp_path / "folder", timeout=0.1)


def test_a_guest_that_ends_early_is_an_error_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel = stand_in(monkeypatch, tmp_path, "echo 'Kernel panic - not syncing'")
    with pytest.raises(vm.VMError, match="Kernel panic - not syncing"):
        vm.run(kernel, "true", tmp_path / "folder")


def test_a_guest_runs_commands_as_long_as_it_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answering(name: str, state: str) -> str:
        answer = f"cd $folder/.vm; echo {name} > stdout; touch stderr; echo 0 {state} > rc"
        return f"while read -r folder; do {answer}; done"

    scripts = answering("first", "clean"), answering("second", "dirty"), answering("third", "clean")
    kernel = stand_in(monkeypatch, tmp_path, *scripts)
    names = [vm.run(kernel, "true", tmp_path / name).stdout for name in "ab"]
    vm.close()
    names += [vm.run(kernel, "true", tmp_path / name).stdout for name in "cd"]
    vm.close()
    assert names == ["first\n", "first\n", "second\n", "third\n"]


@pytest.mark.variant
def test_nothing_of_a_command_is_left_for_the_next(guest: vm.Guest, tmp_path: Path) -> None:
    boot, dynamic = "cat /proc/sys/kernel/random/boot_id", "/sys/kernel/tracing/dynamic_events"
    guest("true")
    first = guest(
        f"""mkdir /run/there; mount -t tmpfs none /run/there; sleep 1000 &
        ls /sys/kernel/debug/tracing > /dev/null; {boot}; : > kept"""
    )
    second = guest(
        f"{boot}; ls . /run; cat /proc/[0-9]*/comm; grep there /proc/mounts || echo none"
    )
    number, *said = second.stdout.split()
    assert [number] == first.stdout.split()  # the same guest
    assert "kept" in said and said[-1] == "none" and not {"there", "sleep"} & set(said)
    # Remains that are not removed lead to another guest.
    third = guest(f"{boot}; echo 'p:somebody/elses fuse_lookup' > {dynamic}")
    fourth = guest(f"{boot}; cat {dynamic}")
    assert third.stdout == first.stdout
    assert len(fourth.stdout.split()) == 1 and fourth.stdout != first.stdout


# Commands in an own directory, one after the other: refused; into a pipe whose reader has enough;
# with a umask; and one that is signalled in a script's background while it writes.
WAYS = f"""way() {{
  fusetools=$1
  mkdir $2
  cd $2
  umask 027
  export NO_COLOR=1
  export="$fusetools export -i {DEMO} --format"
  $export nothing; echo $?
  $export csv -o - | head -c 99; echo
  $export csv -o x.csv < /dev/null; echo $?; stat -c %a x.csv
  mkfifo pipe
  exec 3<> pipe
  $export json -o - > pipe &
  head -c 9 <&3; kill -INT $!; kill -TERM $!; wait $!; echo $?
  rm pipe
  cd ..
}}
"""


@pytest.mark.variant
def test_a_forked_fusetools_is_like_one_that_was_started(guest: vm.Guest, tmp_path: Path) -> None:
    """Its arguments, environment, directory, umask, signals and end; it ends with its client."""
    (tmp_path / "ways").write_text(WAYS)
    guest(
        f""". ./ways
        (way /vm/fusetools started) > start 2>&1
        (way {FUSETOOLS} forked) > fork 2>&1
        mkfifo pipe
        exec 3<> pipe
        rm pipe
        {FUSETOOLS} export -i {DEMO} --format json -o - >&3 &
        head -c 9 <&3 > /dev/null
        forked() {{ cat /proc/[0-9]*/comm | grep -c '^fusetools$'; }}
        forked > before
        kill -KILL $!
        wait $! || echo $? > killed
        until [ $(forked) = 0 ]; do sleep 0.2; done"""
    )
    started = (tmp_path / "start").read_text()
    assert started == (tmp_path / "fork").read_text()
    assert "'nothing' is not one of" in started
    assert "\n640\n" in started and started.endswith("143\n")
    assert (tmp_path / "started/x.csv").read_bytes() == (tmp_path / "forked/x.csv").read_bytes()
    assert (tmp_path / "before").read_text() == "2\n"  # the command and its client
    assert (tmp_path / "killed").read_text() == "137\n"
