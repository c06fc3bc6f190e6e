"""Real file systems, each mounted, recorded and unmounted once.

The independent sources are another perf on the kernel's tracepoints, strace on the workload, and
the log of the library that slows their daemons down.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import catalogue
import mounts
import pytest
from catalogue import DELAY_MS, FILE_SYSTEMS, FILES, MARK, SLOW, FileSystem
from recorded import Delay, Recorded, record

pytestmark = pytest.mark.live
# A thread that sleeps for DELAY_MS is off the CPU for that time, apart from the calls around the
# sleep.
SLEPT = DELAY_MS * 1_000_000 // 2


def only(
    which: Callable[[FileSystem], bool],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.only = which  # type: ignore[attr-defined]
        return test

    return mark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of `of` for each file system concerned."""
    which: Callable[[FileSystem], bool] = getattr(metafunc.function, "only", lambda _: True)
    names = [name for name, fs in FILE_SYSTEMS.items() if which(fs)]
    # All tests of one file system in a row: their answers are kept.
    metafunc.parametrize("of", names, indirect=True, scope="module")


@pytest.fixture(scope="session")
def recordings(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[FileSystem], Recorded]]:
    """Record a file system when it is first requested, in whatever order the tests run."""
    results: dict[str, Recorded | BaseException] = {}
    folders: list[Path] = []

    def once(fs: FileSystem) -> Recorded:
        if fs.name not in results:
            folders.append(tmp_path_factory.mktemp(fs.name))
            try:
                catalogue.require("perf", "strace", *fs.needs)
                catalogue.make("all", *fs.builds)
                with mounts.alone():
                    results[fs.name] = record(fs, folders[-1])
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
                results[fs.name] = error
        result = results[fs.name]
        if isinstance(result, BaseException):
            raise result
        return result

    yield once
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture
def of(request: pytest.FixtureRequest, recordings: Callable[[FileSystem], Recorded]) -> Recorded:
    """Return the recording of that file system, with other tools' data about the same time."""
    return recordings(FILE_SYSTEMS[request.param])


def test_the_daemon_lives_and_nothing_is_left(of: Recorded) -> None:
    assert of.alive and of.answers
    assert of.left == []
    assert [path.name for path in of.folder.glob(".*")] == []


def test_doctor_promises_what_is_recorded(of: Recorded) -> None:
    assert of.doctor["answered_by"].endswith(f", pid {of.daemon}")
    tracing = next(line for line in of.progress.splitlines() if ": tracing " in line)
    for what in (r"\d+ callbacks", "replies"):
        promised = bool(re.search(what, of.doctor["how"]))
        assert promised == bool(re.search(what, tracing)), (of.doctor, tracing)


def test_the_workload_did_what_it_does_without_a_recording(of: Recorded) -> None:
    """The file system supports a minimum of the workload."""
    for call, outcome in of.other_outcome.items():
        recorded = dict(of.outcome[call])
        if call in ("open", "read", "opendir", "getdents64"):  # the slow part also makes calls
            assert recorded["calls"] > outcome["calls"]
        elif call == "pread64" and {*outcome["errors"], *recorded["errors"]} == {"EINVAL"}:
            # A daemon that opens its file with the caller's O_DIRECT also reads the file into
            # memory of malloc's, which is aligned by chance.
            assert recorded["calls"] == outcome["calls"]
        else:
            assert recorded == outcome, call
    done = {
        call
        for call, outcome in of.other_outcome.items()
        if outcome["calls"] > sum(outcome["errors"].values())
    }
    able = {"getdents64", "lstat", "mmap", "open", "read", "readlink", "statfs", "flock"}
    if of.fs.writes:
        able |= {"creat", "fsync", "ftruncate", "mkdir", "pwrite64", "rename", "rmdir", "symlink"}
        able |= {"unlink", "msync"}
    assert done >= able - of.fs.cannot


def test_counts_equal_the_kernels(of: Recorded) -> None:
    truth = of.operations()
    assert sum(truth.values()) > 200
    assert (
        truth["read"]
        and truth["lookup"]
        and truth["open"]
        and truth["readdir"] + truth["readdirplus"]
    )
    counts = of.json("count")
    assert counts["recording"]["lost"] == 0
    found = {c["operation"]: c["count"] for c in counts["counts"] if c["layer"] == "request"}
    assert {operation: n for operation, n in found.items() if n} == truth
    histograms = of.json("hist")["histograms"]
    found = {h["operation"]: h["count"] for h in histograms if h["layer"] == "request"}
    assert {operation: n for operation, n in found.items() if n} == truth


