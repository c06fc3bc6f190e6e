"""slow, show, errors, queue and export on real recordings, compared with `perf script`'s text."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import data
import golden
import numpy as np
import perfetto_trace
import pytest
import script
from columns import Columns
from fixtures import Invoke

import fusetools
from fusetools import _core
from fusetools.answers import requests, show
from fusetools.figures import duration
from fusetools.render.text.layout import sparkline
from fusetools.render.text.slow import render as slow_text
from fusetools.render.text.words import IN_REQUEST
from fusetools.results.request import Request

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.unpack(
        "cernvmfs-6.1/perf.data.zst", tmp_path_factory.mktemp("client") / "perf.data"
    )


@dataclass
class Plain:
    """A request according to the text of `perf script`."""

    unique: int
    opcode: int
    tid: int
    begin: int
    end: int = 0
    error: int = 0
    read: int = 0
    left: int = 0
    thread: int = 0
    ino: int = 0
    name: str = ""


def plain(events: list[script.Event]) -> dict[int, Plain]:
    """By number, of a recording of one mount with the fuse tracepoints."""
    found: dict[int, Plain] = {}
    read: dict[int, int] = {}  # by thread: when its last read returned data
    callback: dict[int, Plain] = {}
    for e in events:
        if e.name == "fuse:fuse_request_send":
            found[e.number("req")] = Plain(e.number("req"), e.number("opcode"), e.tid, e.time)
        elif e.name == "fuse:fuse_request_end":
            one = found[e.number("req")]
            one.end, one.error = e.time, e.number("error")
        elif e.name == "raw_syscalls:sys_exit" and e.text.startswith("NR 0 = "):
            read[e.tid] = e.time
        elif e.name.startswith("fuse_daemon:cvmfs_"):
            if e.name.endswith("__return"):
                callback.pop(e.tid).left = e.time
            else:
                one = callback[e.tid] = found[e.number("unique")]
                one.read, one.thread, one.ino = read[e.tid], e.tid, e.number("ino")
                one.name = e.string("name") if "name=" in e.text else ""
    return found


@pytest.fixture(scope="session")
def demo() -> dict[int, Plain]:
    found = plain(script.events(DEMO))
    assert len(found) > 300
    return found


# slow


@pytest.mark.parametrize("name", ["demo", "client"])
@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("slow", ["slow", "-n", "5"]),
        ("slow-lookup", ["slow", "lookup", "-n", "2"]),
        ("slow-json", ["slow", "-n", "1", "--json"]),
        ("errors", ["errors"]),
        ("errors-json", ["errors", "getxattr", "--json"]),
        ("queue", ["queue"]),
    ],
)
def test_output(
    name: str, command: str, args: list[str], run: Invoke, request: pytest.FixtureRequest
) -> None:
    path = DEMO if name == "demo" else request.getfixturevalue("client")
    result = run(*args, "-i", str(path))
    assert result.exit_code == 0
    golden.check(f"{command}-{name}.txt", result.output)
    if "json" not in command:
        assert all(len(line) <= 80 for line in result.output.splitlines() if "not rec" not in line)


def test_slow_shows_requests_that_are_alike_once() -> None:
    """Every request is shown or counted; a difference that matters keeps two apart."""
    plain_answer = fusetools.open(DEMO).slowest(most=1)
    one = replace(plain_answer.requests[0], path="d/a", unique=2, duration_ns=9_000_000)
    alike = [replace(one, path=f"d/{n}", unique=n, duration_ns=n * 1_000_000) for n in (7, 5, 3)]
    apart = [
        replace(one, path="e/a", unique=11),
        replace(one, operation="open", unique=13),
        replace(one, error="EIO", unique=17),
        replace(one, comm="other", unique=19),
        replace(one, stages=one.stages[::-1][:1], unique=23),
        replace(one, negative=True, unique=29),
        replace(one, path=None, inode=1, unique=31),
        replace(one, path=None, inode=2, unique=37),
    ]
    every = (one, alike[0], *apart, *alike[1:])
    text = slow_text(replace(plain_answer, requests=every, calls=()))
    assert "and 3 alike, 3.00 ms to 7.00 ms: requests 7, 5, 3\n" in text
    heads = [line.split()[-1] for line in text.splitlines()[1:] if line[:9].strip()[-1:] == "s"]
    assert heads[:9] == ["2", "11", "13", "17", "19", "23", "29", "31", "37"]
    many = tuple(replace(one, unique=n) for n in range(1, 11))
    text = slow_text(replace(plain_answer, requests=many, calls=()))
    assert "and 9 alike, 9.00 ms: requests 2, 3, 4, 5, 6, …" in text
    # With several mounts, each request's is shown.
    assert "on /a, at " not in text
    facts = replace(plain_answer.facts, mounts=("/a", "/b"))
    one = replace(one, mount="/a")
    text = slow_text(replace(plain_answer, requests=(one,), calls=(), facts=facts))
    assert "on /a, at " in text


def test_slow_shows_system_calls_that_are_alike_once() -> None:
    answer = fusetools.open(DEMO).slowest(most=20)
    groups = answer.alike_calls()
    assert sorted(c.start_ns for group in groups for c in group) == sorted(
        c.start_ns for c in answer.calls
    )
    assert len(groups) < len(answer.calls)
    text = slow_text(answer).split("OUTSIDE")[1]
    for first, *more in groups:
        times = [sum(call.outside_ns.values()) for call in more]
        assert f"{duration(sum(first.outside_ns.values())):>9}  of {first.syscall}" in text
        if more:
            span = " to ".join(dict.fromkeys(map(duration, (min(times), max(times)))))
            assert f"and {len(more)} alike, {span}" in text


def of_request(r: Request) -> int:
    return sum(ns for name, ns in r.stages if name.split("+")[0] in IN_REQUEST)


@pytest.mark.parametrize(
    "glob", ["*/file-00*", "*", "*[!0]", "/nowhere/*", "/*/dir-0?/file-00[1-3]", "*/dir-00/*"]
)
def test_slow_of_paths(glob: str) -> None:
    """Requests that fnmatch accepts, by their whole path; those without a path are counted."""
    recording = fusetools.open(DEMO)
    every = recording.slowest(most=10_000)
    wanted = recording.slowest(most=10_000, path=glob)
    unknown = [r for r in every.requests if not r.whole]
    path = {r.unique: f"{r.mount}/{r.path}".rstrip("/") for r in every.requests}
    fits = [r.unique for r in every.requests if r.whole and fnmatchcase(path[r.unique], glob)]
    assert [r.unique for r in wanted.requests if r.whole] == fits
    assert every.pathless is None and wanted.pathless is not None
    assert wanted.pathless == len(unknown) - sum(not r.whole for r in wanted.requests)
    few = recording.slowest(most=3, path=glob).requests
    assert few == wanted.requests[:3]
    assert bool(fits) == (glob != "/nowhere/*")


def test_slow_says_which_paths_are_not_known() -> None:
    none = fusetools.open(DEMO).slowest(path="/nowhere/*")
    assert (none.requests, none.pathless) == ((), 0)
    said = "3 requests skipped: path unknown or incomplete"
    assert said in slow_text(replace(none, pathless=3))
    assert "skipped" not in slow_text(none)


def test_slow_says_where_files_have_no_names() -> None:
    """As with daemons whose callbacks have no name, on kernels that report none."""
    some = fusetools.open(DEMO).slowest(most=3)
    without = [replace(r, path=None, inode=None) for r in some.requests]
    said = "File names are not known: no recorded event holds a name or an inode number."
    assert said in slow_text(replace(some, requests=tuple(without)))
    by_inode = (replace(without[0], inode=7), *without[1:])
    for known in (some, replace(some, requests=by_inode), replace(some, requests=())):
        assert "are not known" not in slow_text(known)


def test_the_slowest_are_those_of_perf_script(demo: dict[int, Plain]) -> None:
    # The callers' wait: a system call's requests share its time.
    calls: list[tuple[int, list[int]]] = []
    entered: dict[int, tuple[int, list[int]]] = {}
    for e in script.events(DEMO):
        if e.name == "raw_syscalls:sys_enter":
            entered[e.tid] = (e.time, [])
        elif e.name == "fuse:fuse_request_send" and e.tid in entered:
            entered[e.tid][1].append(e.number("req"))
        elif e.name == "raw_syscalls:sys_exit" and e.tid in entered:
            start, made = entered.pop(e.tid)
            calls.append((e.time - start, made))
    result = fusetools.open(DEMO).slowest(most=277)
    assert not result.facts.losses.lost and len(result.requests) == 277
    durations = [r.duration_ns for r in result.requests]
    assert durations == sorted(durations, reverse=True)
    for r in result.requests:
        one = demo[r.unique or 0]
        assert (of_request(r), r.tid) == (one.end - one.begin, one.tid)
        assert r.duration_ns == sum(ns for _, ns in r.stages) >= of_request(r)
        assert dict(r.stages)["queue"] == one.read - one.begin
    waited = {r.unique: r for r in result.requests if r.waits}
    whole = [(ns, made) for ns, made in calls if made and all(one in waited for one in made)]
    assert sum(len(made) for _, made in whole) > 100
    for ns, made in whole:
        total = sum(waited[one].duration_ns for one in made)
        # Without an exit, the call continued outside of its requests.
        ends = any(name.endswith("vfs_exit") for name, _ in waited[made[-1]].stages)
        assert total == ns if ends else total < ns
    assert fusetools.open(DEMO).slowest(most=50).requests == result.requests[:50]
    median = result.requests[len(result.requests) // 2].duration_ns
    least = fusetools.open(DEMO).slowest(most=277, least_ns=median).requests
    assert least == tuple(r for r in result.requests if r.duration_ns >= median)
    assert 0 < len(least) < len(result.requests)


def test_patterns_choose_operations(demo: dict[int, Plain]) -> None:
    recording = fusetools.open(DEMO)
    found = recording.slowest("read*", "open*", most=10_000).requests
    assert {r.operation for r in found} == {"read", "readdir", "open", "opendir"}
    assert len(recording.slowest(most=10_000).requests) == len(demo)
    assert recording.slowest("write").requests == ()
    with pytest.raises(fusetools.Error, match="no FUSE operation matches lookups"):
        recording.slowest("lookups")


def test_names_are_joined_into_paths(demo: dict[int, Plain]) -> None:
    """Return the path of each lookup from the root, by the daemon's answers to the others."""
    result = fusetools.open(DEMO).slowest(most=1000)
    paths = {1: ""}
    unique: dict[int, int] = {}  # by thread: the lookup that it handles
    for e in script.events(DEMO):
        if e.name == "fuse_daemon:cvmfs_lookup":
            unique[e.tid] = e.number("unique")
        elif e.name == "fuse_daemon:fuse_reply_entry" and e.tid in unique:
            one = demo[unique.pop(e.tid)]
            if e.number("ino"):
                paths.setdefault(e.number("ino"), f"{paths[one.ino]}/{one.name}".lstrip("/"))
    lookups = [r for r in result.requests if r.operation == "lookup"]
    assert len(lookups) > 80
    for r in lookups:
        one = demo[r.unique or 0]
        assert r.name == one.name
        assert (r.path, r.whole) == (f"{paths[one.ino]}/{one.name}".lstrip("/"), True)
    told = {r.inode or 0: r.path for r in result.requests if r.operation in ("getattr", "open")}
    assert len(told) > 35 and told == {ino: paths[ino] or "/" for ino in told}


