"""Facts that stuck reads of this host: within its limits, and the layout of locks, paths and
sockets."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from mounts import wait_until

from fusetools.host import sockets as internet
from fusetools.host.memory import Memory
from fusetools.stuck import (
    arguments,
    bounded,
    census,
    children,
    machine,
    sockets,
    syscalls,
    taskstats,
)
from fusetools.stuck.moment import RING, Process, Task
from fusetools.stuck.places import Table


def asked(
    items: Iterable[Any],
    answer: Callable[[Any], Any],
    share: float = 1.0,
    unknown: list[int] | None = None,
) -> list[Any]:
    """Asker.each() without children."""
    found = []
    for item in items:
        result = answer(item)
        if result is not None:
            found.append(result)
        elif unknown is not None:
            unknown.append(item[1])
    return found


def test_silent_processes_are_left_out() -> None:
    def answer(item: int) -> int:
        if item == 2:
            time.sleep(60)
        return item * 10

    found = dict(bounded.each([1, 2, 3], answer, 0.3, bounded.Limit(30)))
    assert found == {1: 10, 2: None, 3: 30}


def test_waits_for_a_cpu_extend_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not all of it: data of other users may keep a child busy forever."""

    def answer(item: int) -> int:
        end = time.monotonic() + (60 if item == 2 else 0.6)
        while time.monotonic() < end:
            pass
        return item * 10

    monkeypatch.setattr(bounded, "BUSY", 10)
    found = dict(bounded.each([1, 2, 3], answer, 0.3, bounded.Limit(30)))
    assert found == {1: 10, 2: None, 3: 30}


def test_a_dying_child_is_left_out() -> None:
    def answer(item: int) -> int:
        if item == 2:
            os._exit(1)
        return item

    found = dict(bounded.each([1, 2, 3], answer, 5, bounded.Limit(30)))
    assert found == {1: 1, 2: None, 3: 3}


def test_many_that_do_not_answer_leave_time_for_others() -> None:
    """Callers in execve on a hanging mount: before Linux 5.7 a reader of their stacks waits for
    them (cred_guard_mutex).

    They take 0.25 s each: 4 s if one waited for them one after the other.
    """
    items = range(20)

    def answer(item: int) -> int:
        if item < 16:
            time.sleep(60)
        return item

    found = dict(bounded.each(items, answer, 0.25, bounded.Limit(1.8)))
    assert found == {item: None if item < 16 else item for item in items}


def test_a_late_answer_counts(tmp_path: Path) -> None:
    """2 answers after 3, in another child."""

    def answer(item: int) -> int:
        while item == 2 and not (tmp_path / "3").exists():
            time.sleep(0.01)
        (tmp_path / f"{item}").touch()
        return item * 10

    found = dict(bounded.each([1, 2, 3], answer, 5, bounded.Limit(30)))
    assert found == {1: 10, 2: 20, 3: 30}


def test_one_overtaken_does_not_do_the_others_work(tmp_path: Path) -> None:
    def answer(item: int) -> int:
        (tmp_path / f"{item} {os.getpid()}").touch()
        time.sleep(0.3 if item == 1 else 0)
        return item

    found = dict(bounded.each([1, 2, 3, 4], answer, 5, bounded.Limit(30)))
    assert found == {1: 1, 2: 2, 3: 3, 4: 4}
    assert len(list(tmp_path.iterdir())) == 4


def test_one_that_runs_is_not_overtaken(tmp_path: Path) -> None:
    """A busy host would start a child for each item, all at once."""

    def answer(item: int) -> int:
        (tmp_path / f"{os.getpid()}").touch()
        end = time.thread_time() + 0.15
        while time.thread_time() < end:
            pass
        return item

    assert list(bounded.each([1, 2, 3], answer, 0.5, bounded.Limit(30))) == [
        (n, n) for n in (1, 2, 3)
    ]
    assert len(list(tmp_path.iterdir())) == 1


def test_one_that_runs_for_long_does_not_take_the_time_of_others(tmp_path: Path) -> None:
    """Any user can make a process that takes long to examine."""

    def answer(item: int) -> int:
        while item == 1 and not (tmp_path / "2").exists():
            pass
        (tmp_path / f"{item}").touch()
        return item

    assert list(bounded.each([1, 2], answer, 0.1, bounded.Limit(30))) == [(2, 2), (1, 1)]


def test_a_part_of_a_limit_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {"self": 0.0, 7: 0.5}
    monkeypatch.setattr(bounded, "waited_for_cpu", waited.get)
    limit = bounded.Limit(2)
    part = limit.part(0.25)
    assert (part.end(), limit.end()) == (limit.begin + 0.5, limit.begin + 2)
    part.ends(7)  # a child's wait for a CPU counts for the whole
    assert (part.end(), limit.end()) == (limit.begin + 1, limit.begin + 2.5)


