"""fusetools why: rules on stored answers of the core, and on the recording of samples/."""

from __future__ import annotations

import copy
import errno
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import pytest
from fixtures import Invoke

import fusetools
from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.fixes import daemons
from fusetools.answers.rules import ALL, rules
from fusetools.answers.why import _UNANSWERED, RULES
from fusetools.host.limits import CHANGES, change, unlimited
from fusetools.reasons import Code, Reason, Value
from fusetools.render.text.stages import render as stages_text
from fusetools.render.text.why import COMMAND, first, render
from fusetools.results.compare import Compared, Figures, Group, Measure
from fusetools.results.diff import Difference, Differences, Side
from fusetools.results.facts import Facts
from fusetools.results.why import Why

DEMO = Path(__file__).parents[2] / "samples" / "recordings" / "demo.data"
MS = 1_000_000
COMM, PID, OTHER = "python3", 100, 200
DAEMON, RECORDER = 4711, 3003


def test_demo(run: Invoke) -> None:
    said = run("why", "-i", str(DEMO))
    assert said.exit_code == 0
    printed = said.output.replace(f" -i {DEMO}", "")
    golden.check("why-demo.txt", printed)
    # The delays of samples/recordings/make-demo.sh: 25 ms on a CPU in 23 % of lookups, 20 ms asleep
    # in 10 % of reads.
    found = json.loads(run("why", "-i", str(DEMO), "--json").output)
    first, second = found["findings"]
    assert (first["reason"]["code"], second["reason"]["code"]) == ("daemon_cpu", "daemon_sleeps")
    figures = first["reason"]["figures"]
    slow = fusetools.open(DEMO).slowest("lookup", least_ns=25 * MS).requests
    assert (figures["requests"], figures["of"]) == (len(slow), 84)
    assert 25 * MS <= figures["mean_ns"] < 26 * MS
    figures = second["reason"]["figures"]
    assert (figures["requests"], figures["of"]) == (3, 32)
    # The callback sleeps until 60 us before the delay's end.
    assert 19.9 * MS <= figures["mean_ns"] < 20.1 * MS
    assert second["reason"]["subject"]["syscall"] == "clock_nanosleep"


def test_each_ns_has_one_cause() -> None:
    """The causes sum up to the whole time of waited-for requests, as `stages` has it."""
    recording = fusetools.open(DEMO)
    both = recording.stages()
    stages = both.operations
    result = recording.why()
    locks = ("inode_lock", "directory_lock", "permission")
    asleep = ("dirty_throttling", "page", *locks, "passthrough", "other", "blocked")
    outside = sum(call.outside_ns.get(kind, 0) for call in both.calls for kind in asleep)
    assert result.waited_ns == sum(o.total_ns for o in stages if o.waits) + outside
    assert result.requests == sum(o.timed for o in stages if o.waits)
    assert sum(f.time_ns for f in result.findings) <= result.waited_ns
    parts = recording.why().findings, result.ordinary_share, result.unknown_share
    assert sum(f.share for f in parts[0]) + parts[1] + parts[2] <= 1.0001


def test_filters_hold() -> None:
    filters = Filters(pids=(1,))
    result = fusetools.open(DEMO).why(filters)
    assert result.requests == 0 and not result.findings


def test_thresholds_have_a_finding_a_reason_and_a_source() -> None:
    codes = {code.value for codes, _ in RULES for code in codes}
    assert {*rules()} <= {*codes, ALL}
    for rows in rules().values():
        assert all(row.why and row.source for row in rows.values())


# Rules on answers of the core


def cause(what: str, ns: int, **more: Any) -> dict[str, Any]:
    count = more.pop("n", 100)
    places = more.pop("places", [("read", 0, count, ns)])
    return {
        "what": what,
        "how": "other",
        "connection": None,
        "syscall": None,
        "fd": None,
        "peer": (None, None, None),
        "lock": None,
        "timed_out": False,
        "helper": False,
        "background": False,
        "pid": None,
        "signal": 0,
        "ns": ns,
        "requests": count,
        "own": [],
        "last": [],
        "operations": [(operation, part) for operation, _, _, part in places],
        "places": places,
        "callers": [(PID, count, ns)],
        **more,
    }


def asked(operation: str, requests: int, keys: int, saved: int, **more: Any) -> dict[str, Any]:
    return {
        "operation": operation,
        "negative": False,
        "requests": requests,
        "ns": requests * 1000,
        "keys": keys,
        "saved": [saved, saved],
        "saved_ns": saved * 1000,
        "most": [(0, "a", requests)],
        **more,
    }


EMPTY: dict[str, Any] = {
    "waited": (1000, 1000 * MS),
    "recording": 0,
    "operations": [("read", (1000, 1000 * MS, 0))],
    "asynchronous": [],
    "errors": [],
    "refused": [],
    "disconnected": 0,
    "fates": [],
    "calls": [],
    "processes": [(PID, 1000, 1000 * MS)],
    "of_process": [(PID, "read", 0, 1000, 1000 * MS)],
    "classes": [("needed", "read", PID, 1000, 1000 * MS)],
    "class_places": [("needed", "read", 0, 1000, 1000 * MS)],
    "listed": (0, (0, 0, 0)),
    "threads": [(None, 10)],
    "waiters": [(None, 1)],
    "comms": [(PID, COMM), (OTHER, "other")],
    "nodes": [(None, ("dir/file", True)), (None, ("dir/other", True)), (None, ("c", True))],
    "causes": [],
    "asked": [],
    "background": [],
    "transfers": [],
}


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Any:
    """rule(part=value …) returns the findings if the core's answer has these parts."""
    first, last = 0, 2_000 * MS

    def found(seconds: float = 2.0, filters: Filters | None = None, **parts: Any) -> Why:
        answer = copy.deepcopy(EMPTY)
        base = {"first": first, "last": last, "lost": 0, "throttled": 0, "warnings": []}
        answer.update(base, **parts)
        monkeypatch.setattr(core.native, "why", lambda *_: answer)
        recording = fusetools.open(DEMO)
        recording._source.session = fusetools.session.Session(
            seconds=seconds,
            throttled=THROTTLED.pop() if THROTTLED else (),
            mounts=MOUNTS.pop() if MOUNTS else (),
            recorders=(RECORDER,),
            ends=ENDS.pop() if ENDS else (),
            files=FILES.pop() if FILES else (),
            missing=MISSING.pop() if MISSING else (),
        )
        return recording.why(filters) if filters else recording.why()

    return found


THROTTLED: list[Any] = []
MOUNTS: list[Any] = []
ENDS: list[Any] = []
FILES: list[Any] = []
MISSING: list[Any] = []


def codes(result: Why) -> list[str]:
    return [finding.reason.code.value for finding in result.findings]


def test_nothing_of_ordinary_requests(rule: Any) -> None:
    result = rule(causes=[cause("on_cpu", 500 * MS), cause("passing", 500 * MS)])
    assert codes(result) == [] and result.ordinary_share == 1.0


