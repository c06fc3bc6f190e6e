"""The diagnosis of stuck mounts from facts: who waits for whom, and the reported causes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fusetools.host.mounts import BEYOND, covered, is_on, parse_autofs
from fusetools.reasons import Code
from fusetools.render.json.answer import render as to_json
from fusetools.render.text.stuck import render
from fusetools.results.stuck import Cause
from fusetools.stuck import children, machine
from fusetools.stuck.diagnosis import stuck
from fusetools.stuck.moment import (
    RING,
    Connection,
    Descriptor,
    Lock,
    Moment,
    Mounter,
    Mounting,
    Place,
    Process,
    Socket,
    Task,
)

MOUNT = Connection(40, "/mnt/a", "fuse.sshfs", "host:", waiting=2, daemon=100, holders=(100,))
DAEMON = Process(100, 1, "sshfs", "S", uid=0, user="root", threads=(100, 101, 102))
CALLER = Process(500, 1, "ls", "D", uid=1000, user="ann", threads=(500,))
WAITS = ("request_wait_answer", "fuse_simple_request", "fuse_lookup", "vfs_statx")


def caller(tid: int = 500, path: str = "/mnt/a/x", age: float = 300.0, **more: object) -> Task:
    places = {"places": (Place(path),) if path else ()}
    return Task(tid, tid, "ls", "D", WAITS[0], WAITS, "statx", age, **{**places, **more})  # type: ignore[arg-type]


def thread(tid: int, age: float = 299.0, state: str = "S", **more: object) -> Task:
    return Task(100, tid, "sshfs", state, age=age, **more)  # type: ignore[arg-type]


def test_an_unmount_waits_for_fuse_only_while_it_has_a_request() -> None:
    """One that ends its mount's super block is no caller of another mount."""
    ends = ("fuse_kill_sb_anon", "deactivate_locked_super", "cleanup_mnt", "do_syscall_64")
    rcu = Task(7, 7, "samplefs", "D", "", ("synchronize_rcu_expedited", *ends), "umount2", 0.0)
    asks = ("request_wait_answer", "fuse_simple_request", "fuse_send_destroy", *ends)
    assert not rcu.in_fuse
    assert replace(rcu, stack=asks).in_fuse


def reader(tid: int) -> Task:
    return thread(tid, 10.0, stack=("fuse_dev_do_read", "fuse_dev_read"), call="read")


def moment(
    *tasks: Task,
    connections: tuple[Connection, ...] = (MOUNT,),
    processes: tuple[Process, ...] = (DAEMON, CALLER),
    **more: Any,
) -> Moment:
    """Places without connections get those of their paths."""
    return Moment("6.1", connections, processes, tuple(map(placed(connections), tasks)), **more)


def placed(connections: tuple[Connection, ...]) -> Callable[[Task], Task]:
    def on(place: Place) -> Place:
        on = [c for c in connections if c.path and is_on(place.path, c.path)]
        on.sort(key=lambda connection: -len(connection.path))
        return place if place.on else replace(place, on=tuple(c.number for c in on))

    return lambda task: replace(task, places=tuple(map(on, task.places)))


def causes(*tasks: Task, **more: Any) -> tuple[Cause, ...]:
    (mount, *_) = stuck(moment(*tasks, **more)).mounts
    return mount.causes


def test_a_mount_without_callers_is_quiet() -> None:
    result = stuck(moment(reader(101)))
    assert not result.stuck
    assert result.mounts[0].state == "busy"  # two requests are in flight
    assert "busy, not stuck: 2 requests in flight" in render(result)


def test_short_waits_are_not_stuck() -> None:
    result = stuck(moment(caller(age=0.9), reader(101)))
    assert not result.stuck
    assert stuck(moment(caller(age=1.0), reader(101))).stuck


def test_callers_that_are_served_in_turn_are_not_stuck() -> None:
    """One thread, twenty callers: each waits for long. One that is passed over is stuck."""
    busy = thread(101, 0.1, call="clock_nanosleep")
    queue = [caller(500 + n, age=4.0 - 0.2 * n) for n in range(10)]
    served = frozenset({500, 501, 502})
    result = stuck(moment(*queue, busy, served=served))
    (mount,) = result.mounts
    assert (mount.state, mount.served, result.stuck) == ("busy", 3, False)
    assert (
        "slow, not stuck: 2 requests in flight; 3 callers that had waited for up to 4.0 s got "
        "their answers meanwhile, in turn" in " ".join(render(result).split())
    )
    overtaken = caller(600, "/mnt/a/x", age=4.5)
    assert not stuck(moment(*queue, overtaken, busy, served=served)).stuck
    dropped = caller(600, "/mnt/a/dropped", age=6.1)
    result = stuck(moment(*queue, dropped, busy, served=served))
    (mount,) = result.mounts
    assert (mount.state, mount.served) == ("stuck", 0)
    assert [cause.text.partition(":")[0] for cause in mount.causes] == [
        "sshfs answers later requests, and 1 request that it has read has waited for an answer for "
        "6.1 s"
    ]
    # One of two threads may work for it.
    two = stuck(moment(*queue, dropped, busy, replace(busy, tid=102), served=served))
    assert two.mounts[0].causes[0].kind == "sleep"
    # A stopped daemon is, whoever was served before.
    stopped = replace(DAEMON, state="T")
    busy = replace(busy, state="T")
    (mount,) = stuck(moment(*queue, busy, served=served, processes=(stopped, CALLER))).mounts
    assert mount.state == "stuck" and mount.causes[0].kind == "stopped"
    assert stuck(moment(*queue, busy)).stuck


def in_ring(tid: int, link: str, age: float = 10.0, wchan: str = "io_cqring_wait") -> Task:
    descriptors = (Descriptor(4, link),)
    return thread(tid, age, wchan=wchan, call="io_uring_enter", descriptors=descriptors)


def test_a_thread_that_waits_for_its_ring_is_no_cause() -> None:
    """The ring is known to bring requests (/dev/fuse is registered with it), or may bring them."""
    sleeps = thread(101, 299.0, call="clock_nanosleep")
    for link, waits in (
        ("/dev/fuse", "waits for its next request"),
        (RING, "waits in io_uring_enter for its next request, or for something else"),
    ):
        result = stuck(moment(caller(), sleeps, in_ring(102, link)))
        assert [cause.kind for cause in result.mounts[0].causes] == ["sleep"]
        assert "thread 101" in result.mounts[0].causes[0].text
        assert [blocked.waits for blocked in result.mounts[0].threads][1] == waits
    # In the middle of an answer, as in a write.
    (cause, *_) = causes(caller(), in_ring(102, "/dev/fuse", 299.0, "fuse_dev_queue_req"))
    assert "thread 102" in cause.text


def test_the_server_is_unknown_if_all_wait_for_rings() -> None:
    (sure,) = causes(caller(), in_ring(101, "/dev/fuse"))
    assert sure.reason.code is Code.HANG_UNANSWERED and "waits_in" not in sure.reason.subject
    (unsure,) = causes(caller(), in_ring(101, RING))
    assert unsure.reason.code is Code.HANG_UNANSWERED
    assert unsure.reason.subject["waits_in"] == "io_uring"


FENCE = ("__select", "SafeSleepMs(unsigned int)", "loader::stub_lookup(fuse_req*, unsigned long)")


def test_a_pause_for_a_reload() -> None:
    """Threads at the loader's fence; not threads that sleep elsewhere in the same way."""
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
    return Task(tid, tid, "ls", "S", "autofs_wait", stack, "openat", age, places=(Place(path),))


def test_autofs_waits_for_its_daemon() -> None:
    """Not for the FUSE mount that is being made, nor for one below."""
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


def test_mounts_below_others_on_their_paths() -> None:
    rows = (
        "1 0 0:9 / / rw - ext4 x rw",
        "30 1 0:40 / /a rw - fuse.x a rw",  # below a FUSE mount
        "31 30 0:41 / /a rw - fuse.x b rw",
        "32 1 0:42 / /c rw - fuse.x c rw",  # has a mount inside, not on it
        "33 32 0:43 / /c/d rw - fuse d rw",  # below a tmpfs
        "34 33 0:50 / /c/d rw - tmpfs t rw",
        "35 1 0:44 / /e rw - fuse e rw",  # below another, but elsewhere reachable
        "36 35 0:51 / /e rw - tmpfs t rw",
        "37 1 0:44 / /f rw - fuse e rw",
        "38",
    )
    assert covered("\n".join(rows)) == {40, 43}


def test_a_mount_below_another_is_told_apart() -> None:
    mounts = (replace(MOUNT, covered=below) for below in (True, False))
    said = [render(stuck(moment(connections=(mount,)))) for mount in mounts]
    assert "below another mount on this path" in said[0]
    assert "below another" not in said[1]


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


def test_a_lock_whose_holder_waits_for_a_program_on_this_host() -> None:
    """Nothing shows which of the program's threads should answer."""
    server = Process(300, 1, "proxy", "S", threads=(300, 301))
    peer = Socket("tcp", "127.0.0.1:3128", "ESTABLISHED", other=(300,))
    holder = thread(102, call="read", descriptors=(Descriptor(7, "socket:[9]", peer),))
    waits = thread(101, call="futex", lock=Lock("mutex", 0x1000, 102))
    (cause, *_) = causes(caller(), holder, waits, processes=(DAEMON, CALLER, server))
    assert cause.kind == "lock"
    assert cause.text == (
        "a mutex is held by sshfs (thread 102), which waits in read for 127.0.0.1:3128 of proxy "
        "(pid 300) (tcp, ESTABLISHED), for 299 s"
    )
    assert cause.chain[-1] == "2 of 2 threads of sshfs end there"