def test_a_child_left_behind_holds_no_resources() -> None:
    """A child that cannot be killed kept the standard output open: its reader waited."""

    def answer(_: int) -> list[str]:
        names = os.listdir("/proc/self/fd")
        links = (children.link(f"/proc/self/fd/{name}") for name in names)
        return sorted({link.partition(":")[0] for link in links if link} - {os.devnull})

    with Path(__file__).open(encoding="utf-8") as ours, socket.socket() as other:
        ((_, held),) = bounded.each([1], answer, 5, bounded.Limit(30))
        assert (ours.closed, other.fileno() > 0) == (False, True)
    assert held == ["pipe"]


def test_no_process_is_examined_after_the_limit() -> None:
    assert list(bounded.each([1, 2], lambda item: item, 5, bounded.Limit(-1))) == [
        (1, None),
        (2, None),
    ]


def test_a_limit_does_not_count_what_was_waited_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {"self": 5.0, 7: 0.0, 8: 0.25}
    monkeypatch.setattr(bounded, "waited_for_cpu", waited.get)
    limit = bounded.Limit(2)
    assert limit.end() == limit.begin + 2
    waited["self"] = 5.5
    assert limit.end() == limit.begin + 2.5
    assert limit.end(8) == limit.begin + 2.75
    limit.ends(8)
    assert limit.end(7) == limit.end() == limit.begin + 2.75
    waited[7] = 1000  # but it ends
    assert limit.end(7) == limit.begin + 2 * bounded.SLOWEST


def test_waits_for_a_cpu_are_known() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not account for waits for a CPU (CONFIG_SCHED_INFO)")
    spin = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        # Each waits while the other runs: such waits come without end.
        while any(bounded.waited_for_cpu(one.pid) < 0.05 for one in spinning):
            time.sleep(0.01)
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _at(words: list[int]) -> tuple[ctypes.Array[ctypes.c_uint32], int]:
    """Return words between zeros, and the address of the first."""
    array = (ctypes.c_uint32 * 64)(*([0] * 16), *words)
    return array, ctypes.addressof(array) + 64


OTHER = 4242


@pytest.mark.parametrize(
    ("words", "place", "operation", "kind"),
    [
        # glibc's mutex: __lock, __count, __owner, __nusers, __kind
        ([2, 0, OTHER, 1, 0], 0, 128, "mutex"),
        ([2, 1, OTHER, 1, 1], 0, 128, "mutex"),  # recursive
        # glibc's rwlock, with waiting readers and with waiting writers
        ([3, 0, 2, 0, 0, 0, OTHER, 0], 2, 0x189, "rwlock"),
        ([3, 1, 0, 3, 0, 0, OTHER, 0], 3, 0x189, "rwlock"),
        # musl's recursive or error-checking mutex; a plain one has EBUSY instead of an owner
        ([1, OTHER | 1 << 31], 1, 128, "mutex"),
        ([0, OTHER | 1 << 31], 1, 128, None),
        # priority inheritance, robust
        ([OTHER | 1 << 31], 0, 128 | 6, "mutex"),
        ([OTHER | 1 << 31, 1, OTHER, 1, 16], 0, 128, "mutex"),
        # For a joined thread: its number, shared with the kernel
        ([OTHER, 7], 0, 0x109, "thread"),
        ([OTHER, 7], 0, 0x189, None),
        # A condition (48 bytes) before a locked mutex: its futexes are at 40 and 44.
        ([0] * 9 + [16, 1, 0, 1, 0, OTHER, 1, 0], 10, 0x189, None),
        ([0] * 9 + [16, 1, 1, 1, 0, OTHER, 1, 0], 11, 0x189, None),
        # malloc's lock of an arena, with its flags behind it
        ([2, 0, OTHER, 0, 0, 0], 0, 128, None),
        # A semaphore; an owner that is no thread of the process
        ([0, 1, 0, 0], 0, 0x189, None),
        ([2, 0, 77, 1, 0], 0, 128, None),
    ],
)
def test_lock_holders_are_read_from_memory(
    words: list[int], place: int, operation: int, kind: str | None
) -> None:
    array, address = _at(words)
    with Memory("/proc/self") as memory:
        found = arguments._lock(memory, [address + 4 * place, operation, OTHER], {1: 1, OTHER: 99})
    sure = found if found and found["sure"] else None
    # The number as seen from outside
    assert (sure and (sure["kind"], sure["owner"])) == (kind and (kind, 99))
    del array


def test_strings_of_a_process() -> None:
    text = ctypes.create_string_buffer(b"/mnt/\xff\xfe/x")
    with Memory("/proc/self") as memory:
        assert arguments._string(memory, ctypes.addressof(text)) == "/mnt/\udcff\udcfe/x"
        assert arguments._string(memory, 8) is None
        endless = ctypes.create_string_buffer(b"x" * 20000)
        assert arguments._string(memory, ctypes.addressof(endless)) is None


