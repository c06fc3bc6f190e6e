"""Recordings for benchmarks: a real one repeated, later in time and with other requests."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import data
import pytest
import test_merge as merge


@pytest.fixture(scope="session")
def make_recording() -> Path:
    return data.example("make_recording")


@merge.needs_perf
def test_copies_follow_each_other(make_recording: Path, tmp_path: Path) -> None:
    recording, big = merge.stored("6.1", tmp_path), tmp_path / "big.data"
    base = merge.script(recording)
    subprocess.run([make_recording, big, str(2 * len(base) + 100), recording], check=True)
    samples = merge.script(big)
    parts = [samples[: len(base)], samples[len(base) : 2 * len(base)], samples[2 * len(base) :]]
    assert len(parts[2]) == 100

    def without(sample: str) -> str:
        return re.sub(r" unique=\d+", "", re.sub(r" [\d.]+:", "", sample, count=1))

    def uniques(samples: list[str]) -> Counter[str]:
        return Counter(unique for line in samples for unique in re.findall(r" unique=(\d+)", line))

    assert parts[0] == base
    for part in parts:
        assert [without(sample) for sample in part] == [without(s) for s in base[: len(part)]]
    times = [float(re.findall(r" ([\d.]+):", sample)[0]) for sample in samples]
    assert times == sorted(times) and times[len(base)] > times[len(base) - 1]
    # The number of requests is the same, and all of them are different.
    first, second = uniques(parts[0]), uniques(parts[1])
    del first["0"], second["0"]
    assert len(first) > 20 and sorted(first.values()) == sorted(second.values())
    assert not set(first) & set(second)
    assert {path.name for path in tmp_path.iterdir()} == {"6.1.data", "big.data"}
