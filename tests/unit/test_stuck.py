"""What is stuck, from facts: who waits for whom, and what is said of it."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusetools.host.mounts import parse_autofs
from fusetools.now import bounded, children, sockets, syscalls
from fusetools.now.moment import (
    RING,
    Connection,
    Descriptor,
    Lock,
    Moment,
    Process,
    Socket,
    Task,
)
from fusetools.now.stuck import stuck
from fusetools.render.json.answer import render as to_json
from fusetools.render.text.stuck import render
from fusetools.results.stuck import Cause

MOUNT = Connection(40, "/mnt/a", "fuse.sshfs", "host:", waiting=2, daemon=100, holders=(100,))
DAEMON = Process(100, 1, "sshfs", "S", uid=0, user="root", threads=(100, 101, 102))
CALLER = Process(500, 1, "ls", "D", uid=1000, user="ann", threads=(500,))
WAITS = ("request_wait_answer", "fuse_simple_request", "fuse_lookup", "vfs_statx")


def caller(tid: int = 500, path: str = "/mnt/a/x", age: float = 300.0, **more: object) -> Task:
    return Task(tid, tid, "ls", "D", WAITS[0], WAITS, "statx", age, path=path, **more)  # type: ignore[arg-type]


def thread(tid: int, age: float = 299.0, state: str = "S", **more: object) -> Task:
    return Task(100, tid, "sshfs", state, age=age, **more)  # type: ignore[arg-type]


def reader(tid: int) -> Task:
    return thread(tid, 10.0, stack=("fuse_dev_do_read", "fuse_dev_read"), call="read")


def moment(
    *tasks: Task,
    connections: tuple[Connection, ...] = (MOUNT,),
    processes: tuple[Process, ...] = (DAEMON, CALLER),
    **more: Any,
) -> Moment:
    return Moment("6.1", connections, processes, tasks, **more)


def causes(*tasks: Task, **more: Any) -> tuple[Cause, ...]:
    (mount, *_) = stuck(moment(*tasks, **more)).mounts
    return mount.causes


def test_nobody_waits() -> None:
    result = stuck(moment(reader(101)))
    assert not result.stuck
    assert result.mounts[0].state == "busy"  # two requests are in flight
    assert "busy, not stuck: 2 requests in flight" in render(result)


def test_who_waits_for_a_short_time_is_not_stuck() -> None:
    result = stuck(moment(caller(age=0.9), reader(101)))
    assert not result.stuck
    assert stuck(moment(caller(age=1.0), reader(101))).stuck


def in_ring(tid: int, link: str, age: float = 10.0, wchan: str = "io_cqring_wait") -> Task:
    descriptors = (Descriptor(4, link),)
    return thread(tid, age, wchan=wchan, call="io_uring_enter", descriptors=descriptors)


def test_a_thread_that_waits_for_its_ring_is_no_cause() -> None:
    """Whether its ring is known to bring requests (/dev/fuse is registered with it), or may."""
    sleeps = thread(101, 299.0, call="clock_nanosleep")
    for link, waits in (
        ("/dev/fuse", "waits for its next request"),
        (RING, "waits in io_uring_enter for its next request, or for something else"),
    ):
        result = stuck(moment(caller(), sleeps, in_ring(102, link)))
        assert [cause.kind for cause in result.mounts[0].causes] == ["sleep"]
        assert "thread 101" in result.mounts[0].causes[0].text
        assert [blocked.waits for blocked in result.mounts[0].threads][1] == waits
    # In the midst of an answer, as of a write.
    (cause, *_) = causes(caller(), in_ring(102, "/dev/fuse", 299.0, "fuse_dev_queue_req"))
    assert "thread 102" in cause.text


def test_nobody_knows_who_should_answer_where_all_wait_for_rings() -> None:
    (sure,) = causes(caller(), in_ring(101, "/dev/fuse"))
    assert sure.kind == "unanswered" and "and waits for more:" in sure.text
    (unsure,) = causes(caller(), in_ring(101, RING))
    assert unsure.kind == "unanswered"
    assert "waits in io_uring_enter for more, or for something else:" in unsure.text


def test_the_files_of_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    info = "SqMask:\t0xf\nUserFiles:\t{}\n{}UserBufs:\t0\nPollList:\n  op=6, task_works=0\n"
    with_fuse = info.format(1, "    0: /dev/fuse\n")
    infos = {"11": with_fuse, "12": with_fuse, "13": info.format(0, "")}
    links = {"0": "/dev/null", "11": RING, "12": RING}
    monkeypatch.setattr(children, "text", lambda name: infos[name.rpartition("/")[2]])
    monkeypatch.setattr(children, "names", lambda name: list(links))
    monkeypatch.setattr(children, "link", lambda name: links[name.rpartition("/")[2]])
    ring = children._of_ring
    assert ring(100, [11], 1) == [(11, "/dev/fuse")]
    assert ring(100, [13], 1) == [(-1, RING)]
    # Descriptor 0 is none of the ring's: it is its place in a table of the thread.
    assert ring(100, [0], 17) == [(11, "/dev/fuse")]
    infos["12"] = info.format(1, "    0: /var/lib/data\n")
    assert ring(100, [0], 17) == [(-1, RING)]


FENCE = ("__select", "SafeSleepMs(unsigned int)", "loader::stub_lookup(fuse_req*, unsigned long)")


def test_a_pause_for_a_reload() -> None:
    """Threads at the loader's fence; not those that sleep so elsewhere."""
    waits = [thread(tid, 0.05, call="select", user=FENCE) for tid in (101, 102)]
    (cause, *_) = causes(caller(), *waits)
    assert cause.kind == "reload" and "sshfs is being reloaded" in cause.text
    assert cause.chain[-1] == "2 of 2 threads of sshfs end there"
    inside = ("__select", "SafeSleepMs(unsigned int)", "cvmfs::cvmfs_lookup", *FENCE[2:])
    (cause, *_) = causes(caller(), thread(101, 0.05, call="select", user=inside))
    assert cause.kind != "reload"


