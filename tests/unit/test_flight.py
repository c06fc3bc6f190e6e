"""The flight recorder: its conditions, its buffers, kept recordings, and its errors."""

from __future__ import annotations

import configparser
import contextlib
import errno
import json
import os
import re
import shlex
import socket
import time
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures import Invoke
from test_plan import host, make

from fusetools import session
from fusetools.cli.record import command as record
from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.live import conditions as now
from fusetools.live import flight
from fusetools.live.mounts import SEARCH, NewMounts
from fusetools.names import CALIBRATION, DETAILS
from fusetools.output import Output
from fusetools.plan import filters
from fusetools.plan.conditions import Condition, Failed, Slow, Waiting, condition
from fusetools.plan.events import Event
from fusetools.plan.ftrace import THREADS
from fusetools.plan.options import Flight, Options
from fusetools.plan.planner import ProbePlan
from fusetools.record.perf import overwriting
from fusetools.record.state import Removed
from fusetools.record.workload import User
from fusetools.results.flight import Written
from fusetools.results.record import Outcome

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("read > 1s", Slow("read > 1s", "read", 10**9)),
        (" read>1.5ms ", Slow("read>1.5ms", "read", 1_500_000)),
        ("readdir* > 2 min", Slow("readdir* > 2 min", "readdir*", 120 * 10**9)),
        ("* > 10us", Slow("* > 10us", "*", 10_000)),
        ("waiting > 20", Waiting("waiting > 20", 20, 0)),
        ("waiting > 20 for 5s", Waiting("waiting > 20 for 5s", 20, 5 * 10**9)),
        ("errors(EIO)", Failed("errors(EIO)", (errno.EIO,))),
        ("errors(EIO, ESTALE)", Failed("errors(EIO, ESTALE)", (errno.EIO, errno.ESTALE))),
    ],
)
def test_conditions(text: str, expected: Condition) -> None:
    assert condition(text) == expected


@pytest.mark.parametrize(
    "text, why",
    [
        ("read > 1", "form"),
        ("read < 1s", "form"),
        ("", "form"),
        ("reed > 1s", "no FUSE operation matches reed"),
        ("errors(EVIL)", "EVIL is the name of no error"),
        ("errors()", "nothing is the name of no error"),
        ("waiting > -1", "form"),
        ("read > 99999999999s", "form"),
        ("read > 1s; rm", "form"),
    ],
)
def test_invalid_conditions_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        condition(text)


class Stream:
    """Requests as the core returns them."""

    def __init__(self) -> None:
        self.ended: list[SimpleNamespace] = []
        self.open: list[tuple[SimpleNamespace, bool]] = []
        self.requests = self

    def advance(self) -> None: ...

    def lines(self) -> list[SimpleNamespace]:
        lines, self.ended = self.ended, []
        return lines

    def under_way(self, least: int, most: int) -> tuple[list[tuple[SimpleNamespace, bool]], int]:
        return [one for one in self.open if one[0].duration >= least][:most], len(self.open)


def request(
    operation: str = "read", duration: int = 0, error: int = 0, unique: int = 2
) -> SimpleNamespace:
    return SimpleNamespace(
        connection=45,
        unique=unique,
        tid=8,
        marks=[("begin", 10 * unique), ("end", 10 * unique + 9)],
        operation=operation,
        duration=duration,
        error=-error,
        comm="cat",
        pid=7,
    )


warnings: list[str] = []


def looking(stream: Stream, *texts: str, seconds: float = 0.0) -> now.Conditions:
    wanted = [condition(one) for one in texts]
    return now.Conditions(wanted, stream, {}, seconds, warnings.append)  # type: ignore[arg-type]


def why(cause: now.Cause | None) -> str | None:
    return cause and cause.why