def test_show_lists_the_daemon_threads_calls(demo: dict[int, Plain]) -> None:
    events = [e for e in script.events(DEMO) if e.name.startswith("raw_syscalls")]
    for r in fusetools.open(DEMO).slowest("lookup", most=20).requests:
        start, end = r.marks_ns["callback_enter"], r.marks_ns["reply"]
        first = demo[r.unique or 0].begin - r.marks_ns["begin"]
        inside = [e for e in events if e.tid == r.daemon_tid and start <= e.time - first < end]
        enters = [
            e.time for e in inside if e.name.endswith("enter") and e.text.startswith("NR 262")
        ]
        exits = [e.time for e in inside if e.name.endswith("exit") and e.text.startswith("NR 262")]
        assert len(enters) == len(exits) == 1
        assert r.meanwhile is not None
        assert r.meanwhile.syscalls == (("newfstatat", 1, exits[0] - enters[0]),)
        states = (r.meanwhile.on_cpu_ns, r.meanwhile.runnable_ns, r.meanwhile.blocked_ns)
        assert sum(ns or 0 for ns in states) == end - start


# show


def action(code: str, **fields: Any) -> Any:
    rest = ("tid", "number", "unique", "file", "inode", "size", "offset", "peer")
    return {"code": code, "name": "f", **dict.fromkeys(rest), **fields}


