"""A user who may only run `sudo fusetools record` reads no foreign memory.

Runs some of the cases that tests/faults/leaks.py tries by the hundred.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from recording import COMMAND
from script import needs_perf
from spying import CALLER, Case, Spy, clean, kept, plain
from variants import variants

import fusetools

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    place = Path(f"/var/tmp/fusetools-spying-{os.getpid()}")
    place.mkdir()
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def spy(folder: Path) -> Iterator[Spy]:
    if os.geteuid() != 0 or os.uname().machine != "x86_64":
        pytest.skip("needs root, on x86-64")
    if missing := [name for name in ("sudo", "bindfs", "cc") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    needs_perf()
    with Spy(folder) as new:
        yield new


def test_the_spy_finds_what_is_there(spy: Spy) -> None:
    """The token is in stock perf's recording for root, once the caller may read it."""
    place = spy.theirs / "control"
    place.mkdir()
    data = place / "perf.data"
    words = ["perf", "record", "-a", "-q", "-z", "-e", "cpu-clock/freq=499,call-graph=dwarf/"]
    subprocess.run([*words, "-o", data, "sleep", "1"], check=True, capture_output=True)
    assert spy.reads() == []
    shutil.chown(data, CALLER)
    assert {found.partition(" (")[0] for found in spy.reads()} == set(spy.tokens)
    words = ["perf", "record", "-a", "-q", "-e", "cpu-clock/freq=499,call-graph=fp/"]
    subprocess.run([*words, "-o", data, "sleep", "1"], check=True, capture_output=True)
    shutil.chown(data, CALLER)
    assert {found.partition(" (")[0] for found in spy.reads()} == set(spy.tokens)
    shutil.rmtree(place)


HANDED_OVER = (
    Case(),
    Case(limit="ulimit -S -t 1; ulimit -S -f 1"),
    Case(merger="panics once"),
    *variants(
        Case(limit="ulimit -S -n 16; ulimit -s 2000"),
        Case(limit="ulimit -S -d 50000; umask 0777; trap '' CHLD"),
        Case(options=("--call-graph", "dwarf")),
        Case(options=("--call-graph", "fp", "--wakers")),
        Case(limit="ulimit -S -u 1"),
        Case(limit="ulimit -S -v 300000"),
        Case(merger="has no threads"),
    ),
)


@pytest.mark.parametrize("case", HANDED_OVER, ids=str)
def test_handed_over_files_hold_no_memory_of_others(spy: Spy, case: Case) -> None:
    told, place = spy.run(case)
    assert spy.reads(told.text) == []
    assert told.status == 0, told.text
    assert "Traceback" not in told.text and "panicked" not in told.text
    again = "the process that merges ended: BaseException: a defect: stacks have no names"
    assert (again in " ".join(told.text.split())) == (case.merger == "panics once")
    assert "warning" not in told.text or case.merger == "panics once", told.text
    output = place / "out"
    assert output.owner() == CALLER and stat.S_IMODE(output.stat().st_mode) == 0o600
    assert sorted(path.name for path in place.iterdir()) == ["began", "go", "out"]
    assert plain(output)
    assert {"lookup", "readdir"} & {one.operation for one in fusetools.open(output).counts().counts}
    spy.forget(place)


UNMERGED = (
    Case(merger="panics"),
    Case(merger="passes on what it read", options=("--call-graph", "dwarf")),
    Case(merger="passes on what it read", options=("--detail", "latency")),
    *variants(
        Case(merger="panics", options=("--call-graph", "dwarf")),
        Case(merger="aborts"),
        Case(merger="says nothing"),
    ),
)


@pytest.mark.parametrize("case", UNMERGED, ids=str)
def test_unmerged_data_stays_roots(spy: Spy, case: Case) -> None:
    told, place = spy.run(case)
    assert spy.reads(told.text) == []
    assert told.status == 1 and "Traceback" not in told.text, told.text
    assert not (place / "out").exists()
    files = kept(told.text)
    assert files and all(path.parent == place / "out.unmerged" for path in files), told.text
    for path in (place / "out.unmerged", *files):
        status = path.stat()
        private = 0o700 if path.is_dir() else 0o600
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, private)
    # The command that it names makes a recording of it, for root.
    fix = next(line for line in told.text.splitlines() if line.strip().startswith("fix:"))
    words = shlex.split(fix.partition("fix: fusetools ")[2].partition("   # ")[0])
    merged = spy.folder / "merged.data"
    subprocess.run([*COMMAND, *words[:-1], merged], check=True, capture_output=True)
    assert merged.owner() == "root" and stat.S_IMODE(merged.stat().st_mode) == 0o600
    assert "fuse:fuse_request_send" in fusetools.core.native.describe(str(merged))["events"]
    spy.forget(place)


def test_few_of_a_users_are_kept(spy: Spy) -> None:
    """The same holds if the user renames the kept files, or if they cannot be found."""
    places = []
    for number in range(4):
        told, place = spy.run(Case(merger="panics", options=("--detail", "latency")))
        places.append(place)
        if number == 0:
            (place / "out.unmerged").rename(place / "hidden")
        elif number == 2:
            place.rename(spy.theirs / "elsewhere")
    left = [path for path in spy.theirs.rglob("perf.data") if path.stat().st_uid == 0]
    assert sorted(str(path.relative_to(spy.theirs)) for path in left) == [
        f"{places[3].name}/out.unmerged/perf.data",
        "elsewhere/out.unmerged/perf.data",
    ]
    places[3].rename(spy.theirs / "and there")
    told, place = spy.run(Case(merger="panics", options=("--detail", "latency")))
    assert "the recording could not be merged, and is lost" in told.text
    assert "fix: fusetools clean   # as root" in told.text
    assert sorted(path.name for path in place.iterdir()) == ["began", "go"]
    assert clean() == "nothing was left\n"  # and it does not search for them again
    told, place = spy.run(Case(merger="panics", options=("--detail", "latency")))
    assert kept(told.text)
    assert f"left for root: {place}/out.unmerged\n" in clean()
    for path in spy.theirs.iterdir():
        spy.forget(path)


KILLED = (
    *(Case(kill=phase) for phase in ("recording", "merging")),
    *variants(*(Case(kill=phase) for phase in ("arming", "ending"))),
    *variants(Case(kill="recording", options=("--call-graph", "dwarf"))),
)


@pytest.mark.parametrize("case", KILLED, ids=str)
def test_data_of_a_killed_recording_stays_roots(spy: Spy, case: Case) -> None:
    told, place = spy.run(case)
    assert spy.reads(told.text) == []
    text = clean()
    assert spy.reads(text) == []
    assert not (place / "out").exists() and not list(place.glob("*.partial*"))
    if case.kill != "arming":
        assert "(what was recorded is kept: for root alone, " in text
        assert all(path.stat().st_uid == 0 for path in kept(text)) and kept(text)
    spy.forget(place)


OTHERS = (
    Case(full=True),
    Case(flight=True),
    *variants(
        Case(full=True, options=("--call-graph", "dwarf")),
        Case(flight=True, merger="panics"),
        Case(flight=True, kill="recording"),
    ),
)


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_nothing_is_read_on_a_full_disk_or_by_a_flight_recorder(spy: Spy, case: Case) -> None:
    told, place = spy.run(case)
    assert spy.reads(told.text) == []
    text = clean()
    assert spy.reads(text) == []
    assert "Traceback" not in told.text
    written = [path for path in place.glob("out*") if path.is_file() and "json" not in path.name]
    assert bool(written) == (case == Case(flight=True)) or case.full, told.text
    spy.forget(place)