def test_each_request_is_the_kernels_and_has_its_end(of: Recorded) -> None:
    rows = {int(row["unique"]): row for row in of.rows() if row["begin_ns"]}
    assert rows.keys() == {request.unique for request in of.requests}
    for request in of.requests:
        row = rows[request.unique]
        assert row["operation"] == request.operation
        assert (row["fate"] == "matched") == (request.end is not None), row
    # Calls of the daemon that are no requests of their own: no caller waits for an answer.
    others = {row["operation"] for row in of.rows() if not row["begin_ns"]}
    assert others <= {"forget", "batch_forget"}, others
    requests = of.json("hist")["recording"]["requests"]
    ended = sum(request.end is not None for request in of.requests)
    assert requests["begun"] == len(of.requests)
    assert requests["ended"] == requests["matched"] == ended


def test_the_daemon_read_and_answered_each_request(of: Recorded) -> None:
    """Two calls of the same length at the same time cannot be told apart."""
    rows = [row for row in of.rows() if row["begin_ns"] and row["end_ns"]]
    spans = [(int(row["begin_ns"]), int(row["end_ns"])) for row in rows]
    known = 0
    for row, span in zip(rows, spans):
        if not (row["read_ns"] and row["reply_ns"]):
            others = [other for other in spans if other[0] < span[1] and span[0] < other[1]]
            assert len(others) > 1, row
        else:
            known += 1
            begin, read, reply, end = (
                int(row[f"{mark}_ns"]) for mark in ("begin", "read", "reply", "end")
            )
            assert begin < read <= reply < end, row
    assert known > 0.9 * len(rows)


# Each such call of the workload that succeeds makes one request of that operation.
ONE_TO_ONE = {
    "mkdir": ("mkdir", "mkdir"),
    "rmdir": ("rmdir", "rmdir"),
    "unlink": ("unlink", "unlink"),
    "symlink": ("symlink", "symlink"),
    "link": ("link", "link"),
    "setxattr": ("setxattr", "setxattr"),
    "fsync": ("fsync", "fsync"),
    "ftruncate": ("ftruncate", "setattr"),
    "statfs": ("statfs", "statfs"),
    "creat": ("creat", "create"),
}


def test_system_calls_equal_straces(of: Recorded) -> None:
    """Counts of strace -c in another round: calls that make a request each, and calls by layer."""
    found: Counter[tuple[str, str]] = Counter()
    for h in of.json("hist")["histograms"]:
        if h["layer"] == "syscall":
            found[h["function"], h["operation"]] += h["count"]
    checked = 0
    for call, (syscall, operation) in ONE_TO_ONE.items():
        outcome = of.other_outcome.get(call)
        if not outcome or outcome["errors"]:
            continue
        assert of.traced[syscall] == outcome["calls"], (call, of.traced)
        assert found[syscall, operation] == of.traced[syscall], (call, of.traced[syscall])
        checked += 1
    assert checked >= (7 if of.fs.writes else 1)


def around(of: Recorded) -> dict[Delay, dict[str, str]]:
    """Return each delay and its request: of all requests that contain it, the last begun."""
    found: dict[Delay, dict[str, str]] = {}
    rows = sorted(
        (row for row in of.rows() if row["begin_ns"] and row["end_ns"]),
        key=lambda row: int(row["begin_ns"]),
    )
    for delay in of.delays:
        for row in rows:
            if int(row["begin_ns"]) < delay.begin and delay.end < int(row["end_ns"]):
                found[delay] = row
    return found


def test_delays_are_between_the_daemons_read_and_its_reply(of: Recorded) -> None:
    assert len(of.delays) >= SLOW
    found = around(of)
    assert found.keys() == set(of.delays)
    for delay, row in found.items():
        assert row["read_ns"] and row["reply_ns"], (delay, row)
        assert int(row["read_ns"]) < delay.begin and delay.end < int(row["reply_ns"]), (delay, row)


# A goroutine may continue on any thread after a wait. By chance a request is handed over, or the
# thread that took it answers.
MOVES = ("gocryptfs", "bazil", "jacobsa", "rclone")
# Each request is worked on by a new goroutine, whose thread the callback tells.
SPAWNS = ("bazil", "jacobsa", "rclone")