def test_a_thread_that_waits_for_longer_than_any_caller_is_no_cause() -> None:
    """The main thread has slept since the mount."""
    main = thread(100, 9999.0, call="futex")
    found = causes(caller(), main, reader(101))
    assert [cause.kind for cause in found] == ["unanswered"]


def test_stuck_names_the_thread_that_may_signal_a_condition() -> None:
    """Not only waits that began after the call: a thread that distributes a server's answers always
    waits for one."""
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

    # A server that acknowledges nothing is the cause; one that merely may not answer is not.
    for bytes_, kind in ((52, "socket"), (0, "condition")):
        tcp = Socket("tcp", "10.0.0.7:22", "established", send_queue=bytes_)
        answers = thread(101, 5000.0, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
        (cause, *_) = causes(caller(), waits, answers, reader(100))
        assert cause.kind == kind and "10.0.0.7:22" in cause.text + "".join(cause.chain)

    # The server has not answered since the call began, or nothing was sent to it since.
    for sent, heard, kind in ((299.0, 5000.0, "socket"), (290.0, 290.0, "condition")):
        tcp = Socket("tcp", "10.0.0.7:22", "established", silent=sent, unheard=heard)
        answers = thread(101, 5000.0, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
        (cause, *_) = causes(caller(), waits, answers, reader(100))
        assert cause.kind == kind
    tcp = Socket("tcp", "10.0.0.7:22", "established", silent=4000.0, unheard=5000.0)
    answers = thread(101, 5000.0, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
    assert causes(caller(), waits, answers, reader(100))[0].kind == "condition"

    # A thread that waits for a server since the call began is the cause.
    waits = thread(102, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
    answers = thread(101, 5000.0, call="read", descriptors=(pipe,))
    (cause,) = causes(caller(), waits, answers, reader(100), processes=(DAEMON, CALLER, server))
    assert cause.kind == "socket"


def test_a_thread_that_waits_for_connections_is_no_cause() -> None:
    """It polls again each second, so for less time than the caller waits."""
    listens = Descriptor(5, "socket:[8]", Socket("tcp", "", "LISTEN"))
    own = (Descriptor(6, "anon_inode:[eventfd]"), Descriptor(7, "pipe:[9]", own=True))
    accepts = thread(101, 0.8, call="poll", descriptors=(listens, *own))
    (cause,) = causes(caller(), accepts, thread(102, call="futex"), reader(100))
    assert cause.kind == "condition" and "thread 102" in cause.text
    assert [c.kind for c in causes(caller(), accepts, reader(100))] == ["unanswered"]
    # A thread that also waits for an answer, or for a process, is examined.
    peer = Descriptor(8, "socket:[9]", Socket("tcp", "10.0.0.1:3128", "ESTABLISHED"))
    child = Descriptor(9, "anon_inode:[pidfd]", other=(300,))
    for other in (peer, child):
        both = replace(accepts, descriptors=(listens, other))
        (cause, *_) = causes(caller(), both, reader(100))
        assert "thread 101" in cause.text


def test_a_stopped_server_is_surer_than_a_thread_that_sleeps() -> None:
    """MooseFS: some threads sleep for a second each, and workers wait for a condition.

    The thread that would signal it has waited for a server since before the call.
    """
    server = Process(300, 1, "mfsmaster", "T", threads=(300,))
    tcp = Socket("tcp", "127.0.0.1:9421", "ESTABLISHED", other=(300,))
    answers = thread(101, 310.0, call="poll", descriptors=(Descriptor(4, "socket:[8]", tcp),))
    sleeps, waits = thread(102, 0.3, call="clock_nanosleep"), thread(103, call="futex")
    everybody = (DAEMON, CALLER, server)
    found = causes(caller(), answers, sleeps, waits, reader(100), processes=everybody)
    assert [cause.kind for cause in found] == ["process", "sleep", "condition"]
    assert found[0].text == "mfsmaster (pid 300), which sshfs waits for, is stopped (SIGSTOP)"
    # It runs: possible signals are part of the condition's report.
    everybody = (DAEMON, CALLER, replace(server, state="S"))
    found = causes(caller(), answers, sleeps, waits, reader(100), processes=everybody)
    assert [cause.kind for cause in found] == ["sleep", "condition"]
    assert "may come from one of: sshfs (thread 101) waits in poll" in found[1].chain[-1]


def test_clocks_that_differ_hide_no_cause() -> None:
    """A hypervisor took the caller's CPU for a while: the thread seems to wait for longer.

    It is examined if no other thread can be the cause.
    """
    peer = Socket("tcp", "10.0.0.1:3128", "SYN-SENT", send_queue=1)

    def connects(tid: int, age: float) -> Task:
        return thread(tid, age, call="connect", descriptors=(Descriptor(7, "socket:[9]", peer),))

    asks = caller(age=300.0)
    for age, known in ((299.0, True), (301.0, True), (330.0, False)):
        (cause, *_) = causes(asks, connects(102, age), reader(101))
        assert ("thread 102" in " ".join((cause.text, *cause.chain))) == known
    (cause, *_) = causes(asks, connects(102, 301.0), connects(103, 299.0), reader(101))
    assert "thread 103" in " ".join((cause.text, *cause.chain))

    # It waits for a thread that began to wait later: both are on the same chain.
    joins = thread(102, 301.0, call="futex", lock=Lock("thread", 0x10, 103))
    (cause, *_) = causes(asks, joins, thread(103, 299.9, call="clock_nanosleep"), reader(101))
    assert cause.text.startswith("sshfs waits for the end of sshfs (thread 103), which sleeps")
    assert cause.chain[0].startswith("sshfs (thread 102) waits for the end of")


def test_a_deadlock_is_one_cause_from_whichever_thread() -> None:
    one = thread(101, call="futex", lock=Lock("mutex", 1, 102))
    two = thread(102, call="futex", lock=Lock("mutex", 2, 101))
    behind = thread(103, call="futex", lock=Lock("mutex", 1, 101))
    found = [c for c in causes(caller(), one, two, behind) if c.kind == "deadlock"]
    assert [c.text for c in found] == [
        "deadlock: the threads 101, 102 of sshfs wait for each other"
    ]


def test_its_own_mount() -> None:
    own = thread(101, stack=WAITS, call="stat", places=(Place("/mnt/a/b"),))
    (cause, *_) = causes(caller(), own, reader(102))
    assert cause.kind == "own_mount"
    assert (
        "sshfs waits for its own mount: sshfs (thread 101) waits in stat for /mnt/a/b" in cause.text
    )


def test_another_mount_is_followed() -> None:
    other = Connection(41, "/mnt/b", "fuse", "b", waiting=1, daemon=200, holders=(200,))
    stopped = Process(200, 1, "slowfs", "T", threads=(200,))
    waits = thread(101, stack=WAITS, call="stat", places=(Place("/mnt/b/y"),))
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
        ({"frozen": ("/sys/fs/cgroup/x",)}, "frozen", "frozen by the cgroup /sys/fs/cgroup/x"),
    ],
)
def test_a_daemon_that_cannot_run(change: dict[str, object], kind: str, text: str) -> None:
    daemon = Process(**{**DAEMON.__dict__, **change})
    (cause,) = causes(caller(), processes=(daemon, CALLER))
    assert cause.kind == kind
    assert text in cause.text


def test_stuck_reports_a_missing_daemon() -> None:
    gone = Connection(40, "/mnt/a", "fuse", "x", waiting=1, why="no process has it open")
    (cause,) = causes(caller(), connections=(gone,), processes=(CALLER,))
    assert cause.kind == "gone"
    assert "no process has it open" in cause.text
    (cause,) = causes(caller(), connections=(replace(gone, hidden=True),), processes=(CALLER,))
    assert cause.kind == "unknown"
    assert cause.text == "which process answers /mnt/a cannot be known: no process has it open"
    assert "abort" in cause.fixes[0].command
    beyond = replace(gone, why=BEYOND, fstype="virtiofs")  # fusectl does not list it
    (cause,) = causes(caller(), connections=(beyond,), processes=(CALLER,))
    assert cause.kind == "unanswered" and not cause.fixes
    assert cause.text == f"/mnt/a is not answered: {BEYOND}"


def test_a_full_background_list_and_a_device_that_nobody_reads() -> None:
    names = ("fuse_get_req", "fuse_readahead")
    waits = Task(500, 500, "cat", "D", names[0], names, "read", 9.0, places=(Place("/mnt/a/f"),))
    busy = thread(101, 8.0, call="clock_nanosleep")
    kinds = [cause.kind for cause in causes(waits, busy)]
    assert kinds == ["sleep", "background", "unread"]


def page(tid: int, age: float = 9.0) -> Task:
    """It waits for a page of a file, whose request is in the background."""
    names = ("folio_wait_bit_common", "filemap_get_pages", "filemap_read")
    return Task(tid, tid, "cat", "D", names[0], names, "read", age, places=(Place("/mnt/a/f"),))


def test_requests_that_the_background_list_holds_back() -> None:
    """Two exceeded the limit at the same moment: both wait for pages, and one request was not
    sent."""

    def found(*tasks: Task, waiting: int, most: int | None, **more: bool) -> list[object]:
        """Unsent requests, and whether all requests or only the sent ones were read."""
        of = replace(MOUNT, waiting=waiting, max_background=most)
        rows: list[object] = []
        for cause in causes(*tasks, reader(101), connections=(of,), **more):
            reason = cause.reason
            if reason.code is Code.HANG_BACKGROUND:
                assert reason.figures["most"] == most
                rows.append(reason.figures["requests"])
            else:
                assert reason.code is Code.HANG_UNANSWERED
                assert reason.figures["requests"] == waiting
                rows.append(reason.subject.get("part", "all"))
        return rows

    two = (page(500), page(501))
    assert found(*two, waiting=2, most=2) == ["all"]
    assert found(*two, waiting=2, most=None) == ["all"]
    assert found(*two, waiting=2, most=1) == [1, "sent"]
    assert found(*two, waiting=5, most=2) == [3, "sent"]
    # A caller that waits for an answer is not in the background; one without a visible stack may
    # be.
    assert found(*two, caller(502), waiting=3, most=2) == ["all"]
    hidden = replace(caller(502), stack=(), wchan="")
    assert found(*two, hidden, waiting=3, most=2) == ["all"]
    # In a container other callers may be hidden; without root, what they wait for is hidden.
    assert found(*two, waiting=2, most=1, pid_namespace=True) == ["sent"]
    assert found(*two, waiting=2, most=1, root=False) == ["sent"]
    first = replace(caller(), stack=("fuse_get_req", "__fuse_simple_request"))
    of = replace(MOUNT, waiting=1, max_background=1)
    codes = [cause.reason.code for cause in causes(first, reader(101), connections=(of,))]
    assert codes == [Code.HANG_NOT_READY, Code.HANG_UNANSWERED]
    # One came a moment ago: others may come and go, too.
    assert found(page(500), page(501, age=0.1), waiting=2, most=1) == ["sent"]


def test_callers_before_the_connection_is_ready() -> None:
    """They wait in the function where callers wait for room in the background list, which is
    empty."""
    busy = thread(101, 400.0, call="futex")
    for first, second in (("fuse_get_req", "__fuse_simple_request"), ("__fuse_get_req", "f")):
        cause, *_ = causes(replace(caller(), wchan=first, stack=(first, second)), busy)
        assert (cause.kind, "(FUSE_INIT)" in cause.text) == ("unanswered", True)
    kinds = [
        cause.kind for cause in causes(replace(caller(), stack=(), wchan="fuse_get_req"), busy)
    ]
    assert kinds == ["unread"]  # which of the two is unknown


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


@pytest.mark.parametrize(
    ("stack", "frozen"),
    [
        # Linux 6.18: openat with O_CREAT, write, and a page that becomes dirty, on ext4
        (("percpu_rwsem_wait", "mnt_want_write", "path_openat"), True),
        (("percpu_rwsem_wait", "__percpu_down_read", "vfs_write", "ksys_write"), True),
        (("percpu_rwsem_wait", "__percpu_down_read", "ext4_page_mkwrite", "do_page_mkwrite"), True),
        (("__sb_start_write", "mnt_want_write", "do_last"), True),
        # cgroups' own, and that of file leases
        (("percpu_rwsem_wait", "__percpu_down_read", "copy_process", "kernel_clone"), False),
        (("percpu_rwsem_wait", "flock_lock_inode", "vfs_write"), False),
        (("jbd2_log_wait_commit", "ext4_sync_file", "vfs_write"), False),
        ((), False),
    ],
)
def test_a_frozen_file_system_below(stack: tuple[str, ...], frozen: bool) -> None:
    waits = thread(101, state="D", stack=stack, call="openat", places=(Place("/data/x y/new"),))
    (cause, *_) = causes(caller(), waits)
    assert (cause.reason.code is Code.HANG_FROZEN) == frozen
    if frozen:
        (fix,) = cause.fixes
        assert fix.command == """fsfreeze -u "$(findmnt -no TARGET -T '/data/x y')\""""


def test_a_caller_of_a_path_that_is_not_known() -> None:
    """It belongs to the one mount with a waiting caller; of two mounts, either is possible."""
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


# Objects that callers wait for: paths, mounts and requests

OTHER_MOUNT = Connection(41, "/mnt/b", "fuse", "b", waiting=1, daemon=200, holders=(200,))


def by_mount(*tasks: Task, **more: Any) -> dict[int, list[int]]:
    result = stuck(moment(*tasks, **more))
    found = {mount.connection: [c.tid for c in mount.callers] for mount in result.mounts}
    return {**found, 0: [task.tid for task in result.unplaced]}


def test_a_caller_is_found_by_any_of_its_paths() -> None:
    """rename and sendfile have two."""
    two = (Place("/home/x"), Place("/mnt/b/y"))
    found = by_mount(caller(501, places=two), connections=(MOUNT, OTHER_MOUNT))
    assert found == {40: [], 41: [501], 0: []}
    result = stuck(moment(caller(501, places=two), connections=(MOUNT, OTHER_MOUNT)))
    assert result.mounts[1].callers[0].path == "/mnt/b/y"
    both = (Place("/mnt/a/x"), Place("/mnt/b/y"))
    found = by_mount(caller(501, places=both), connections=(MOUNT, OTHER_MOUNT))
    assert found == {40: [], 41: [], 0: [501]}  # one of the two: unknown which


def test_callers_without_a_path_get_the_remaining_requests() -> None:
    """Two requests on one mount, one on the other; its caller is known."""
    known = caller(501, path="/mnt/b/y")
    nameless = caller(502, path="/proc/self/fd/3/x"), caller(503, path="")
    found = by_mount(known, *nameless, connections=(MOUNT, OTHER_MOUNT))
    assert found == {40: [502, 503], 41: [501], 0: []}
    page = replace(caller(504, path=""), stack=("folio_wait_bit", "fuse_flush"), wchan="")
    found = by_mount(known, page, connections=(MOUNT, OTHER_MOUNT))
    assert found == {40: [504], 41: [501], 0: []}
    # Another caller holds a lock of a directory: the lock needs no request.
    lock = replace(caller(505, path=""), stack=("fuse_lock_inode", "fuse_lookup"), wchan="")
    assert by_mount(known, lock, connections=(MOUNT, OTHER_MOUNT))[0] == [505]


def test_a_busy_mount_is_not_called_so_while_a_caller_has_no_mount() -> None:
    result = stuck(moment(caller(path=""), connections=(MOUNT, OTHER_MOUNT)))
    text = " ".join(render(result).split())
    assert (
        "2 requests in flight; whether a thread named below waits for one cannot be known" in text
    )
    assert "not stuck" not in text


def test_a_lock_whose_function_the_kernel_does_not_show() -> None:
    """Functions that take semaphores never appear in kernel stacks (``__sched``)."""
    names = ("path_openat", "do_filp_open", "do_sys_openat2")
    waits = replace(caller(501), stack=names, wchan=names[0], call="openat")
    (mount,) = stuck(moment(waits)).mounts
    assert [c.waits for c in mount.callers] == ["waits in openat for a lock of /mnt/a/x, on /mnt/a"]
    asleep = replace(waits, state="S")
    assert stuck(moment(asleep)).mounts[0].callers == ()


def test_callers_below_two_mounts_get_the_one_with_requests() -> None:
    inner = replace(OTHER_MOUNT, path="/mnt/a/in", waiting=0)
    assert by_mount(caller(501, path="/mnt/a/in/x"), connections=(MOUNT, inner)) == {
        40: [501],
        41: [],
        0: [],
    }


def test_callers_inside_one_of_two_mounts_on_a_path() -> None:
    """The newest has one request, of a known caller."""
    above = replace(OTHER_MOUNT, path=MOUNT.path)
    known = caller(501, places=(Place("/mnt/a/x", (41,)),))
    inside = caller(502, places=(Place("/mnt/a/d/x", (41, 40)),))
    assert by_mount(known, inside, connections=(MOUNT, above)) == {40: [502], 41: [501], 0: []}
    assert by_mount(inside, connections=(MOUNT, above))[0] == [502]


# Locks, children, peers


def test_a_mutex_that_a_thread_holds_itself() -> None:
    own = thread(101, call="futex", lock=Lock("mutex", 0x10, 101))
    (cause,) = [c for c in causes(caller(), own, reader(102)) if c.kind == "deadlock"]
    assert cause.text == (
        "deadlock: sshfs (thread 101) waits for the mutex 0x10, held by itself (299 s)"
    )
    behind = thread(103, call="futex", lock=Lock("mutex", 0x20, 101))
    assert [c.kind for c in causes(caller(), own, behind, reader(102))] == ["deadlock"]


def test_a_mutex_whose_holder_has_ended() -> None:
    lock = Lock("mutex", 0x10, 500, gone=True)  # another process has that number now
    (cause, *_) = causes(caller(), thread(101, call="futex", lock=lock), reader(102))
    assert cause.kind == "lock"
    assert "held by thread 500, which its process does not have (any more)" in cause.text
    assert "ls" not in cause.text


def test_a_thread_whose_end_is_waited_for() -> None:
    joins = thread(101, call="futex", lock=Lock("thread", 0x10, 102))
    (cause, *_) = causes(caller(), joins, thread(102, call="clock_nanosleep"))
    assert cause.text == (
        "sshfs waits for the end of sshfs (thread 102), which sleeps in clock_nanosleep, for 299 s"
    )


def test_a_lock_is_one_only_if_the_stack_says_so() -> None:
    """Values that are plausible by chance, or that name a thread of another process."""
    guessed = thread(101, call="futex", lock=Lock("mutex", 1, 77, sure=False))
    named = replace(guessed, user=("__lll_lock_wait", "___pthread_mutex_lock", "work"))
    assert machine._with_lock(guessed, {}).lock is None
    for shared, of, gone in ((False, {}, True), (False, {77: 9}, True), (True, {77: 9}, False)):
        lock = machine._with_lock(
            replace(named, lock=Lock("mutex", 1, 77, sure=False, shared=shared)), of
        ).lock
        assert lock is not None and lock.gone is gone
    condition = replace(guessed, user=("__futex_wait", "pthread_cond_wait@@GLIBC_2.3.2", "work"))
    assert machine._with_lock(condition, {}).lock is None


def test_several_holders_have_no_chosen_one() -> None:
    """Except one that is stopped."""
    peers = tuple(
        Descriptor(n, f"socket:[{n}]", Socket("tcp", f"127.0.0.1:{n}", "ESTABLISHED", other=(n,)))
        for n in (301, 302)
    )
    servers = tuple(Process(n, 1, f"server{n}", "S", threads=(n,)) for n in (301, 302))
    idle = tuple(Task(n, n, f"server{n}", "S", call="accept", age=9.0) for n in (301, 302))
    waits = thread(101, call="poll", descriptors=peers)
    everybody = (DAEMON, CALLER, *servers)
    (cause, *_) = causes(caller(), waits, *idle, processes=everybody)
    assert cause.kind == "socket"
    assert "server301" in cause.text and "server302" in cause.text
    everybody = (DAEMON, CALLER, servers[0], replace(servers[1], state="T"))
    (cause, *_) = causes(caller(), waits, idle[0], processes=everybody)
    assert cause.text == "server302 (pid 302), which sshfs waits for, is stopped (SIGSTOP)"


def test_programs_that_wait_for_each_others_requests_are_idle() -> None:
    """A proxy and its own server: either may have lost the request, and neither is in a circle."""

    def reads(pid: int, tid: int, other: int, age: float = 299.0, call: str = "read") -> Task:
        pipe = Descriptor(3, "pipe:[7]", other=(other,))
        return Task(pid, tid, "p", "S", call=call, age=age, descriptors=(pipe,))

    proxy = Process(300, 1, "proxy", "S", threads=(300, 301))
    server = Process(400, 300, "server", "S", threads=(400,))
    everybody = (DAEMON, CALLER, proxy, server)
    waits = replace(reads(100, 101, 300), comm="sshfs")
    found = causes(caller(), waits, reads(300, 301, 400), reads(400, 400, 300), processes=everybody)
    assert [cause.kind for cause in found] == ["process", "unread"]
    assert found[0].text == "sshfs waits for proxy (pid 300)"
    # It has nothing to do.
    idle = replace(proxy, threads=(300,))
    found = causes(caller(), waits, reads(300, 300, 100), processes=(DAEMON, CALLER, idle))
    assert found[0].text == (
        "sshfs waits for proxy (pid 300), which waits in read for a pipe of sshfs (pid 100), for "
        "299 s"
    )
    # Its other thread waits for a server that is stopped.
    both = (reads(300, 300, 100, 10.0), reads(300, 301, 400))
    stopped = (DAEMON, CALLER, proxy, replace(server, state="T"))
    found = causes(caller(), waits, *both, processes=stopped)
    assert found[0].text == "server (pid 400), which sshfs waits for, is stopped (SIGSTOP)"
    # Pipes that are full.
    full = (reads(300, 301, 400, call="write"), reads(400, 400, 300, call="write"))
    found = causes(caller(), waits, *full, processes=everybody)
    assert found[0].text == "deadlock: proxy (pid 300) and server (pid 400) wait for each other"
    assert "waits in write for a full pipe of server" in found[0].chain[1]


def test_a_file_lock_and_its_holder() -> None:
    holder = Process(600, 1, "backup", "S", threads=(600,))
    sleeps = Task(600, 600, "backup", "S", call="clock_nanosleep", age=900.0)
    waits = thread(101, call="flock", places=(Place("/var/x.lock"),), holders=(600,))
    (cause, *_) = causes(caller(), waits, sleeps, processes=(DAEMON, CALLER, holder))
    assert cause.kind == "lock"
    assert cause.text == (
        "a lock of /var/x.lock is held by backup (pid 600), which sleeps in clock_nanosleep"
    )
    assert [fix.command for fix in cause.fixes] == ["kill 600"]
    stopped = replace(holder, state="T")
    (cause, *_) = causes(caller(), waits, processes=(DAEMON, CALLER, stopped))
    assert [fix.command for fix in cause.fixes] == ["kill -CONT 600"]
    (cause, *_) = causes(caller(), replace(waits, holders=(601,)), processes=(DAEMON, CALLER))
    assert cause.kind == "file" and cause.text.endswith("held by pid 601, for 299 s")
    (cause, *_) = causes(caller(), waits, sleeps, processes=(DAEMON, CALLER, holder))
    assert "waits in flock for a lock of /var/x.lock, held by backup (pid 600)" in cause.chain[0]
    # On the mount itself, such a wait is for another caller, not for the daemon.
    names = ("locks_lock_inode_wait", "fuse_file_flock", "__do_sys_flock")
    other = replace(caller(501, holders=(600,)), state="S", stack=names, wchan=names[0])
    assert stuck(moment(other, reader(101))).stuck is False


def test_a_thread_that_is_stopped_alone() -> None:
    """Stopped by its tracer; the others continue."""
    gdb = Process(9, 1, "gdb", "S", threads=(9,))
    halted = thread(101, state="t", tracer=9)
    (cause, *_) = causes(caller(), halted, reader(102), processes=(DAEMON, CALLER, gdb))
    assert cause.kind == "traced"
    assert cause.text == "sshfs (thread 101) is stopped by its tracer, gdb (pid 9), for 299 s"
    # A stopped main thread alone does not stop the process.
    daemon = replace(DAEMON, state="t", tracer=9)
    main = Task(100, 100, "sshfs", "t", age=9999.0, tracer=9)
    found = causes(caller(), main, thread(101, call="futex"), processes=(daemon, CALLER, gdb))
    assert found[0].kind == "condition"


def test_a_main_thread_that_has_ended_is_no_cause() -> None:
    main = Task(100, 100, "sshfs", "Z", age=1.0)
    (cause,) = causes(caller(), main, reader(101))
    assert cause.kind == "unanswered"


def test_a_daemon_below_another_one() -> None:
    """The thread that works for it is named, not those that wait for longer."""
    slow = Process(200, 1, "slowfs", "S", threads=(200, 201, 202))
    waits = thread(101, 50.0, stack=WAITS, call="stat", places=(Place("/mnt/b/y"),))
    main = Task(200, 200, "slowfs", "S", call="futex", age=900.0, user=("fuse_session_loop_mt",))
    works = Task(200, 201, "slowfs", "S", call="clock_nanosleep", age=49.9)
    other = Task(200, 202, "slowfs", "S", call="epoll_wait", age=70.0)
    (cause, *_) = causes(
        caller(age=51.0),
        waits,
        main,
        works,
        other,
        connections=(MOUNT, OTHER_MOUNT),
        processes=(DAEMON, CALLER, slow),
    )
    assert cause.text == (
        "sshfs waits for slowfs (thread 201), which sleeps in clock_nanosleep, for 50 s"
    )


def test_the_fix_kills_all_holders_of_the_connection() -> None:
    """All processes that have the connection open; none while a thread cannot end."""
    both = replace(MOUNT, holders=(100, 110))
    watchdog = Process(110, 100, "watchdog", "S", threads=(110,))
    everybody = (DAEMON, CALLER, watchdog)
    (cause, *_) = causes(
        caller(), thread(101, call="futex"), connections=(both,), processes=everybody
    )
    assert [fix.command for fix in cause.fixes][1:] == ["kill -9 100 110"]
    assert cause.fixes[1].effect.startswith("ends sshfs and watchdog: ")
    inside = thread(101, stack=WAITS, call="stat", places=(Place("/mnt/a/b"),))
    (cause, *_) = causes(caller(), inside, reader(102))
    assert len(cause.fixes) == 1 and "abort" in cause.fixes[0].command
    perhaps = thread(101, state="D", stack=("nfs_wait",), call="read")
    (cause, *_) = causes(caller(), perhaps, reader(102))
    assert cause.fixes[1].effect.endswith("(unless a thread in state D cannot be interrupted)")


def test_a_quota_of_the_cgroup() -> None:
    daemon = replace(DAEMON, quota=("/sys/fs/cgroup/job", 0.01))
    (cause, *_) = causes(caller(), thread(101, state="R"), processes=(daemon, CALLER))
    assert cause.kind == "on_cpu"
    assert cause.text.endswith(
        "runs, or waits for a CPU: its cgroup /sys/fs/cgroup/job may use 0.01 CPUs"
    )


def test_threads_that_wait_alike_are_one_cause() -> None:
    many = [thread(tid, 200.0 + tid, call="clock_nanosleep") for tid in range(1000, 1050)]
    found = causes(caller(age=2000.0), *many, reader(102))
    (sleeps,) = [cause for cause in found if cause.kind == "sleep"]
    assert sleeps.chain[-1] == "50 of 51 threads of sshfs wait like that"
    peers = [
        thread(
            n, 10.0, call="read", descriptors=(Descriptor(n, "s", Socket("tcp", f"10.0.0.1:{n}")),)
        )
        for n in range(1000, 1050)
    ]
    text = render(stuck(moment(caller(), *peers, reader(102))))
    assert text.count("and: ") == 5
    assert "and 44 more causes (--json has all)" in text


def test_stuck_lists_the_waits_of_silent_threads() -> None:
    """A Java virtual machine: many threads wait for conditions, and two of them are in a
    request."""
    sleeps = thread(101, call="futex", user=("pthread_cond_timedwait", "JVM_Sleep"))
    enters = thread(102, 299.5, call="futex", user=("pthread_cond_wait", "monitorenter", "x"))
    works = [thread(n, 9.0, call="futex", user=("sem_wait", "GangWorker")) for n in range(110, 115)]
    old = [thread(n, 900.0, call="futex", user=("sem_wait", "Finalizer")) for n in (120, 121)]
    result = stuck(moment(caller(), *works, *old, sleeps, enters))
    (cause,) = [cause for cause in result.mounts[0].causes if cause.kind == "condition"]
    assert cause.threads == (102, 101, 110, 111, 112, 113, 114)
    assert cause.text.startswith("sshfs (thread 102) waits for a condition")
    listed = [line.strip() for line in render(result).splitlines() if line.startswith("      in ")]
    assert listed == [
        "in pthread_cond_wait < monitorenter < x",
        "in pthread_cond_timedwait < JVM_Sleep",
        "in sem_wait < GangWorker",
        "in sem_wait < Finalizer",
    ]
    # A thread in a callback works for a request.
    called = replace(works[4], user=("sem_wait", "fuse_fs_read_buf", "[libfuse.so.2.9.9]"))
    (cause, *_) = causes(caller(), *works[:4], called, sleeps)
    assert cause.threads[0] == 114 and "(thread 114)" in cause.text
    # All wait for different objects: the first ones, and the number of the others.
    own = [thread(n, 9.0, call="futex", user=(f"at_{n}",)) for n in range(110, 150)]
    text = render(stuck(moment(caller(), *own)))
    assert text.count("      in at_") == 10 and "and 30 threads at other places" in text


def test_a_loop_of_events_waits_for_nobody_in_particular() -> None:
    """Go's poller has an idle connection and a pipe of its own; a child's two pipes count as
    one."""
    server = Process(301, 1, "squid", "S", threads=(301,))
    idle = Task(301, 301, "squid", "S", call="epoll_wait", age=9.0)
    connection = Descriptor(5, "socket:[5]", Socket("tcp", "127.0.0.1:3128", other=(301,)))
    wakes = Descriptor(6, "pipe:[6]")
    everybody = (DAEMON, CALLER, server)
    polls = thread(101, call="epoll_pwait", descriptors=(connection, wakes))
    (cause, *_) = causes(caller(), polls, idle, processes=everybody)
    assert cause.kind == "socket" and cause.text.startswith("sshfs (thread 101) waits in epoll_pwa")
    pipes = tuple(Descriptor(n, f"pipe:[{n}]", other=(301,)) for n in (7, 8))
    (cause, *_) = causes(caller(), replace(polls, descriptors=pipes), idle, processes=everybody)
    assert cause.kind == "process"


def test_the_cgroup_s_name_is_quoted_in_the_command_that_thaws_it() -> None:
    daemon = replace(DAEMON, frozen=("/sys/fs/cgroup/my job",))
    (cause,) = causes(caller(), processes=(daemon, CALLER))
    assert cause.fixes[0].command == "echo 0 > '/sys/fs/cgroup/my job/cgroup.freeze'"


def test_a_mount_whose_requests_cannot_be_counted_is_not_called_quiet() -> None:
    for waiting, text in ((0, "nothing waits"), (None, "its requests cannot be counted")):
        printed = render(stuck(moment(connections=(replace(MOUNT, waiting=waiting),))))
        assert text in " ".join(printed.split())


def test_a_runtime_s_idle_threads_are_no_cause() -> None:
    """A waiting goroutine has no thread; the poller may have its connection."""
    idle = thread(101, call="futex", user=("runtime.futex.abi0", "runtime.futexsleep"))
    sysmon = thread(103, 0.0, call="nanosleep", user=("runtime.usleep.abi0", "runtime.sysmon"))
    (cause,) = causes(caller(), idle, sysmon, reader(102))
    assert cause.reason.code is Code.HANG_UNANSWERED
    assert (cause.reason.subject["runtime"], cause.reason.figures["requests"]) == ("tasks", 2)
    spins = thread(104, 0.0, state="R", user=("main.work",))
    assert [c.kind for c in causes(caller(), idle, sysmon, spins, reader(102))] == ["on_cpu"]
    server = Descriptor(5, "socket:[5]", Socket("tcp", "10.0.0.1:80", "ESTABLISHED"))
    polls = ("runtime.epollwait.abi0", "runtime.netpoll")
    poller = thread(105, call="epoll_pwait", descriptors=(server,), user=polls)
    assert [c.kind for c in causes(caller(), idle, poller, reader(102))] == ["socket"]


def test_threads_that_could_not_be_looked_at_are_not_idle() -> None:
    """Without them a hanging mount was reported as busy, or as read by nobody."""
    (cause,) = causes(caller())
    assert cause.kind == "unknown"
    assert cause.text == "what sshfs does cannot be known: its threads could not be looked at"
    for seen in (reader(101), thread(101, 400.0, call="futex")):  # for longer than any caller
        (cause,) = causes(caller(), seen, silent=(102,))
        assert cause.kind == "unknown"
        assert "1 of its threads could not be looked at" in cause.text
    (cause,) = causes(caller(), thread(101, 0.1, call="nanosleep"), silent=(102,))
    assert cause.kind == "sleep"


# File locks


def lock_waiter(tid: int = 500, *openers: int) -> Task:
    """Waits for a file lock that only the daemon knows."""
    names = ("request_wait_answer", "__fuse_simple_request", "fuse_setlk", "fuse_file_flock")
    asks = caller(tid, age=9.0, locks=True, openers=openers)
    return replace(asks, stack=names, call="flock", comm="flock")


def locker(tid: int) -> Task:
    """A daemon's thread waits for a lock that its own process holds for another caller."""
    return thread(tid, 8.9, call="flock", holders=(100,), places=(Place("/srv/backing"),))


HOLDER = Process(600, 1, "flock", "S", threads=(600,))


@pytest.mark.parametrize(
    "threads",
    [
        (locker(101), reader(102)),
        (thread(101, 8.9, call="futex"), reader(102)),
        (reader(101),),
    ],
)
def test_a_lock_that_another_caller_holds_is_no_hang(threads: tuple[Task, ...]) -> None:
    """Any implementation in the daemon: a lock of its own, a condition, or its memory alone."""
    result = stuck(moment(lock_waiter(500, 600), *threads, processes=(DAEMON, CALLER, HOLDER)))
    (mount,) = result.mounts
    assert (result.stuck, mount.state, mount.locked, mount.causes) == (False, "busy", 1, ())
    assert not result.unknown
    wait = mount.callers[0].wait
    assert wait.code is Code.WAIT_CALLERS_LOCK
    assert wait.subject["holders"] == ("flock (pid 600)",)
    text = " ".join(render(result).split())
    assert "busy, not stuck: 2 requests in flight; 1 caller waits for a file lock" in text
    assert "waits in flock for a lock on /mnt/a/x, held by flock (pid 600)" in text


def test_a_lock_whose_holder_is_not_seen_is_not_known() -> None:
    result = stuck(moment(lock_waiter(), locker(101), reader(102)))
    assert result.mounts[0].state == "unknown" and not result.mounts[0].causes
    assert [unknown.kind for unknown in result.unknown] == ["lock"]


def test_a_lock_that_others_wait_for_too_or_that_its_waiter_may_hold() -> None:
    for alike, again, text in (
        (1, False, "the only other process that has it open waits, too"),
        (2, False, "all 2 others that have it open wait, too"),
        (1, True, "this process has it open several times"),
    ):
        waiter = replace(lock_waiter(), alike=alike, again=again)
        result = stuck(moment(waiter, reader(101)))
        assert result.mounts[0].state == "unknown"
        assert text in result.mounts[0].callers[0].wait.text
        assert "no other process here" not in result.unknown[0].text
        printed = " ".join(render(result).split())
        assert "1 caller waits for a file lock whose holder is not known" in printed


@pytest.mark.parametrize("threads", [(600,), (600, 601)])
def test_callers_that_wait_for_each_other_s_file_locks(threads: tuple[int, ...]) -> None:
    """Another thread of a process may release its lock."""
    first, second = lock_waiter(500, 600), replace(lock_waiter(600, 500), comm="sh")
    second = replace(second, places=(Place("/mnt/a/y"),))
    others = (DAEMON, CALLER, replace(HOLDER, comm="sh", threads=threads))
    (mount,) = stuck(moment(first, second, reader(101), processes=others)).mounts
    assert mount.locked == 2
    if len(threads) > 1:
        assert (mount.state, mount.causes) == ("busy", ())
        return
    (cause,) = mount.causes
    assert (mount.state, cause.kind) == ("stuck", "deadlock")
    reason = cause.reason
    assert reason.code is Code.HANG_FILE_LOCKS
    assert reason.subject["names"] == ("ls (pid 500)", "sh (pid 600)")
    assert reason.subject["paths"] == ("/mnt/a/x", "/mnt/a/y")
    assert [fix.command for fix in cause.fixes] == ["kill 600"]


def test_other_callers_hang_behind_a_daemon_s_only_thread_that_waits_for_a_lock() -> None:
    only = replace(locker(100), tid=100)
    result = stuck(moment(lock_waiter(500, 600), caller(501, age=5.0), only))
    (mount,) = result.mounts
    assert (mount.state, mount.locked) == ("stuck", 1)
    reason = mount.causes[0].reason
    assert (reason.code, reason.subject["wait"]) == (Code.HANG_THREAD, Code.WAIT_OWN_LOCK.value)


def test_a_stopped_daemon_is_a_hang_also_for_who_waits_for_a_lock() -> None:
    (cause,) = causes(lock_waiter(500, 600), processes=(replace(DAEMON, state="T"), CALLER))
    assert cause.kind == "stopped"


def test_a_lock_that_the_kernel_knows() -> None:
    """Its daemon keeps no locks: no request waits."""
    names = ("locks_lock_inode_wait", "fuse_file_flock", "__do_sys_flock")
    waits = replace(caller(501, holders=(600,)), state="S", stack=names, wchan="", call="flock")
    quiet = replace(MOUNT, waiting=0)
    (mount,) = stuck(
        moment(waits, reader(101), connections=(quiet,), processes=(DAEMON, CALLER, HOLDER))
    ).mounts
    assert (mount.state, mount.locked) == ("busy", 1)
    wait = mount.callers[0].wait
    assert (wait.code, wait.subject["holders"]) == (Code.WAIT_FILE_LOCK, ("flock (pid 600)",))


# Servers


def test_a_request_that_is_older_than_its_server() -> None:
    """Its predecessor read it; later requests are younger than the server."""
    holder = Process(90, 1, "python3", "S", threads=(90,), since=400.0)
    server = replace(DAEMON, since=200.0)
    of = replace(MOUNT, holders=(90, 100), servers=(100,))
    everybody = (server, CALLER, holder)
    (cause,) = causes(caller(), reader(100), connections=(of,), processes=everybody)
    assert (cause.kind, cause.reason.code) == ("handover", Code.HANG_OLDER)
    assert cause.reason.figures == {"age_ns": 300 * 10**9, "server_ns": 200 * 10**9}
    assert cause.reason.subject["server"] == "sshfs (pid 100)"
    # On a host whose CPUs are taken, an age may be too small: its reader is not known.
    for age, reader_of in ((150.0, None), (191.0, "unknown"), (200.0002, "unknown")):
        (found_one,) = causes(caller(age=age), reader(100), connections=(of,), processes=everybody)
        assert found_one.reason.subject.get("reader") == reader_of
        assert ("that it or its predecessor has read" in found_one.text) == bool(reader_of)
    younger = [caller(age=150.0), caller(age=200.0002)]
    for task in younger:
        found = causes(task, reader(100), connections=(of,), processes=everybody)
        assert [cause.kind for cause in found] == ["unanswered"]
    # A daemon that goes to the background after its mount reads requests that wait already.
    peer = Socket("tcp", "10.0.0.1:22", "SYN-SENT", send_queue=1)
    connects = thread(101, 199.0, call="connect", descriptors=(Descriptor(7, "socket:[9]", peer),))
    found = causes(caller(), reader(100), connects, connections=(of,), processes=everybody)
    assert [cause.kind for cause in found] == ["socket", "handover"]
    sleeps = thread(101, 199.0, call="futex")
    found = causes(caller(), reader(100), sleeps, connections=(of,), processes=everybody)
    assert [cause.kind for cause in found] == ["handover", "condition"]
    # It may still be in the queue, as no thread waits for new ones; or the other process reads,
    # too.
    busy = thread(100, 100.0, call="nanosleep")
    assert "handover" not in [
        c.kind for c in causes(caller(), busy, connections=(of,), processes=everybody)
    ]
    two = replace(of, servers=(90, 100))
    found = causes(caller(), reader(100), connections=(two,), processes=everybody)
    assert "handover" not in [cause.kind for cause in found]


def test_one_of_two_servers_is_stopped() -> None:
    """The other one reads, but not the requests that the first one has read."""
    other = Process(200, 1, "sshfs", "T", threads=(200,))
    of = replace(MOUNT, holders=(100, 200), servers=(100, 200))
    everybody = (DAEMON, CALLER, other)
    first, *_ = causes(caller(), reader(100), connections=(of,), processes=everybody)
    assert (first.kind, first.reason.subject["pid"]) == ("stopped", 200)
    assert causes(reader(100), connections=(of,), processes=everybody) == ()


def test_a_killed_daemon_whose_thread_is_still_in_the_kernel() -> None:
    names = ("folio_wait_bit_common", "fuse_reverse_inval_inode", "fuse_dev_do_write")
    main = thread(100, state="Z")
    left = thread(101, state="D", stack=names, call="write", killed=True)
    (cause,) = causes(caller(), main, left)
    assert (cause.kind, cause.reason.subject["halt"]) == ("killed", Code.HALT_KILLED.value)
    assert "thread 101 is still in the kernel (folio_wait_bit_common)" in cause.text
    assert [fix.command.rpartition("/")[2] for fix in cause.fixes] == ["abort"]
    assert causes(main, left) == ()


def test_an_exiting_caller_closes_its_files() -> None:
    names = ("request_wait_answer", "fuse_flush", "filp_close", "exit_files", "do_exit")
    result = stuck(moment(replace(caller(path=""), call="exit", stack=names), reader(101)))
    text = " ".join(render(result).split())
    assert "exit (a file that it closes)" in text and "(unknown)" not in text


# Mounts that are being made, and dead ones

MADE = replace(MOUNT, path="/mnt/new", waiting=1, mounting=100)
MOUNTS = Mounting("/mnt/new", "fuse.x", "x", 40)
INIT = ("request_wait_answer", "fuse_send_init", "fuse_get_tree", "path_mount")


def mounts(tid: int = 100) -> Task:
    return replace(
        thread(tid, 9.0), stack=INIT, call="mount", mounts=MOUNTS, places=(Place("/mnt/new"),)
    )


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ((), Code.HANG_INIT),
        ((thread(101, 8.9, call="clock_nanosleep"),), Code.HANG_THREAD),
        ((reader(101),), Code.HANG_UNANSWERED),
    ],
)
def test_a_mount_that_waits_for_its_first_request(others: tuple[Task, ...], code: Code) -> None:
    """Nobody reads it, or another thread has it: no deadlock."""
    result = stuck(moment(mounts(), *others, connections=(MADE,)), ["/mnt/new"])
    (mount,) = result.mounts
    assert [cause.reason.code for cause in mount.causes] == [code]
    assert [c.wait.code for c in mount.callers] == [Code.WAIT_INIT]
    assert (mount.path, mount.state) == ("/mnt/new", "stuck")


