"""Raw recordings stay root's: one function hands over, and only merged files."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from fusetools.core import native
from fusetools.errors import Error
from fusetools.output import Output
from fusetools.plan.options import Options, Workload
from fusetools.record import kept, preflight
from fusetools.record.handover import hand_over
from fusetools.record.scratch import Note, Scratch, reclaim
from fusetools.record.workload import User

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"
NOBODY = User(65534, 65534, "nobody", "/", "/bin/sh", (65534,))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")


def opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def test_one_module_gives_files_of_recordings_away() -> None:
    """Other functions give away folders of sweeps, and keep the owner of a file that they
    rewrite."""
    allowed = {"record/handover.py", "output.py", "experiments/folder.py"}
    found = {
        str(path.relative_to(ROOT / "fusetools"))
        for path in (ROOT / "fusetools").rglob("*.py")
        if re.search(r"\b(os\.f?l?chown|shutil\.chown)\(", path.read_text())
    }
    assert found == allowed


@as_root
def test_a_merged_recording_is_handed_over(tmp_path: Path) -> None:
    shutil.copy(DEMO, tmp_path / "merged")
    hand_over(opened(tmp_path), "merged", NOBODY)
    status = (tmp_path / "merged").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (65534, 0o600)


@as_root
def test_unmerged_data_is_not_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(DEMO, tmp_path / "merged")
    (tmp_path / "text").write_text("x")
    os.link(tmp_path / "text", tmp_path / "linked")
    (tmp_path / "link").symlink_to("merged")
    at = opened(tmp_path)
    for name in ("text", "linked", "link"):
        with pytest.raises((Error, OSError)):
            hand_over(at, name, NOBODY)
    described = native.describe
    monkeypatch.setattr(native, "describe", lambda path: {**described(path), "session": None})
    with pytest.raises(Error, match="cannot be handed over") as caught:
        hand_over(at, "merged", NOBODY)
    assert caught.value.why == "it was not merged"
    monkeypatch.setattr(native, "describe", described)
    monkeypatch.setattr(native, "of_memory", lambda _: ["cpu-clock"])
    with pytest.raises(Error) as caught:
        hand_over(at, "merged", NOBODY)
    assert caught.value.why == "it holds memory of processes, in samples of cpu-clock"
    assert (tmp_path / "merged").stat().st_uid == 0


def killed(folder: Path) -> Note:
    """A user's recording that was killed while it recorded."""
    with Output(str(folder / "out.data")) as output:
        scratch = Scratch(output)
        scratch.make()
        (scratch.path / "perf.data").write_bytes(b"a secret")
        (scratch.path / "ring").write_bytes(b"more")
        (scratch.path / "merged").write_bytes(b"half")
        os.close(scratch.descriptor)
    return scratch.note._replace(uid=65534, gid=65534)


@as_root
def test_data_of_a_users_killed_recording_stays_roots(tmp_path: Path) -> None:
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    run.mkdir()
    theirs.mkdir()
    note = killed(theirs)
    text, done = reclaim(note, run)
    place = theirs / "out.data.unmerged"
    merge = f"fusetools merge {place}/perf.data {place}/perf.data.ftrace -o merged.data"
    where = f"for root alone, {place}/perf.data and {place}/perf.data.ftrace: {merge}"
    assert (text, done) == (f"{note.path} (what was recorded is kept: {where})", True)
    assert os.listdir(theirs) == [place.name]
    for path, mode in ((place, 0o700), *((path, 0o600) for path in place.iterdir())):
        status = path.stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, mode)
    assert (place / "perf.data").read_bytes() == b"a secret"


@as_root
def test_the_oldest_of_a_user_goes(tmp_path: Path) -> None:
    """Found by its number, whatever its name is now; a missing file counts."""
    theirs = [tmp_path / name for name in ("a", "b", "c", "d")]
    for folder in theirs:
        folder.mkdir()
    reclaim(killed(theirs[0]), tmp_path)
    (theirs[0] / "out.data.unmerged").rename(theirs[0] / "hidden")
    reclaim(killed(theirs[1]), tmp_path)
    reclaim(killed(theirs[2]), tmp_path)
    assert [os.listdir(folder) for folder in theirs[:3]] == [
        [],
        ["out.data.unmerged"],
        ["out.data.unmerged"],
    ]
    for folder in theirs[1:3]:
        folder.rename(tmp_path / f"{folder.name}-aside")
    note = killed(theirs[3])
    text, done = reclaim(note, tmp_path)
    assert done and "kept: nothing: earlier ones of this user cannot be found" in text
    assert os.listdir(theirs[3]) == []
    assert kept.MOST == 2
    other = killed(theirs[3])._replace(uid=1)  # another user's files do not count
    assert "for root alone" in reclaim(other, tmp_path)[0]


def test_a_users_recording_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    request = Options(Workload(("true",)), max_size=(4 << 30) + 1)
    with pytest.raises(Error) as caught, preflight.prepared(request, []):
        pass
    assert caught.value.why == "who invoked sudo may record 4G at most"
    assert caught.value.fix == "--max-size 4G, or: --as-root"