def test_each_request_sets_off_once() -> None:
    stream = Stream()
    with looking(stream, "read > 1s") as conditions:
        assert conditions.look() is None
        stream.open = [(request(duration=1_200_000_000), False)]
        assert why(conditions.look()) == "read > 1s: read of cat (pid 7) in flight for 1.20 s"
        assert conditions.look()  # no recording has been written for it yet
        conditions.taken()
        assert conditions.look() is None
        stream.open = [
            (request(duration=1_400_000_000), False),
            (request(duration=1_100_000_000, unique=4), False),
        ]
        assert why(conditions.look()) == "read > 1s: read of cat (pid 7) in flight for 1.10 s"
        conditions.taken()
        stream.open, stream.ended = [], [request(duration=1_600_000_000)]
        assert conditions.look() is None
        stream.ended = [request(duration=1_600_000_000, unique=6)]
        assert why(conditions.look()) == "read > 1s: read of cat (pid 7) took 1.60 s"


def test_an_early_trigger_is_delayed_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [100.0], Stream()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with looking(stream, "read > 1s", "open > 1s", seconds=30) as conditions:
        stream.ended = [request(duration=2 * 10**9)]
        assert conditions.look()
        conditions.taken()
        clock[0] += 5
        stream.ended = [request(duration=3 * 10**9)]
        assert conditions.look() is None
        assert why(conditions.due) == "read > 1s: read of cat (pid 7) took 3.00 s"
        clock[0] += 24.9
        assert conditions.look() is None
        clock[0] += 0.1
        assert why(conditions.look()) == "read > 1s: read of cat (pid 7) took 3.00 s, 25.0 s ago"
        conditions.taken()
        assert conditions.look() is conditions.due is None
        stream.ended = [request(duration=4 * 10**9), request("open", duration=2 * 10**9)]
        assert why(conditions.look()) == (  # another condition does not wait, and includes others
            "read > 1s: read of cat (pid 7) took 4.00 s; open > 1s: open of cat (pid 7) took 2.00 s"
        )


def test_a_night_of_errors_leaves_how_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], Stream()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    warnings.clear()
    times, causes = [], []
    with looking(stream, "errors(EIO)", seconds=30) as conditions:
        for second in range(8 * 3600):
            clock[0] = second
            stream.ended = [request(error=errno.EIO, unique=2 * second)]
            if cause := conditions.look():
                times.append(second)
                causes.append(cause)
                conditions.taken()
        assert times[:5] == [0, 30, 90, 210, 450] and len(times) < 16
        # The last trigger before each recording is in it, and the others are counted.
        assert [cause.began for cause in causes] == [20 * second for second in times]
        assert causes[2].why == "errors(EIO): read of cat (pid 7) ended with EIO (59 more before)"
        for pause in (2 * 3600, 30):  # after a rest the delay starts again
            clock[0] += pause
            stream.ended = [request(error=errno.EIO)]
            assert conditions.look()
            conditions.taken()
    assert warnings == []


def test_unrecorded_mounts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], Stream()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    warnings.clear()
    with looking(stream, "errors(EIO)", seconds=10) as conditions:
        for clock[0] in (100, 110, 130):  # then none for 40 s
            stream.ended = [request(error=errno.EIO)]
            assert conditions.look()
            conditions.taken()
        for clock[0] in (131, 132):
            stream.ended = [request(error=errno.EIO)]
            assert conditions.look() is None
        clock[0] = 152
        assert conditions.look() is None and warnings == []
        clock[0] = 152.5  # by now it is overwritten
        assert conditions.look() is None
        clock[0] = 200
        assert conditions.look() is conditions.due is None
    assert warnings == [
        "no recording, too soon after the last one: "
        "errors(EIO): read of cat (pid 7) ended with EIO, 20.5 s ago (1 more before)"
    ]


