"""The bundle of an application's start lists the files that strace says were opened."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from passed import Passed
from recording import run
from script import needs_perf

pytestmark = pytest.mark.live
# 123 openat(AT_FDCWD, "/tmp/x", O_RDONLY|O_CLOEXEC) = 3
_OPENED = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)", ([A-Z_|]+)[^)]*\) = \d+')


def opened(trace: str, mount: Path) -> list[str]:
    """Return the mount's files that strace saw being opened, in order, from the mount on."""
    found = [name for name, flags in _OPENED.findall(trace) if "O_DIRECTORY" not in flags]
    real = [os.path.realpath(name) for name in found if name.startswith(f"{mount}/")]
    return list(dict.fromkeys(name[len(str(mount)) :] for name in real if os.path.isfile(name)))


def test_a_bundle_lists_what_strace_says_was_read(
    samples: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    needs_perf()
    strace = shutil.which("strace")
    assert strace, "make install-tests installs it"
    tree = Path(numpy.__file__).parents[1]
    passed = Passed(samples, tmp_path_factory.mktemp("pass"), below=tree)
    try:
        start = ["env", f"PYTHONPATH={passed.path}", "PYTHONDONTWRITEBYTECODE=1"]
        start += ["OPENBLAS_NUM_THREADS=1", sys.executable, "-c", "import numpy"]
        data, bundle = tmp_path / "perf.data", tmp_path / ".cvmfsbundle-__init__.py"
        recorded = run("record", "--as-root", "--mount", passed.path, "-o", data, "--", *start)
        assert recorded.returncode == 0, recorded.stderr
        log = tmp_path / "strace"
        command = [strace, "-f", "-o", str(log), "-e", "trace=open,openat", *start]
        subprocess.run(command, check=True)
        expected = opened(log.read_text(), passed.path)
        written = run("export", "-i", data, "-o", bundle)
        assert written.returncode == 0, written.stderr
        listed = json.loads(bundle.read_text())["dependencies"]
        assert "/numpy/__init__.py" in listed or any("numpy/__pycache__" in f for f in listed)
        assert len(listed) > 50
        assert listed == expected
        assert f"{len(listed)} files of {passed.path}" in written.stderr
    finally:
        passed.clean()