def requests(of: Recorded) -> dict[int, dict[str, Any]]:
    """Return slow's output for each request, by its number."""
    return {request["unique"]: request for request in of.json("slow", "-n", "10000")["requests"]}


def test_slow_says_the_daemon_was_blocked(of: Recorded) -> None:
    delays = Counter(int(row["unique"]) for row in around(of).values())
    slowest = requests(of)
    for unique, times in delays.items():
        request = slowest[unique]
        meanwhile = request["meanwhile"]
        if of.fs.name in MOVES:
            handed = request["handed"]
            moved_on = request["reader"] != request["replier"]
            assert request["replier"] and (of.fs.name in SPAWNS or handed == moved_on), request
            assert (meanwhile is None) == handed, request
            if handed:
                continue
        assert meanwhile and meanwhile["blocked_ns"] is not None, request
        assert meanwhile["blocked_ns"] >= times * SLEPT, request
        # So the request's thread was not on a CPU while it slept. The time before and after has no
        # limit: a hypervisor may take the CPU unseen.
        rest = (meanwhile["on_cpu_ns"] or 0) + (meanwhile["runnable_ns"] or 0)
        assert meanwhile["blocked_ns"] + rest <= request["duration_ns"], request
    moved = [unique for unique in delays if slowest[unique]["handed"]]
    if of.fs.name not in MOVES:  # Go's scheduler may move them all
        assert len(moved) < len(delays), moved


def test_slow_names_the_daemons_system_call(of: Recorded) -> None:
    """The wait of the daemon's thread is among the system calls that slow prints."""
    slowest = requests(of)
    for row in around(of).values():
        request = slowest[int(row["unique"])]
        if of.fs.name in MOVES and request["handed"]:
            continue
        calls = {
            call["syscall"]: call["time_ns"]
            for call in (request["meanwhile"] or {}).get("syscalls", ())
        }
        assert max(calls.values(), default=0) >= SLEPT, (row["operation"], calls)


def test_stages_say_the_daemon_was_blocked(of: Recorded) -> None:
    slowest = requests(of)
    operations = Counter(
        row["operation"]
        for row in around(of).values()
        if of.fs.name not in MOVES or not slowest[int(row["unique"])]["handed"]
    )
    blocked: Counter[str] = Counter()
    for found in of.json("stages")["operations"]:
        for stage in found["stages"]:
            if "daemon" in stage["name"].split("+"):
                blocked[found["operation"]] += stage["parts_ns"].get("blocked", 0)
    for operation, times in operations.items():
        assert blocked[operation] >= times * SLEPT, (operation, times, blocked[operation])


def waited(of: Recorded, stacks: Counter[str]) -> int:
    """Return ns of the stacks in which this daemon sleeps."""
    return sum(ns for stack, ns in stacks.items() if re.search(of.fs.sleeps, stack))


def test_flame_offcpu_has_the_function_that_slept(of: Recorded) -> None:
    stacks = of.stacks("--offcpu")
    daemons = Counter({s: n for s, n in stacks.items() if not s.startswith(("workload;", "sh;"))})
    assert waited(of, daemons) >= len(of.delays) * SLEPT, daemons.most_common(3)


def test_waits_of_the_daemon_have_whole_stacks(of: Recorded) -> None:
    """Stacks are complete by default, however the daemon was built; else flame names the fix."""
    asked = ("--offcpu", "--layer", "daemon", "--state", "blocked")
    shown, stacks = of.json("flame", *asked), of.stacks(*asked)
    cut, total, notes = shown["cut_ns"], shown["total_ns"], shown["notes"]
    assert total > 0
    if of.fs.name == "own-protocol":
        # The daemon waits in open() and pread() for a FUSE file system below, interruptibly. These
        # calls cannot be predicted, and copying all stacks is too expensive.
        (note,) = [note for note in notes if note["code"] == "stacks_cut"]
        assert note["fix"] == "fusetools record --call-graph dwarf -- WORKLOAD"
        return
    # If waits are many, only some stacks are taken; the first waits have no similar one before
    # them.
    bare = sum(ns for s, ns in stacks.items() if re.fullmatch(r"[^;]+(;entry_SYSCALL.*)?", s))
    assert not bare or "stacks_sampled" in {note["code"] for note in notes}
    for note in notes:
        if note["code"] == "stacks_too_deep":
            assert note["fix"].startswith("fusetools record --call-graph auto,")
            cut -= note["figures"]["time_share"] * total
    assert cut - bare <= 0.05 * total, notes


