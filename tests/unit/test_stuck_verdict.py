"""The verdict of `stuck` if not all possible callers could be examined, and fusetools' own
waits."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures import Invoke

from fusetools.host import left
from fusetools.host.mounts import parse_mountinfo
from fusetools.record.state import DIRECTORY
from fusetools.render.text.stuck import render
from fusetools.stuck import children, machine, own
from fusetools.stuck.bounded import Asker
from fusetools.stuck.census import Census, by_suspicion
from fusetools.stuck.diagnosis import stuck
from fusetools.stuck.moment import Connection, Moment, Place, Process, Task

MOUNT = Connection(40, "/mnt/a", "fuse.sshfs", "host:", waiting=1, daemon=100, holders=(100,))
DAEMON = Process(100, 1, "sshfs", "S", uid=0, user="root", threads=(100,))
READS = Task(100, 100, "sshfs", "S", stack=("fuse_dev_do_read",), call="read", age=10.0)
WAITS = ("request_wait_answer", "fuse_simple_request", "fuse_statfs")


def caller(pid: int, call: str = "statfs", age: float = 300.0) -> Task:
    places = (Place("/mnt/a", (40,)),)
    return Task(pid, pid, "x", "D", WAITS[0], WAITS, call, age, places=places)


def moment(*tasks: Task, mount: Connection = MOUNT, **more: Any) -> Moment:
    pids = {task.pid for task in tasks}
    processes = (DAEMON, *(Process(pid, 1, "x", "D", threads=(pid,)) for pid in pids))
    return Moment("6.1", (mount,), processes, (READS, *tasks), **more)


def told(now: Moment) -> str:
    return " ".join(render(stuck(now)).split())


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({}, []),
        ({"hidden": (500,)}, ["time"]),
        ({"unseen": (500,)}, ["time"]),
        ({"root": False}, ["user"]),
        ({"pid_namespace": True}, ["pid_namespace"]),
        ({"counted": False}, ["fusectl"]),
        ({"counted": False, "hidden": (500,)}, ["fusectl", "time"]),
    ],
)
def test_requests_of_callers_that_were_not_examined(
    more: dict[str, Any], kinds: list[str], monkeypatch: pytest.MonkeyPatch, run: Invoke
) -> None:
    """One of them may hang: that is unknown, and the exit status is not 0."""
    now = moment(**more)
    result = stuck(now)
    assert [unknown.kind for unknown in result.unknown] == kinds
    assert result.mounts[0].state == ("unknown" if kinds else "busy")
    monkeypatch.setattr(machine, "read", lambda asked: now)
    status = 3 if kinds else 0
    assert run("stuck").exit_code == run("stuck", "--mount", "/mnt/a").exit_code == status
    assert json.loads(run("stuck", "--json").stdout)["mounts"][0]["state"] == result.mounts[0].state


def test_a_mount_without_requests_cannot_hang() -> None:
    """However many could not be examined; the same for a mount that had no request for a moment."""
    for mount in (replace(MOUNT, waiting=0), replace(MOUNT, settled=True)):
        result = stuck(moment(mount=mount, hidden=(500,), unseen=(501,)))
        assert (result.stuck, result.unknown) == (False, ())
    # But uncounted callers may wait.
    result = stuck(moment(mount=replace(MOUNT, waiting=None), hidden=(500,)))
    assert result.mounts[0].state == "unknown"


def test_a_daemon_that_was_not_found_in_time_may_be_stopped() -> None:
    lost = replace(MOUNT, waiting=0, daemon=None, holders=(), hidden=True, late=True)
    result = stuck(moment(mount=lost))
    assert result.mounts[0].state == "unknown"
    assert [unknown.kind for unknown in result.unknown] == ["time"]
    assert "nothing waits, but its daemon was not found in time" in told(moment(mount=lost))


def test_callers_of_automount_are_uncounted() -> None:
    quiet = replace(MOUNT, waiting=0)
    now = moment(mount=quiet, unseen=(500,), autofs=True)
    assert [unknown.kind for unknown in stuck(now).unknown] == ["time"]
    assert stuck(now, ["/mnt/a"]).unknown == ()  # only that mount was requested
    assert stuck(moment(mount=quiet, hidden=(500,), autofs=True)).unknown == ()


def test_a_hang_is_known_whoever_was_not_examined() -> None:
    result = stuck(moment(caller(500), hidden=(501,)))
    assert (result.stuck, result.unknown, result.mounts[0].state) == (True, (), "stuck")


def test_unexamined_processes_are_named_with_their_users() -> None:
    now = moment(hidden=tuple(range(500, 700)), whose=(("eve", 199), ("root", 1)))
    text = told(now)
    assert "NOT KNOWN: 1 request in flight; not all that may wait could be examined" in text
    assert "200 processes or threads that may wait could not be examined in time: 500, 501," in text
    assert "(199 of eve, 1 of root)" in text
    assert "fix: fusetools stuck --watch" in text
    assert "fix: sudo fusetools stuck" in told(moment(root=False))


def test_a_mount_whose_namespace_was_not_read_is_not_called_unmounted() -> None:
    nowhere = replace(MOUNT, path="")
    assert "connection 40 (mounted nowhere now, sshfs, pid 100)" in told(moment(mount=nowhere))
    text = told(moment(mount=nowhere, unread=3))
    assert "connection 40 (its mount point is not known, sshfs, pid 100)" in text
    assert "the mounts of 3 other mount namespaces could not be read in time" in text


def test_waits_of_fusetools_are_no_hang() -> None:
    four = [caller(pid) for pid in (501, 502, 503, 504)]
    ours = frozenset({501, 502, 503, 504})
    mount = replace(MOUNT, waiting=4)
    (found,) = stuck(moment(*four, mount=mount, own=ours)).mounts
    assert (found.state, found.own, found.callers, found.causes) == ("own", 4, (), ())
    text = told(moment(*four, mount=mount, own=ours))
    assert "not stuck: 4 processes of fusetools wait" in text and "nobody else does" in text
    # Even if others could not be examined: no request is theirs.
    assert stuck(moment(*four, mount=mount, own=ours, hidden=(600,))).unknown == ()


def test_waits_of_others_beside_those_of_fusetools_are_a_hang() -> None:
    ours = frozenset({501, 502})
    now = moment(caller(501), caller(502), caller(600), mount=replace(MOUNT, waiting=3), own=ours)
    (found,) = stuck(now).mounts
    assert (found.state, [one.pid for one in found.callers]) == ("stuck", [600])
    # There is one request more than ours, and its caller was not examined.
    now = moment(caller(501), mount=replace(MOUNT, waiting=2), own=ours, hidden=(600,))
    assert stuck(now).mounts[0].state == "unknown"


def test_a_workload_that_is_being_loaded_is_none_of_fusetools() -> None:
    now = moment(caller(501, call="execve"), own=frozenset({501}))
    assert stuck(now).mounts[0].state == "stuck"


def row(pid: int, ppid: int = 1, **more: Any) -> children.ProcessRow:
    return {
        "pid": pid,
        "ppid": ppid,
        "comm": "x",
        "state": "S",
        "start": 7,
        "ran": 0,
        "of_kernel": False,
        "forked": False,
        "owner": 0,
        "mnt": "",
        "root": "",
        "serves": False,
        "via": pid,
        "threads": [pid],
        "waits": [],
        **more,  # type: ignore[typeddict-item]
    }


def test_fusetools_is_known_by_what_only_root_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the lock that a recording holds, by notes with start times, and by descent without another
    program; never by a name."""
    if os.geteuid() != 0:
        pytest.skip("only root has such a directory")
    monkeypatch.setattr(left, "noted", lambda: [(600, 7), (601, 8)])
    folder = tmp_path / "0"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"processes": [[700, 7], [701, 8]]}))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        recording = os.getpid()
        rows = [
            row(recording, start=1),
            row(501, recording, forked=True),  # a child
            row(502, 501, forked=True),  # and its own
            row(503, recording),  # the workload has run its program
            row(504, 503, forked=True),
            row(600),
            row(601),  # another process has the number by now
            row(700),
            row(701),
            row(800, comm="fusetools"),
        ]
        found = own.own_processes(rows, tmp_path)
    assert found == {recording, 501, 502, 600, 700}
    assert own.own_processes([], tmp_path / "none") == {os.getpid()}