def test_a_page_of_a_file_that_a_process_does_not_have_is_not_asked_for(tmp_path: Path) -> None:
    """Its file system may hang, and the process's memory map would stay locked."""
    page = mmap.PAGESIZE
    (tmp_path / "file").write_bytes(b"x" * 4 * page)
    with (
        (tmp_path / "file").open("r+b") as file,
        mmap.mmap(file.fileno(), 4 * page, mmap.MAP_PRIVATE) as mapped,
        Memory("/proc/self") as memory,
    ):
        mapped.madvise(mmap.MADV_RANDOM)  # a page fault maps no other page
        (buffer := ctypes.c_char.from_buffer(mapped))
        address = ctypes.addressof(buffer)
        assert memory.peek(address, 10) == b""
        mapped[page] = mapped[2 * page] = 121
        assert memory.peek(address + page, 4 * page) == b"y" + b"x" * (page - 1) + b"y" + b"x" * (
            page - 1
        )
        assert memory.peek(address + page - 1, 2) == b""
        del buffer


def test_only_what_daemons_answer_is_read_of_other_namespaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = ("ext4", "fuse", "fuse.sshfs", "fuseblk", "virtiofs", "overlay")
    lines = [
        f"{40 + n} 1 0:{40 + n} / /mnt/{kind} rw - {kind} a rw" for n, kind in enumerate(kinds)
    ]
    monkeypatch.setattr(children, "mountinfo", lambda item: (*item, "\n".join(lines)))
    assert children.of_fuse(("mnt:[1]", 5))[2].split("\n") == lines[1:5]


def test_system_calls() -> None:
    openat = syscalls.call("x86_64", 257)
    assert openat == syscalls.Call("openat", ((0, 1),), ())
    assert syscalls.call("aarch64", 56) == openat
    assert syscalls.call("x86_64", 39) == syscalls.Call("getpid", (), ())
    assert syscalls.call("x86_64", 9999) == syscalls.Call("syscall_9999", (), ())
    assert syscalls.call("s390x", 5) == syscalls.Call("syscall_5", (), ())


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (3, "read"),
        (7, "wait4"),
        (19, "lseek"),
        (54, "ioctl"),
        (142, "select"),
        (195, "stat"),
        (196, "lstat"),
        (220, "getdents64"),
        (221, "fcntl"),
        (240, "futex"),
        (268, "statfs"),
        (295, "openat"),
        (300, "newfstatat"),
        (383, "statx"),
        (407, "clock_nanosleep"),
        (414, "ppoll"),
        (422, "futex"),
        (102, "socketcall"),
        (9999, "syscall_9999"),
    ],
)
def test_system_calls_of_32_bits(number: int, name: str) -> None:
    """By arch/x86/entry/syscalls/syscall_32.tbl."""
    found = syscalls.call("x86_64", number, is_32bit=True)
    assert found.name == name
    known = {call.name: call for call in syscalls._CALLS["x86_64"].values()}
    assert found == known.get(name, found)


def test_system_calls_of_32_bits_on_arm() -> None:
    assert syscalls.call("aarch64", 322, is_32bit=True) == syscalls.call("aarch64", 56)
    assert syscalls.call("aarch64", 197, is_32bit=True).name == "fstat"


def test_addresses() -> None:
    assert internet._address("0100007F:0C38") == "127.0.0.1:3128"
    assert internet._address("00000000000000000000000001000000:0016") == "[::1]:22"
    mapped = "0000000000000000FFFF0000" + f"{struct.unpack('=I', bytes([10, 0, 0, 1]))[0]:08X}"
    assert internet._address(mapped + ":0050") == "10.0.0.1:80"
    assert internet._address("00000000:0000") == ""


def test_this_host_is_read() -> None:
    """A thread of this process that waits for a lock is examined as a daemon's thread would be."""
    end = threading.Event()
    sleeper = threading.Thread(target=end.wait)
    sleeper.start()
    try:
        (process,) = children.process(os.getpid())
        assert sleeper.native_id in process["threads"]
        _, tid, row = children.task((os.getpid(), sleeper.native_id or 0))
        assert tid == sleeper.native_id
        assert row is not None and row["state"] in ("S", "R")
    finally:
        end.set()
        sleeper.join()