@pytest.mark.parametrize("code", [Code.WORKLOAD_BEFORE_TRACED, Code.WORKLOAD_ENDED_BEFORE])
def test_mounted_late(rule: Any, code: Code) -> None:
    """It is found even where no request was waited for, and is no part of the callers' waiting."""
    did: dict[str, Value] = {"call": "close", "comm": "fusermount3", "pid": 7, "path": "/mnt"}
    figures = {"span_ns": 29_000 * MS, "blocked_ns": 0, "calls": 999_983, "failed": 999_983}
    figures |= {"calls_ns": 9_000 * MS, "ago_ns": 31_000 * MS, "mounted_ns": 30_000 * MS}
    figures |= {"on_cpu_ns": 28_000 * MS}
    late = Reason(code, did, figures)
    MISSING.append((late,))
    result = rule(waited=(0, 0))
    assert codes(result) == ["mounted_late"] and result.findings[0].share == 0
    assert result.findings[0].reason.subject == did
    assert "close 999,983 times, for 9.0 s in all (all failed)" in result.findings[0].reason.text
    assert result.findings[0].reason.fix == "ulimit -n 1024   # before it is started"
    read = replace(late, subject={**did, "call": "read"})
    MISSING.append((read,))
    assert rule(waited=(0, 0)).findings[0].reason.fix == ""
    slow = cause("slept", 900 * MS, how="sleep", syscall="x", pid=OTHER)
    MISSING.append((late,))
    assert codes(rule(causes=[slow])) == ["mounted_late", "daemon_sleeps"]
    # Within a second, or a tenth of it all.
    quick = replace(late, figures={**figures, "mounted_ns": 900 * MS})
    MISSING.append((quick,))
    assert codes(rule(waited=(0, 0))) == []
    MISSING.append((late,))
    assert codes(rule(seconds=280.0, waited=(0, 0))) == []


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("sleep", "daemon_sleeps"),
        ("network", "slow_server"),
        ("disk", "slow_disk"),
        ("page", "slow_disk"),
        ("process", "daemon_waits_for_process"),
        ("fuse", "daemon_waits_for_fuse"),
        ("on_cpu", "daemon_thread_busy"),
        ("thread", "daemon_waits"),
        ("kernel_lock", "daemon_waits"),
    ],
)
def test_sleeps(rule: Any, how: str, code: str) -> None:
    rows = [("open", 0, 39, 390 * MS), ("open", 1, 1, 10 * MS), ("read", 2, 5, 100 * MS)]
    operations = [("open", (160, 500 * MS, 0)), ("read", (840, 500 * MS, 0))]
    slept = cause("slept", 500 * MS, how=how, syscall="x", pid=OTHER, places=rows)
    result = rule(causes=[slept, cause("passing", 500 * MS)], operations=operations)
    assert codes(result) == [code]
    (finding,) = result.findings
    assert finding.share == 0.5 and finding.time_ns == 500 * MS
    figures, subject = finding.reason.figures, finding.reason.subject
    # 97 % of open's time belongs to one file.
    assert (figures["requests"], figures["of"], figures["mean_ns"]) == (39, 160, 10 * MS)
    assert (subject["operation"], subject["path"], subject["place"]) == (
        "open",
        "/dir/file",
        "file",
    )
    # Too little to matter: below a tenth, or hiccups.
    few = {**slept, "ns": 90 * MS}
    assert codes(rule(causes=[few, cause("passing", 910 * MS)])) == []
    short = {**slept, "ns": 9 * MS}
    assert codes(rule(causes=[short], waited=(1000, 10 * MS))) == []
    assert codes(rule(causes=[slept], seconds=60.0)) == []


def test_stages_name_the_disks_that_were_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of `slow` and `why`; of the selected operation, and of callers' requests."""
    disk = {"how": "disk", "connection": 45, "syscall": "pread64"}
    both = [("read", 0, 1, 5 * MS), ("read", 1, 1, 2 * MS), ("open", 0, 1, MS)]
    answer = {
        **{**EMPTY, "first": 0, "last": 2_000 * MS, "lost": 0, "throttled": 0, "warnings": []},
        "causes": [
            cause("slept", 8 * MS, fd=4, places=both, **disk),
            cause("slept", 3 * MS, fd=9, places=[("read", 0, 1, 3 * MS)], **disk),
            cause("slept", 4 * MS, fd=4, background=True, **disk),
            cause("slept", 4 * MS, fd=4, how="network", connection=45),
        ],
    }
    monkeypatch.setattr(core.native, "why", lambda *_: answer)
    recording = fusetools.open(DEMO)
    recording._source.session = replace(
        recording._source.session,
        mounts=(fusetools.session.TracedMount("/mnt", 45, daemon_pid=DAEMON),),
        files=(fusetools.session.File(DAEMON, 4, "/data/f4", "/data", "ext4", "/dev/vdb"),),
    )
    result = recording.stages("read")
    (read,) = (o for o in result.operations if o.waits)
    file = "/data/f4 on /data (ext4, /dev/vdb)"
    assert read.disk_ns == {file: 7 * MS, "/data (ext4, /dev/vdb)": 3 * MS}
    lines = [line.strip() for line in stages_text(result).splitlines() if "waited for /" in line]
    assert [line.split(": ")[0] for line in lines] == [
        f"the daemon waited for {name}" for name in read.disk_ns
    ]
    assert not any(o.disk_ns for o in recording.stages().operations)


def test_a_disk_is_named_by_the_file_that_was_waited_for_most(rule: Any) -> None:
    def found(*fds: int | None, source: str = "/dev/vdb", first: int = 4, **more: Any) -> Any:
        files = [
            fusetools.session.File(DAEMON, fd, f"/data/f{fd}", "/data", "ext4", source)
            for fd, source in ((first, "/dev/vdb"), (first + 1, source))
        ]
        more = {"how": "disk", "syscall": "pread64", "connection": 45, **more}
        sleeps = [cause("slept", (300 + at) * MS, fd=fd, **more) for at, fd in enumerate(fds)]
        MOUNTS.append((fusetools.session.TracedMount("/mnt", 45, daemon_pid=DAEMON),))
        FILES.append(tuple(files))
        return rule(causes=sleeps).findings[0]

    subject = found(4, 5).reason.subject
    assert (subject["below"], subject["disk"]) == ("/data/f5", "/data (ext4, /dev/vdb)")
    # The file was opened meanwhile: all known ones are on one disk, or not.
    inferred = found(9, None)
    assert "below" not in inferred.reason.subject
    assert inferred.reason.subject["disk"] == "/data (ext4, /dev/vdb)"
    assert (inferred.sure, found(4, 5).sure) == ("inferred", "measured")
    assert "disk" not in found(9, source="/dev/vdc").reason.subject
    # stdout and stderr say nothing, nor do files for a page, nor a disk of another type.
    frames = [("main", "/usr/bin/daemon", False), ("xfs_file_fsync", "", True)]
    for other in (
        found(9, first=1),
        found(None, how="page", syscall=None),
        found(9, last=frames),
    ):
        assert "disk" not in other.reason.subject and other.sure == "measured"
    assert found(9, last=frames).reason.subject["fstype"] == "xfs"
    assert "the xfs file system below, in pread64" in found(9, last=frames).reason.text


def test_children_of_one_program_are_one_cause(rule: Any) -> None:
    more = {"how": "process", "syscall": "read"}
    several = [cause("slept", 5 * MS, pid=1000 + at, **more) for at in range(60)]
    comms = [(PID, COMM), *((1000 + at, "sh") for at in range(60))]
    result = rule(causes=[*several, cause("passing", 700 * MS)], comms=comms)
    assert codes(result) == ["daemon_waits_for_process"]
    reason = result.findings[0].reason
    assert reason.figures["processes"] == 60 and reason.subject["comm"] == "sh"
    assert "waits in read for sh (60 processes)" in reason.text and "pid" not in reason.subject
    # In which call is not known where the recording began during it.
    result = rule(causes=[cause("slept", 300 * MS, how="process", pid=1000)], comms=comms)
    assert "waits for sh (pid 1000)" in result.findings[0].reason.text
    # Different programs have nothing in common.
    comms = [(PID, COMM), *((1000 + at, f"sh{at}") for at in range(60))]
    assert codes(rule(causes=several, comms=comms)) == []


@pytest.mark.parametrize(
    ("how", "pid", "text"),
    [
        ("stopped", OTHER, "a signal stopped it, other (pid 200) let it continue"),
        ("traced", OTHER, "a tracer held it: other (pid 200)"),
        ("traced", None, "a tracer held it (a debugger, strace)"),
        ("frozen", None, "the freezer of its cgroup held it"),
    ],
)
def test_a_daemon_that_may_not_run(rule: Any, how: str, pid: int | None, text: str) -> None:
    halt = cause("slept", 600 * MS, how=how, pid=pid)
    result = rule(causes=[halt, cause("no_thread", 20 * MS), cause("passing", 380 * MS)])
    assert codes(result) == ["daemon_halted"]
    said = result.findings[0].reason.text
    assert said.startswith("for 60.0 % of the callers' waiting, ") and text in said


def test_a_finding_names_all_operations_that_it_is_about(rule: Any) -> None:
    rows = [("open", 0, 50, 260 * MS), ("flush", 0, 50, 240 * MS), ("read", 0, 9, 10 * MS)]
    slept = cause("slept", 510 * MS, how="sleep", syscall="clock_nanosleep", places=rows)
    reason = rule(causes=[slept]).findings[0].reason
    assert (reason.subject["operation"], reason.subject["others"]) == ("open", ("flush",))
    assert "is open of /dir/file, and flush: 50 of 50 open requests" in reason.text
    few = cause("slept", 510 * MS, how="sleep", syscall="clock_nanosleep", places=rows[::2])
    assert "others" not in rule(causes=[few]).findings[0].reason.subject