def test_recordings_are_looked_for_where_they_are() -> None:
    assert own.RECORDINGS == DIRECTORY


def test_another_user_s_process_is_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has the number of a recording that has ended."""
    monkeypatch.setattr(left, "noted", lambda: [])
    monkeypatch.setattr(own, "_recordings", lambda _: [500, 501])
    rows = [row(500, owner=1000), row(501)]
    assert own.own_processes(rows, tmp_path) == {os.getpid(), 501}


def test_children_that_stay_behind_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root notes them")
    place = str(tmp_path / "left")
    left.note([os.getpid()], place)  # it does not sleep in state D
    assert left.noted(place) == [] and not os.path.exists(place)
    with subprocess.Popen(["sleep", "100"]) as sleeper:
        start = left._state(sleeper.pid)[1]
        monkeypatch.setattr(left, "_state", lambda pid: ("D", start if pid == sleeper.pid else 0))
        left.note([sleeper.pid], place)
        left.note([sleeper.pid], place)
        assert left.noted(place) == [(sleeper.pid, start)]
        assert Path(place).read_text().count("\n") == 1
        sleeper.kill()
    monkeypatch.undo()
    assert left.noted(place) == [] and not os.path.exists(place)


@pytest.mark.parametrize("text", ["", "1 2 3\n", "x y\n", "1\n", "9" * 30 + " 1\n", "\xff\n"])
def test_a_damaged_note_names_nobody(tmp_path: Path, text: str) -> None:
    place = tmp_path / "left"
    place.write_text(text)
    assert left.noted(str(place)) == []


def test_a_note_of_another_user_counts_for_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    start = left._state(os.getpid())[1]
    place, link = tmp_path / "left", tmp_path / "link"
    place.write_text(f"{os.getpid()} {start}\n")
    assert left.noted(str(place)) == [(os.getpid(), start)]
    link.symlink_to(place)
    assert left.noted(str(link)) == []
    os.chown(place, 65534, 65534)
    assert left.noted(str(place)) == []


class Plain(Asker):
    """Answers without children; ``asked``: the order of questions."""

    def __init__(self) -> None:
        super().__init__(30, 1)
        self.asked: list[tuple[str, Any]] = []

    def each(
        self, items: Iterable[Any], answer: Any, share: float = 1, unknown: Any = None
    ) -> list[Any]:
        results = []
        for item in items:
            self.asked.append((answer.__name__, item))
            results.append(answer(item))
        return results


def census(monkeypatch: pytest.MonkeyPatch, *rows: children.ProcessRow) -> tuple[Census, Plain]:
    """``left`` of a row: the descriptors that it has."""
    known = {row["pid"]: row for row in rows}

    def process(pid: int) -> list[children.ProcessRow]:
        return [known[pid]]

    def waits(item: tuple[list[int], int]) -> tuple[int, bool, list[children.ThreadRow]]:
        tids, pid = item
        return pid, False, [(tid, "S", "request_wait_answer") for tid in tids if tid % 1000 == 999]

    def devices(item: tuple[tuple[int, int], int]) -> tuple[int, list[tuple[int, int]], int]:
        (_, first), pid = item
        return pid, [(5000, 40)] if pid == 900 and first > 1000 else [], first + 1000

    def closer(item: tuple[int, int]) -> dict[str, Any]:
        _, pid = item
        return {"pid": pid, "uid": 0, "tracer": 0, "cgroup": "", "fuse": [], "left": 128}

    for function in (process, waits, devices, closer):
        monkeypatch.setattr(children, function.__name__, function)
    ask = Plain()
    return Census(ask, sorted(known)), ask


def test_a_process_with_many_threads_has_its_turns_after_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = [row(pid, threads=list(range(pid, pid + 1000))) for pid in (1000, 3000)]
    taken, ask = census(monkeypatch, *large, row(5000))
    turns = [(what, item if what == "process" else item[1]) for what, item in ask.asked]
    assert turns[:3] == [("process", 1000), ("process", 3000), ("process", 5000)]
    assert [pid for _, pid in turns[3:]] == [1000, 3000] * 3
    assert all(len(item[0]) <= children.SLICE for what, item in ask.asked if what == "waits")
    assert taken.threads[1000] == [(1999, "S", "request_wait_answer")]
    assert taken.in_fuse == {1000, 3000}


def test_likely_daemons_are_looked_at_first_and_the_first_descriptors_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads no more than needed: the daemon of the only connection has been found then."""
    mount = parse_mountinfo("30 22 0:40 / /mnt/a rw - fuse.x a rw,user_id=7\n")
    waits: list[children.ThreadRow] = [(800, "S", "request_wait_answer")]
    rows = [
        row(500, owner=1000),
        row(600, owner=7),
        row(700, serves=True),
        row(800, waits=waits),
        row(900),
    ]
    taken, ask = census(monkeypatch, *rows)
    del ask.asked[:]
    taken.look_closer(mount, [40])
    order = [item[1] for what, item in ask.asked if what == "closer"]
    assert order == [700, 800, 600, 500, 900]
    turns = [item[0][1] for what, item in ask.asked if what == "devices"]
    assert turns == [128] * 5 + [1128] * 5
    assert taken.closer[900]["fuse"] == [(5000, 40)]