def test_a_connection_gets_the_place_where_it_is_mounted() -> None:
    """By the option fd; otherwise it is the unmounted one."""
    new, other = Connection(50, "", "", ""), Connection(51, "", "", "")
    for of, found in ((50, "/mnt/new"), (51, ""), (None, "")):
        task = replace(mounts(), mounts=replace(MOUNTS, connection=of))
        assert machine._mounted_by(new, [MOUNT, new, other], [task]).path == found
    task = replace(mounts(), mounts=replace(MOUNTS, connection=None))
    made = machine._mounted_by(new, [MOUNT, new], [task])
    assert (made.path, made.fstype, made.mounting) == ("/mnt/new", "fuse.x", 100)


def test_a_connection_that_was_aborted() -> None:
    dead = replace(MOUNT, waiting=0, dead=True)
    result = stuck(moment(reader(101), connections=(dead,)))
    (mount,) = result.mounts
    assert (mount.state, result.stuck) == ("dead", True)
    (cause,) = mount.causes
    assert (cause.kind, cause.reason.code) == ("dead", Code.HANG_DEAD)
    assert cause.reason.subject == {"comm": "sshfs", "pid": 100}
    assert "DEAD: the connection is dead" in render(result)


def test_callers_that_were_killed_in_vain_are_marked() -> None:
    result = stuck(moment(caller(500, killed=True), caller(501), reader(101)))
    assert [one.killed for one in result.mounts[0].callers] == [True, False]
    (row,) = [line for line in render(result).splitlines() if " 500 " in line]
    assert "ls (killed)" in row