@pytest.mark.parametrize("ran", [0.0, None])
@pytest.mark.parametrize(("again", "age"), [(7, None), (8, 0.0), (None, 0.0)])
def test_the_age_of_a_thread_without_a_stamp(
    monkeypatch: pytest.MonkeyPatch, again: int | None, age: float | None, ran: float | None
) -> None:
    """It was moved between CPUs (Linux 6.12): it has not slept since boot.

    Or the kernel shows no time: then each caller of a busy mount would count as stuck.
    """
    looks = iter([7, again])

    def task(item: tuple[int, int]) -> tuple[int, int, dict[str, object] | None]:
        switches = next(looks)
        row: dict[str, object] = {
            "comm": "ls",
            "state": "D",
            "wchan": "request_wait_answer",
            "stack": ["request_wait_answer"],
            "syscall": (None, [], None, None),
            "ran": ran,
            "switches": switches,
            "cpu": 0,
            "tracer": 0,
            "killed": False,
        }
        return (*item, None if switches is None else row)

    monkeypatch.setattr(children, "task", task)
    monkeypatch.setattr(machine, "AGAIN", 0)
    reader = machine._Reader(30)
    monkeypatch.setattr(reader, "each", asked)
    process = Process(500, 1, "ls", "D", threads=(500,))
    (found,) = reader._tasks([(500, 500)], {500: process})
    assert found.age == age


def test_a_thread_that_woke_up_while_it_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is that of one moment, its call that of another: look at it again."""

    def row(state: str, number: int | None) -> dict[str, object]:
        call = (number, [0] * 6, 1 << 40, 1 << 40) if number is not None else (None, [], None, None)
        return {
            **{"comm": "cvmfs2", "wchan": "", "stack": [], "syscall": call, "switches": 7},
            **{"ran": None, "cpu": 0, "tracer": 0, "killed": False, "state": state},
        }

    firsts = {501: ("R", 7), 502: ("S", None), 503: ("R", None), 504: ("S", 7)}
    monkeypatch.setattr(children, "task", lambda item: (*item, row(*firsts[item[1]])))
    monkeypatch.setattr(children, "task_asleep", lambda item: (*item, row("S", 35)))
    reader = machine._Reader(30)
    reader.machine, reader.near = "x86_64", {500}
    monkeypatch.setattr(reader, "_arguments", lambda tasks, _: [task for task, *_ in tasks])
    process = Process(500, 1, "cvmfs2", "S", threads=tuple(firsts))
    found = reader._tasks([(500, tid) for tid in firsts], {500: process})
    assert {task.tid: (task.state, task.call) for task in found} == {
        **dict.fromkeys((501, 502, 503), ("S", "nanosleep")),
        504: ("S", "poll"),
    }


def test_ages_refer_to_the_first_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at further threads come later, on a busy host by seconds; ages are compared."""
    now = 100.0
    row = {
        **{"comm": "x", "state": "S", "wchan": "", "stack": [], "syscall": (7, [0] * 6, 0, 0)},
        **{"ran": 97_000.0, "switches": 7, "cpu": 0, "tracer": 0, "killed": False},
    }
    monkeypatch.setattr(children, "task", lambda item: (*item, row))
    monkeypatch.setattr(children, "clock", lambda cpu: (int(cpu), now, now * 1e3))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reader = machine._Reader(30)
    monkeypatch.setattr(reader, "each", asked)
    monkeypatch.setattr(reader, "_arguments", lambda tasks, _: [task for task, *_ in tasks])
    processes = {pid: Process(pid, 1, "x", "S", threads=(pid,)) for pid in (500, 600)}
    (first,) = reader._tasks([(500, 500)], processes)
    now += 2
    (further,) = reader._tasks([(600, 600)], processes)
    assert (first.age, further.age) == (3.0, 3.0)


def test_the_files_of_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    info = "SqMask:\t0xf\nUserFiles:\t{}\n{}UserBufs:\t0\nPollList:\n  op=6, task_works=0\n"
    with_fuse = info.format(1, "    0: /dev/fuse\n")
    infos = {"11": with_fuse, "12": with_fuse, "13": info.format(0, "")}
    links = {"0": "/dev/null", "11": RING, "12": RING}
    monkeypatch.setattr(
        "fusetools.stuck.arguments.text", lambda name: infos[name.rpartition("/")[2]]
    )
    monkeypatch.setattr(arguments, "names", lambda name: list(links))
    monkeypatch.setattr(
        "fusetools.stuck.arguments.link", lambda name: links[name.rpartition("/")[2]]
    )
    ring = arguments._of_ring
    assert ring(100, [11], 1) == [(11, "/dev/fuse")]
    assert ring(100, [13], 1) == [(-1, RING)]
    # Descriptor 0 is not the ring's: it is an index into a table of the thread.
    assert ring(100, [0], 17) == [(11, "/dev/fuse")]
    infos["12"] = info.format(1, "    0: /var/lib/data\n")
    assert ring(100, [0], 17) == [(-1, RING)]


