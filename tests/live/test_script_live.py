"""Recordings by a script that needs no Python: the figures are those of `record`, and it leaves
nothing, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from mounts import HANGS, wait_until
from recording import COMMAND, printed, recorded, run
from sample import Mounter, SampleMount
from variants import variants

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_no_file", "leaves_nothing")]
LOCK = Path("/run/fusetools/script")
EVENTS = Path("/sys/kernel/tracing/uprobe_events")


def made(mount: SampleMount, directory: Path, *options: object) -> Path:
    script = directory / "record.sh"
    run("script", "--mount", mount.path, *options, "-o", script, check=True)
    return script


def start(
    script: Path, *workload: object, shell: tuple[str, ...] = ("sh",)
) -> subprocess.Popen[str]:
    words = [*shell, str(script), "-o", "made.tar", "--", *map(str, workload)]
    return subprocess.Popen(words, cwd=script.parent, stderr=subprocess.PIPE, text=True)


def ends(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=HANGS)[1]


def records(script: Path) -> subprocess.Popen[str]:
    """Start a script, and wait until it records: then `begun` holds its workload's pid."""
    begun = script.parent / "begun"
    process = start(script, "sh", "-c", f"echo $$ >{begun}; exec sleep 600")
    wait_until(lambda: begun.exists() and begun.read_text().strip().isdigit(), "the workload")
    return process


def killed(script: Path) -> Path:
    """Kill a script that records; the folder that it leaves."""
    process = records(script)
    (folder,) = script.parent.glob(".fusetools.*")
    process.kill()
    process.wait()
    assert process.stderr
    process.stderr.close()
    os.kill(int((script.parent / "begun").read_text()), signal.SIGTERM)
    return folder


def calls(path: Path) -> dict[tuple[str, str], int]:
    """Calls by layer and function."""
    answer = json.loads(printed("count", "-i", path, "--json"))
    counts: Counter[tuple[str, str]] = Counter()
    for row in answer["counts"]:
        counts[row["layer"], row["function"]] += row["count"]
    return dict(counts)


@pytest.mark.parametrize(
    "shell", [("dash",), *variants(("busybox", "sh"), ("bash",))], ids=" ".join
)
def test_the_counts_are_those_of_record(
    sample_mount: Mounter, tmp_path: Path, shell: tuple[str, ...]
) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"there is no {shell[0]}")
    mount = sample_mount()
    # The kernel asks once whether the daemon knows STATX, as soon as a file's attributes are stale.
    subprocess.run(["stat", *mount.path.iterdir()], stdout=subprocess.DEVNULL, check=True)
    # Absolute, as busybox's shell prefers programs of its own.
    words = f'for i in 1 2 3 4 5 6 7; do /usr/bin/stat "{mount.path}"/* >/dev/null; done'
    workload = ["/bin/sh", "-c", words]
    recorded(tmp_path / "direct.data", "--mount", mount.path, "--", *workload)
    process = start(made(mount, tmp_path), *workload, shell=shell)
    said = ends(process)
    assert process.returncode == 0, said
    whole = tmp_path / "opened.data"
    outcome = json.loads(printed("open", tmp_path / "made.tar", "-o", whole, "--json"))
    assert outcome["lost"] == 0 and outcome["exit_status"] == 0 and not outcome["warnings"]
    direct = calls(tmp_path / "direct.data")
    assert direct["daemon", "cvmfs_lookup"] >= 7
    assert calls(whole) == direct
    hists = [
        json.loads(printed("hist", "lookup", "-i", path, "--json"))
        for path in (tmp_path / "direct.data", whole)
    ]
    assert hists[0].keys() == hists[1].keys()
    stages = json.loads(printed("stages", "lookup", "-i", whole, "--json"))
    assert stages


@pytest.mark.parametrize("number", [signal.SIGTERM, *variants(signal.SIGINT, signal.SIGHUP)])
def test_a_signal_ends_it_with_a_recording(
    sample_mount: Mounter, tmp_path: Path, number: signal.Signals
) -> None:
    mount = sample_mount()
    begun = tmp_path / "begun"
    process = start(
        made(mount, tmp_path), "sh", "-c", f"ls {mount.path}; touch {begun}; exec sleep 600"
    )
    wait_until(begun.exists, "the workload")
    process.send_signal(number)
    said = ends(process)
    assert process.returncode == 128 + signal.SIGTERM, said
    answer = json.loads(printed("open", tmp_path / "made.tar", "-o", tmp_path / "data", "--json"))
    assert answer["requests"] > 0 and answer["interrupted"]


def test_the_next_one_removes_what_a_killed_one_left(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = made(mount, tmp_path)
    folder = killed(script)
    assert "fuse_daemon/" in EVENTS.read_text()
    again = start(script, "ls", mount.path)
    said = ends(again)
    assert again.returncode == 0 and "removing what a killed recording left" in said
    assert not folder.exists() and not LOCK.is_symlink()


def test_a_script_for_another_kernel_does_nothing(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = made(mount, tmp_path)
    script.write_text(script.read_text().replace("\nkernel=", "\nkernel=x", 1))
    process = start(script, "true")
    said = ends(process)
    assert process.returncode == 1 and "was made for Linux x" in said
    assert list(tmp_path.glob("*.tar")) == []


def test_two_scripts_do_not_record_at_once(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = made(mount, tmp_path)
    first = records(script)
    second = start(script, "true")
    assert "another record.sh runs" in ends(second)
    first.send_signal(signal.SIGTERM)
    ends(first)


def test_scripts_and_recordings_see_each_other(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = made(mount, tmp_path)
    process = records(script)
    refused = run("record", "-o", tmp_path / "other.data", "--", "true")
    assert refused.returncode == 1 and f"pid {process.pid}: sh record.sh" in refused.stderr
    assert f"left alone, as it runs: pid {process.pid}: sh record.sh" in printed("clean")
    process.send_signal(signal.SIGTERM)
    assert ends(process)

    begun = tmp_path / "begun"
    begun.unlink()
    workload = ["sh", "-c", f"touch {begun}; exec sleep 600"]
    command = [*COMMAND, "record", "-o", str(tmp_path / "own.data"), "--", *workload]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as recording:
        wait_until(begun.exists, "the workload")
        second = start(script, "true")
        said = ends(second)
        recording.send_signal(signal.SIGINT)
    assert second.returncode == 1 and f"a recording of fusetools runs (pid {recording.pid})" in said


def test_clean_removes_what_a_killed_script_left(sample_mount: Mounter, tmp_path: Path) -> None:
    script = made(sample_mount(), tmp_path)
    folder = killed(script)
    said = printed("clean")
    assert f"removed {folder}" in said and "probes" in said
    assert not folder.exists() and "fuse_daemon/" not in EVENTS.read_text()
    assert not LOCK.is_symlink() and "nothing was left" in printed("clean")