def test_a_mount_whose_daemon_has_ended() -> None:
    """A mount is dead only where all processes are seen; callers that wait come first."""
    left = replace(MOUNT, waiting=0, daemon=None, holders=())
    result = stuck(moment(connections=(left,), processes=(CALLER,)))
    (mount,) = result.mounts
    assert (mount.state, result.stuck) == ("dead", True)
    assert [fix.command for fix in mount.causes[0].fixes] == ["umount -l /mnt/a"]
    assert "DEAD: its daemon has ended" in render(result)
    for more in ({"root": False}, {"pid_namespace": True}):
        (mount,) = stuck(moment(connections=(left,), processes=(CALLER,), **more)).mounts
        assert mount.state != "dead"
    # A service's mount namespace keeps what is unmounted here.
    kept = replace(left, seen_by=7)
    (mount,) = stuck(moment(connections=(kept,), processes=(CALLER,))).mounts
    assert mount.state != "dead"
    for other in (replace(left, hidden=True), replace(left, fstype="virtiofs")):
        (mount,) = stuck(moment(connections=(other,), processes=(CALLER,))).mounts
        assert mount.state == "quiet"
    waits = replace(left, waiting=1)
    (cause,) = causes(caller(), connections=(waits,), processes=(CALLER,))
    assert cause.kind == "gone"