@pytest.mark.parametrize(
    ("parts", "fix"),
    [
        ({"asked": [asked("lookup", 1000, 40, 960)]}, "entry_timeout"),
        ({"asked": [asked("lookup", 1000, 400, 600, negative=True)]}, "negative_timeout"),
        (
            {"class_places": [("small", "read", 0, 900, 9), ("needed", "read", 0, 100, 9)]},
            "read larger blocks",
        ),
        (
            {"class_places": [("small", "write", 0, 900, 9), ("needed", "write", 0, 100, 9)]},
            "writeback cache",
        ),
        # Looks like it: few could be saved, others' requests could, another mount's.
        ({"asked": [asked("lookup", 1000, 600, 400)]}, ""),
        ({"asked": [asked("getattr", 1000, 40, 960)]}, ""),
        ({"asked": [asked("lookup", 1000, 40, 960)], "nodes": [(9, ("a", True))] * 3}, ""),
    ],
)
def test_slow_requests_that_need_not_be_made(rule: Any, parts: dict[str, Any], fix: str) -> None:
    """The time is the daemon's wait, and most of it could be saved."""
    needed = [("needed", "lookup", 0, 1000, 100 * MS)]
    (_, operation, *_), *_ = parts.get("class_places", needed)
    places = [(operation, 0, 1000, 900 * MS)]
    slept = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep", places=places)
    given = {"class_places": needed, "operations": [(operation, (1000, 1000 * MS, 0))], **parts}
    finding = rule(causes=[slept], **given).findings[0]
    assert finding.reason.code == Code.DAEMON_SLEEPS
    assert (fix in finding.reason.fix) if fix else not finding.reason.fix
    assert ("saved_share" in finding.reason.figures) == bool(fix)


def test_eagain_is_expected_only_where_a_call_may_not_wait(rule: Any) -> None:
    def found(operation: str) -> list[str]:
        rows = [(operation, -errno.EAGAIN, False, (500, 500 * MS, 500))]
        operations = [(operation, (1000, 1000 * MS, 500))]
        return codes(rule(errors=rows, operations=operations, causes=[cause("passing", MS)]))

    assert found("open") == ["errors_frequent"] and found("read") == []


def test_the_holder_of_an_inodes_lock(rule: Any) -> None:
    wait = cause("outside", 700 * MS, how="inode_lock", syscall="pwrite64", places=[])
    rows = [("write", 0, 50, 90 * MS)]
    sleep = cause("slept", 90 * MS, how="sleep", syscall="clock_nanosleep", places=rows)
    calls = [("write", "pwrite64", (50, 100 * MS, 0)), ("getattr", "newfstatat", (9, 200 * MS, 0))]
    result = rule(causes=[wait, sleep], calls=calls)
    assert codes(result) == ["inode_lock"]
    reason = result.findings[0].reason
    assert (reason.subject["operation"], reason.figures["mean_ns"]) == ("write", 2 * MS)
    assert "meanwhile write took 2.00 ms each, in which the daemon sleeps" in reason.text
    # The holder is not blamed for other requests.
    sleep["places"] = [("getattr", 0, 50, 90 * MS)]
    assert "how" not in rule(causes=[wait, sleep], calls=calls).findings[0].reason.subject


def test_the_lowest_mount_is_to_blame(rule: Any) -> None:
    upper, lower = 45, 46
    wait = cause("slept", 500 * MS, how="fuse", syscall="pread64", connection=upper)
    sleep = cause("slept", 480 * MS, how="sleep", syscall="clock_nanosleep", connection=lower)
    sleep["callers"] = [(DAEMON, 100, 480 * MS)]
    mounts = [(upper, DAEMON), (lower, DAEMON + 1)]
    MOUNTS.append(
        tuple(fusetools.session.TracedMount(f"/{n}", n, daemon_pid=pid) for n, pid in mounts)
    )
    result = rule(causes=[wait, sleep], processes=[(PID, 50, 500 * MS), (DAEMON, 50, 480 * MS)])
    assert codes(result) == ["daemon_sleeps"]
    # The time counts once, and the callers are those above.
    assert result.waited_ns == 520 * MS and result.findings[0].time_ns == 480 * MS
    assert [caller.pid for caller in result.findings[0].callers] == [PID]
    # The mount below is not recorded.
    MOUNTS.append((fusetools.session.TracedMount("/45", upper, daemon_pid=DAEMON),))
    result = rule(causes=[wait])
    assert codes(result) == ["daemon_waits_for_fuse"] and result.waited_ns == 1000 * MS
    assert "a second --mount" in result.findings[0].reason.fix
    # It is recorded, and left out: its caller is the daemon above.
    MOUNTS.append(
        tuple(fusetools.session.TracedMount(f"/{n}", n, daemon_pid=pid) for n, pid in mounts)
    )
    result = rule(causes=[wait], filters=Filters(comms=("cat",), start_ns=20 * MS))
    assert result.findings[0].reason.fix.startswith("fusetools why -i ")
    assert "--comm" not in result.findings[0].reason.fix
    assert " --comm cat --from 0.02 " in result.findings[0].more


def test_waits_that_are_a_small_part_of_the_recording(rule: Any) -> None:
    processes = [(PID, 900, 90 * MS), (OTHER, 100, 10 * MS)]
    parts = {"causes": [cause("passing", 100 * MS)], "waited": (1000, 100 * MS)}
    result = rule(seconds=10.0, processes=processes, **parts)
    assert result.longest_ns == 90 * MS
    remark = (
        "callers waited for the mount 100 ms in all, 1.0 % of the 10.0 s recorded: the rest of the "
        "time passed elsewhere"
    )
    assert remark in " ".join(render(result).split())
    assert remark in " ".join(" ".join(first(result)).split())
    assert "elsewhere" not in render(rule(seconds=0.1, processes=processes, **parts))
    # A short recording's length has its digits.
    short = rule(seconds=0.02, causes=[cause("passing", MS)], waited=(1000, MS))
    assert "5.0 % of the 20.0 ms recorded" in " ".join(render(short).split())
    # One after the other, each waited for a small part of the recording, but of all its own time.
    row = {"causes": [cause("passing", 900 * MS)], "waited": (1000, 900 * MS)}
    many = [(pid, 10, 9 * MS) for pid in range(100)]
    assert "elsewhere" not in render(rule(seconds=1.0, processes=many, **row))
    # With findings, too.
    slept = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep")
    assert "elsewhere" in render(rule(seconds=10.0, causes=[slept]))
    assert "elsewhere" not in render(rule(seconds=1.5, causes=[slept]))


def test_a_directory(rule: Any) -> None:
    rows = [("open", 0, 20, 200 * MS), ("open", 1, 20, 200 * MS)]
    slept = cause("slept", 400 * MS, how="sleep", syscall="clock_nanosleep", places=rows)
    subject = rule(causes=[slept]).findings[0].reason.subject
    assert (subject["path"], subject["place"]) == ("/dir", "directory")


LOCK = {"how": "sleep", "syscall": "clock_nanosleep", "lock": 0x77, "helper": True}


def test_a_lock_takes_the_time_without_a_free_thread(rule: Any) -> None:
    frames = [("main", "/usr/bin/daemon", False), ("take", "/usr/bin/daemon", False)]
    nap = ("nap", "/usr/bin/daemon", False)
    lock = cause("slept", 300 * MS, own=[(frames, 300 * MS)], last=[*frames, nap])
    lock.update(LOCK)
    sleep = cause("slept", 100 * MS, how="sleep", syscall="clock_nanosleep")
    threads = cause("no_thread", 600 * MS)
    result = rule(causes=[threads, lock, sleep])
    assert codes(result)[0] == "daemon_lock" and "few_threads" not in codes(result)
    assert result.findings[0].share == 0.9
    # More sleeps than waits for the lock: more threads help.
    sleep["ns"] = 500 * MS
    threads["ns"] = 400 * MS
    lock["ns"] = 100 * MS
    assert codes(rule(causes=[threads, lock, sleep])) == [
        "daemon_sleeps",
        "few_threads",
        "daemon_lock",
    ]


def test_each_mount_has_its_own_threads(rule: Any) -> None:
    lock = cause("slept", 300 * MS, **LOCK, connection=1)
    threads = cause("no_thread", 300 * MS, connection=2)
    sleep = cause("slept", 50 * MS, how="sleep", syscall="clock_nanosleep", connection=2)
    result = rule(causes=[lock, threads, sleep], threads=[(1, 10), (2, 1)], waiters=[(2, 8)])
    assert codes(result) == ["daemon_lock", "few_threads"]
    assert result.findings[1].reason.figures["threads"] == 1