@pytest.mark.parametrize(
    ("did", "said"),
    [
        (action("fetched"), "has a request in its ring"),
        (action("committed"), "submits to its ring"),
        (action("ring_wait"), "waits for its ring"),
        (action("runs", number=0), "runs on CPU 0"),
        (action("runs"), "runs"),
        (action("interrupted"), "is woken by an interrupt (a timer or a device)"),
        (action("woken"), "is woken"),
        (action("woken", tid=9), "is woken by thread 9"),
        (action("wakes", tid=7), "wakes cat 7"),
        (action("wakes", tid=5), "wakes daemon 5"),
        (action("signal", number=14), "is sent SIGALRM"),
        (action("connects", peer="[::1]:80"), "connects to [::1]:80"),
        (action("enters", peer="[::1]:80"), "f([::1]:80)"),
        (action("enters"), "f()"),
        (action("returns"), "f() = ?"),
        (action("returns", number=-2), "f() = ENOENT"),
        (action("returns", number=-4096), "f() = -4096"),
        (action("returns", number=7), "f() = 7"),
        (action("begin"), "lookup is queued"),
        (action("sent", unique=6), "request 6 is copied to the daemon"),
        (action("end", number=0), "lookup ends"),
        (action("end", number=-2), "lookup ends with ENOENT"),
        (action("copies"), "copies the answer"),
        (action("inode", inode=3), "answers inode 3"),
        (action("no_file"), "answers: no such file"),
        (action("calls"), "f()"),
        (action("leaves"), "f returns"),
        (action("callback"), "f()"),
        (action("callback", inode=1, size=9, offset=0), "f(inode 1, 9 bytes, at 0)"),
        (action("callback", file="x", inode=1, unique=6), 'f("x" in inode 1, of request 6)'),
        (action("callback", file="x"), 'f("x")'),
        (None, ""),
    ],
)
def test_actions_are_told_in_words(did: Any, said: str) -> None:
    shown: Any = SimpleNamespace(
        operation="lookup", tid=7, comm="cat", daemon_tid=5, daemon_comm=""
    )
    assert show.sentence(did, shown, {}) == said