def test_an_event_loop_that_reads_requests_waits_for_the_next_one() -> None:
    own = Descriptor(4, "socket:[5]", Socket("unix"), own=True)
    device = Descriptor(5, "/dev/fuse")
    loop = thread(100, call="epoll_wait", descriptors=(own, device))
    (cause,) = causes(caller(), loop)
    assert cause.reason.code is Code.HANG_UNANSWERED
    assert cause.reason.subject["runtime"] == "tasks"
    # It may also wait for a server.
    tcp = Descriptor(6, "socket:[6]", Socket("tcp", "10.0.0.1:443", "ESTABLISHED"))
    (cause,) = causes(caller(), replace(loop, descriptors=(own, device, tcp)))
    assert "10.0.0.1:443" in cause.text


def test_the_kernel_s_own_limit_for_requests() -> None:
    """The kernel checks every 15 s."""
    found = causes(caller(age=6.0), reader(101), timeout=20)
    assert [cause.kind for cause in found] == ["unanswered", "timeout"]
    figures = {"limit_ns": 20 * 10**9, "least_ns": 14 * 10**9, "most_ns": 29 * 10**9}
    assert found[1].reason.figures == figures
    assert found[0].fixes and not found[1].fixes


def test_a_mount_helper_that_waits_for_a_name_server() -> None:
    helper = Process(700, 1, "mount.cvmfs", "S", threads=(700,), since=35.0)
    client = Process(701, 700, "cvmfs2", "S", threads=(701, 702))
    waits = Task(700, 700, "mount.cvmfs", "S", call="wait4", age=34.0, children=(701,))
    main = Task(701, 701, "cvmfs2", "S", call="futex", age=33.0)
    server = Socket("udp", "10.0.0.1:53")
    asks = Task(701, 702, "cvmfs2", "S", call="poll", age=0.1)
    asks = replace(asks, descriptors=(Descriptor(4, "socket:[7]", server),))
    mounter = Mounter(700, "/cvmfs/x")
    before = moment(
        waits,
        main,
        asks,
        connections=(),
        processes=(helper, client),
        mounting=(mounter,),
    )
    result = stuck(before)
    (found,) = result.mounting
    assert (found.pid, found.path, found.age_seconds, result.stuck) == (700, "/cvmfs/x", 35.0, True)
    subject = found.reason.subject
    assert (subject["tid"], subject["wait"]) == (702, Code.WAIT_DESCRIPTOR.value)
    assert "10.0.0.1:53" in str(subject["doing"])
    assert "mount.cvmfs (pid 700) mounts /cvmfs/x" in " ".join(render(result).split())
    assert stuck(before, ["/cvmfs/x"]).mounting == result.mounting
    assert not stuck(before, ["/cvmfs/y"]).mounting
    busy = replace(before, processes=(replace(helper, ran=0.5), replace(client, ran=30.0)))
    (found,) = stuck(busy).mounting
    assert found.reason.figures["on_cpu_ns"] == 30.5e9  # before FUSE_INIT
    assert "/cvmfs/x, for 35 s, 30.5 s of it on a CPU" in found.text
    young = replace(before, processes=(replace(helper, since=4.0), client))
    assert stuck(young).mounting and not stuck(young).stuck
    # A process that only has the device open may have done so for long.
    other = replace(before, mounting=(replace(mounter, sign="device"),))
    assert stuck(other).mounting and not stuck(other).stuck