def test_few_threads(rule: Any) -> None:
    sleep = cause("slept", 200 * MS, how="sleep", syscall="clock_nanosleep")
    result = rule(
        causes=[cause("no_thread", 800 * MS), sleep], threads=[(None, 1)], waiters=[(None, 8)]
    )
    assert codes(result) == ["few_threads", "daemon_sleeps"]
    reason = result.findings[0].reason
    assert (reason.figures["threads"], reason.figures["callers"]) == (1, 8)
    # One caller: a thread is busy for a while after its reply.
    assert "few_threads" not in codes(
        rule(causes=[cause("no_thread", 240 * MS)], threads=[(None, 1)])
    )


def test_a_cpu_that_the_caller_had_does_not_explain_why_no_thread_was_free(rule: Any) -> None:
    """Reads ahead wait for the only thread, which shares a CPU with the caller."""
    threads, work = cause("no_thread", 780 * MS, connection=45), cause("on_cpu", 40 * MS)
    for pid, code in ((PID, "few_threads"), (OTHER, "cpu_taken")):
        lacks = cause("daemon_cpu", 180 * MS, pid=pid, connection=45)
        mount = fusetools.session.TracedMount("/m", 45, daemon_pid=DAEMON)
        MOUNTS.append((replace(mount, limits={"max_read": 4096}),))
        result = rule(
            causes=[threads, lacks, {**work, "connection": 45}],
            threads=[(45, 1)],
            nodes=[(45, ("file", True))],
            transfers=[transfers(4096)],
        )
        assert codes(result) == [code]
        fix = "mount it with -o max_read=BYTES   # now 4,096" if pid == PID else ""
        assert result.findings[0].reason.fix == fix


def test_a_cpu_that_idle_threads_lacked_does_not_explain_why_none_was_free(rule: Any) -> None:
    """Each of the callers waits while the thread that was woken for them has no CPU yet."""
    woken = cause("daemon_cpu", 200 * MS, pid=OTHER, how="woken", connection=45)
    slept = cause("slept", 100 * MS, how="sleep", syscall="clock_nanosleep", connection=45)
    threads = cause("no_thread", 600 * MS, connection=45)
    found = rule(causes=[woken, slept, threads], threads=[(45, 1)], waiters=[(45, 9)])
    assert codes(found) == ["few_threads", "cpu_taken", "daemon_sleeps"]
    assert [finding.share for finding in found.findings] == [0.6, 0.2, 0.1]
    # With a request in hand, it is what all threads did.
    found = rule(causes=[{**woken, "how": "other"}, slept, threads], threads=[(45, 1)])
    assert codes(found) == ["cpu_taken", "daemon_sleeps"]


def test_a_caller_without_a_share_is_not_named(rule: Any) -> None:
    callers = [(PID, 90, 999_500_000), (OTHER, 1, 500_000)]
    taken = cause("daemon_cpu", 300 * MS, pid=OTHER, callers=callers)
    assert [caller.pid for caller in rule(causes=[taken]).findings[0].callers] == [PID]


def test_cpu(rule: Any) -> None:
    taken = cause("daemon_cpu", 300 * MS, pid=OTHER)
    own = cause("daemon_cpu", 100 * MS)
    result = rule(causes=[taken, own, cause("passing", 600 * MS)])
    assert codes(result) == ["cpu_taken"] and result.findings[0].share == 0.3
    reason = result.findings[0].reason
    assert reason.subject["comm"] == "other" and reason.figures["taker_share"] == 1
    assert codes(rule(causes=[cause("daemon_cpu", 140 * MS, pid=OTHER)])) == []
    # The caller itself, or nobody, had the CPU.
    for pid in (PID, None):
        result = rule(causes=[cause("daemon_cpu", 400 * MS, pid=pid)])
        assert codes(result) == [] and result.ordinary_share == 0.4
    callers = rule(causes=[cause("caller_cpu", 300 * MS, pid=OTHER)])
    assert callers.findings[0].reason.subject["whose"] == "workload"


def test_a_cpu_that_the_recorder_had_is_the_recordings(rule: Any) -> None:
    own = cause("daemon_cpu", 300 * MS, pid=RECORDER)
    taken = cause("caller_cpu", 200 * MS, pid=OTHER)
    found = rule(causes=[own, taken, cause("passing", 500 * MS)])
    assert codes(found) == ["cpu_taken", "recording_disturbs"]
    assert [finding.share for finding in found.findings] == [0.2, 0.3]
    assert found.ordinary_share == 0.5
    assert found.findings[1].reason.figures["on_cpu_ns"] == 300 * MS


def test_a_quota_explains_the_time_that_it_stopped_the_daemon(rule: Any) -> None:
    row = fusetools.session.Throttled("/sys/fs/cgroup/x", "daemon", 9, 350 * MS)
    causes = [cause("daemon_cpu", 400 * MS, pid=OTHER), cause("passing", 600 * MS)]
    THROTTLED.append((row,))
    result = rule(causes=causes)
    assert codes(result) == ["cpu_quota"]
    reason = result.findings[0].reason
    assert (reason.figures["times"], reason.figures["time_ns"]) == (9, 350 * MS)
    # A quota that hardly stopped it explains nothing.
    row = fusetools.session.Throttled("/sys/fs/cgroup/x", "daemon", 1, 1 * MS)
    THROTTLED.append((row,))
    assert codes(rule(causes=causes)) == ["cpu_taken"]


@pytest.mark.parametrize(
    ("priority", "weighed", "command"),
    [
        ("nice 19", "", "renice -n 0 -p $(ls /proc/4711/task)"),
        ("SCHED_IDLE", "", "chrt --all-tasks --other -p 0 4711"),
        ("", "nice", "renice -n -10 -p $(ls /proc/4711/task)"),
        (
            "",
            "autogroup",
            "echo -10 > /proc/4711/autogroup; renice -n -10 -p $(ls /proc/4711/task)",
        ),
        ("", "cgroup", ""),
        ("", "", ""),
    ],
)
def test_a_daemon_beside_other_programs(
    rule: Any, priority: str, weighed: str, command: str
) -> None:
    mount = fusetools.session.TracedMount(
        "/mnt", 45, daemon_pid=DAEMON, priority=priority, weighed_by=weighed
    )
    MOUNTS.append((mount,))
    taken = cause("daemon_cpu", 300 * MS, pid=OTHER, connection=45)
    found = rule(causes=[taken])
    reason = found.findings[0].reason
    assert (reason.code, reason.fix) == (Code.CPU_TAKEN, command)
    assert reason.text.endswith(f"; the daemon runs with {priority}") == bool(priority)
    assert not command or f"fix: {command}\n" in render(found)  # in one line: users copy it


def test_a_fix_is_one_line_if_it_is_a_command() -> None:
    commands = [change(name, 45) for name in CHANGES if name != "max_read"]
    assert all(COMMAND.match(command) for command in [*commands, unlimited("/sys/fs/cgroup/a")])
    words = [text for table in daemons().values() for text in table.values()]
    words.append(change("max_read", 45))
    assert not [text for text in words if COMMAND.match(text)]


@pytest.mark.parametrize(
    ("cgroup", "command"),
    [
        ("/sys/fs/cgroup/a.slice", "echo max > /sys/fs/cgroup/a.slice/cpu.max"),
        ("/sys/fs/cgroup/unified/cpu", "echo max > /sys/fs/cgroup/unified/cpu/cpu.max"),
        ("/sys/fs/cgroup/cpu/a b", "echo -1 > '/sys/fs/cgroup/cpu/a b'/cpu.cfs_quota_us"),
        ("/sys/fs/cgroup/cpu,cpuacct/a", "echo -1 > /sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"),
    ],
)
def test_a_quota_is_removed_by_the_file_of_its_version(cgroup: str, command: str) -> None:
    assert unlimited(cgroup) == command


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("dirty_throttling", "dirty_throttling"),
        ("inode_lock", "inode_lock"),
        ("directory_lock", "directory_lock"),
        ("permission", "access_permission"),
        ("page", "pages_awaited"),
        ("passthrough", "passthrough_waits"),
        ("other", "callers_blocked"),
    ],
)
def test_waits_outside_of_requests(rule: Any, how: str, code: str) -> None:
    wait = cause("outside", 400 * MS, how=how, syscall="write", places=[])
    result = rule(causes=[wait, cause("passing", 600 * MS)])
    assert codes(result) == [code] and result.findings[0].share == 0.4
    assert codes(rule(causes=[{**wait, "ns": 90 * MS}])) == []