def test_one_burst_makes_one_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written when no trigger follows, or before the buffers no longer hold its begin."""
    clock, stream = [0.0], Stream()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with looking(stream, "open > 300ms", seconds=30) as conditions:
        conditions.quiet, conditions.longest = 0.5, 15.0
        written = []
        for number in range(200):  # a trigger each 0.2 s for 4 s
            clock[0] = number / 5
            stream.ended = [request("open", 311_000_000, unique=number)] if number < 20 else []
            if cause := conditions.look():
                written.append((clock[0], cause))
                conditions.taken()
        ((at, cause),) = written
        assert at == pytest.approx(4.4)
        assert len(cause.triggers) == 20
        assert cause.triggers[0].seconds == 0.311 and not cause.triggers[0].in_flight
        written.clear()
        for number in range(200, 400):  # and one that does not end
            clock[0] = number / 5
            stream.ended = [request("open", 311_000_000, unique=number)]
            if cause := conditions.look():
                written.append((clock[0], cause))
                conditions.taken()
        assert [at for at, _ in written] == pytest.approx([55.0])


def test_the_request_that_set_it_off_is_in_the_account() -> None:
    stream = Stream()
    with looking(stream, "open > 300ms", "errors(EIO)") as conditions:
        conditions._connections[45] = "/mnt"
        waits = request("open", 311_000_000)
        waits.marks = waits.marks[:1]
        stream.open = [(waits, False)]
        stream.ended = [request("read", 5, errno.EIO, unique=4)]
        cause = conditions.look()
    assert cause
    assert [astuple(trigger) for trigger in cause.triggers] == [
        ("/mnt", "open", 7, 8, "cat", 0.311, True, ""),
        ("/mnt", "read", 7, 8, "cat", 5e-9, False, "EIO"),
    ]


def test_triggers_of_slow_and_failed_requests() -> None:
    stream = Stream()
    with looking(stream, "read > 1s", "errors(EIO)") as conditions:
        stream.ended = [request("write", 2 * 10**9), request(duration=10**9)]
        stream.open = [(request(duration=5 * 10**9), True)]  # its end may have been lost
        assert conditions.look() is None
        stream.ended = [request(duration=2 * 10**9)]
        assert why(conditions.look()) == "read > 1s: read of cat (pid 7) took 2.00 s"
        conditions.taken()
        stream.ended = [request("open", 5, errno.EIO), request("open", 5, errno.ENOENT)]
        assert why(conditions.look()) == "errors(EIO): open of cat (pid 7) ended with EIO"


def test_triggers_of_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, count = [100.0], [5]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "fusetools.live.conditions.counter", lambda directory, connection, name: count[0]
    )
    monkeypatch.setattr(
        "fusetools.live.conditions.fusectl", lambda: contextlib.nullcontext((None, 0))
    )
    wanted = [condition("waiting > 4 for 5s")]
    with now.Conditions(wanted, None, {33: "/mnt"}, 30, warnings.append) as conditions:
        assert conditions.look() is None
        clock[0] += 4.9
        assert conditions.look() is None
        count[0] = 4
        assert conditions.look() is None
        count[0] = 9
        clock[0] += 0.2
        assert conditions.look() is None  # there was a break
        clock[0] += 5
        assert why(conditions.look()) == "waiting > 4 for 5s: 9 requests on /mnt"
        conditions.taken()
        clock[0] += 100
        assert conditions.look() is None
        for count[0] in (4, 9):
            assert conditions.look() is None
        clock[0] += 5
        assert conditions.look()


def test_only_requests_are_watched() -> None:
    names = ("sched:sched_switch", "fuse:fuse_request_send", "fuse:fuse_request_end")
    only = filters.condition("f")
    plan = ProbePlan((), (), tuple(Event(name, only, "fp") for name in names))
    events = now.requests_only(plan).events
    assert [(one.name, one.filter, one.stack) for one in events] == [
        (name, only, "") for name in names[1:]
    ]
    with pytest.raises(Error, match="requests cannot be watched here"):
        now.requests_only(replace(plan, events=plan.events[:1]))


def test_snap_is_answered_if_nobody_reads_the_output(tmp_path: Path) -> None:
    data, said = tmp_path / "perf.data.1", list[str]()
    client, server = socket.socketpair()

    def written(_: Written) -> None:
        assert client.recv(1 << 16) == json.dumps({"output": str(data)}).encode()
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    recorder = object.__new__(flight.FlightRecorder)
    recorder._recording = lambda cause: Written(why=cause.why, output=data)  # type: ignore[method-assign]
    recorder.written = written
    recorder.job = SimpleNamespace(warn=said.append)  # type: ignore[assignment]
    with client:
        recorder._take(now.Cause("fusetools snap", None), [server])
    assert said == [f"cannot print that {data} was written: Broken pipe"]


def test_a_recorder_that_does_not_answer_yet_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "DIRECTORY", tmp_path)
    monkeypatch.setattr(flight, "LONG", 0.01)
    place = tmp_path / "0" / "perf.1"
    place.mkdir(parents=True)
    said = list[str]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place / flight.SOCKET))
        listener.listen()

        def warn(text: str) -> None:
            said.append(text)
            client, _ = listener.accept()
            with client:
                client.sendall(json.dumps({"output": "perf.data.1"}).encode())

        assert list(flight.snap(warn)) == ["perf.data.1"]
    pid = os.getpid()
    assert said == [f"waiting for the flight recorder (pid {pid}); Ctrl-C ends the waiting"]


@pytest.mark.parametrize(
    "seconds, cpus, buffer",
    [
        (30, 2, 64 << 20),
        (1, 2, 2 << 20),
        (0.01, 2, 1 << 20),
        (3600, 2, 1 << 28),
        (30, 128, 8 << 20),
    ],
)
def test_buffers(seconds: float, cpus: int, buffer: int) -> None:
    assert flight.buffer_of(Flight(seconds=seconds), cpus) == buffer
    assert flight.buffer_of(Flight(seconds=seconds, buffer=1 << 20), cpus) == 1 << 20


@pytest.mark.parametrize(
    "rate, cpus, own, buffer",
    [
        (1 << 20, 2, None, None),  # they hold it
        (16 << 20, 2, None, 128 << 20),
        (1 << 40, 2, None, 256 << 20),
        (1 << 40, 32, None, 32 << 20),
        (1 << 40, 64, None, None),  # they are as large as they may be
        (16 << 20, 2, 1 << 28, None),
    ],
)
def test_buffers_fit_the_measured_rate(
    rate: float, cpus: int, own: int | None, buffer: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "read", lambda *_, **__: "MemAvailable: 8388608 kB\n")
    request = Flight(seconds=5, buffer=own)
    assert flight.larger_buffer(request, cpus, None, rate) == buffer


@pytest.mark.parametrize(
    "fails, own, sizes, warned, signal",
    [
        (False, None, [64, 128, 128], ["/mnt is mounted now: the flight recorder begins anew"], 0),
        (
            True,
            None,
            [64, 128, 64, 64],
            ["no larger buffers: x: full: the flight recorder beg", "/"],
            0,
        ),
        (False, 64 << 20, [64, 64], ["/mnt is mounted now: the flight recorder begins anew"], 0),
        (False, None, [64], [], 1),
        (False, None, [64, 128], [], 2),
    ],
)
def test_larger_buffers(
    fails: bool, own: int | None, sizes: list[int], warned: list[str], signal: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It restarts with the measured size, once; with the old one where the kernel refuses it.

    ``signal``: the recording while whose removal a signal to end arrives; 0: none.
    """
    watched, armed, said = iter(["/mnt is mounted now", ""]), list[int](), list[str]()

    class Recorder:
        larger, holds, grows = None, 3.0, True

        def __init__(self, job: SimpleNamespace, *_: object) -> None:
            self.room = SimpleNamespace(buffer=flight.buffer_of(job.options.flight, 2))
            self.recorders, self.outcome = self, job.outcome

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            self.outcome.interrupted = len(armed) == signal

        def arm(self) -> None:
            armed.append(self.room.buffer >> 20)
            if fails and self.room.buffer > 64 << 20:
                raise Error("x", "full")

        def measure(self) -> None:
            if self.grows and self.room.buffer == 64 << 20:
                self.larger = 128 << 20

        def watch(self) -> str:
            return next(watched)

    facts = SimpleNamespace(cpus=2)
    lock = SimpleNamespace(number=0)
    made = (lock, Removed((), ()), None, facts, None)
    monkeypatch.setattr(flight, "prepared", lambda *_: contextlib.nullcontext(made))
    monkeypatch.setattr(flight, "output_of", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(flight, "bundled", lambda *_: None)
    monkeypatch.setattr(flight, "check_feedback", lambda *_: None)
    monkeypatch.setattr("fusetools.record.waiting.until_mounted", lambda *_: None)
    monkeypatch.setattr(flight, "FlightRecorder", Recorder)
    monkeypatch.setattr(
        flight,
        "Job",
        lambda _, options, *__: SimpleNamespace(options=options, plan=None, outcome=Outcome()),
    )
    options = Options(Flight(seconds=30, buffer=own))
    ignore = lambda *_: None  # noqa: E731
    flight.fly(options, [], lambda _: "", ignore, ignore, said.append)
    assert armed == sizes
    assert [text.startswith(begin) for text, begin in zip(said, warned)] == [True] * len(said)
    assert len(said) == len(warned)


def test_buffers_take_a_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "read", lambda *_, **__: "MemAvailable: 524288 kB\n")
    assert flight.larger_buffer(Flight(seconds=5), 2, None, 1 << 30) == 64 << 20
    user = User(1000, 1000, "x", "/", "/bin/sh", ())
    monkeypatch.setattr(Files, "read", lambda *_, **__: "")
    assert flight.larger_buffer(Flight(seconds=5, keep=16), 2, user, 1 << 30) == 128 << 20


