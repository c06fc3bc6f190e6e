"""fusetools on an arm64 kernel, as its Debian package installs it: make test-arm64."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import arm64
import pytest
import vm
from samplefs import FUSETOOLS, TRACING, counts, own

import fusetools

pytestmark = pytest.mark.vm

DAEMON = f"{arm64.SAMPLES}/with-symbols/samplefs"
SCRIPT = f"""set -e
own() {{ {DAEMON} --talk /run/talk internal affairs > $1; }}
mkdir /run/mount
{arm64.SAMPLES}/make_tree /run/tree
{DAEMON} --kernel-cache 0 --socket /run/talk --delay statfs=5ms /run/tree /run/mount
uname -m > machine
fusetools record --call-graph dwarf -o dwarf.data -- {arm64.SAMPLES}/workload statfs 5 /run/mount
own graph.before
fusetools record -o graph.data -- {arm64.SAMPLES}/workload mixed --processes 1 /run/mount 2> said
own graph.after
cat {TRACING}/dynamic_events {TRACING}/uprobe_events > left
fusetools hist --json -i graph.data > hist.json
"""


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the guest has run SCRIPT."""
    if request.config.getoption("--kernels", default="") != "arm64":
        pytest.skip("make test-arm64 runs it")
    needed = arm64.needed()
    assert not needed, f"apt-get install {' '.join(needed)}"
    folder = tmp_path_factory.mktemp("arm64")
    vm.guest(arm64.fetch(), folder)(SCRIPT)
    assert (folder / "machine").read_text() == "aarch64\n"
    return folder


def answer(folder: Path, *words: str) -> str:
    """Return what a command prints on this host."""
    done = subprocess.run(
        [FUSETOOLS, *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def test_counts_equal_the_samples_own(recorded: Path) -> None:
    assert "none lost" in (recorded / "said").read_text()
    called = own(recorded, "graph")
    assert called["cvmfs_getattr"] == 211 and called["cvmfs_read"] == 89
    assert +counts(recorded / "graph.data", "daemon") == +called
    requests = counts(recorded / "graph.data", "request")
    requests.pop("FUSE_FLUSH", None)  # the kernel stops asking
    named = {name.replace("cvmfs_", "FUSE_").upper(): n for name, n in (+called).items()}
    assert requests == Counter(named)
    kernel = counts(recorded / "graph.data", "kernel")
    assert kernel["fuse_getattr"] == called["cvmfs_getattr"]
    assert (recorded / "left").read_text() == ""


def test_registers_hold_the_arguments(recorded: Path) -> None:
    """Numbers of requests, of files and names come from the registers of functions."""
    slowest = fusetools.open(recorded / "graph.data").slowest(most=10_000)
    assert not slowest.guessed
    found = [one for one in slowest.requests if one.operation in ("lookup", "getattr", "read")]
    called = own(recorded, "graph")
    assert len(found) == sum(called[f"cvmfs_{name}"] for name in ("lookup", "getattr", "read"))
    assert all(one.whole and one.path and one.inode for one in found)
    assert {one.path for one in found if one.operation == "read"} == {"dir-00/pages"}


def test_the_guest_answers_as_this_host_does(recorded: Path) -> None:
    there = (recorded / "hist.json").read_text()
    assert there == answer(recorded, "hist", "--json", "-i", "graph.data")


@pytest.mark.parametrize("recording", ["graph.data", "dwarf.data"])
def test_stacks_reach_from_main_to_the_sleep(recorded: Path, recording: str) -> None:
    """By frame pointers, and by copies that are unwound; both programs sign return addresses."""
    text = answer(recorded, "flame", "--offcpu", "statfs", "-o", "-", "-i", recording)
    stacks = [line.rpartition(" ")[0].split(";") for line in text.splitlines()]
    daemon = [stack for stack in stacks if "clock_nanosleep" in stack]
    assert daemon
    for stack in daemon:
        called = ["loader::stub_statfs", "cvmfs::cvmfs_statfs", "cvmfs::Callback::Injected"]
        at = stack.index(called[0])
        assert stack[at : at + 3] == called and stack.index("clock_nanosleep") > at + 3
        assert len(stack[:at]) >= 4  # the thread's start and libfuse's loop, which have no names
    callers = [stack for stack in stacks if stack[0] == "workload"]
    assert callers
    for stack in callers:
        places = [stack.index(name) for name in ("_start", "main", "Run", "statfs64")]
        assert places == sorted(places)
        # Frame pointers skip the caller of a function without a frame.
        assert "Statfs" in stack or recording == "graph.data"
