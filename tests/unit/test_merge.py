"""Merged recordings, compared with stock perf on the inputs."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fusetools import _core

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("FUSETOOLS_DATA", ROOT.parent / "shared" / "data"))
RECORDINGS = {
    "cernvmfs": "cernvmfs-6.1/perf.data.zst",
    "5.10": "kernels/5.10.0-46-amd64/recording/perf.data.zst",
    "6.1": "kernels/6.1.0-56-amd64/recording/perf.data.zst",
    "6.12": "kernels/6.12.117+deb13-amd64/recording/perf.data.zst",
    "7.2": "kernels/7.2.13+deb14-amd64/recording/perf.data.zst",
}
SESSION = '{"format": 1, "command": ["find", "/mnt/ä\\"b"]}'

needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="this host has no perf")


def stored(name: str, directory: Path) -> Path:
    packed = DATA / RECORDINGS[name]
    if not packed.exists():
        pytest.skip(f"the shared recording {packed} is not here")
    unpacked = directory / f"{name}.data"
    subprocess.run(["zstd", "-dqf", packed, "-o", unpacked], check=True)
    return unpacked


def perf(*arguments: str | Path) -> tuple[list[str], list[str]]:
    """Return lines of perf's output and of its messages; perf must succeed."""
    command = ["perf", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    out, messages = (text.decode(errors="backslashreplace") for text in (done.stdout, done.stderr))
    # perf ends some answers with a tip, chosen at random.
    return [line for line in out.splitlines() if "(Tip:" not in line], messages.splitlines()


def script(recording: Path, *arguments: str) -> list[str]:
    """Return every sample as `perf script` prints it, without names of tasks and padding."""
    fields = "tid,pid,cpu,time,event,trace,ip"
    lines, messages = perf("script", "--ns", "-F", fields, *arguments, "-i", recording)
    assert [line for line in messages if "not valid for" not in line] == []
    samples: list[str] = []
    for line in lines:
        # A stack follows its sample, an address per line.
        if re.match(r"\s+[0-9a-f]+$", line) and samples:
            samples[-1] += " " + line.strip()
        elif line:
            samples.append(" ".join(line.split()))
    return samples


def without_session(samples: list[str]) -> list[str]:
    return [sample for sample in samples if "fusetools:session:" not in sample]


@needs_perf
@pytest.mark.parametrize("name", RECORDINGS)
def test_one_recording_stays_as_it_is(name: str, tmp_path: Path) -> None:
    recording = stored(name, tmp_path)
    info = _core.merge([recording], tmp_path / "merged", "")
    assert not info["warnings"]
    for command in ["script", "--ns"], ["report", "--stdio"], ["evlist", "-v"], ["buildid-list"]:
        stock = perf(*command, "-i", recording)
        assert perf(*command, "-i", tmp_path / "merged") == stock, command
        assert stock[0]


@needs_perf
@pytest.mark.parametrize("name", RECORDINGS)
def test_stock_perf_reads_what_is_packed(name: str, tmp_path: Path) -> None:
    recording = stored(name, tmp_path)
    info = _core.merge([recording], tmp_path / "plain", SESSION)
    assert _core.merge([recording], tmp_path / "packed", SESSION, packed=True) == info
    # struct perf_file_header: the size of the data
    packed, plain = (
        struct.unpack_from("<Q", (tmp_path / name).read_bytes(), 48)[0]
        for name in ("packed", "plain")
    )
    assert packed < plain / 2
    for command in ["script", "--ns"], ["report", "--stdio"], ["evlist", "-v"], ["buildid-list"]:
        stock = perf(*command, "-i", tmp_path / "plain")
        assert perf(*command, "-i", tmp_path / "packed") == stock, command
        assert stock[0]
    header = perf("report", "--header-only", "-i", tmp_path / "packed")[0]
    assert any(line.startswith("# compressed : Zstd") for line in header)


@needs_perf
@pytest.mark.parametrize("name", RECORDINGS)
def test_the_session_is_found_first_by_perf(name: str, tmp_path: Path) -> None:
    recording = stored(name, tmp_path)
    _core.merge([recording], tmp_path / "merged", SESSION)
    first, *others = script(tmp_path / "merged")
    assert "fusetools:session:" in first and SESSION in first
    assert others == script(recording)
    assert not _core.merge([tmp_path / "merged"], tmp_path / "again", "")["warnings"]
    assert script(tmp_path / "again") == [first, *others]


@needs_perf
def test_a_session_replaces_another(tmp_path: Path) -> None:
    recording = stored("6.1", tmp_path)
    expected = script(recording)
    for session in SESSION, '{"second": true}':
        _core.merge([recording], recording, session)
        first, *others = script(recording)
        assert session in first and others == expected
    events = [line for line in perf("evlist", "-i", recording)[0] if line.startswith("fusetools:")]
    assert events == ["fusetools:session"]


def test_the_longest_session(tmp_path: Path) -> None:
    recording = stored("6.1", tmp_path)
    _core.merge([recording], tmp_path / "merged", "x" * 60_000)  # in one sample
    data = (tmp_path / "merged").read_bytes()
    (start,) = struct.unpack_from("<Q", data, 40)
    kind, _, length = struct.unpack_from("<IHH", data, start)
    assert kind == 9 and length < 1 << 16
    assert data[start : start + length].count(b"x") == 60_000
    longest = "x" * (16 << 20)
    _core.merge([recording], tmp_path / "merged", longest)
    assert _core.describe(tmp_path / "merged")["session"] == longest
    with pytest.raises(_core.CoreError, match="16777217 bytes"):
        _core.merge([recording], tmp_path / "merged", longest + "x")


def test_recordings_of_different_machines_are_refused(tmp_path: Path) -> None:
    inputs = [stored("6.1", tmp_path), stored("6.12", tmp_path)]
    with pytest.raises(_core.CoreError, match="cannot merge"):
        _core.merge(inputs, tmp_path / "merged", "")
    with pytest.raises(_core.CoreError, match="event id"):
        _core.merge([inputs[0], inputs[0]], tmp_path / "merged", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6.1.data", "6.12.data"]


def test_merge_refuses_other_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("PERFILE1")
    (tmp_path / "empty").touch()
    for wrong in "text", "empty", "missing", ".":
        with pytest.raises(_core.CoreError):
            _core.merge([tmp_path / wrong], tmp_path / "merged", "")
    with pytest.raises(_core.CoreError, match="no recording"):
        _core.merge([], tmp_path / "merged", "")
    with pytest.raises(_core.CoreError, match="No such file or directory"):
        _core.merge([stored("6.1", tmp_path)], tmp_path / "nowhere" / "merged", "")
    assert not (tmp_path / "merged").exists()


@needs_perf
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_truncated_recording_gives_what_is_left(part: float, tmp_path: Path) -> None:
    recording = stored("cernvmfs", tmp_path)
    whole = without_session(script(recording))
    data = recording.read_bytes()
    recording.write_bytes(data[: int(part * len(data))])
    info = _core.merge([recording], tmp_path / "merged", SESSION)
    assert any("cut short" in warning for warning in info["warnings"])
    assert sum("no recording has its format" in warning for warning in info["warnings"]) == 1
    # Its formats are lost, so only the numbers that all samples have are compared with the whole.

    def number(line: str) -> str:
        match = re.match(r"(\d+/\d+ \[\d+\] [\d.]+:)", line)
        assert match, line
        return match[1]

    salvaged = [number(line) for line in without_session(script(tmp_path / "merged"))]
    expected = Counter(number(line) for line in whole)
    assert Counter(salvaged) <= expected
    assert len(salvaged) > (part - 0.1) * len(whole)


def test_every_damage_ends_in_an_error_or_a_salvage(tmp_path: Path) -> None:
    """Words of the header, the data and the features overwritten with 0, 1 and large numbers."""
    recording = stored("6.1", tmp_path)
    data = recording.read_bytes()
    start, size = struct.unpack_from("<QQ", data, 40)
    features = start + size
    places = [*range(0, 400, 8), *range(start, start + 3000, 48), *range(features, len(data), 128)]
    values = [b"\0" * 8, b"\xff" * 8, struct.pack("<Q", 1), struct.pack("<Q", 1 << 31)]
    merged = refused = 0
    for place in places:
        for value in values:
            damaged = bytearray(data)
            damaged[place : place + 8] = value
            recording.write_bytes(damaged)
            try:
                _core.merge([recording], tmp_path / "merged", SESSION)
                merged += 1
            except _core.CoreError:
                refused += 1
    assert merged > 100 and refused > 20
    assert {path.name for path in tmp_path.iterdir()} == {"6.1.data", "merged"}


# The first types of the kernel's records and of perf's own that a perf does not know, and the size
# of its attrs: include/uapi/linux/perf_event.h, tools/perf/util/event.h of that version.
UNKNOWN = {(4, 18): (17, 81, 112), (5, 10): (21, 82, 120), (6, 1): (22, 83, 128)}


@needs_perf
@pytest.mark.parametrize("version", UNKNOWN)
def test_an_older_perf_gets_what_it_knows(version: tuple[int, int], tmp_path: Path) -> None:
    recording = ROOT / "samples" / "recordings" / "demo.data"
    _core.merge([recording], tmp_path / "newest", "")
    _core.merge([recording], tmp_path / "older", "", for_perf=version)
    of_kernel, of_perf, attr_size = UNKNOWN[version]
    content = (tmp_path / "older").read_bytes()
    # struct perf_file_header
    _, entry, attrs, attrs_size, at, size = struct.unpack_from("<6Q", content, 8)
    for attr in range(attrs, attrs + attrs_size, entry):
        assert struct.unpack_from("<I", content, attr + 4)[0] <= attr_size
    assert entry <= attr_size + 16
    kinds: Counter[int] = Counter()
    end = at + size
    while at < end:
        kind, _misc, length = struct.unpack_from("<IHH", content, at)
        kinds[kind] += 1
        at += length
    assert at == end and kinds[9] > 1000
    assert all(kind < of_kernel or 64 <= kind < of_perf for kind in kinds), kinds
    for command in ["script", "--ns"], ["report", "--stdio"], ["evlist"]:
        assert perf(*command, "-i", tmp_path / "older") == perf(*command, "-i", tmp_path / "newest")


def test_no_perf_before_4_1_reads_a_recording(tmp_path: Path) -> None:
    recording = ROOT / "samples" / "recordings" / "demo.data"
    with pytest.raises(_core.CoreError, match=r"4\.1"):
        _core.merge([recording], tmp_path / "older", "", for_perf=(4, 0))
    assert list(tmp_path.iterdir()) == []