def test_perf_overwrites() -> None:
    assert overwriting(["perf", "record"])[2:] == ["--overwrite", "--switch-output=signal"]


def test_a_users_recorder_is_bounded() -> None:
    """As SECURITY.md promises; root's files are not."""
    user = User(1000, 1000, "x", "/", "/bin/sh", ())
    assert flight.keep_of(Flight(), 2, user) == flight.keep_of(Flight(), 2, None) == 10
    assert flight.keep_of(Flight(), 16, user) == 4  # of 1 GiB each
    assert flight.keep_of(Flight(keep=4), 16, user) == 4
    assert flight.keep_of(Flight(keep=5000, buffer=1 << 40), 16, None) == 5000
    with pytest.raises(Error) as caught:
        flight.keep_of(Flight(keep=5), 16, user)
    assert caught.value.what == "--keep 5 is too much"
    assert caught.value.why.endswith("who invoked sudo may record 4G at most")
    assert caught.value.fix == "fusetools record --flight 30 --keep 4   # or --as-root"
    with pytest.raises(Error) as caught:
        flight.keep_of(Flight(buffer=128 << 20), 16, user)
    assert caught.value.what == "--buffer 128M is too much"
    assert caught.value.why == "on 16 CPUs it takes 2G; the limit is 1G"