@pytest.mark.parametrize(
    ("sign", "words"),
    [
        ("device", "cvmfs2 (pid 701) mounts /cvmfs/x, for 35 s, not mounted yet"),
        (
            "library",
            "cvmfs2 (pid 701), which has loaded libfuse and names /cvmfs/x on its command line, "
            "has run for 35 s without a FUSE connection",
        ),
        (
            "named",
            "cvmfs2 (pid 701), which names /cvmfs/x on its command line, has run for 35 s without "
            "a FUSE connection",
        ),
    ],
)
def test_a_client_that_waits_for_a_server_before_it_mounts(sign: str, words: str) -> None:
    client = Process(701, 1, "cvmfs2", "S", threads=(701,), since=35.0)
    server = Socket("tcp", "10.0.0.2:80", "ESTABLISHED", silent=34.0)
    fd = Descriptor(4, "socket:[7]", server)
    asks = Task(701, 701, "cvmfs2", "S", call="poll", age=34.0, descriptors=(fd,))
    before = moment(
        asks,
        connections=(),
        processes=(client,),
        mounting=(Mounter(701, "/cvmfs/x", sign),),
    )
    result = stuck(before)
    (found,) = result.mounting
    assert (found.path, found.age_seconds, found.helper) == ("/cvmfs/x", 35.0, False)
    assert found.text.startswith(f"{words}: cvmfs2 (pid 701) waits in poll for 10.0.0.2:80 (tcp")
    assert not result.stuck  # it may be no FUSE file system at all