def test_pages_are_brought_by_reads_in_the_background(rule: Any) -> None:
    page = cause("outside", 800 * MS, how="page", syscall="read", places=[])
    sleep = cause("slept", 300 * MS, how="network", syscall="recvfrom", background=True)
    work = cause("passing", 100 * MS, background=True)
    result = rule(causes=[page, sleep, work, cause("passing", 200 * MS)])
    assert codes(result) == ["slow_server"]
    assert result.findings[0].time_ns == 600 * MS  # 3/4 of the reads' time


def test_a_quota_and_the_recorder_share_no_time(rule: Any) -> None:
    THROTTLED.append((fusetools.session.Throttled("/g", "daemon", 9, 950 * MS),))
    result = rule(causes=[cause("daemon_cpu", 1000 * MS, pid=RECORDER)])
    assert codes(result) == ["cpu_quota"]
    assert sum(finding.time_ns for finding in result.findings) <= result.waited_ns


def test_reads_as_large_as_the_read_ahead_want_a_larger_one(rule: Any) -> None:
    mount = fusetools.session.TracedMount("/mnt", 45, limits={"read_ahead_kb": 128})
    sleep = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep", connection=45)
    # POSIX_FADV_SEQUENTIAL doubles it; other sizes are not by the read-ahead.
    for size, advised in ((128, True), (256, True), (64, False), (512, False)):
        MOUNTS.append((mount,))
        fix = rule(causes=[sleep], transfers=[transfers(size * 1024)]).findings[0].reason.fix
        assert fix.endswith("0:45/read_ahead_kb   # now 128; for files opened later") == advised
    # A page fault reads that much around it, wherever it is.
    MOUNTS.append((mount,))
    around = transfers(128 * 1024, sequential=100)
    assert rule(causes=[sleep], transfers=[around]).findings[0].reason.fix == ""


def test_a_wait_that_its_timeout_ended(rule: Any) -> None:
    waits = {"how": "poll", "syscall": "poll", "peer": "192.0.2.1:80", "timed_out": True}
    over = cause("slept", 900 * MS, **waits)
    answered = {**over, "ns": 90 * MS, "timed_out": False}
    text = rule(causes=[over, answered]).findings[0].reason.text
    assert text.endswith("waits for 192.0.2.1:80 in poll, until its timeout")
    over["ns"] = 800 * MS
    assert "timeout" not in rule(causes=[over, answered]).findings[0].reason.text


def test_the_usual_work_of_reads_in_the_background_counts_once(rule: Any) -> None:
    page = cause("outside", 100 * MS, how="page", syscall="read", places=[])
    work = cause("passing", 900 * MS, background=True)
    sums = (150, 900 * MS, 0)
    result = rule(causes=[page, work, cause("passing", 900 * MS)], asynchronous=[("read", sums)])
    assert result.ordinary_share == 1.0
    (usual,) = result.usual
    assert (usual.time_ns, usual.requests) == (1000 * MS, 1150)


def test_a_thread_on_a_cpu_is_named_with_its_system_call(rule: Any) -> None:
    busy = cause("slept", 900 * MS, how="on_cpu", syscall="clone", helper=True)
    assert "which is on a CPU in clone" in rule(causes=[busy]).findings[0].reason.text
    busy["syscall"] = None
    assert rule(causes=[busy]).findings[0].reason.text.endswith("which is on a CPU")


def test_a_read_in_the_background_counts_once_however_many_wait_for_it(rule: Any) -> None:
    waits = [
        cause("outside", ns * MS, how="page", syscall=name, places=[], callers=[(pid, 9, ns * MS)])
        for name, ns, pid in (("page_fault", 150, PID), ("read", 450, OTHER))
    ]
    rows = [("read", 0, 50, 300 * MS)]
    sleep = cause("slept", 300 * MS, how="sleep", syscall="x", background=True, places=rows)
    more = cause("passing", 100 * MS, background=True, places=[("read", 0, 50, 100 * MS)])
    (finding,) = rule(causes=[*waits, sleep, more]).findings
    assert finding.time_ns == 450 * MS  # 3/4 of the reads' time
    figures = finding.reason.figures
    assert (figures["requests"], figures["mean_ns"]) == (50, 6 * MS)
    assert [(pid, share) for _, pid, share in finding.callers] == [(OTHER, 0.75), (PID, 0.25)]


def test_the_limit_of_requests_in_the_background(rule: Any) -> None:
    page = cause("outside", 800 * MS, how="page", syscall="read", places=[], connection=45)
    reads = cause("slept", 300 * MS, how="sleep", background=True, connection=45)
    mount = fusetools.session.TracedMount("/mnt", 45, limits={"max_background": 1})
    flights = {"connection": 45, "requests": 500, "most": 1, "mean": 1.0, "ns": 900 * MS}
    parts = {"causes": [page, reads], "background": [flights]}
    MOUNTS.append((mount,))
    result = rule(**parts)
    assert codes(result) == ["background_limit"]
    assert result.findings[0].reason.figures["max_background"] == 1
    assert "/45/max_background" in result.findings[0].reason.fix
    # The limit is not reached: the reads themselves take the time.
    roomy = fusetools.session.TracedMount("/mnt", 45, limits={"max_background": 12})
    MOUNTS.append((roomy,))
    assert codes(rule(**parts)) == ["daemon_sleeps"]


def test_computing(rule: Any) -> None:
    assert codes(rule(causes=[cause("computes", 500 * MS)])) == ["daemon_cpu"]


def again(ns: int, pid: int = PID, requests: int = 900) -> dict[str, Any]:
    """Parts of an answer: getattr of the same 40 files."""
    rest = 1000 * MS - ns
    return {
        "operations": [("getattr", (1000, 1000 * MS, 0))],
        "asked": [asked("getattr", 1000, 1000 - requests, requests)],
        "classes": [
            ("again", "getattr", pid, requests, ns),
            ("needed", "getattr", PID, 1000 - requests, rest),
        ],
        "class_places": [("again", "getattr", 0, requests, ns)],
        "causes": [cause("passing", 1000 * MS)],
    }


def test_caches_off(rule: Any) -> None:
    result = rule(**again(800 * MS))
    assert codes(result) == ["caches_off"]
    figures = result.findings[0].reason.figures
    assert (figures["times"], figures["distinct"], figures["saved_share"]) == (10.0, 100, 0.9)
    # Few repetitions; or each question once; or the time is elsewhere.
    assert codes(rule(**again(800 * MS, requests=90))) == []
    assert codes(rule(**again(50 * MS))) == []


def test_one_hammering_process(rule: Any) -> None:
    parts = again(800 * MS, OTHER)
    parts["processes"] = [(OTHER, 970, 800 * MS), (PID, 30, 200 * MS)]
    parts["of_process"] = [(OTHER, "getattr", 0, 970, 800 * MS), (PID, "read", 1, 30, 200 * MS)]
    result = rule(**parts)
    assert codes(result) == ["hammer"]
    figures = result.findings[0].reason.figures
    assert (figures["requests_share"], figures["per_second"]) == (0.97, 485)
    # Alone it is harmless; over many files it is a job's own work.
    alone = {**parts, "processes": [(OTHER, 1000, 1000 * MS)]}
    assert codes(rule(**alone)) == ["caches_off"]
    spread = [(OTHER, "getattr", node, 97, 80 * MS) for node in range(3)]
    # Lookups are about directories.
    both = [(OTHER, "lookup", 2, 646, 80 * MS), (OTHER, "getattr", 0, 320, 80 * MS)]
    assert codes(rule(**{**parts, "of_process": both})) == ["hammer"]
    files = [both[0], *((OTHER, "getattr", node, 100, MS) for node in range(3))]
    assert codes(rule(**{**parts, "of_process": files})) == ["caches_off"]
    assert codes(rule(**{**parts, "of_process": spread})) == ["caches_off"]


