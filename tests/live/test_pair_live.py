"""One process serves two mounts with equal request numbers and inodes (pairfs.c).

Each mount gets its own requests.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import mounts
import pytest
from mounts import end_with_the_test, mount_entry, wait_until
from recording import printed, recorded

pytestmark = pytest.mark.live
FILES, ROUNDS = 10, 3
WARM = "cat {0}/a-0 {1}/b-0"  # an answer of each: afterwards their descriptors are known
WORK = """
for round in 1 2 3; do
  for i in 0 1 2 3 4 5 6 7 8 9; do cat {0}/a-$i & cat {1}/b-$i & done; wait
done
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True)
    if flags.returncode:
        pytest.skip("no libfuse3 to build with: apt-get install libfuse3-dev")
    folder = tmp_path_factory.mktemp("pairfs")
    source, program = Path(__file__).with_name("pairfs.c"), folder / "pairfs"
    build: list[str | Path] = ["gcc", "-O2", "-Wall", "-Wextra", "-o", program, source, "-pthread"]
    subprocess.run([*build, *flags.stdout.decode().split()], check=True)
    first, second = folder / "first", folder / "second"
    first.mkdir()
    second.mkdir()
    command = [program, first, second]
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_the_test)
    wait_until(lambda: mount_entry(second) is not None, "the mounts")
    yield first, second
    for place in (second, first):
        subprocess.run(["umount", "-l", place], check=True)
    daemon.wait(mounts.HANGS)


def test_each_mount_has_its_own(pair: tuple[Path, Path], tmp_path: Path) -> None:
    data = tmp_path / "perf.data"
    which = [word for mount in pair for word in ("--mount", mount)]
    script = WARM.format(*pair) + WORK.format(*pair)
    done = recorded(data, *which, "--", "sh", "-ec", script)
    assert "which mount" not in done.stderr
    exported = json.loads(printed("export", "--format", "json", "-i", data, "-o", "-"))["requests"]
    begun = [row for row in exported if row["waits"] is not None and row["fate"] != "no_reply"]
    connections = {mounts.connection(mount): letter for mount, letter in zip(pair, "ab")}
    reads = [row for row in begun if row["operation"] == "read" and row["comm"] == "cat"]
    for letter in "ab":
        own = [row for row in reads if connections[row["connection"]] == letter]
        # Two for each file: the last one returns nothing.
        assert len(own) == 2 * (1 + FILES * ROUNDS)
        known = [row for row in own if row["path"]]
        assert len(known) > 0.9 * len(own)
        assert {row["path"][0] for row in known} == {letter}
        assert {row["daemon_tid"] for row in known} == {known[0]["daemon_tid"]}
        # The second mount sleeps for 5 ms before each byte; load delays some reads of either.
        firsts = [row["duration_ns"] for row in known if row["offset_bytes"] == 0]
        assert (min(firsts) >= 5_000_000) == (letter == "b")
    for mount, letter in zip(pair, "ab"):
        counted = json.loads(printed("count", "--json", "--mount", mount, "-i", data))["counts"]
        replies = sum(row["count"] for row in counted if row["function"] == "fuse_reply_buf")
        assert replies == sum(connections[row["connection"]] == letter for row in reads)


def test_the_other_mount_is_named(pair: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = pair
    done = recorded(tmp_path / "perf.data", "--mount", first, "--", "cat", first / "a-0")
    assert f"also serves {second}, which is not recorded" in done.stderr
    assert f"fix: fusetools record --mount {first} --mount {second} -- …" in done.stderr
