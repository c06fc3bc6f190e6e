"""Unit tests pass on another kernel: their results depend on stored facts, not on the machine."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import vm
from samplefs import REPOSITORY

PYTHON = Path(sys.prefix) / "bin" / "python"
# Tests that read a host, or plan for it.
FILES = (
    "test_capabilities test_host_btf test_host_facts test_host_probe test_host_stored"
    " test_plan test_plan_bundles test_plan_counting test_plan_kernel test_plan_returns"
    " test_record_tracefs"
)
DATA = os.environ.get("FUSETOOLS_DATA", str(REPOSITORY.parent / "shared/data"))
pytestmark = pytest.mark.vm


# On one kernel tests/bare.sh proves it.
@pytest.mark.usefixtures("campaign")
def test_units_rest_on_nothing_of_the_kernel(kernel: vm.Kernel, guest: vm.Guest) -> None:
    files = " ".join(f"tests/unit/{name}.py" for name in FILES.split())
    result = guest(
        f"""set -e
        uname -r
        cd {REPOSITORY}
        FUSETOOLS_DATA={DATA} {PYTHON} -m pytest -p no:cacheprovider -p no:xdist -q {files}"""
    )
    release, *_, last = result.stdout.strip().splitlines()
    assert release == kernel.release
    passed = re.fullmatch(r"(\d+) passed(, \d+ skipped)? in .*", last)
    assert passed and int(passed[1]) > 200, result.stdout
    skipped = [line for line in result.stdout.splitlines() if line.startswith("SKIPPED")]
    # Else tests that need the shared recordings are skipped, as on this host
    here = Path(DATA).exists()
    assert not skipped or (not here and all(DATA in line for line in skipped)), result.stdout