def test_negative_lookups(rule: Any) -> None:
    parts = {
        "operations": [("lookup", (1000, 1000 * MS, 0))],
        "asked": [asked("lookup", 900, 300, 600, negative=True)],
        "classes": [("negative", "lookup", PID, 900, 900 * MS)],
        "class_places": [("negative", "lookup", 0, 900, 900 * MS)],
        "causes": [cause("passing", 1000 * MS)],
    }
    result = rule(**parts)
    assert codes(result) == ["negative_lookups"]
    reason = result.findings[0].reason
    assert reason.figures["times"] == 3.0 and reason.subject["names"] == ("/dir/file/a",)
    assert "negative_timeout" in reason.fix
    # No timeout helps where each name is asked once.
    parts["asked"] = [asked("lookup", 900, 890, 10, negative=True)]
    assert rule(**parts).findings[0].reason.fix == ""
    parts["asked"] = [asked("lookup", 400, 300, 100, negative=True)]
    assert codes(rule(**parts)) == []


def file_sums(size: int, opens: int, end: int) -> dict[str, int]:
    return {"requests": 1000, "ns": 900 * MS, "bytes": size, "opens": opens, "end": end}


def transfers(size: int, sequential: int = 990, **more: Any) -> dict[str, Any]:
    return {
        "operation": "read",
        "waits": True,
        "requests": 1000,
        "ns": 1000 * MS,
        "bytes": 1000 * size,
        "sized": 1000,
        "sequential": sequential,
        "largest": size,
        "sizes": [(size, 1000)],
        "files": [(0, file_sums(1000 * size, 1, 1000 * size))],
        **more,
    }


def test_small_requests(rule: Any) -> None:
    parts = {
        "classes": [("small", "read", PID, 990, 900 * MS)],
        "class_places": [("small", "read", 0, 990, 900 * MS)],
        "causes": [cause("passing", 1000 * MS)],
    }
    result = rule(transfers=[transfers(512)], **parts)
    assert codes(result) == ["small_requests"]
    assert result.findings[0].reason.figures["size_bytes"] == 512
    assert "direct_io" in result.findings[0].reason.fix
    assert codes(rule(transfers=[transfers(131072)], **parts)) == []
    assert codes(rule(transfers=[transfers(512, sequential=100)], **parts)) == []
    # Callers read more at a time, but the mount allows no larger requests.
    nodes = [(45, ("file", True))]
    for limit, fix in ((4096, "max_read=BYTES"), (65536, "direct_io")):
        mount = fusetools.session.TracedMount("/m", 45, daemon_pid=DAEMON)
        MOUNTS.append((replace(mount, limits={"max_read": limit}),))
        result = rule(transfers=[transfers(4096)], nodes=nodes, **parts)
        assert fix in result.findings[0].reason.fix


def test_the_function_that_waits_is_named_if_its_name_tells_something(rule: Any) -> None:
    start = [("__libc_start_main", "/lib/libc.so.6", False), ("_start", "/usr/bin/fs", False)]
    busy = [
        *start,
        ("sqlite3_step", "/lib/libsqlite3.so.0", False),
        ("[libsqlite3.so.0]", "/lib/libsqlite3.so.0", False),
        ("usleep", "/lib/libc.so.6", False),
    ]
    own = [*busy[:2], ("load", "/usr/bin/fs", False), *busy[2:]]
    for frames, name in ((start, None), (busy, "sqlite3_step"), (own, "load")):
        stacks = [(frames, 900 * MS)]
        slept = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep", own=stacks)
        (finding,) = rule(causes=[slept]).findings
        assert finding.reason.subject.get("function") == name


def test_a_function_that_has_a_part_of_the_sleeps_is_not_named_for_all(rule: Any) -> None:
    start = ("main", "/usr/bin/fs", False)
    rows = [("lock", 40), ("work", 30), ("read_", 15), ("work", 15)]
    own = [([start, (name, "/usr/bin/fs", False)], ms * MS) for name, ms in rows]
    for stacks, said in ((own, " under work (45.0 % of it)"), (own[1:2], " under work;")):
        slept = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep", own=stacks)
        (finding,) = rule(causes=[slept]).findings
        assert said in f"{finding.reason.text};"


def test_read_again(rule: Any) -> None:
    files = [(0, file_sums(60_000_000, 20, 3_000_000))]
    parts = {"causes": [cause("passing", 1000 * MS)]}
    result = rule(transfers=[transfers(131072, files=files)], **parts)
    assert codes(result) == ["read_again"] and result.findings[0].share == 1
    # In the background, the share of the waits for pages counts.
    page = cause("outside", 400 * MS, how="page", syscall="read", places=[])
    reads = [cause("passing", 90 * MS, background=True), cause("on_cpu", 600 * MS, places=[])]
    background = [transfers(131072, files=files, waits=False)]
    result = rule(transfers=background, causes=[page, *reads])
    assert codes(result) == ["read_again"] and result.findings[0].share == 0.4
    figures = result.findings[0].reason.figures
    assert (figures["opens"], figures["times"]) == (20, 20.0)
    once = [(0, file_sums(60_000_000, 20, 50_000_000))]
    assert codes(rule(transfers=[transfers(131072, files=once)], **parts)) == []


def test_metadata_for_each_write(rule: Any) -> None:
    calls = [("getxattr", "write", (500, 210 * MS, 500))]
    classes = [("needed", "getxattr", PID, 500, 300 * MS)]
    for failed, enosys in ((500, True), (499, False)):
        of = [("getxattr", (500, 210 * MS, failed))]
        found = rule(calls=calls, classes=classes, operations=of)
        assert codes(found) == ["metadata_for_each_write"]
        fix = found.findings[0].reason.fix
        assert ("ENOSYS" in fix, "KILLPRIV_V2" in fix) == (enosys, True)
    calls = [("getxattr", "getxattr", (500, 210 * MS, 500))]
    assert codes(rule(calls=calls, classes=classes)) == []


def test_attributes_that_files_do_not_have(rule: Any) -> None:
    """The figures of a client: 3,203 questions, each answered with ENODATA."""
    of = [("getxattr", (1000, 600 * MS, 900))]
    classes = [
        ("needed", "getxattr", PID, 600, 300 * MS),
        ("again", "getxattr", PID, 400, 200 * MS),
    ]
    causes = [cause("passing", 500 * MS, places=[("getxattr", 0, 1000, 500 * MS)])]
    parts = {"operations": of, "classes": classes, "causes": causes}
    errors = [("getxattr", -errno.ENODATA, False, (900, 540 * MS, 900))]
    found = rule(errors=errors, **parts)
    assert codes(found) == ["attributes_absent"]
    assert found.findings[0].time_ns == 450 * MS and found.findings[0].callers[0].pid == PID
    figures = found.findings[0].reason.figures
    assert (figures["requests"], figures["of"], figures["mean_ns"]) == (900, 1000, 600_000)
    # ENOSYS would hide those that 100 requests found.
    assert found.findings[0].reason.fix == ""
    of[0] = ("getxattr", (1000, 600 * MS, 1000))
    assert "ENOSYS" in rule(errors=errors, **parts).findings[0].reason.fix
    # The usual work of requests has the rest of the time.
    assert found.ordinary_share == 0.05 and found.usual == ()
    few = [("getxattr", -errno.ENODATA, False, (400, 240 * MS, 400))]
    assert codes(rule(errors=few, **parts)) == []
    # Another finding has the time already.
    calls = [("getxattr", "write", (1000, 600 * MS, 1000))]
    assert codes(rule(errors=errors, calls=calls, **parts)) == ["metadata_for_each_write"]


def test_slow_questions_for_attributes_need_not_be_asked(rule: Any) -> None:
    slow = cause("slept", 600 * MS, how="network", places=[("getxattr", 0, 1000, 600 * MS)])
    errors = [("getxattr", -errno.EOPNOTSUPP, False, (990, 590 * MS, 990))]
    of = [("getxattr", (1000, 600 * MS, 1000))]
    rows = [("needed", "getxattr", 0, 1000, 600 * MS)]
    found = rule(causes=[slow], errors=errors, operations=of, class_places=rows)
    assert codes(found) == ["slow_server"] and "ENOSYS" in found.findings[0].reason.fix
    of = [("getxattr", (1000, 600 * MS, 990))]
    found = rule(causes=[slow], errors=errors, operations=of, class_places=rows)
    (reason,) = (finding.reason for finding in found.findings)
    assert reason.fix == "" and "saved_share" not in reason.figures