AUTO = Connection(41, "/cvmfs", "autofs", "autofs", daemon=7, holders=(7,))
AUTOMOUNT = Process(7, 1, "automount", "S", uid=0, user="root", threads=(7, 8))


def in_autofs(tid: int = 600, path: str = "/cvmfs/sft.cern.ch", age: float = 60.0) -> Task:
    stack = ("autofs_wait", "autofs_mount_wait", "lookup_fast")
    return Task(tid, tid, "ls", "S", "autofs_wait", stack, "openat", age, path=path)


def test_autofs_waits_for_its_daemon() -> None:
    """Not for the FUSE mount that is to come, nor for one that lies below."""
    below = Connection(42, "/cvmfs/sft.cern.ch", "fuse", "cvmfs2", daemon=100, holders=(100,))
    everybody = (DAEMON, AUTOMOUNT, Process(600, 1, "ls", "S", threads=(600,)))
    helper = Process(9, 7, "mount.cvmfs", "S", threads=(9,))
    waits = Task(7, 8, "automount", "S", call="wait4", age=59.0, children=(9,))
    hangs = Task(9, 9, "mount.cvmfs", "S", call="clock_nanosleep", age=58.0)
    result = stuck(
        moment(
            in_autofs(),
            waits,
            hangs,
            connections=(AUTO, below),
            processes=(*everybody, helper),
        )
    )
    auto, fuse = result.mounts
    assert (auto.state, fuse.state) == ("stuck", "quiet")
    (cause,) = auto.causes
    assert (cause.kind, cause.fixes) == ("autofs", ())
    assert cause.text == (
        "autofs waits for its daemon to mount /cvmfs/sft.cern.ch: automount waits for mount.cvmfs "
        "(pid 9), which sleeps in clock_nanosleep, for 58 s"
    )
    text = " ".join(render(result).split())
    assert "/cvmfs (autofs, automount, pid 7): STUCK: 1 caller blocked, the oldest for 60 s" in text


def test_autofs_of_which_nothing_is_known() -> None:
    gone = replace(AUTO, daemon=None, holders=(), why="process 7, which mounted it, has ended")
    (mount,) = stuck(moment(in_autofs(), connections=(gone,), processes=())).mounts
    assert mount.causes[0].text.endswith(
        "no process is known that answers /cvmfs: process 7, which mounted it, has ended"
    )
    silent = stuck(moment(in_autofs(), connections=(AUTO,), processes=(AUTOMOUNT,))).mounts[0]
    assert silent.causes[0].text.endswith(
        "which of the threads of automount should mount it cannot be known"
    )