def test_show(run: Invoke) -> None:
    """The slowest read: one of those that wait 20 ms."""
    (slow,) = fusetools.open(DEMO).slowest("read", most=1).requests
    number = str(slow.unique)
    result = run("show", number, "-i", str(DEMO))
    golden.check("show-demo.txt", result.output)
    assert all(len(line) <= 80 for line in result.output.splitlines())
    golden.check("show-json-demo.txt", run("show", number, "-i", str(DEMO), "--json").output)


def test_a_story_has_every_mark_and_every_event(demo: dict[int, Plain]) -> None:
    recording = fusetools.open(DEMO)
    events = script.events(DEMO)
    for unique in list(demo)[10:30]:
        shown = recording.show(unique)
        marks = shown.request.marks_ns
        first = min(marks.values())
        times = {moment.time_ns + first for moment in shown.moments}
        told = {
            name: at for name, at in marks.items() if shown.request.waits or "waking" not in name
        }
        assert set(told.values()) <= times, unique  # for a release, not the caller's work
        start = demo[unique].begin - marks["begin"]
        # The daemon's system calls, from the one that fetched the request to its callback's return.
        wanted = {
            e.time - start
            for e in events
            if e.tid == demo[unique].thread
            and marks["read"] <= e.time - start <= marks["callback_return"]
            and (e.name.startswith("raw_syscalls") or "cvmfs" in e.name)
        }
        assert len(wanted) >= 6 and wanted <= times


def test_a_number_that_is_not_there(run: Invoke) -> None:
    result = run("show", "999999", "-i", str(DEMO))
    assert result.exit_code == 1 and "has no request 999999" in result.stderr
    assert "fix: fusetools slow" in result.stderr
    for wrong in ("0", "-1", "x", str(1 << 64)):
        assert run("show", "-i", str(DEMO), "--", wrong).exit_code == 2


def test_a_number_that_several_have() -> None:
    """Each mount has numbers of its own."""
    names = requests.Names({40: "/a", 41: "/b"}, {})
    found: Any = [SimpleNamespace(connection=c, marks=[("begin", 5)]) for c in (40, 41)]
    with pytest.raises(fusetools.Error) as caught:
        show.only(found, 6, names, DEMO)
    assert "2 requests have the number 6" in caught.value.what
    assert caught.value.why == "they are of /a, /b" and "--mount /a" in caught.value.fix
    with pytest.raises(fusetools.Error, match="2 requests have the number 6"):
        show.only([found[0]] * 2, 6, names, DEMO)
    assert show.only(found[1:], 6, names, DEMO) is found[1]


# errors


def test_errors_are_those_of_perf_script(demo: dict[int, Plain]) -> None:
    result = fusetools.open(DEMO).errors()
    assert sum(o.requests for o in result.operations) == len(demo)
    assert sum(o.failed for o in result.operations) == sum(one.error != 0 for one in demo.values())


def test_the_clients_errors_are_those_of_perf_script(client: Path) -> None:
    ends = [e for e in script.events(client) if e.name == "fuse_kernel:fuse_request_end"]
    by_opcode = Counter((e.number("opcode"), e.number("error")) for e in ends)
    names = {1: "lookup", 22: "getxattr", 25: "flush", 15: "read", 14: "open"}
    found = {o.operation: o for o in fusetools.open(client).errors().operations}
    for opcode, name in names.items():
        of = {error: n for (one, error), n in by_opcode.items() if one == opcode}
        assert found[name].requests == sum(of.values())
        assert found[name].failed == sum(n for error, n in of.items() if error)
    assert found["getxattr"].errors == (("ENODATA", by_opcode[22, -61]),)
    assert found["flush"].errors == (("ENOSYS", 1),)


# queue