def test_the_order_in_which_threads_are_examined() -> None:
    """Some of each daemon's threads, then callers in FUSE, however many others seem to wait."""
    crowd = {pid: [(pid, "D", "do_vfork")] for pid in range(1000, 1100)}
    threads = {**crowd, 5000: [(5000, "S", "request_wait_answer")], 900: [(905, "S", "x")]}
    processes = {900: Process(900, 1, "x", "S", threads=tuple(range(900, 1000)))}
    order = [tid for _, tid in by_suspicion(threads, {900}, processes)]
    assert order[:65] == [*range(900, 964), 5000]
    assert order[65:101] == list(range(964, 1000))
    assert set(order[101:]) == set(crowd)


def test_descriptors_are_read_a_part_at_a_time() -> None:
    script = (
        "import os\n"
        "null = os.open(os.devnull, 0)\n"
        "for number in range(16, 900): os.dup2(null, number)\n"
        "os.dup2(null, 1000)\n"
        "print(flush=True); input()"
    )
    many = [sys.executable, "-c", f"import resource\n{script}"]
    with subprocess.Popen(many, stdin=-1, stdout=-1) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        place = f"/proc/{process.pid}"
        numbers, following = children._descriptors(place, 0)
        assert (numbers, following) == (range(children.FEW), children.FEW)
        assert children._listed(f"{place}/fd", 890, 5) == [890, 891, 892, 893, 894]
        rest, following = children._descriptors(place, following)
        assert (rest, following) == ([*range(children.FEW, 900), 1000], 0)
        link = os.readlink(f"{place}/fd/1000")
        _, rows, _ = children.holding(((128, frozenset({link})), process.pid))
        assert rows == [(link, "r")] * len(rest)
        process.stdin.close()
    assert children._descriptors(place, 128) == ([], 0)
