"""Stacks through code made at run time, of programs with frame pointers, and of Go programs.

Virtual machines such as Java's and Node's make code; some distributions keep frame pointers.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hanging import LONG, stuck, user_stack, waits_in_fuse
from mounts import mount_entry, wait_until
from recording import Done, begin
from sample import Mounter

import fusetools
from fusetools.host.files import Files
from fusetools.host.processes import ANONYMOUS, code

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

# Its generated function calls another one: push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret
PROGRAM = """
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static char *path;
static void looks(void) {
  char byte;
  struct stat found;
  while (read(0, &byte, 1) == 1) stat(path, &found);
}
int main(int n, char **words) {
  path = words[1];
  int all = PROT_READ | PROT_WRITE | PROT_EXEC;
  void *made = mmap(0, 4096, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(made, code, sizeof code);
  ((void (*)(void (*)(void)))made)(looks);
  return 0;
}
"""


@pytest.fixture
def program(sample_mount: Mounter, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It looks up a file of the sample's for each byte that it reads."""
    source, binary = tmp_path / "made.c", tmp_path / "made"
    source.write_text(PROGRAM)
    # The kernel does not show a sleeping thread's value of that register: only the function that
    # saved it does.
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-o", binary, source], check=True)
    path = sample_mount().path / "dir-00" / "file-000"
    with subprocess.Popen([binary, path], stdin=subprocess.PIPE) as process:
        wait_until(lambda: waits(process.pid), "its first read")
        yield process
        process.kill()


def waits(pid: int) -> bool:
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text()


def is_mounted(place: Path) -> bool:
    return mount_entry(place) is not None


def is_chain(names: list[str], wanted: list[str]) -> bool:
    """Return whether these frames follow each other, innermost first."""
    at = names.index(wanted[0]) if wanted[0] in names else 0
    return names[at : at + len(wanted)] == wanted


def test_stuck_finds_callers_below_a_go_daemon(program: subprocess.Popen[bytes]) -> None:
    pid = program.pid
    (made,) = (part for part in code(Files(Path("/")), pid) if part.path == ANONYMOUS)
    assert made.end - made.start == 4096
    names, whole = user_stack(pid, pid)
    assert is_chain(names, ["looks", "[generated code]", "main"]) and whole, names


# The innermost function sleeps in a system call of its own, so no function has saved the register.
FRAMES = """
static long pauses(void) {
  long result = 34;
  __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
  return result;
}
volatile long seen[8];
static void use(volatile char *bytes, long n) { for (long i = 0; i < n; i += 64) bytes[i] = 1; }
__attribute__((noinline)) int plain(long n) { pauses(); return seen[0] + n; }
__attribute__((noinline)) int saves(long n) {
  long a = seen[1], b = seen[2], c = seen[3], d = seen[4], e = seen[5];
  pauses();
  return n + a + b * c + d * e;
}
__attribute__((noinline)) int locals(long n) {
  char bytes[600];
  use(bytes, 600);
  pauses();
  use(bytes, 600);
  return n;
}
__attribute__((noinline)) int later(long n) { return n ? locals(n) + plain(n) : 0; }
__attribute__((noinline)) int varying(long n) {
  char bytes[n];
  use(bytes, n);
  pauses();
  use(bytes, n);
  return n;
}
__attribute__((noinline)) int calls(long n) { return SHAPE(n) + 1; }
int main(int n, char **words) { return calls(n * 100) + words[0][0]; }
"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("shape", ["plain", "saves", "locals", "later", "varying"])
def test_stacks_follow_saved_frame_pointers(tmp_path: Path, shape: str, level: str) -> None:
    """Only its code shows the value of a sleeping thread's register.

    No caller is wrong: if the code does not show it, the stack ends.
    """
    source, binary = tmp_path / "frames.c", tmp_path / "frames"
    source.write_text(FRAMES)
    keeps = ["-fno-omit-frame-pointer", "-fstack-protector-strong", "-fno-optimize-sibling-calls"]
    options = [level, *keeps, f"-DSHAPE={shape}", "-o", str(binary), str(source)]
    subprocess.run(["cc", *options], check=True)
    with subprocess.Popen([binary]) as process:
        wait_until(lambda: "pause" in Path(f"/proc/{process.pid}/wchan").read_text(), "its sleep")
        names, whole = user_stack(process.pid, process.pid)
        process.kill()
    names = [name for name in names if name != "pauses"]
    wanted = [*(["locals", "later"] if shape == "later" else [shape]), "calls", "main"]
    assert names[: len(wanted)] == wanted[: len(names)]
    assert whole or shape == "varying"  # by an unknown amount


def test_recording_finds_callers_below_a_go_daemon(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The code existed before the recording: perf reports only later mappings."""
    assert program.stdin is not None
    recorder = begin(tmp_path, "--attach", program.pid)
    program.stdin.write(b"x" * 31)
    program.stdin.close()
    done = Done(recorder)
    assert done.status == 0, done.stderr
    stacks = fusetools.open(tmp_path / "perf.data").stacks("off-cpu", layers=["syscall"]).stacks
    chains = [stack.split(";")[::-1] for stack in stacks if stack.startswith("made;")]
    # With frame pointers: the caller of libc's function is missing.
    assert chains and all(is_chain(c, ["[generated code]", "main"]) for c in chains), stacks


def test_stacks_of_a_waiting_go_daemon(tmp_path: Path) -> None:
    """gocryptfs on a stopped bindfs: its handler's stack reaches the goroutine's start."""
    for needed in ("gocryptfs", "bindfs"):
        if shutil.which(needed) is None:
            pytest.skip(f"needs {needed}")
    names = ("below", "cipher", "plain", "password")
    below, cipher, plain, password = (tmp_path / name for name in names)
    for folder in (below, cipher, plain):
        folder.mkdir()
    password.write_text("x")
    quiet = ["-q", "-passfile", str(password)]
    subprocess.run(["gocryptfs", "-init", "-scryptn", "10", *quiet, str(below)], check=True)
    mounts = {
        cipher: ["bindfs", "-f", str(below), str(cipher)],
        plain: ["gocryptfs", "-fg", *quiet, str(cipher), str(plain)],
    }
    with contextlib.ExitStack() as ends:
        daemons = []
        for place, command in mounts.items():
            daemons.append(ends.enter_context(subprocess.Popen(command)))
            ends.callback(daemons[-1].kill)
            wait_until(partial(is_mounted, place), "its mount")
            ends.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
        (plain / "file").write_text("secret")
        daemons[0].send_signal(signal.SIGSTOP)
        caller = ends.enter_context(subprocess.Popen(["stat", plain / "other"]))
        ends.callback(daemons[0].send_signal, signal.SIGCONT)
        wait_until(lambda: waits_in_fuse(caller.pid), "the caller")
        time.sleep(LONG)
        status, result = stuck("--mount", str(plain))
        assert status == 3
        (mount,) = result["mounts"]
        (cause, *_) = mount["causes"]
        threads = [t for t in mount["threads"] if t["tid"] in cause["threads"]]
        assert threads
        for thread in threads:
            frames = thread["user_stack"]
            assert any("go-fuse" in frame for frame in frames), frames
            assert frames[-1].startswith("runtime.goexit"), frames