def test_the_queue_is_that_of_perf_script(demo: dict[int, Plain]) -> None:
    (mount,) = fusetools.open(DEMO).queue().mounts
    changes = sorted(
        [(one.begin, 1) for one in demo.values()] + [(one.read, -1) for one in demo.values()]
    )
    start, end = mount.start_ns, mount.end_ns
    first = changes[0][0] - start
    length = most = at = area = 0
    for time, change in changes:
        area += length * (time - first - at)
        at, length = time - first, length + change
        most = max(most, length)
    assert mount.mount == "/mnt/sample"
    assert mount.whole.most_queued == most
    assert mount.whole.mean_queued == pytest.approx(area / (end - start))
    assert mount.requests == len(demo)
    assert mount.threads == len({one.thread for one in demo.values()})
    assert mount.waited_ns == sum(one.read - one.begin for one in demo.values())
    assert mount.total_ns == sum(one.end - one.begin for one in demo.values())
    means = [part.mean_queued for part in mount.parts]
    assert np.mean(means) == pytest.approx(mount.whole.mean_queued, rel=1e-3)
    levels = list(mount.levels)
    assert max(q for _, q, _ in levels) == most and levels[-1][1:] == (0, 0)


def test_threads_at_work(demo: dict[int, Plain]) -> None:
    """From the read to the callback's return, except while it lacks a CPU."""
    switches = [e for e in script.events(DEMO) if e.name == "sched:sched_switch"]
    changes = []
    for one in demo.values():
        changes += [(one.read, 1), (one.left, -1)]
        for e in switches:
            if not one.end < e.time < one.left:
                continue
            if e.number("prev_pid") == one.thread and "prev_state=R" in e.text:
                changes.append((e.time, -1))
            elif e.number("next_pid") == one.thread:
                changes.append((e.time, 1))
    busy = most = at = area = 0
    for time, change in sorted(changes):
        area += busy * (time - at) if at else 0
        at, busy = time, busy + change
        most = max(most, busy)
    (mount,) = fusetools.open(DEMO).queue().mounts
    assert busy == 0 and mount.whole.most_busy == most
    assert mount.whole.mean_busy == pytest.approx(area / (mount.end_ns - mount.start_ns))


def test_queue_csv_holds_every_change(run: Invoke) -> None:
    (mount,) = fusetools.open(DEMO).queue().mounts
    rows = list(csv.reader(io.StringIO(run("queue", "-i", str(DEMO), "--csv", "-").output)))
    assert rows[0] == ["mount", "time_ns", "queued", "busy"]
    assert [tuple(map(int, row[1:])) for row in rows[1:]] == list(mount.levels)
    assert {row[0] for row in rows[1:]} == {"/mnt/sample"}
    assert run("queue", "-i", str(DEMO), "--csv", "nowhere/x").exit_code == 1


def test_queue_json_has_what_the_text_has(run: Invoke) -> None:
    (mount,) = json.loads(run("queue", "-i", str(DEMO), "--json").output)["mounts"]
    text = run("queue", "-i", str(DEMO)).output
    assert f"{mount['requests']} requests, served by {mount['threads']} threads" in text
    assert len(mount["parts"]) == 60


@pytest.mark.parametrize(
    ("values", "most", "line"),
    [((0, 1, 8), 8, " ▁█"), ((0.01, 4, 7.9), 8, "▁▄█"), ((), 0, ""), ((0, 0), 0, "  ")],
)
def test_sparklines(values: tuple[float, ...], most: float, line: str) -> None:
    assert sparkline(values, most) == line


# export


def exported(run: Invoke, tmp_path: Path, path: Path, form: str) -> str:
    out = tmp_path / f"out.{form}"
    result = run("export", "-i", str(path), "--format", form, "-o", str(out))
    assert result.exit_code == 0, result.output
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    return out.read_text()