def test_autofs_for_which_nobody_waits_is_none_of_the_mounts() -> None:
    result = stuck(moment(connections=(AUTO, MOUNT), processes=(AUTOMOUNT, DAEMON)))
    assert [mount.path for mount in result.mounts] == ["/mnt/a"]
    short = stuck(moment(in_autofs(age=0.1), connections=(AUTO,), processes=(AUTOMOUNT,)))
    assert not short.stuck and short.mounts[0].state == "busy"


def test_autofs_in_mountinfo() -> None:
    line = (
        "65 44 0:39 / /cvm\\040fs rw,relatime shared:1 - autofs /etc/auto.cvmfs rw,fd=4,pgrp=7,t=0"
    )
    assert parse_autofs(line) == [(39, "/cvm fs", 7)]
    for bad in ("", "x", line.replace("pgrp=7", "pgrp=x"), line.replace("autofs", "ext4", 1)):
        assert parse_autofs(bad) == []


def test_an_age_that_is_not_known_counts() -> None:
    assert stuck(moment(caller(age=None), reader(101))).stuck  # type: ignore[arg-type]


def test_all_threads_wait_for_a_lock_whose_holder_waits_for_a_server() -> None:
    peer = Socket("tcp", "10.0.0.1:3128", "SYN-SENT", send_queue=1)
    holder = thread(102, 312.0, call="connect", descriptors=(Descriptor(7, "socket:[9]", peer),))
    waits = [
        thread(tid, 200.0, call="futex", lock=Lock("mutex", 0x1000, 102)) for tid in (101, 103, 104)
    ]
    (cause, *_) = causes(caller(age=320.0), holder, *waits)
    assert cause.kind == "lock"
    assert cause.text == (
        "a mutex is held by sshfs (thread 102), which waits in connect for 10.0.0.1:3128 (tcp, "
        "SYN-SENT, 1 bytes not acknowledged), for 312 s"
    )
    assert cause.chain[-1] == "4 of 4 threads of sshfs end there"


def test_a_thread_that_waits_for_longer_than_any_caller_is_no_cause() -> None:
    """The main thread sleeps since the mount."""
    main = thread(100, 9999.0, call="futex")
    found = causes(caller(), main, reader(101))
    assert [cause.kind for cause in found] == ["unanswered"]