@pytest.mark.parametrize(
    ("command", "comm", "target"),
    [
        (["/sbin/mount.cvmfs", "x", "/cvmfs/x", "-o", "rw"], "mount.cvmfs", "/cvmfs/x"),
        (["/bin/bash", "/sbin/mount.cvmfs", "x", "/cvmfs/x"], "mount.cvmfs", "/cvmfs/x"),
        (["mount.cvmfs", "x"], "mount.cvmfs", ""),
        (["mount", "-t", "cvmfs", "x", "/cvmfs/x", "-o", "rw"], "mount", "/cvmfs/x"),
        (["/bin/mount", "/cvmfs/x"], "mount", "/cvmfs/x"),
        (["mount", "-a"], "mount", ""),
        (["daemon", "/a", "/b"], "other", ""),
    ],
)
def test_mount_points_of_mount_helpers(command: list[str], comm: str, target: str) -> None:
    assert machine._target(command, comm) == target


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (["sshfs", "host:/x", "/mnt/a", "-o", "ro"], "/mnt/a"),
        (["cvmfs2", "-o", "rw", "repository", "/cvmfs/./x/"], "/cvmfs/x"),
        (["bindfs", "-f", "/a", "/b"], "/b"),
        (["daemon", "-f", "/b"], "/b"),
        (["qemu-system-x86_64", "-drive", "/a.img", "-kernel", "/boot/vmlinuz"], ""),
        (["daemon", "/a", "relative"], ""),
        (["/usr/bin/daemon"], ""),
    ],
)
def test_the_path_at_the_end_of_a_command_line(command: list[str], path: str) -> None:
    assert children.last_path(command) == path


def test_signs_of_a_process_that_is_about_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """It maps libfuse, and its command line ends with a path; or it names a path asked for."""
    maps = {
        "1": "7f00-7f01 r-xp 00000000 08:01 7 /usr/lib/x86_64-linux-gnu/libfuse3.so.3.14.0\n",
        "2": "7f00-7f01 r-xp 00000000 08:01 7 /usr/lib/libfuse.so.2.9.9 (deleted)\n",
        "3": "7f00-7f01 r-xp 00000000 08:01 7 /home/libfuse-notes.txt\n",
    }

    def text(name: str, most: int = 0) -> str:
        _, _, pid, file = name.split("/")
        return maps[pid] if file == "maps" else "client\0source\0/mnt/a\0"

    monkeypatch.setattr(children, "text", text)
    nothing: frozenset[str] = frozenset()
    assert children.mounter((nothing, 1)) == [(1, "/mnt/a", "library")]
    assert children.mounter((nothing, 2)) == [(2, "/mnt/a", "library")]
    assert children.mounter((nothing, 3)) == []
    assert children.mounter((frozenset({"/mnt/a"}), 3)) == [(3, "/mnt/a", "named")]


def test_processes_that_mount_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """mount(8), mount helpers, and processes with the device open, but no connection."""
    comms = {
        1: "init",
        10: "mount.cvmfs",
        11: "mount.fuse",
        12: "cvmfs2",
        20: "mount.nfs",
        30: "mount.s3",
        31: "s3",
        40: "slowfs",
        50: "sshfs",
        60: "mount",
        61: "sh",
        70: "mount",
        71: "mount.nfs",
        80: "mount",
    }
    below = {1: [10, 20, 30, 40, 50, 60, 70, 80], 10: [11], 11: [12], 30: [31], 60: [61], 70: [71]}
    fuse: dict[int, tuple[int | None, ...]] = {31: (41,), 40: (None,), 50: (42,)}
    processes = {
        pid: Process(pid, 1, comm, "S", fuse=fuse.get(pid, ())) for pid, comm in comms.items()
    }
    census: Any = SimpleNamespace(
        rows={pid: {"comm": comm, "state": "S"} for pid, comm in comms.items()}
    )
    serving = machine._connected(processes)
    assert serving == {31, 50}
    found = machine._mounting(census, processes, below, serving)
    helpers = {10: "mount.cvmfs", 11: "mount.fuse", 60: "mount"}
    assert found == {**helpers, 40: "slowfs"}
    assert machine._outermost(found, below) == [10, 40, 60]
    # An old kernel does not show connections: any process with the device open may serve.
    monkeypatch.setattr(machine, "shows_connections", lambda files: False)
    old = {
        pid: replace(process, fuse=(None,) * len(process.fuse))
        for pid, process in processes.items()
    }
    found = machine._mounting(census, old, below, machine._connected(old))
    assert found == helpers


# CernVM-FS


def downloader(tid: int = 101, silent: float | None = 6.0, state: str = "ESTABLISHED") -> Task:
    """It polls a thousand times a second for its server and a pipe of its own."""
    proxy = Socket("tcp", "127.0.0.1:3128", state, silent=silent)
    own = Descriptor(4, "pipe:[4]", own=True)
    user = ("__poll", "download::DownloadManager::MainDownload(void*)", "start_thread")
    fds = (own, Descriptor(5, "socket:[5]", proxy))
    return thread(tid, 0.001, call="poll", descriptors=fds, user=user)


def in_open(tid: int, age: float = 7.0) -> Task:
    return replace(caller(tid, age=age), call="openat")


OWN_PIPE = (Descriptor(6, "pipe:[6]", own=True),)
FETCHES = [
    thread(tid, 6.9, call="read", descriptors=OWN_PIPE, user=("__read", "Fetch"))
    for tid in (102, 103)
]


def test_stuck_names_the_download_and_its_silence() -> None:
    """Threads that wait for the download thread in pipes of their own are no other cause.

    Neither are a watchdog and a command server, which wake up now and then.
    """
    other = (Descriptor(7, "pipe:[7]", other=(300,)),)
    watch = thread(
        104, 0.2, call="poll", descriptors=other, user=("__poll", "MainWatchdogListener")
    )
    serves = thread(
        105, 3.0, call="read", descriptors=OWN_PIPE, user=("read", "x::MainCommandServer(void*)")
    )
    everybody = (DAEMON, CALLER, Process(300, 1, "cvmfs2", "S", threads=(300,)))
    idle = Task(300, 300, "cvmfs2", "S", call="read", age=900.0)
    callers = [in_open(tid) for tid in (500, 501, 502, 503)]
    tasks = (*callers, downloader(), *FETCHES, watch, serves, idle, reader(100))
    (cause,) = causes(*tasks, processes=everybody)
    assert (cause.kind, cause.reason.code) == ("socket", Code.HANG_SERVER)
    assert cause.reason.figures == {"callers": 4, "silent_ns": 6 * 10**9}
    assert cause.reason.subject["peer"] == "127.0.0.1:3128"
    assert cause.text == "4 opens wait for a download from 127.0.0.1:3128, no byte for 6.0 s"
    # Callers of several kinds have no name in common.
    (cause,) = causes(*tasks, caller(504, age=5.0), processes=everybody)
    assert (cause.reason.subject["operation"], cause.reason.figures["callers"]) == ("", 5)