MOUNTINFO = r"""22 1 254:1 / / rw - ext4 /dev/x rw
30 22 0:40 / /mnt/a rw - fuse a rw
31 22 0:40 /d1 /mnt/bind rw - fuse a rw
32 30 0:50 / /mnt/a/data rw - tmpfs tmpfs rw
33 22 0:41 / /mnt/a\040b rw - fuse b rw
34 22 0:42 / /mnt/a rw - fuse c rw
35 22 0:51 / /ov rw - overlay overlay rw,lowerdir=/mnt/a\040b/l:/lib,upperdir=/u,workdir=/w
36 22 0:52 / /ov2 rw - overlay overlay rw,lowerdir+=/ov,lowerdir+=/mnt/bi\134:nd
37 22 7:3 / /loop rw - ext4 /dev/loop3 rw
38 22 0:53 / /posed rw - tmpfs /dev/loop/../../x rw
"""


def test_the_mounts_on_the_way_to_a_path() -> None:
    asked = []

    def file_of(loop: str) -> str:
        asked.append(loop)
        return "/mnt/bind/image"

    table = Table(MOUNTINFO, file_of=file_of)
    root = (254 << 20) + 1
    assert table.along("/loop/x") == [(7 << 20) + 3, 40, root, root]
    assert asked == ["loop3"]
    assert table.along("/mnt/ax") == [root]
    assert table.along("/mnt/a/x") == [42, root]  # the newest mount on that directory
    assert table.along("/mnt/a/x", inside=True) == [42, 40, root]  # from a working directory
    assert table.along("/mnt/a/data/x") == [50, 42, root]
    assert table.along("/mnt/bind/x") == [40, root]
    assert table.along("/mnt/a b/x") == [41, root]
    assert table.along("/ov/x") == [51, 41, root, root, root, root]
    assert table.along("/ov2/x")[:3] == [52, 51, 41]
    # An open file is on its mount, whatever mount covers it now.
    assert table.of_file(30, "/mnt/a/x") == [40]
    assert table.of_file(22, "/mnt/bind/x") == [40, root]
    assert table.of_file(99, "/mnt/a/x") is None  # unmounted
    assert Table("30 22 x:y / /a rw - fuse a\n\nnonsense").along("/a") == []


def test_file_locks_of_the_kernel() -> None:
    text = (
        "1: POSIX  ADVISORY  WRITE 14099 00:2a:21 0 EOF\n"
        "1: -> POSIX  ADVISORY  WRITE 14102 00:2a:21 0 EOF\n"
        "1:  -> POSIX  ADVISORY  WRITE 14103 00:2a:21 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 14073 fe:00:5627906 0 EOF\n"
        "3: OFDLCK ADVISORY  READ  -1 fe:00:9 0 EOF\n"
        "3: -> FLOCK  ADVISORY  WRITE 14084 fe:00:9 0 EOF\nnonsense\n"
    )
    assert arguments.lock_holders(text) == {14102: (14099,), 14103: (14099,)}


def test_the_clock_of_a_cpu() -> None:
    cpu = min(os.sched_getaffinity(0))
    begin = time.monotonic()
    found = dict(bounded.each([str(cpu), "65535"], children.clock, 5, bounded.Limit(30)))
    assert found["65535"] is None
    if Path("/proc/self/sched").exists():
        (number, at, ms) = found[str(cpu)] or (-1, 0, 0)
        assert (number, begin < at < time.monotonic(), ms > 0) == (cpu, True, True)


