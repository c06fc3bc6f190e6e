"""`fusetools why` on real problems: the first finding is the one that was set up. `make test-why`
records each several times."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import campaign
import pytest
import troubles
from troubles import QUIET, TROUBLES

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc") or subprocess.run(["pkg-config", "--exists", "fuse3"]).returncode:
        pytest.skip("no C compiler, or no libfuse3-dev")
    return troubles.build(tmp_path_factory.mktemp("faultfs"))


@pytest.mark.parametrize("name", [*TROUBLES, *QUIET, "slow_directory+negative_lookups"])
def test_the_first_finding_is_right(name: str, program: Path, tmp_path: Path) -> None:
    result = campaign.record(program, name, tmp_path / "perf.data").why()
    found = campaign.judged(result, name)
    assert found == (), f"{name}: {found}"
    assert sum(finding.time_ns for finding in result.findings) <= result.waited_ns
