"""Functions of a stripped daemon, named by a debuginfod server of this host."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import wait_until
from recording import recorded, run
from sample import BUILD, Mounter

import fusetools
from fusetools.core import native
from fusetools.reasons import Code

pytestmark = pytest.mark.live
INSIDE = "Injection::Delays"  # a function of the sample that its library does not export


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a server that has the sample's debug files."""
    program = shutil.which("debuginfod")
    if not program or not shutil.which("debuginfod-find"):
        pytest.skip("no debuginfod here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = tmp_path / "served"
    served.mkdir()
    for whole in (BUILD / "with-symbols").iterdir():
        command: list[str | Path] = [
            "objcopy",
            "--only-keep-debug",
            whole,
            served / f"{whole.name}.debug",
        ]
        subprocess.run(command, check=True)
    words = [program, "-F", "-p", port, "-d", tmp_path / "index", served]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            ids = [native.elf_build_id(str(whole)) for whole in served.iterdir()]
            for build_id in ids:
                urllib.request.urlopen(f"{address}/buildid/{build_id}/debuginfo").close()
        except urllib.error.URLError:
            return False
        return True

    try:
        wait_until(ready, "the server")
        yield address
    finally:
        process.terminate()
        process.wait()


def test_functions_of_a_stripped_daemon(
    server: str, sample_mount: Mounter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = sample_mount(stripped=True, delay=("lookup=2ms",))
    output = tmp_path / "perf.data"
    workload = ("ls", "-l", mount.path / "dir-00")
    recorded(output, "--mount", mount.path, "--call-graph", "dwarf", "--", *workload)
    recording = fusetools.open(output)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    without = recording.stacks("off-cpu")
    assert not any(INSIDE in stack for stack in without.stacks)
    assert Code.FILES_STRIPPED in {note.code for note in without.notes}
    monkeypatch.setenv("DEBUGINFOD_URLS", server)
    with_names = recording.stacks("off-cpu")
    assert any(INSIDE in stack for stack in with_names.stacks)
    assert with_names.total_ns == without.total_ns
    assert with_names.user.nameless < without.user.nameless
    stripped = [n.subject["files"] for n in with_names.notes if n.code == Code.FILES_STRIPPED]
    assert not any("libcvmfs" in str(files) for files in stripped)


def test_merge_adds_the_functions_of_a_stripped_daemon(
    server: str, sample_mount: Mounter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names become a part of the recording, which needs no server afterwards."""
    mount = sample_mount(stripped=True, delay=("lookup=2ms:spin",))
    raw = tmp_path / "raw.data"
    options = ["perf", "record", "-qag", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock,fuse:*"]
    command = [*options, "-o", raw, "--", "ls", "-l", mount.path / "dir-00"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    named = {}
    for urls in ("", server):
        monkeypatch.setenv("DEBUGINFOD_URLS", urls)
        done = run("merge", raw, "-o", tmp_path / "merged.data")
        assert done.returncode == 0, done.stderr
        monkeypatch.delenv("DEBUGINFOD_URLS")
        stacks = fusetools.open(tmp_path / "merged.data").stacks("on-cpu", everything=True)
        named[urls] = sum(INSIDE in stack for stack in stacks.stacks)
    assert named[server] and not named[""]