def test_the_rest_of_the_waiting_is_told(rule: Any) -> None:
    places = [("lookup", 0, 100, 300 * MS), ("open", 0, 100, 50 * MS), ("read", 0, 100, 50 * MS)]
    causes = [
        cause("passing", 400 * MS, places=places),
        cause("slept", 500 * MS, how="sleep"),
        cause("unknown", 60 * MS),
        cause("daemon_cpu", 40 * MS, pid=OTHER),
    ]
    of = [("lookup", (100, 300 * MS, 0)), ("read", (100, 550 * MS, 0))]
    found = rule(causes=causes, operations=of)
    assert [row.operation for row in found.usual] == ["lookup"]
    assert sum(f.share for f in found.findings) + found.ordinary_share == pytest.approx(0.9)
    text = " ".join(render(found).split())
    assert (
        "no finding has 50.0 % of the waiting: 40.0 % the usual work of requests (30.0 % "
        "100 lookup requests, 3.00 ms each); 4.0 % smaller causes; 6.0 % unknown"
    ) in text
    whole = rule(causes=[cause("slept", 950 * MS, how="sleep"), cause("passing", 50 * MS)])
    assert "no finding has" not in render(whole)


def test_lookups_of_a_list(rule: Any) -> None:
    classes = [("needed", "lookup", PID, 500, 300 * MS)]
    found = rule(listed=(5, (500, 300 * MS, 0)), classes=classes)
    assert codes(found) == ["stat_for_each_entry"]
    assert found.findings[0].reason.fix.startswith("let the daemon answer readdirplus, so that")
    # It does: its entries lack attributes, or are no longer valid when they are used.
    plus = [("readdirplus", (5, 10 * MS, 5))]
    found = rule(listed=(5, (500, 300 * MS, 0)), classes=classes, operations=plus)
    assert "readdirplus, which it answers" in found.findings[0].reason.fix
    assert codes(rule(listed=(400, (500, 300 * MS, 0)), classes=classes)) == []


def test_errors(rule: Any) -> None:
    operations = [("open", (100, 1000 * MS, 12))]
    found = rule(operations=operations, errors=[("open", -5, False, (12, 100 * MS, 12))])
    assert codes(found) == ["errors_frequent"]
    assert found.findings[0].reason.subject["error"] == "EIO"
    for expected in (errno.ENOENT, errno.ENOTSUP, errno.ERANGE):
        found = rule(operations=operations, errors=[("open", -expected, False, (12, 100 * MS, 12))])
        assert codes(found) == []
    assert codes(rule(operations=operations, errors=[("open", -5, False, (4, 100 * MS, 4))])) == []


def test_errors_in_the_background(rule: Any) -> None:
    rows = [("write", -errno.ENOSPC, True, (60, 0, 0))]
    found = rule(asynchronous=[("write", (100, 50 * MS, 0))], errors=rows)
    assert codes(found) == ["errors_frequent"]
    reason = found.findings[0].reason
    assert (reason.figures["requests"], reason.figures["of"]) == (60, 100)
    assert "a later write, fsync or close of the file returns it" in reason.text
    rows = [("read", -errno.EIO, True, (60, 0, 0))]
    found = rule(asynchronous=[("read", (100, 50 * MS, 0))], errors=rows)
    assert "no caller waited for them" in found.findings[0].reason.text


def test_refused_content(rule: Any) -> None:
    found = rule(refused=[("lookup", "statx", 2)])
    assert codes(found) == ["content_refused"] and found.findings[0].share == 0


def test_a_mount_without_its_daemon_comes_first(rule: Any) -> None:
    """Also where no caller waited for a request."""
    found = rule(disconnected=3, refused=[("lookup", "statx", 2)])
    assert codes(found) == ["disconnected", "content_refused"]
    found = rule(disconnected=3, waited=(0, 0))
    assert codes(found) == ["disconnected"]
    assert "3 system calls failed with ENOTCONN" in found.findings[0].reason.text
    MOUNTS.append((fusetools.session.TracedMount("/mnt", 45, daemon_pid=DAEMON),))
    assert rule(disconnected=3).findings[0].reason.fix.startswith("umount -l /mnt ")


OOM = "memory was used up: the kernel killed 1 process meanwhile"


def sent(number: int, code: int, pid: int, **more: Any) -> dict[str, Any]:
    return {"number": number, "code": code, "pid": pid, "comm": "sh", "time": 1_188 * MS, **more}


@pytest.mark.parametrize(
    ("status", "signal", "oom", "how"),
    [
        (9, sent(9, 0, OTHER), 0, "SIGKILL, sent by sh (pid 200)"),
        (9, sent(9, 128, OTHER), 0, "SIGKILL, sent by the kernel"),
        # The daemon itself asked for memory.
        (
            9,
            sent(9, 128, DAEMON),
            1,
            f"SIGKILL, sent by the kernel; {OOM}",
        ),
        (9, None, 1, f"SIGKILL; {OOM}"),
        (9, sent(9, 0, OTHER), 1, "SIGKILL, sent by sh (pid 200)"),
        (11 | 0x80, sent(11, 1, DAEMON), 0, "SIGSEGV (core dumped), raised by itself"),
        (6, sent(6, -6, DAEMON), 0, "SIGABRT, raised by itself"),
        (6, sent(15, 0, OTHER), 0, "SIGABRT"),
        (3 << 8, None, 0, "exit status 3"),
        (3 << 8, sent(11, 1, DAEMON), 0, "exit status 3"),
        (0, sent(15, 0, OTHER), 0, "exit status 0, 12.0 ms after SIGTERM from sh (pid 200)"),
        (0, sent(15, 0, OTHER, time=-20_000 * MS), 0, "exit status 0"),
        (None, sent(15, 0, OTHER), 0, "12.0 ms after SIGTERM from sh (pid 200)"),
        (None, None, 0, "how is unknown"),
    ],
)
def test_the_end_of_a_daemon_has_its_cause(
    rule: Any,
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    signal: dict[str, Any] | None,
    oom: int,
    how: str,
) -> None:
    mount = fusetools.session.TracedMount("/mnt", 45, daemon_pid=DAEMON, comm="fs")
    state: dict[str, Any] = {"pid": DAEMON, "connection": 45, "ran": None, "stopped": None}
    state |= {"ended": 1_200 * MS, "unanswered": 0, "hangs": False, "signal": signal}
    base = {"first": 0, "last": 2_000 * MS, "warnings": []}
    monkeypatch.setattr(core.native, "daemons", lambda *_: {**base, "daemons": [state]})
    end = fusetools.session.Ended(DAEMON, status, oom)
    for calls, code in ((3, "disconnected"), (0, "daemon_ended")):
        MOUNTS.append((mount,))
        ENDS.append((end,))
        found = rule(disconnected=calls, waited=(0, 0))
        assert codes(found) == [code]
        text = found.findings[0].reason.text
        assert text.endswith(f" ended 1.2 s after the recording's begin: {how}")
        assert text.startswith("fs (pid 4711), which served /mnt, ended") == (not calls)
    # With the workload, as its mount is unmounted.
    state["ended"] = 1_900 * MS
    MOUNTS.append((mount,))
    ENDS.append((end,))
    assert codes(rule(waited=(0, 0))) == ([] if status == 0 else ["daemon_ended"])


def test_requests_from_before_the_recording(rule: Any) -> None:
    """No request of the recording shows it."""
    subject: dict[str, Value] = {"path": "/mnt", "callers": ("cat (pid 9)",)}
    MISSING.append((Reason(Code.ALREADY_WAITING, subject, {"callers": 1}, "", "request"),))
    text = " ".join(render(rule(waited=(0, 0))).split())
    assert text.startswith("no requests that a caller waited for") and "on /mnt already" in text


def test_a_mount_that_another_daemon_serves_since_is_left_mounted(rule: Any) -> None:
    mount = fusetools.session.TracedMount("/mnt", 45, daemon_pid=DAEMON, follower=DAEMON + 1)
    MOUNTS.append((mount,))
    reason = rule(disconnected=3).findings[0].reason
    assert f"/mnt was gone until pid {DAEMON + 1} answered there" in reason.text
    assert reason.fix == ""


@pytest.mark.parametrize("fate", _UNANSWERED)
def test_requests_without_an_answer(rule: Any, fate: str) -> None:
    fates = [("matched", (900, 100 * MS, 0)), (fate, (3, 900 * MS, 0))]
    # The thread that read them waits for the next request.
    idle = cause("slept", 600 * MS, how="idle", syscall="read")
    result = rule(fates=fates, causes=[idle, cause("unknown", 300 * MS)])
    assert codes(result) == ["unanswered"] and result.findings[0].share == 0.9
    # Their time has an explanation.
    assert result.unknown == () and result.unknown_share == 0
    reason = result.findings[0].reason
    assert (reason.subject["fate"], reason.figures["requests"]) == (fate, 3)
    assert reason.figures["mean_ns"] == 300 * MS
    # The daemon's work for them is known: that is the cause.
    sleep = cause("slept", 900 * MS, how="sleep", syscall="clock_nanosleep")
    assert codes(rule(fates=fates, causes=[sleep])) == ["daemon_sleeps"]