def test_a_process_is_seen_without_its_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.7 a reader waits for a process in execve: a daemon's own row, and that of a
    caller, lack stacks."""
    stat = f"500 (a b) c) S 1 {' '.join(['0'] * 36)}"
    stack = "[<0>] __schedule+0x1/0x2\n[<0>] request_wait_answer+0x1/0x2\n[<0>] 0xffffffff\n"
    texts = {"stat": stat, "wchan": "0", "status": "Uid:\t7\t7\n", "stack": stack}
    read: list[str] = []

    def text(name: str, most: int = 0) -> str:
        read.append(name)
        return texts.get(name.rpartition("/")[2], "")

    monkeypatch.setattr(children, "text", text)
    monkeypatch.setattr(children, "names", lambda name: ["500", "501"] if "task" in name else [])
    monkeypatch.setattr(children, "link", lambda name: name)
    (row,) = children.process(500)
    assert row["comm"] == "a b) c"
    assert row["waits"] == [(500, "S", "0"), (501, "S", "0")]
    assert children.closer((500, 500))["uid"] == 7
    assert not [name for name in read if name.endswith("stack")]
    reader = machine._Reader(30)
    waits = [(500, "S", "request_wait_answer"), (501, "S", "request_wait_answer")]
    monkeypatch.setattr(reader, "each", asked)
    assert census.Census(reader, [500]).threads == {500: waits}
    # Its stacks do not answer: it may wait.
    monkeypatch.setattr(children, "sleeps_in", lambda _: None)
    silent = census.Census(reader, [500])
    assert (silent.threads, silent.unseen) == ({500: row["waits"]}, [500])


def test_a_daemon_s_threads_are_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time may not suffice for all, and callers may have lower numbers than their daemon."""

    def process(pid: int) -> list[dict[str, object]]:
        return [
            {
                "pid": pid,
                "ppid": 1,
                "comm": "x",
                "state": "S",
                "start": 1,
                "ran": 0,
                "of_kernel": False,
                "forked": False,
                "owner": 0,
                "mnt": "mnt:[1]",
                "root": "/",
                "serves": False,
                "via": pid,
                "threads": [pid],
                "waits": [(pid, "D", "request_wait_answer")],
            }
        ]

    def closer(item: tuple[int, int]) -> dict[str, object]:
        _, pid = item
        fuse = [(5, 40)] if pid == 900 else []
        return {"pid": pid, "uid": 0, "tracer": 0, "cgroup": "", "fuse": fuse, "left": 0}

    looked: list[int] = []

    def task(item: tuple[int, int]) -> tuple[int, int, None]:
        looked.append(item[1])
        return (*item, None)

    mountinfo = "29 1 0:9 / / rw - ext4 x rw\n30 22 0:40 / /mnt/a rw - fuse.x a rw\n"
    monkeypatch.setattr(children, "process", process)
    monkeypatch.setattr(children, "closer", closer)
    monkeypatch.setattr(children, "mountinfo", lambda item: (*item, mountinfo))
    monkeypatch.setattr(children, "task", task)
    monkeypatch.setattr("fusetools.stuck.machine.os.listdir", lambda _: ["500", "501", "900"])
    monkeypatch.setattr(machine, "fusectl", lambda: contextlib.nullcontext(("", None)))
    monkeypatch.setattr(machine, "MOST_THREADS", 2)
    reader = machine._Reader(30)
    reader.mountinfo = mountinfo
    monkeypatch.setattr(reader, "each", asked)
    moment = reader.moment()
    assert children.of_fuse(("mnt:[1]", 5)) == ("mnt:[1]", 5, mountinfo.split("\n")[1])
    assert moment.connections[0].daemon == 900
    assert looked == [900, 500]
    assert moment.notes == ("only 2 of 3 threads were examined",)
    assert moment.hidden == (501,) and moment.partial


def test_paths_and_descriptors_of_system_calls(tmp_path: Path) -> None:
    """Two slashes before a path; a descriptor without a path (glibc's fstat); sets of
    descriptors."""
    (tmp_path / "file").touch()
    strings = [ctypes.create_string_buffer(text) for text in (b"//mnt//a/../b", b"", b"x")]
    two, empty, name = map(ctypes.addressof, strings)
    pid = os.getpid()
    task = Task(pid, threading.get_native_id(), "x", "S")

    def about(call: str, *values: int) -> arguments.Details:
        (number,) = (n for n, c in syscalls._CALLS["x86_64"].items() if c.name == call)
        known = syscalls.call("x86_64", number)
        assert known is not None
        padded = [*values, 0, 0, 0, 0, 0, 0]
        return arguments.details(task, known, padded[:6], (pid,), ())

    def paths(call: str, *values: int) -> list[str]:
        return [place["path"] for place in about(call, *values)["places"]]

    with (tmp_path / "file").open("rb") as file, socket.socket() as other:
        fd, here = file.fileno(), (1 << 64) - 100
        assert paths("openat", here, two) == paths("stat", two) == ["/mnt/b"]
        assert paths("newfstatat", fd, empty) == paths("statx", fd, 0) == [f"{tmp_path}/file"]
        assert paths("newfstatat", here, empty) == []
        assert paths("fanotify_mark", 0, 0, 0, fd, name) == [f"{tmp_path}/file/x"]
        for place in (1, 2):
            number = other.fileno()
            words = number // 64 + 1
            bits = (ctypes.c_uint64 * words)(*[0] * (words - 1), 1 << number % 64)
            sets = [0, 0, 0]
            sets[place - 1] = ctypes.addressof(bits)
            assert [n for n, *_ in about("select", number + 1, *sets)["descriptors"]] == [number]


def test_a_mapped_file_on_an_overlay_of_a_fuse_mount_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = machine._Reader(30)
    reader.host, reader.fuse = Table(MOUNTINFO), {40, 41, 42}
    hangs = reader._hangs(500)
    assert hangs(41, "/anywhere")
    assert hangs(51, "/ov/lib/libc.so.6")
    assert not hangs((254 << 20) + 1, "/usr/lib/libc.so.6")
    opened: list[str] = []

    def refuse(name: str) -> int:
        opened.append(name)
        raise OSError

    monkeypatch.setattr(children, "open_regular", refuse)
    monkeypatch.setattr(children, "drop_privileges", lambda: None)
    task = Task(os.getpid(), threading.get_native_id(), "x", "S", sp=8)
    for may_hang in (True, False):
        children.user_stacks(os.getpid(), [task], lambda *_, value=may_hang: value, [])
        assert bool(opened) is not may_hang