def shelf(directory: Path, monkeypatch: pytest.MonkeyPatch, keep: int = 2) -> flight.Shelf:
    """Files that begin with "flight" are recordings."""

    def describe(path: Path) -> dict[str, Any]:
        text = Path(path).read_text()
        if text == "broken":
            raise native.CoreError("no", "recording")
        flown = session.Flight(30.0, "why") if text == "flight" else None
        return {"session": session.encoded(session.Session(flight=flown))}

    monkeypatch.setattr(native, "describe", describe)
    return flight.Shelf(Output(str(directory / "perf.data")), keep)


def test_the_oldest_goes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {
        "perf.data.20260101T000000Z": "an ordinary recording",
        "perf.data.20260102T000000Z": "broken",
        "perf.data.20260103T000000": "flight",
        "perf.data.20260103T000000Z.stuck.json": "{}",
        "other.20260103T000000Z": "flight",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "target").write_text("flight")
    (tmp_path / "perf.data.20260104T000000Z").symlink_to("target")
    os.mkfifo(tmp_path / "perf.data.20260105T000000Z")
    (tmp_path / "perf.data.20260106T000000Z").mkdir()
    others = {path.name: "" for path in tmp_path.iterdir()}
    for day in (1, 2, 3):
        (tmp_path / f"perf.data.2026020{day}T000000Z").write_text("flight")
        (tmp_path / f"perf.data.2026020{day}T000000Z.stuck.json").write_text("{}")
    kept = shelf(tmp_path, monkeypatch)
    name = kept.free_name()
    assert re.fullmatch(r"perf\.data\.\d{8}T\d{6}Z", name)
    (tmp_path / name).write_text("flight")
    kept.add(kept.recorded(name))
    left = {path.name for path in tmp_path.iterdir()} - set(others)
    assert left == {
        "perf.data.20260203T000000Z", "perf.data.20260203T000000Z.stuck.json", name
    }  # fmt: skip
    assert set(others) <= {path.name for path in tmp_path.iterdir()}