@pytest.mark.parametrize("silent", [None, 60.0])
def test_a_connection_that_is_not_used_for_callers(silent: float | None) -> None:
    """It was silent since before they came, or nobody knows."""
    found = causes(in_open(500), downloader(silent=silent), reader(100))
    assert [cause.reason.code for cause in found] == [Code.HANG_THREAD]


def test_threads_that_wait_for_one_server_are_one_cause() -> None:
    found = causes(in_open(500), downloader(101), downloader(102), reader(100))
    assert [cause.reason.code for cause in found] == [Code.HANG_SERVER]
    assert found[0].threads == (101, 102)


def test_a_reload_that_is_paused_is_ended_by_a_signal() -> None:
    """Only the loader's own thread counts; threads that wait for signals elsewhere pause
    nothing."""
    fenced = thread(101, 0.05, call="select", user=FENCE)
    paused = thread(103, call="rt_sigtimedwait", user=("__sigwait", "loader::WaitForSignal(int)"))
    (cause, *_) = causes(caller(), fenced, paused)
    assert (cause.reason.code, cause.kind) == (Code.HANG_RELOAD_PAUSED, "reload")
    assert [fix.command for fix in cause.fixes] == ["kill -USR1 100"]
    other = replace(paused, user=("__sigwait", "main"))
    (cause, *_) = causes(caller(), fenced, other)
    assert cause.reason.code is Code.HANG_RELOAD


ENDS_CALL = ("get_signal", "arch_do_signal_or_restart", "exit_to_user_mode_loop", "do_syscall_64")
QUIET = replace(MOUNT, waiting=0)


def halted(state: str, function: str, **more: object) -> Task:
    stack, wchan = (function, *ENDS_CALL), "" if state in "Tt" else function
    given = {"state": state, "stack": stack, "wchan": wchan, "call": "read", "age": 12.0, **more}
    return replace(caller(), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "change", "kind", "text", "fixes"),
    [
        (halted("T", "do_signal_stop"), {}, "stopped", "stopped (SIGSTOP)", ["kill -CONT 500"]),
        (halted("t", "ptrace_stop", tracer=7), {}, "traced", "stopped by its tracer, pid 7", []),
        (
            halted("S", "do_freezer_trap"),
            {"frozen": ("/sys/fs/cgroup/a", "/sys/fs/cgroup/a/b")},
            "frozen",
            "frozen by the cgroup /sys/fs/cgroup/a and /sys/fs/cgroup/a/b",
            [f"echo 0 > /sys/fs/cgroup/{name}/cgroup.freeze" for name in ("a", "a/b")],
        ),
        (
            halted("D", "__refrigerator"),
            {"frozen": ("/sys/fs/cgroup/freezer/a",)},
            "frozen",
            "frozen by the cgroup /sys/fs/cgroup/freezer/a",
            ["echo THAWED > /sys/fs/cgroup/freezer/a/freezer.state"],
        ),
        (  # frozen while it waited for the answer, which it has now
            replace(caller(age=12.0), call="read"),
            {"frozen": ("/sys/fs/cgroup/freezer/a",)},
            "frozen",
            "frozen by the cgroup /sys/fs/cgroup/freezer/a",
            ["echo THAWED > /sys/fs/cgroup/freezer/a/freezer.state"],
        ),
    ],
)
def test_a_caller_that_is_halted_is_no_hang(
    task: Task, change: dict[str, Any], kind: str, text: str, fixes: list[str]
) -> None:
    """The daemon is not blamed: it has answered."""
    process = replace(CALLER, comm="cat", **change)
    result = stuck(moment(task, reader(101), connections=(QUIET,), processes=(DAEMON, process)))
    (mount,) = result.mounts
    assert (mount.state, mount.causes, mount.callers) == ("quiet", (), ())
    assert not result.stuck and not result.unplaced
    (cause,) = mount.halted
    assert (cause.kind, [fix.command for fix in cause.fixes]) == (kind, fixes)
    assert cause.text == (
        f"cat (pid 500) is {text} in read of /mnt/a/x for 12 s: no request of it waits for "
        "an answer"
    )
    printed = " ".join(render(result).split())
    assert cause.text in printed and all(f"fix: {fix}" in printed for fix in fixes)


@pytest.mark.parametrize(
    "task",
    [
        halted("T", "do_signal_stop", places=()),  # in no call on the mount
        halted("T", "do_signal_stop", places=(Place("/home/x"),)),
        halted("t", "ptrace_stop", age=0.1, tracer=7),  # strace stops it at each call
        halted("T", "do_signal_stop", pid=100, tid=101),  # of the daemon
    ],
)
def test_other_halted_threads_are_not_reported(task: Task) -> None:
    (mount,) = stuck(moment(task, reader(102), connections=(QUIET,))).mounts
    assert (mount.state, mount.halted) == ("quiet", ())


def test_a_frozen_caller_that_has_yet_to_send_is_no_hang() -> None:
    """The kernel counts its request as waiting. Nobody but the caller delays it."""
    task = replace(caller(), stack=("fuse_get_req", "__fuse_simple_request"), wchan="")
    frozen = replace(CALLER, frozen=("/sys/fs/cgroup/a",))
    of = {"processes": (DAEMON, frozen)}
    one = stuck(moment(task, reader(101), connections=(replace(MOUNT, waiting=1),), **of))
    (mount,) = one.mounts
    assert (mount.state, mount.causes, mount.callers) == ("quiet", (), ())
    assert [cause.kind for cause in mount.halted] == ["frozen"]
    # Another request waits, which may be the mount's first.
    two = stuck(moment(task, reader(101), connections=(replace(MOUNT, waiting=2),), **of))
    (mount,) = two.mounts
    assert mount.state == "stuck" and mount.halted == ()


def test_a_frozen_caller_that_has_no_answer_yet_waits() -> None:
    """Only the answer lets it get to its freezer: its daemon is asked for the cause."""
    frozen = replace(CALLER, frozen=("/sys/fs/cgroup/a",))
    (mount,) = stuck(moment(caller(), reader(101), processes=(DAEMON, frozen))).mounts
    assert (mount.state, mount.halted) == ("stuck", ())


@pytest.mark.parametrize("known", ["holders", "openers"])
def test_the_holder_of_a_file_lock_is_stopped(known: str) -> None:
    holder = Process(600, 1, "vim", "T", threads=(600,))
    of: dict[str, Any] = {known: (600,)}
    waits = replace(caller(), call="flock", locks=True, **of)
    result = stuck(moment(waits, reader(101), processes=(DAEMON, CALLER, holder)))
    (cause,) = result.mounts[0].halted
    assert cause.reason.code is Code.HOLDER_HALTED and cause.kind == "stopped"
    text = "vim (pid 600), which holds a lock on /mnt/a/x, is stopped (SIGSTOP)"
    assert cause.text == text and text in " ".join(render(result).split())
    assert cause.fixes == (("kill -CONT 600", "lets vim run again"),)
    runs = replace(holder, state="S")
    assert not stuck(moment(waits, processes=(DAEMON, CALLER, runs))).mounts[0].halted


def test_a_mount_below_is_the_cause_with_its_own_fix() -> None:
    """Each daemon's own mount is named with why it does not answer, however deep."""
    below = Connection(41, "/mnt/b", "fuse", "b", waiting=1, daemon=200, holders=(200,))
    deepest = Connection(42, "/mnt/c", "fuse", "c", waiting=1, daemon=300, holders=(300,))
    servers = [
        Process(pid, 1, comm, "S", threads=(pid,)) for pid, comm in ((200, "bindfs"), (300, "own"))
    ]
    waits = thread(101, 200.0, stack=WAITS, wchan=WAITS[0], places=(Place("/mnt/b/x"),))
    also = replace(caller(200, "/mnt/c/x", 199.0), comm="bindfs")
    reads = Task(300, 300, "own", "S", stack=("fuse_dev_do_read",), call="read", age=198.0)
    found = causes(
        caller(),
        waits,
        also,
        reads,
        connections=(MOUNT, below, deepest),
        processes=(DAEMON, CALLER, *servers),
    )
    assert found[0].kind == "mount"
    assert found[0].text.startswith(
        "sshfs waits for /mnt/c: own waits for new requests (for 198 s), and 1 request that it has "
        "read has waited for an answer"
    )
    assert [fix.command for fix in found[0].fixes][-1] == "kill -9 300"
    assert found[0].fixes[0].command.endswith("/42/abort")
    assert found[0].reason.fix == "fusetools record --mount /mnt/c -- COMMAND"


def test_the_words_of_a_server_that_acknowledges_nothing() -> None:
    tcp = Socket(
        "tcp", "10.0.0.7:22", "ESTABLISHED", send_queue=92, silent=0.2, unheard=320.0
    )  # it sends again and again
    waits = thread(102, call="read", descriptors=(Descriptor(4, "socket:[8]", tcp),))
    (cause, *_) = causes(caller(), waits, reader(100))
    assert cause.text == (
        "1 stat waits for 10.0.0.7:22, no byte for 320 s; 92 bytes sent to it not acknowledged "
        "(the stack of the thread could not be read)"
    )