def test_rows_of_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may bind a path with newlines and blanks."""
    rows = (
        "ffff8881: 00000002 00000000 00010000 0001 01 12345 /run/my server\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 12346\n"
        "ffff8882: 00000003 00000000 00000000 0001 03     7 @/tmp/.X11\n"
        "ffff8883: 00000003 00000000 00000000 0001 03 12348 /tmp/a\n"
        "b c d zz e f 12349 /run/false\n"
    )
    monkeypatch.setattr(sockets, "lines", lambda *_: rows.splitlines(keepends=True))
    assert list(sockets._unix("/proc/1")) == [
        (12345, True, "/run/my server"),
        (12346, False, ""),
        (7, False, "@/tmp/.X11"),
        (12348, False, "/tmp/a"),
    ]


@pytest.mark.parametrize("answer", ["the kernel", "an error", "no netlink"])
def test_the_other_end_of_a_unix_socket(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Or that the kernel does not report it: without unix_diag it answers with an error."""
    ours, other = socket.socketpair()
    inode, peer = (os.fstat(end.fileno()).st_ino for end in (ours, other))
    if answer == "the kernel" and not sockets._unix_ends():
        pytest.skip("this kernel does not tell the other ends of unix sockets")
    if answer == "an error":
        monkeypatch.setattr(sockets, "_SOCK_DIAG_BY_FAMILY", 0x7FFF)
    elif answer == "no netlink":
        monkeypatch.setattr(sockets, "_NETLINK_SOCK_DIAG", 99)
    ((found, fields, others),), why = sockets.read("/proc/self", True, {inode: ""})
    assert (found, fields[0]) == (inode, "unix")
    if answer == "the kernel":
        assert (others, why) == ([peer], "")
    else:
        assert (others, why) == ([], "the kernel does not tell; fix: modprobe unix_diag")
    ours.close()
    other.close()


def test_sockets_that_listen(tmp_path: Path) -> None:
    """Descriptors of both kinds: a thread that waits only for them waits for no other process."""
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp:
        unix.bind(str(tmp_path / "socket"))
        tcp.bind(("127.0.0.1", 0))
        wanted = {os.fstat(it.fileno()).st_ino: "" for it in (unix, tcp)}
        states = []
        for _ in range(2):
            rows, _ = sockets.read("/proc/self", True, wanted)
            states.append({fields[0]: fields[2] for _, fields, _ in rows})
            unix.listen()
            tcp.listen()
    assert states[0].get("unix") == "" and states[0].get("tcp") != "LISTEN"
    assert states[1] == {"unix": "LISTEN", "tcp": "LISTEN"}


def test_a_thread_of_this_host_through_a_child() -> None:
    """A thread that waits for a socket: its call, its descriptor, the time."""
    if os.geteuid() != 0 or os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("only root sees system calls")
    ours, other = socket.socketpair()
    waiter = threading.Thread(target=ours.recv, args=[1])
    begin = time.monotonic()
    waiter.start()
    try:
        pid, tid = os.getpid(), waiter.native_id or 0
        call = Path(f"/proc/self/task/{tid}/syscall")
        wait_until(
            lambda: not call.exists() or f" {ours.fileno():#x} " in call.read_text(), "the call"
        )
        time.sleep(0.3)
        reader = machine._Reader(30)
        (row,) = children.process(pid)
        assert tid in census.Census(reader, [pid]).rows[pid]["threads"]
        reader.views[pid] = machine._View(row["mnt"], row["root"])
        (found,) = reader._tasks([(pid, tid)], {pid: Process(pid, 1, "x", "S", threads=(tid,))})
    finally:
        other.send(b"x")
        waiter.join()
    if not found.call:
        pytest.skip("this kernel shows no system calls")
    assert (found.state, found.call) == ("S", "recvfrom")
    assert [fd.number for fd in found.descriptors] == [ours.fileno()]
    assert [fd.socket and fd.socket.protocol for fd in found.descriptors] == ["unix"]
    if found.age is not None:
        assert 0.2 < found.age < 1.1 * (time.monotonic() - begin)
    ours.close()
    other.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pidfd_open(2) here")
def test_a_descriptor_that_polls_as_an_aborted_one() -> None:
    """A pipe without a reader shows the same error; the process itself keeps its descriptors."""
    reader, writer = os.pipe()
    own = os.getpid()
    before = sorted(os.listdir("/proc/self/fd"))
    assert children.aborted((writer, own)) == []
    os.close(reader)
    assert children.aborted((writer, own)) == [own]
    assert children.aborted((writer + 1000, own)) == []
    os.close(writer)
    assert len(os.listdir("/proc/self/fd")) == len(before) - 2