def test_a_replaced_recording_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = shelf(tmp_path, monkeypatch, keep=1)
    first = tmp_path / "perf.data.20260201T000000Z"
    first.write_text("flight")
    kept.add(kept.recorded(first.name))
    (tmp_path / "new").write_text("theirs")
    os.replace(tmp_path / "new", first)
    second = tmp_path / "perf.data.20260202T000000Z"
    second.write_text("flight")
    kept.add(kept.recorded(second.name))
    assert first.read_text() == "theirs" and second.exists()


def test_names_are_never_used_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = shelf(tmp_path, monkeypatch)
    names = []
    for _ in range(3):
        names.append(kept.free_name())
        (tmp_path / names[-1]).write_text("")
    assert len(set(names)) == 3


def test_the_session_says_why() -> None:
    made = session.Session(flight=session.Flight(30.0, "read > 1s: …"))
    assert session.read(session.encoded(made))[0].flight == made.flight
    for bad in ("[]", '{"wanted": "x"}', '{"wanted": -1}', '{"wanted": true, "why": 3}'):
        text = session.encoded(made).replace('{"wanted": 30.0, "why": "read > 1s: \\u2026"}', bad)
        assert bad in text
        assert session.read(text)[0].flight in (None, session.Flight(1.0, ""))


@pytest.mark.parametrize(
    "arguments, what, fix",
    [
        (["--flight", "30", "--", "true"], "--flight takes no workload", "--flight 30"),
        (["--flight", "30", "--attach", "1"], "--flight takes no --attach", "--flight 30"),
        (["--flight", "2.5", "--duration", "9"], "--flight takes no --duration", "--flight 2.5"),
        (["--flight", "30", "--max-size", "1G"], "--flight takes no --max-size", "--flight 30"),
        (
            ["--flight", "30", "--backend", "graph"],
            "--flight cannot record by function_graph",
            "--flight 30 --backend kprobe",
        ),
        (["--when", "read > 1s"], "--when requires --flight", "--flight 30 --when …"),
        (["--keep", "3", "--", "true"], "--keep requires --flight", "--flight 30 --keep …"),
        (["--buffer", "3M"], "--buffer requires --flight", "--flight 30 --buffer …"),
    ],
)
def test_impossible_options_are_refused(
    arguments: list[str], what: str, fix: str, run: Invoke
) -> None:
    done = run("record", *arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"fusetools: {what}\n  why: ")
    assert done.stderr.endswith(f"  fix: fusetools record {fix}\n")


def test_wrong_conditions_are_refused(run: Invoke) -> None:
    done = run("record", "--flight", "30", "--when", "reed > 1s")
    assert done.exit_code == 2
    assert "'reed > 1s': no FUSE operation matches reed" in done.stderr


def test_function_graph_has_no_part_in_it() -> None:
    with pytest.raises(ValueError, match="function_graph"):
        Options(Flight(), backend="graph")
    assert Options(Flight(), functions=("fuse_lookup",)).backend == "kprobe"
    assert not Options(Flight()).usual_functions