def test_whose_answer_ends_a_condition() -> None:
    """Not only what began after the call: who hands out a server's answers always waits for one."""
    server = Process(300, 100, "sftp-server", "T", threads=(300,))
    pipe = Descriptor(3, "pipe:[7]", other=(300,))
    waits = thread(102, call="futex")
    answers = thread(101, 5000.0, call="read", descriptors=(pipe,))
    everybody = (DAEMON, CALLER, server)
    first, second = causes(caller(), waits, answers, reader(100), processes=everybody)
    assert first.kind == "process" and second.kind == "condition"
    assert first.text == "sftp-server (pid 300), which sshfs waits for, is stopped (SIGSTOP)"
    assert [fix.command for fix in first.fixes] == ["kill -CONT 300"]

    everybody = (DAEMON, CALLER, replace(server, state="S"))
    (cause,) = causes(caller(), waits, answers, reader(100), processes=everybody)
    assert cause.kind == "condition"
    assert cause.chain[-1] == (
        "what ends it may come from one of: sshfs (thread 101) waits in read for a pipe of "
        "sftp-server (pid 300) (83 min)"
    )

    # A server that acknowledges nothing; one that only might not answer.
    for bytes_, kind in ((52, "socket"), (0, "condition")):
        tcp = Socket("tcp", "10.0.0.7:22", "established", send_queue=bytes_)
        answers = thread(101, 5000.0, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
        (cause, *_) = causes(caller(), waits, answers, reader(100))
        assert cause.kind == kind and "10.0.0.7:22" in cause.text + "".join(cause.chain)

    # A thread that itself waits for a server, since the call, is what it is.
    waits = thread(102, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
    answers = thread(101, 5000.0, call="read", descriptors=(pipe,))
    (cause,) = causes(caller(), waits, answers, reader(100), processes=(DAEMON, CALLER, server))
    assert cause.kind == "socket"


def test_clocks_that_differ_hide_no_cause() -> None:
    """A hypervisor took the caller's CPU for a while: the thread seems to wait for longer. It is
    asked when nobody else can be the cause."""
    peer = Socket("tcp", "10.0.0.1:3128", "SYN-SENT", send_queue=1)

    def connects(tid: int, age: float) -> Task:
        return thread(tid, age, call="connect", descriptors=(Descriptor(7, "socket:[9]", peer),))

    asks = caller(age=300.0)
    for age, known in ((299.0, True), (301.0, True), (330.0, False)):
        (cause, *_) = causes(asks, connects(102, age), reader(101))
        assert ("thread 102" in " ".join((cause.text, *cause.chain))) == known
    (cause, *_) = causes(asks, connects(102, 301.0), connects(103, 299.0), reader(101))
    assert "thread 103" in " ".join((cause.text, *cause.chain))


def test_a_deadlock_is_one_cause_from_whichever_thread() -> None:
    one = thread(101, call="futex", lock=Lock("mutex", 1, 102))
    two = thread(102, call="futex", lock=Lock("mutex", 2, 101))
    behind = thread(103, call="futex", lock=Lock("mutex", 1, 101))
    found = [c for c in causes(caller(), one, two, behind) if c.kind == "deadlock"]
    assert [c.text for c in found] == [
        "deadlock: the threads 101, 102 of sshfs wait for each other"
    ]


def test_its_own_mount() -> None:
    own = thread(101, stack=WAITS, call="stat", path="/mnt/a/b")
    (cause, *_) = causes(caller(), own, reader(102))
    assert cause.kind == "own_mount"
    assert (
        "sshfs waits for its own mount: sshfs (thread 101) waits in stat for /mnt/a/b" in cause.text
    )


def test_another_mount_is_followed() -> None:
    other = Connection(41, "/mnt/b", "fuse", "b", waiting=1, daemon=200, holders=(200,))
    stopped = Process(200, 1, "slowfs", "T", threads=(200,))
    waits = thread(101, stack=WAITS, call="stat", path="/mnt/b/y")
    found = causes(caller(), waits, connections=(MOUNT, other), processes=(DAEMON, CALLER, stopped))
    assert found[0].kind == "process"
    assert found[0].text == "slowfs (pid 200), which sshfs waits for, is stopped (SIGSTOP)"
    assert found[0].fixes == (("kill -CONT 200", "lets slowfs run again"),)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"state": "T"}, "stopped", "is stopped (SIGSTOP)"),
        ({"state": "t", "tracer": 7}, "traced", "stopped by its tracer, pid 7"),
        ({"state": "Z"}, "gone", "a zombie"),
        ({"frozen": "/sys/fs/cgroup/x"}, "frozen", "frozen by the cgroup /sys/fs/cgroup/x"),
    ],
)
def test_a_daemon_that_cannot_run(change: dict[str, object], kind: str, text: str) -> None:
    daemon = Process(**{**DAEMON.__dict__, **change})
    (cause,) = causes(caller(), processes=(daemon, CALLER))
    assert cause.kind == kind
    assert text in cause.text


def test_nobody_answers() -> None:
    gone = Connection(40, "/mnt/a", "fuse", "x", waiting=1, why="no process has it open")
    (cause,) = causes(caller(), connections=(gone,), processes=(CALLER,))
    assert cause.kind == "gone"
    assert "no process has it open" in cause.text


def test_a_full_background_list_and_a_device_that_nobody_reads() -> None:
    names = ("fuse_get_req", "fuse_readahead")
    waits = Task(500, 500, "cat", "D", names[0], names, "read", 9.0, path="/mnt/a/f")
    busy = thread(101, 8.0, call="clock_nanosleep")
    kinds = [cause.kind for cause in causes(waits, busy)]
    assert kinds == ["sleep", "background", "unread"]


