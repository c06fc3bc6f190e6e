"""The perf recorders: whether one that ended has ended the recording."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fusetools.record.perf import Overwriting, Perf
from fusetools.record.perfs import Perfs


class _Perf(Perf):
    """A perf that is a shell's line."""

    def __init__(self, directory: Path, program: str) -> None:
        directory.mkdir()
        super().__init__(directory)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", program], stdout=log, start_new_session=True
            )


def perfs(folder: Path, first: str, second: str) -> Perfs:
    job: Any = None
    made = Perfs(job, folder / "raw", Perf)
    made.first, made.second = _Perf(folder / "1", first), _Perf(folder / "2", second)
    return made


RUNS = "exec sleep 60"


@pytest.mark.parametrize(
    ("first", "second", "ended"),
    [
        (RUNS, RUNS, False),
        (RUNS, "true", False),  # the daemons, its only processes, have ended
        (RUNS, "false", True),
        (RUNS, "echo '[ perf record: perf size limit reached (1 KB), stopping session ]'", True),
        ("true", RUNS, True),
    ],
)
def test_a_recording_goes_on_when_its_daemons_end(
    tmp_path: Path, first: str, second: str, ended: bool
) -> None:
    made = perfs(tmp_path, first, second)
    try:
        for perf, program in zip(made.all, (first, second)):
            if program != RUNS:
                assert perf.process is not None
                perf.process.wait()
        assert made.ended is ended
        assert made.stop() is not ended
    finally:
        made.kill()
        made.close()


def test_overwriting_buffers_are_lost_when_perf_ends() -> None:
    assert Overwriting.complete is False
