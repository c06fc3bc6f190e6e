"""`fusetools why` on real problems: the first finding is the one that was set up.

`make test-why` records each several times, and more pairs and quiet mounts.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import campaign
import pytest
import troubles
from recording import recorded
from troubles import MINOR, PAIRS, QUIET, TROUBLES

import fusetools
from fusetools.reasons import Code

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc") or subprocess.run(["pkg-config", "--exists", "fuse3"]).returncode:
        pytest.skip("no C compiler, or no libfuse3-dev")
    return troubles.build(tmp_path_factory.mktemp("faultfs"))


@pytest.mark.parametrize("name", [*TROUBLES, *MINOR, PAIRS[0], *[*QUIET][:1]])
def test_the_first_finding_is_right(name: str, program: Path, tmp_path: Path) -> None:
    result = campaign.record(program, name, tmp_path / "perf.data").why()
    found = campaign.judged(result, name)
    assert found == (), f"{name}: {found}"
    assert sum(finding.time_ns for finding in result.findings) <= result.waited_ns


def test_record_ends_with_the_first_finding(program: Path, tmp_path: Path) -> None:
    with troubles.stages(tmp_path, program, [troubles.slow_directory]) as of:
        (mount,) = of.mounts
        done = recorded(tmp_path / "perf.data", "--mount", mount, "--", *of.command)
    *_, last = done.stderr.splitlines()
    assert last.startswith("next: fusetools why -i ")
    finding = fusetools.open(tmp_path / "perf.data").why().findings[0]
    assert finding.reason.code == Code.DAEMON_SLEEPS
    words = " ".join(done.stderr.split())
    assert " ".join(finding.reason.text.split()) in words
    # Opens below one directory are slow: 20 ms each, 40 of 160.
    figures, subject = finding.reason.figures, finding.reason.subject
    assert (figures["requests"], figures["of"]) == (40, 160)
    assert 20e6 <= figures["mean_ns"] < 30e6
    assert subject["path"] == f"{mount}/slow" and subject["function"] == "injected_sleep"


@pytest.mark.parametrize("detail", ["latency", "stages"])
def test_less_detail_says_what_it_cannot_know(detail: str, program: Path, tmp_path: Path) -> None:
    with troubles.stages(tmp_path, program, [troubles.slow_directory]) as of:
        (mount,) = of.mounts
        recorded(tmp_path / "d", "--detail", detail, "--mount", mount, "--", *of.command)
    result = fusetools.open(tmp_path / "d").why()
    codes = [reason.code for reason in result.unknown]
    if detail == "latency":
        assert Code.WHY_NO_STATES in codes
        assert not any(f.reason.code == Code.DAEMON_SLEEPS for f in result.findings)
    else:
        assert codes == [Code.WHY_NO_FUNCTIONS]
        (reason,) = (finding.reason for finding in result.findings)
        assert reason.code == Code.DAEMON_SLEEPS and reason.figures["requests"] == 40
        assert "function" not in reason.subject