def test_a_notification_against_a_lock_of_a_caller() -> None:
    notify = (
        "rwsem_down_write_slowpath",
        "fuse_reverse_inval_entry",
        "fuse_notify",
        "fuse_dev_do_write",
    )
    found = causes(caller(), thread(101, stack=notify, call="write"), reader(102))
    assert found[0].kind == "invalidation"


def test_memory_of_the_cgroup() -> None:
    daemon = Process(**{**DAEMON.__dict__, "memory": "/sys/fs/cgroup/job"})
    waits = thread(101, state="D", stack=("mem_cgroup_handle_over_high", "x"))
    (cause, *_) = causes(caller(), waits, processes=(daemon, CALLER))
    assert (cause.kind, "/sys/fs/cgroup/job is full" in cause.text) == ("memory", True)


def test_a_caller_of_a_path_that_is_not_known() -> None:
    """It is that of the one mount that somebody waits for; of two nobody can know."""
    other = Connection(41, "/mnt/b", "fuse", "b", waiting=1, daemon=200, holders=(200,))
    assert stuck(moment(caller(path=""), reader(101))).mounts[0].callers
    result = stuck(moment(caller(path=""), reader(101), connections=(MOUNT, other)))
    assert [task.tid for task in result.unplaced] == [500]
    assert "cannot be known" in render(result)


def test_a_mount_in_a_mount() -> None:
    inner = Connection(41, "/mnt/a/in", "fuse", "b", waiting=1, daemon=200, holders=(200,))
    result = stuck(moment(caller(path="/mnt/a/in/x"), connections=(MOUNT, inner)))
    assert [len(mount.callers) for mount in result.mounts] == [0, 1]


def test_hostile_names_do_not_reach_the_terminal() -> None:
    text = render(stuck(moment(caller(path="/mnt/a/\x1b[31m\n"), reader(101))))
    assert "\x1b" not in text


def test_it_is_one_line_of_json() -> None:
    peer = Descriptor(3, "socket:[1]", Socket("unix", "/run/x", other=(7,)))
    before = moment(caller(descriptors=(peer,)), thread(101, lock=Lock("mutex", 1, 2)))
    value = json.loads(to_json("stuck", stuck(before)))
    assert value["stuck"] is True
    assert "\n" not in to_json("stuck", stuck(before), compact=True).rstrip("\n")


# How it is read


def test_who_does_not_answer_in_time_is_left_out() -> None:
    def answer(item: int) -> int:
        if item == 2:
            time.sleep(60)
        return item * 10

    found = list(bounded.each([1, 2, 3], answer, 0.3, bounded.Limit(30)))
    assert found == [(1, 10), (2, None), (3, 30)]