def test_when_a_process_began() -> None:
    """More precise than the 10 ms of /proc."""
    if os.geteuid() != 0:
        pytest.skip("only root may ask")
    before = time.monotonic()
    child = subprocess.Popen(["sleep", "60"])
    after = time.monotonic()
    try:
        found = dict(taskstats.began([child.pid]))
        if not found:
            pytest.skip("no taskstats here")
        assert before - 0.005 <= found[child.pid] <= after + 0.005
        assert taskstats.began([1 << 22]) == []
    finally:
        child.kill()
        child.wait()


def test_for_how_long_a_connection_was_silent() -> None:
    """Since the last byte that it sent, and the last one that it received."""
    with socket.socket() as listener, socket.socket() as one:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        one.connect(listener.getsockname())
        other, _ = listener.accept()
        with other:
            inodes = [os.fstat(end.fileno()).st_ino for end in (one, other)]
            time.sleep(0.3)
            other.send(b"x")
            sent = time.monotonic()
            time.sleep(0.2)
            found = {
                inode: (sent, received)
                for inode, sent, received in sockets.silence("/proc/self", True, inodes)
            }
    (_, received), (last, heard) = (found[inode] for inode in inodes)
    assert all(sent - 0.05 <= at <= sent + 0.05 for at in (received, last))
    assert heard <= sent - 0.25  # it has received nothing


def test_a_thread_that_polls_all_the_time_is_seen_in_its_poll() -> None:
    """However often it is awake at a look."""
    code = "import select\np = select.poll()\np.register(0, 1)\nprint(flush=True)\n"
    code += "while 1:\n p.poll(1)\n sum(range(20000))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as polls:
        try:
            assert polls.stdout
            polls.stdout.readline()
            for _ in range(20):
                _, _, row = children.task_asleep((polls.pid, polls.pid))
                assert row and row["state"] == "S" and row["syscall"][0] in (7, 271)
        finally:
            polls.kill()


def test_looks_at_a_thread_last_longer_while_it_waits_for_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end also if it never sleeps."""
    awake, looks = 0.01, 0
    begin = time.monotonic()

    def task(item: tuple[int, int]) -> tuple[int, int, dict[str, object]]:
        nonlocal looks
        looks += 1
        asleep = time.monotonic() > begin + 2 * awake
        return (*item, {"state": "S" if asleep else "R", "syscall": [7 if asleep else None]})

    monkeypatch.setattr(children, "AWAKE", awake)
    monkeypatch.setattr(children, "task", task)
    monkeypatch.setattr(children, "waited_for_cpu", lambda tid: time.monotonic() - begin)
    *_, row = children.task_asleep((1, 2))
    assert row and row["state"] == "S" and looks > 2
    monkeypatch.setattr(children, "waited_for_cpu", lambda tid: 0.0)
    begin += 3600  # it never sleeps
    *_, row = children.task_asleep((1, 2))
    assert row and row["state"] == "R"


def test_the_mount_that_a_system_call_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is that of the option fd; other uses of mount(2) make none."""
    shown = {"/proc/1/task/1/fdinfo/12": "pos:\t0\nfuse_connection:\t57\n"}
    monkeypatch.setattr(arguments, "text", lambda name: shown.get(name, ""))
    texts = {1: "x", 2: "fuse.x", 3: "fd=12,user_id=0", 4: "rootmode=40000,fd=13", 5: "bfd=12"}
    monkeypatch.setattr(arguments, "_string", lambda memory, at: texts[at])

    def made(data: int, flags: int = 0) -> object:
        values = [1, 9, 2, flags, data, 0]
        return arguments._mounts(None, "/proc/1/task/1", "mount", values)  # type: ignore[arg-type]

    assert made(3) == {"fstype": "fuse.x", "source": "x", "connection": 57}
    for data in (4, 5, 0):
        row = made(data)
        assert isinstance(row, dict) and row["connection"] is None
    for flags in (0x20, 0x1000, 0x2000, 1 << 18):  # remount, bind, move, private
        assert made(3, flags) is None
    none = {"fstype": "", "source": "", "connection": None}
    create = arguments._mounts(None, "", "fsconfig", [4, 6, 0, 0, 0, 0])  # type: ignore[arg-type]
    assert create == none
    assert arguments._mounts(None, "", "fsconfig", [4, 1, 0, 0, 0, 0]) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "values", "locks"),
    [
        ("flock", [3, 2], True),
        ("flock", [3, 1], True),
        ("flock", [3, 2 | 4], False),
        ("flock", [3, 8], False),
        ("fcntl", [3, 7], True),
        ("fcntl", [3, 38], True),
        ("fcntl", [3, 6], False),
        ("read", [3, 2], False),
    ],
)
def test_system_calls_that_wait_for_file_locks(call: str, values: list[int], locks: bool) -> None:
    assert arguments._locks(call, values) is locks