def test_requests_that_were_sent_twice(rule: Any) -> None:
    places = [("lookup", 0, 2, 900 * MS)]
    kept = cause("resent", 900 * MS, n=2, pid=OTHER, places=places)
    found = rule(causes=[kept, cause("passing", 100 * MS)])
    assert codes(found) == ["resent"] and found.findings[0].share == 0.9
    reason = found.findings[0].reason
    assert (reason.subject["pid"], reason.subject["comm"]) == (OTHER, "other")
    assert (reason.figures["requests"], reason.figures["mean_ns"]) == (2, 450 * MS)
    nobody = rule(causes=[cause("resent", 900 * MS, places=places)]).findings[0].reason
    assert "pid" not in nobody.subject
    assert codes(rule(causes=[{**kept, "ns": 9 * MS}, cause("passing", 991 * MS)])) == []


def test_requests_that_signals_ended(rule: Any) -> None:
    places = [("lookup", 0, 40, 800 * MS)]
    vain = cause("interrupted", 800 * MS, signal=14, places=places)
    errors = [("lookup", -4, False, (40, 800 * MS, 40))]
    operations = [("lookup", (50, 1000 * MS, 40))]
    found = rule(causes=[vain], errors=errors, operations=operations)
    # Their error is no finding of its own.
    assert codes(found) == ["interrupted"]
    reason = found.findings[0].reason
    assert (reason.subject["signal"], reason.subject["operation"]) == ("SIGALRM", "lookup")
    assert (reason.figures["requests"], reason.figures["of"]) == (40, 50)
    # Without a signal, it is an error as others.
    assert codes(rule(errors=errors, operations=operations)) == ["errors_frequent"]


def test_waits_for_file_locks(rule: Any) -> None:
    places = [("setlkw", 0, 3, 700 * MS)]
    operations = [("setlkw", (4, 720 * MS, 0)), ("read", (996, 280 * MS, 0))]
    found = rule(causes=[cause("file_locks", 700 * MS, places=places)], operations=operations)
    assert codes(found) == ["file_locks"] and found.findings[0].share == 0.7
    figures = found.findings[0].reason.figures
    assert (figures["requests"], figures["of"]) == (3, 4)
    # The daemon is not asked.
    wait = cause("outside", 400 * MS, how="other", syscall="flock", places=[], n=11)
    found = rule(causes=[wait, cause("passing", 600 * MS)])
    assert codes(found) == ["file_locks"] and found.findings[0].share == 0.4
    assert "11 calls of flock, until other callers released theirs" in found.findings[0].reason.text


def test_the_recording_comes_last(rule: Any) -> None:
    parts = again(800 * MS)
    result = rule(**{**parts, "recording": 600 * MS})
    assert codes(result) == ["caches_off", "recording_disturbs"]
    assert sum(finding.share for finding in result.findings) <= 1
    assert result.findings[0].share == pytest.approx(0.8 * 0.4)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    THROTTLED.clear()
    MOUNTS.clear()


def test_codes_are_those_of_reasons() -> None:
    known = {code.value for code in Code}
    result = fusetools.open(DEMO).why()
    assert set(result.looked) <= known and len(set(result.looked)) == len(result.looked)


# Verdicts of diff and compare


def facts(seconds: float, *command: str) -> Facts:
    return Facts("x", seconds, command=command)


def difference(operation: str, a: tuple[int, int], b: tuple[int, int]) -> Difference:
    one, other = (Side(n, {"50": p50}, n * p50) for n, p50 in (a, b))
    return Difference(f"FUSE_{operation.upper()}", operation, "request", one, other)


def test_diff_begins_with_a_verdict() -> None:
    rows = (
        difference("read", (100, 1000), (100, 990)),
        difference("getattr", (4000, 50_000), (200, 50_000)),
    )
    verdict = Differences(rows, facts(4.0, "ls"), facts(1.0, "ls")).verdict
    assert verdict is not None and verdict.code == Code.DIFF_FASTER
    assert verdict.subject == {"operation": "getattr"}
    assert verdict.figures["times"] == 4.0 and verdict.figures["calls_percent"] == -95.0
    verdict = Differences(rows, facts(1.0, "ls"), facts(4.0, "ls")).verdict
    # No growth explains why B is slower.
    assert verdict is not None and verdict.code == Code.DIFF_SLOWER and not verdict.subject
    verdict = Differences(rows, facts(1.0, "ls"), facts(1.1, "ls")).verdict
    assert verdict is not None and verdict.code == Code.DIFF_ALIKE
    # Without a workload the recording's length has no meaning.
    verdict = Differences(rows, facts(4.0), facts(1.0)).verdict
    assert verdict is not None and verdict.code == Code.DIFF_REQUESTS
    assert "times" not in verdict.figures
    assert Differences(rows[:1], facts(4.0), facts(1.0)).verdict is None


def test_the_verdict_of_diff_names_where_the_time_went() -> None:
    """Two slower lookups are no cause; slower reads are, whatever their median says."""
    rows = (
        difference("lookup", (2, 100), (2, 250)),
        Difference(
            "FUSE_READ",
            "read",
            "request",
            Side(1000, {"50": 16}, 30_000),
            Side(1031, {"50": 15}, 60_000),
        ),
    )
    verdict = Differences(rows, facts(1.0, "ls"), facts(2.0, "ls")).verdict
    assert verdict is not None
    assert verdict.text == (
        "B is 2.0 times slower, 2.0 s instead of 1.0 s: mean of read 94 % slower"
    )
    alike = (rows[0], difference("read", (1000, 9), (1000, 9)))
    verdict = Differences(alike, facts(1.0, "ls"), facts(1.0, "ls")).verdict
    assert verdict is not None and not verdict.subject
    grown = difference("read", (100, 100), (109, 109))
    verdict = Differences((grown,), facts(1.0, "ls"), facts(1.2, "ls")).verdict
    assert verdict is not None and verdict.text.endswith(": 19 % more time in read")
    new = Difference("FUSE_READ", "read", "request", Side(0), Side(9, {"50": 1}, 9))
    verdict = Differences((new,), facts(1.0), facts(1.2)).verdict
    assert verdict is not None and verdict.text == "B: read, which A lacks"


def test_compare_begins_with_a_verdict() -> None:
    best = Figures(100, 50e6, 60e6, times_best=1.0)
    worse = Figures(100, 200e6, 250e6, times_best=4.0, slower=0.9, p=1e-4, differs=True)
    alike = Figures(100, 51e6, 60e6, times_best=1.02, slower=0.5, p=0.5, differs=False)

    def verdict(*sides: Figures, tests: int = 1) -> Reason | None:
        groups = (Group("", (Measure("open", "request", sides),)),)
        return Compared(("a", "b"), groups, "call", tests).verdict

    found = verdict(worse, best)
    assert found is not None and found.code == Code.COMPARED_BEST
    assert found.subject == {"side": "B", "path": "b", "operation": "open"}
    assert found.figures["times"] == 4.0
    found = verdict(best, alike)
    assert found is not None and found.code == Code.COMPARED_ALIKE
    assert verdict(best, worse, tests=0) is None
    # Two recordings have a time, too, which is not tested.
    time = Measure("time", "", (Figures(1, 1e9, None), Figures(1, 2e9, None, times_best=2.0)))
    both = (Group("", (time, Measure("open", "request", (worse, best)))),)
    found = Compared(("a", "b"), both, "call", 1).verdict
    assert found is not None and found.subject["operation"] == "open"


def test_waits_whose_causes_cannot_be_known_are_not_ordinary() -> None:
    found = fusetools.open(DEMO).why()
    quiet = replace(found, findings=(), usual=(), ordinary_share=0.0, unknown_share=1.0)
    (said, *_) = first(quiet)
    assert said.startswith("no cause can be known: callers waited ")
    (said, *_) = first(replace(quiet, ordinary_share=0.5, unknown_share=0.5))
    assert said.startswith("nothing stands out: ") and "50.0 % of it is the usual work" in said