def test_who_only_lacks_a_cpu_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not all of it: what others have made may keep a child busy for ever."""

    def answer(item: int) -> int:
        end = time.monotonic() + (60 if item == 2 else 0.6)
        while time.monotonic() < end:
            pass
        return item * 10

    monkeypatch.setattr(bounded, "BUSY", 10)
    found = list(bounded.each([1, 2, 3], answer, 0.3, bounded.Limit(30)))
    assert found == [(1, 10), (2, None), (3, 30)]


def test_who_dies_is_left_out() -> None:
    def answer(item: int) -> int:
        if item == 2:
            os._exit(1)
        return item

    assert list(bounded.each([1, 2, 3], answer, 5, bounded.Limit(30))) == [
        (1, 1),
        (2, None),
        (3, 3),
    ]


def test_nobody_is_asked_when_the_time_is_over() -> None:
    assert list(bounded.each([1, 2], lambda item: item, 5, bounded.Limit(-1))) == [
        (1, None),
        (2, None),
    ]


def test_a_limit_does_not_count_what_was_waited_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {"self": 5.0, 7: 0.0, 8: 0.25}
    monkeypatch.setattr(bounded, "_waited_for_cpu", waited.get)
    limit = bounded.Limit(2)
    assert limit.end() == limit.begin + 2
    waited["self"] = 5.5
    assert limit.end() == limit.begin + 2.5
    assert limit.end(8) == limit.begin + 2.75
    limit.ends(8)
    assert limit.end(7) == limit.end() == limit.begin + 2.75
    waited[7] = 1000  # but it ends
    assert limit.end(7) == limit.begin + 2 * bounded.BUSY


def test_what_a_process_waited_for_a_cpu_is_known() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not account for waits for a CPU (CONFIG_SCHED_INFO)")
    spin = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        # Each waits while the other runs: that comes without end.
        while any(bounded._waited_for_cpu(one.pid) < 0.05 for one in spinning):
            time.sleep(0.01)
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def _memory() -> int:
    return os.open("/proc/self/mem", os.O_RDONLY)


def _at(words: list[int]) -> tuple[ctypes.Array[ctypes.c_uint32], int]:
    """Words between zeros, and the address of the first."""
    array = (ctypes.c_uint32 * 64)(*([0] * 16), *words)
    return array, ctypes.addressof(array) + 64


OTHER = 4242


@pytest.mark.parametrize(
    ("words", "place", "operation", "kind"),
    [
        # glibc's mutex: __lock, __count, __owner, __nusers, __kind
        ([2, 0, OTHER, 1, 0], 0, 128, "mutex"),
        ([2, 1, OTHER, 1, 1], 0, 128, "mutex"),  # recursive
        # glibc's rwlock, waited for by readers and by writers
        ([3, 0, 2, 0, 0, 0, OTHER, 0], 2, 0x189, "rwlock"),
        ([3, 1, 0, 3, 0, 0, OTHER, 0], 3, 0x189, "rwlock"),
        # musl's mutex, priority inheritance
        ([OTHER | 1 << 31], 0, 128, "mutex"),
        ([OTHER | 1 << 31], 0, 128 | 6, "mutex"),
        # A condition (48 bytes) before a mutex that somebody holds: its futexes are at 40 and 44.
        ([0] * 9 + [16, 1, 0, 1, 0, OTHER, 1, 0], 10, 0x189, None),
        ([0] * 9 + [16, 1, 1, 1, 0, OTHER, 1, 0], 11, 0x189, None),
        # A semaphore, an owner that is no thread of the process
        ([0, 1, 0, 0], 0, 0x189, None),
        ([2, 0, 77, 1, 0], 0, 128, None),
    ],
)
def test_who_holds_a_lock(words: list[int], place: int, operation: int, kind: str | None) -> None:
    array, address = _at(words)
    memory = _memory()
    try:
        found = children._lock(memory, 1, [address + 4 * place, operation], (1, OTHER))
    finally:
        os.close(memory)
    assert (found and (found["kind"], found["owner"])) == (kind and (kind, OTHER))
    del array


def test_strings_of_a_process() -> None:
    text = ctypes.create_string_buffer(b"/mnt/\xff\xfe/x")
    memory = _memory()
    try:
        assert children._string(memory, ctypes.addressof(text)) == "/mnt/\udcff\udcfe/x"
        assert children._string(memory, 8) is None
        endless = ctypes.create_string_buffer(b"x" * 20000)
        assert children._string(memory, ctypes.addressof(endless)) is None
    finally:
        os.close(memory)


def test_system_calls() -> None:
    openat = syscalls.call("x86_64", 257)
    assert openat == syscalls.Call("openat", ((0, 1),), ())
    assert syscalls.call("aarch64", 56) == openat
    assert syscalls.call("x86_64", 9999) is None
    assert syscalls.call("s390x", 5) is None


def test_addresses() -> None:
    assert sockets._address("0100007F:0C38") == "127.0.0.1:3128"
    assert sockets._address("00000000000000000000000001000000:0016") == "[::1]:22"
    mapped = "0000000000000000FFFF0000" + f"{struct.unpack('=I', bytes([10, 0, 0, 1]))[0]:08X}"
    assert sockets._address(mapped + ":0050") == "10.0.0.1:80"
    assert sockets._address("00000000:0000") == ""


def test_this_host_is_read() -> None:
    """A thread of this process that waits for a lock is looked at as one of a daemon would be."""
    end = threading.Event()
    sleeper = threading.Thread(target=end.wait)
    sleeper.start()
    try:
        (process,) = children.process(os.getpid())
        assert sleeper.native_id in [tid for tid, *_ in process["threads"]]
        _, tid, row = children.task((os.getpid(), sleeper.native_id or 0))
        assert tid == sleeper.native_id
        assert row is not None and row["state"] in ("S", "R")
    finally:
        end.set()
        sleeper.join()