def test_flame_offwake_has_the_function_that_slept(of: Recorded) -> None:
    """The frames above show the thread that ended the wait, or that it was not seen."""
    below: Counter[str] = Counter()
    for stack, ns in of.stacks("--offwake").items():
        waiter, _, waker = stack.partition(";--;")
        assert waker, stack
        below[waiter] += ns
    assert waited(of, below) >= len(of.delays) * SLEPT, below.most_common(3)


def test_no_flame_says_that_a_sleeping_thread_ran(of: Recorded) -> None:
    """The daemon's time on a CPU for requests is not longer than without the injected delays."""
    ran = sum(ns for stack, ns in of.stacks("--requests").items() if stack.endswith(";[on CPU]"))
    served = of.json("flame", "--requests")["total_ns"]
    assert 0 < ran < served - len(of.delays) * SLEPT


def test_flame_requests_has_the_function_that_slept(of: Recorded) -> None:
    inside: Counter[str] = Counter()
    for stack, ns in of.stacks("--requests").items():
        if below := re.search(r";\[FUSE \w+\](;.*)", stack):
            inside[below[1]] += ns
    assert waited(of, inside) >= len(of.delays) * SLEPT, inside.most_common(3)


def test_slow_names_no_wrong_file(of: Recorded) -> None:
    """The path that slow shows for a request is that of a slowed file, or of its directory."""
    for row in around(of).values():
        assert not row["path"] or MARK in row["path"], row


# Stripped low-level daemons that take writes as buffers, which bypass the functions of the
# library's table.
UNSEEN_WRITES = ("fuse-overlayfs", "pyfuse3")


# One probe of bazil.org/fuse takes the requests of all operations, and so no sizes.
@only(
    lambda fs: (
        fs.writes
        and ((fs.names and fs.name not in UNSEEN_WRITES) or fs.name in set(MOVES) - set(SPAWNS))
    )
)
def test_writes_name_their_file_and_size(of: Recorded) -> None:
    """libfuse passes these writes on without the request's number; their length is the kernel's."""
    writes = [row for row in of.rows() if row["operation"] == "write" and row["end_ns"]]
    assert len(writes) == of.operations()["write"] > 0
    for row in writes:
        # Go's replies with the inodes of created files are not seen.
        known = {"recorded/file-0"} if of.fs.names else {"recorded/file-0", ""}
        assert row["path"] in known, row
        headers = 40 + 40  # struct fuse_in_header and fuse_write_in, include/uapi/linux/fuse.h
        assert int(row["size_bytes"]) == int(row["request_bytes"]) - headers, row
    offsets = {int(row["offset_bytes"]) for row in writes}
    assert offsets >= {*range(13), *range(0, 101 * 4096, 4096)}  # kSyncs and kWrites


@only(lambda fs: fs.name == "gocryptfs")
def test_names_in_go_are_those_that_were_asked_for(of: Recorded) -> None:
    """Counts of the workload's calls (daemons/workload.cc)."""
    found: dict[str, list[str]] = {}
    for row in of.rows():
        found.setdefault(row["operation"], []).append(row["name"])
    directories = [f"dir-{i}" for i in range(1, 7)]
    assert found["mkdir"] == ["recorded", *directories]
    assert found["rmdir"] == directories
    assert found["create"] == [f"file-{i}" for i in range(23)]
    assert found["unlink"] == [f"renamed-{i}" if i < 10 else f"file-{i + 3}" for i in range(17)]
    assert found["symlink"] == [f"link-{i}" for i in range(5)]
    assert found["rename"] == [f"file-{i}" for i in range(2, 13)]
    paths = {row["path"] for row in of.rows() if row["operation"] == "open" and row["path"]}
    given = {f"given/file-{i:02}" for i in range(FILES)} | {
        f"{MARK}/{MARK}-{i}" for i in range(SLOW)
    }
    assert paths <= given | {"recorded/file-0"}


def test_no_path_is_shown_as_an_attributes_name(of: Recorded) -> None:
    for request in of.json("slow", "-n", "10000")["requests"]:
        if request["operation"].endswith("xattr"):
            assert not (request["name"] or "").startswith("/"), request


@only(lambda fs: fs.names)
def test_slow_names_the_file(of: Recorded) -> None:
    named = {row["path"].rpartition("/")[2] for row in around(of).values()}
    # Some are slow in the directory, too.
    assert named - {MARK} == {f"{MARK}-{i}" for i in range(SLOW)}