@pytest.mark.parametrize("name", ["demo", "client"])
def test_rows_are_the_stories(
    name: str, run: Invoke, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = DEMO if name == "demo" else request.getfixturevalue("client")
    stories = Columns(fusetools.open(path).requests())
    rows = list(csv.DictReader(io.StringIO(exported(run, tmp_path, path, "csv"))))
    objects = json.loads(exported(run, tmp_path, path, "json"))
    assert len(rows) == len(objects["requests"]) == len(stories.begin_ns)
    rows.sort(key=lambda row: int(row["begin_ns"] or row["callback_enter_ns"]))
    for mark in stories.marks:
        told = [int(row[f"{mark}_ns"] or 0) for row in rows]
        assert told == getattr(stories, f"{mark}_ns").tolist(), mark
    assert [int(row["unique"]) for row in rows] == stories.unique.tolist()
    assert [int(row["error"]) for row in rows] == stories.error.tolist()
    assert [int(row["tid"]) for row in rows] == stories.tid.tolist()
    assert [row["operation"] for row in rows] == stories.operation.tolist()
    # Stages sum up to the whole, from the first mark to the caller's last.
    for row in rows:
        stages = {key[6:-3]: int(row[key] or 0) for key in row if key.startswith("stage_")}
        times = {mark: int(row[f"{mark}_ns"] or 0) for mark in stories.marks}
        first = times["sys_enter"] or times["resumed"] or times["kernel_enter"] or times["begin"]
        # Without an exit, the call continued outside of its requests.
        last = times["sys_exit"] if row["stage_vfs_exit_ns"] else 0
        last = last or times["runs"] or times["end"]
        if row["waits"] == "false":
            first, last = times["begin"], times["end"]
        assert sum(stages.values()) == last - first, row
        assert stages["queue"] == times["read"] - times["begin"] or not times["read"]
        assert stages["reply"] == times["end"] - times["reply"] or not times["reply"]
    # JSON has the same values.
    by_number = {str(o["unique"]): o for o in objects["requests"]}
    for row in rows:
        for key, value in by_number[row["unique"]].items():
            cell = str(value).lower() if isinstance(value, bool) else value
            assert row[key] == ("" if cell is None else str(cell)), key
    assert objects["recording"]["requests"]["matched"] == len(rows)


def traced(run: Invoke, tmp_path: Path, path: Path, *args: str) -> perfetto_trace.Decoded:
    out = tmp_path / "out.pftrace"
    result = run("export", "-i", str(path), "-o", str(out), *args)
    assert result.exit_code == 0, result.output
    return perfetto_trace.decode(out)


def test_a_trace_has_the_requests_of_count_and_the_stages_of_stages(
    run: Invoke, tmp_path: Path
) -> None:
    trace = traced(run, tmp_path, DEMO)
    recording = fusetools.open(DEMO)
    requests = Counter(one.args["operation"] for one in trace.of("request"))
    counted = recording.counts(layers=["request"]).counts
    assert requests == {count.operation: count.count for count in counted if count.count}

    around, within = {}, Counter[tuple[str, str]]()
    for one in trace.slices:  # in the order of time, so stages follow their request
        if one.category == "request":
            around[one.track] = one.args["operation"]
        elif one.category == "stage":
            within[around[one.track], one.name] += one.ns
    stages = {
        (group.operation, stage.name): stage.total_ns
        for group in recording.stages().operations
        for stage in group.stages
        if stage.total_ns
    }
    assert {key: ns for key, ns in within.items() if ns} == stages and len(stages) > 30

    # The daemon's slices are its requests, by the text of perf script.
    session = recording.session
    samplefs = session.mounts[0].daemon_pid
    in_hand = trace.of("daemon")
    assert {trace.task(one)[0] for one in in_hand} == {samplefs}
    assert Counter(one.args["unique"] for one in in_hand) == Counter(
        one.args["unique"] for one in trace.of("request")
    )
    names = {track.name for track in trace.tracks.values() if track.pid and not track.tid}
    assert names == {"grep", "samplefs"}

    # A flow leads from the caller to the daemon, and back to a caller that waited.
    waited = Columns(recording.requests()).waits == 1
    shapes = Counter(tuple(one.category for one in flow) for flow in trace.flows.values())
    assert shapes == {
        ("request", "daemon", "stage"): int(waited.sum()),
        ("request", "daemon"): int((~waited).sum()),
    }


def test_a_traces_threads_run_and_wait_as_perf_script_says(run: Invoke, tmp_path: Path) -> None:
    trace = traced(run, tmp_path, DEMO)
    threads = {trace.task(one)[1] for one in trace.of("running")}
    since: dict[int, int] = {}
    left: dict[int, int] = {}
    ran, off = Counter[int](), Counter[int]()
    for e in script.events(DEMO):
        if e.name == "sched:sched_switch":
            prev, next_ = e.number("prev_pid"), e.number("next_pid")
            if prev in since:
                ran[prev] += e.time - since.pop(prev)
            left[prev] = e.time
            since[next_] = e.time
            if next_ in left:
                off[next_] += e.time - left.pop(next_)
    told = Counter[int]()
    for one in trace.of("running"):
        told[trace.task(one)[1]] += one.ns
    assert len(threads) >= 3 and told == {tid: ran[tid] for tid in threads}

    states = ("blocked", "runnable", "preempted", "blocked_or_runnable")
    told = Counter()
    by_state = Counter[tuple[int, str]]()
    for one in trace.of(*states):
        told[trace.task(one)[1]] += one.ns
        by_state[trace.task(one)[1], one.category] += one.ns
    ends = {one.end for one in trace.of(*states)}
    last = max(ends)
    for tid in threads:  # a wait that the recording cuts off counts until its end
        assert told[tid] in (off[tid], off[tid] + last - left.get(tid, last)), tid
    waits = Columns(fusetools.open(DEMO).waits(everything=True))
    table = Counter[tuple[int, str]]()
    for tid, state, ns in zip(waits.tid, waits.state, waits.duration_ns):
        if int(tid) in threads:
            table[int(tid), str(state)] += int(ns)
    assert by_state == table

    # Each wait that ended has a waker, and a stack that shows in what it waited.
    blocked = trace.of("blocked")
    assert sum("waker" in one.args for one in blocked) > 0.9 * len(blocked) > 100
    assert all(one.name.removeprefix("blocked in ") in one.stack for one in blocked if one.stack)
    assert any(one.name == "blocked in request_wait_answer" for one in blocked)


def test_a_traces_counters_are_the_requests_in_the_queue(run: Invoke, tmp_path: Path) -> None:
    trace = traced(run, tmp_path, DEMO)
    rows = list(csv.DictReader(io.StringIO(exported(run, tmp_path, DEMO, "csv"))))
    found = {trace.tracks[uuid].name.split()[0]: values for uuid, values in trace.counters.items()}
    assert sorted(found) == ["busy", "queued"]
    for name, area in [
        ("queued", sum(int(row["read_ns"]) - int(row["begin_ns"]) for row in rows)),
        ("busy", None),
    ]:
        values = found[name]
        assert values == sorted(values) and values[-1][1] == 0
        assert all(value != after for (_, value), (_, after) in zip(values, values[1:]))
        if area is not None:
            spans = zip(values, values[1:])
            assert sum(value * (to - at) for (at, value), (to, _) in spans) == area
    (mount,) = fusetools.open(DEMO).queue().mounts
    assert max(value for _, value in found["busy"]) == mount.whole.most_busy
    assert {track.name for track in trace.tracks.values() if track.counter} == {
        f"{what} {mount.mount}" for what in ("queued requests", "busy threads")
    }


def test_a_trace_without_switches_says_so(run: Invoke, tmp_path: Path) -> None:
    path = data.unpack("kernels/5.10.0-46-amd64/recording/perf.data.zst", tmp_path / "perf.data")
    plain = _core.describe(str(path))["events"]
    out = tmp_path / "out.perfetto-trace"
    result = run("export", "-i", str(path), "-o", str(out))
    has_states = bool(perfetto_trace.decode(out).of("running"))
    assert (
        has_states == ("sched:sched_switch" in plain) != ("no states of threads" in result.output)
    )


def test_a_trace_of_selected_callers(run: Invoke, tmp_path: Path) -> None:
    trace = traced(run, tmp_path, DEMO, "--comm", "nobody")
    assert not trace.of("request", "daemon", "syscall")
    # The states of the daemon do not depend on the selected callers.
    assert {trace.tracks[one.track].name for one in trace.slices} == {"on CPU", "off CPU"}
    printed = run("export", "-i", str(DEMO), "--format", "perfetto", "-o", "-").stdout_bytes
    out = tmp_path / "printed"
    out.write_bytes(printed)
    assert len(perfetto_trace.decode(out).of("request")) > 300


def test_export_printed_and_into_nothing(run: Invoke) -> None:
    for wrong in ("nowhere/x", "/dev/full"):
        result = run("export", "-i", str(DEMO), "--format", "csv", "-o", wrong)
        assert result.exit_code == 1 and f"cannot write {wrong}" in result.stderr
    printed = run("export", "-i", str(DEMO), "--format", "json", "-o", "-").stdout
    assert len(json.loads(printed)["requests"]) == len(Columns(fusetools.open(DEMO).requests()))


def test_export_takes_the_format_from_the_file_name(run: Invoke, tmp_path: Path) -> None:
    for form in ("csv", "json"):
        out, same = tmp_path / f"out.{form}", tmp_path / "same"
        assert run("export", "-i", str(DEMO), "-o", str(out)).exit_code == 0
        run("export", "-i", str(DEMO), "--format", form, "-o", str(same))
        assert out.read_text() == same.read_text()
    result = run("export", "-i", str(DEMO), "-o", str(tmp_path / "out.txt"))
    assert result.exit_code == 2 and "--format is needed" in result.stderr


def test_spans_of_time(run: Invoke, tmp_path: Path, demo: dict[int, Plain]) -> None:
    first = _core.scan(str(DEMO), [], {})["first"]
    wanted = sum(100_000_000 <= one.begin - first < 400_000_000 for one in demo.values())
    args = ["--from", "100ms", "--to", "400ms", "-o", str(tmp_path / "x")]
    run("export", "-i", str(DEMO), "--format", "csv", *args)
    assert len((tmp_path / "x").read_text().splitlines()) == 1 + wanted
    assert 10 < wanted < len(demo)


# On other kernels: requests by kprobes, and by tracepoints that do not number them


@pytest.mark.parametrize(
    "kernel", ["5.10.0-46-amd64", "6.1.0-56-amd64", "6.12.117+deb13-amd64", "7.2.13+deb14-amd64"]
)
def test_kernels(kernel: str, tmp_path: Path, run: Invoke) -> None:
    path = data.unpack(f"kernels/{kernel}/recording/perf.data.zst", tmp_path / "perf.data")
    recording = fusetools.open(path)
    events = script.events(path)
    names = sorted(e.string("name") for e in events if e.name == "fuse_daemon:cvmfs_lookup")
    requests = recording.slowest(most=100).requests
    lookups = [r for r in requests if r.operation == "lookup"]
    assert len(requests) == 31 and sorted(r.name or "" for r in lookups) == names
    assert {(r.path, r.whole) for r in lookups} == {(name, True) for name in names}
    for r in requests:
        assert r.duration_ns == sum(ns for _, ns in r.stages) >= of_request(r) > 0
        assert recording.show(r.unique or 0).request.marks_ns == r.marks_ns
    errors = {o.operation: (o.requests, o.errors) for o in recording.errors().operations}
    assert sum(n for n, _ in errors.values()) == 31
    assert {name: e for name, (_, e) in errors.items() if e} == {"flush": (("ENOSYS", 1),)}
    (mount,) = recording.queue().mounts
    assert mount.requests == 31 and mount.total_ns == sum(of_request(r) for r in requests)
    trace = traced(run, tmp_path, path)
    assert len({one.args["unique"] for one in trace.of("request", "daemon")}) == 31


def test_opcodes_without_a_name_are_shown_by_number(tmp_path: Path, run: Invoke) -> None:
    whole = fusetools.open(DEMO)
    table = Columns(whole.requests())
    later = {14: 63, 18: 77, 27: 77, 28: 4_000_000_000}  # instead of the real opcodes
    data, changed = DEMO.read_bytes(), Counter[int]()
    for unique, opcode in zip(table.unique, table.opcode):
        number = later.get(int(opcode))
        old = struct.pack("<QI", int(unique), int(opcode))
        if number is not None and data.count(old) == 1:
            data = data.replace(old, struct.pack("<QI", int(unique), number))
            changed[number] += 1
    assert set(changed) == {63, 77, 4_000_000_000}
    path = tmp_path / "later.data"
    path.write_bytes(data)
    found = fusetools.open(path)
    rows = {c.function: c for c in found.counts(layers=["request"]).counts}
    for number, times in changed.items():
        count = rows[f"FUSE_OPCODE_{number}"]
        assert (count.operation, count.count) == (f"opcode_{number}", times)
        (histogram,) = found.hist(f"opcode_{number}", layers=["request"]).histograms
        assert histogram.count == times
        (group,) = found.stages(f"opcode_{number}").operations
        assert (group.operation, group.requests) == (f"opcode_{number}", times)
    assert {o.operation for o in found.errors("opcode_*").operations} >= {"opcode_63", "opcode_77"}
    assert {o.operation for o in found.errors("opcode_6?").operations} == {"opcode_63"}
    groups = found.groups("process", "opcode_7?").groups
    assert sum(group.requests for group in groups) == changed[77]
    counted = json.loads(
        run("count", "-i", str(path), "code_7", "--by", "process", "--json").stdout
    )
    assert sum(group["requests"] for group in counted["groups"]) == changed[77]
    slowest = found.slowest("opcode_7*", most=1000).requests
    assert {r.operation for r in slowest} == {"opcode_77"} and len(slowest) == changed[77]
    assert {r.operation for r in found.slowest("*", most=1000).requests} >= {"opcode_63", "read"}
    assert "opcode_77" in run("slow", "-i", str(path), "opcode_77").output
    kernel = {h.operation for h in found.hist(layers=["kernel"]).histograms}
    assert not kernel or "opcode_77" in kernel
    for command in ("hist", "stages", "errors", "slow"):
        done = run(command, "-i", str(path), "opcode_12345")
        assert done.exit_code == 0, done.output
        assert run(command, "-i", str(path), "opcode_x").exit_code == 1


def test_slow_says_who_had_a_request_that_was_sent_twice() -> None:
    some = fusetools.open(DEMO).slowest(most=1)
    (request,) = some.requests
    first = request.marks_ns["read"] - 2_000_000_000
    kept = replace(request, resent=True, first_reader=77, first_read_ns=first)
    for of, said in (
        (kept, "sent a second time, 2.00 s after pid 77 had read it"),
        (replace(kept, first_reader=None, first_read_ns=None), "sent a second time"),
    ):
        text = " ".join(slow_text(replace(some, requests=(of,))).split())
        assert said in text and ("pid 77" in text) == ("pid 77" in said)