def process(root: Path, pid: int, state: str = "S", start: int = 7, connection: int = 0) -> None:
    place = root / f"proc/{pid}"
    (place / "fd").mkdir(parents=True, exist_ok=True)
    fields = [state, *["1"] * 18, str(start), *["0"] * 30]
    (place / "stat").write_text(f"{pid} (a daemon) {' '.join(fields)}\n")
    if connection:
        (place / "fdinfo").mkdir()
        (place / "fdinfo/5").write_text(f"pos:\t0\nfuse_connection:\t{connection}\n")
        (place / "fd/5").symlink_to("/dev/fuse")


def mounted(root: Path, *mounts: tuple[int, str]) -> None:
    lines = [f"36 35 0:{n} / {path} rw - fuse.x x rw,user_id=0" for n, path in mounts]
    (root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/mountinfo").write_text("\n".join(lines) + "\n")
    if not (root / "proc/self/ns/mnt").is_symlink():
        (root / "proc/self/ns/mnt").symlink_to("mnt:[1]")


def test_new_mounts_after_a_remount(tmp_path: Path) -> None:
    mounted(tmp_path, (45, "/a"), (46, "/b"))
    process(tmp_path, 200)
    new = NewMounts(Files(tmp_path), (), {45: (200, 7), 46: None})
    assert new.look() == new.look() == []
    mounted(tmp_path, (45, "/a"), (46, "/b"), (47, "/c"))
    assert (new.look(), new.look()) == ([], ["/c"])
    mounted(tmp_path, (45, "/a"))
    assert new.look() == new.look() == []
    mounted(tmp_path, (45, "/a"), (46, "/d"))  # the number of a mount that is gone
    assert (new.look(), new.look()) == ([], ["/d"])


def test_only_mounts_that_are_asked_for(tmp_path: Path) -> None:
    mounted(tmp_path, (45, "/a"), (46, "/b"))
    new = NewMounts(Files(tmp_path), ("/a/in",), {45: None})
    assert new.look() == new.look() == []
    mounted(tmp_path, (45, "/a"), (47, "/a/in"))
    assert (new.look(), new.look()) == ([], ["/a/in"])


def test_a_dead_mount_is_none_that_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    mounted(tmp_path, (45, "/a"))
    process(tmp_path, 200, state="Z")
    new = NewMounts(Files(tmp_path), (), {45: (200, 7)})
    assert new.look() == new.look() == []
    process(tmp_path, 200, start=9, connection=45)  # mounted again, with the same numbers
    assert new.look() == []  # not all processes are examined each time
    clock[0] += SEARCH
    assert (new.look(), new.look()) == ([], ["/a"])


def test_the_unit_for_systemd() -> None:
    """Its command is valid, and the unit restricts it."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "docs/fusetools-flight.service")
    service = unit["Service"]
    program, name, *words = shlex.split(service["ExecStart"].replace("\\\n", " "))
    assert (program, name) == ("/usr/bin/fusetools", "record")
    given = record.make_context("record", words).params
    assert given["flight"] and given["conditions"] and given["keep"]
    assert given["output"].startswith(f"/var/lib/{service['StateDirectory']}/")
    assert service["Restart"] == "on-failure"
    for name in ("ExecStartPre", "ExecStopPost"):
        assert service[name] == "-/usr/bin/fusetools clean"


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.18", "7.2"])
@pytest.mark.parametrize("detail", DETAILS)
def test_it_is_perf_alone(kernel: str, detail: str) -> None:
    """Its buffers are perf's overwriting ones: an ftrace instance or function_graph has none of
    them."""
    plan = make(replace(host(kernel), pid_max=1 << 22), Options(Flight(), detail=detail))
    assert not plan.graph and THREADS not in {event.name for event in plan.events}
    assert not any(event.ftrace for event in plan.events)
    recorded = {probe.layer for probe in plan.probes if probe.function != CALIBRATION}
    assert "kernel" not in recorded and "daemon" in recorded
