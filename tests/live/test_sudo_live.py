"""Debian's sudo, and a user who may run `fusetools record` and nothing else (docs/sudoers)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sample import ROOT

pytestmark = pytest.mark.live

FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
RULE = Path("/etc/sudoers.d/fusetools-test")
Sudo = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A user's directory, with programs of theirs that note that they ran."""
    if shutil.which("sudo") is None or os.geteuid() != 0:
        pytest.skip("needs root, and sudo")
    folder = Path(f"/var/tmp/fusetools-sudo-{os.getpid()}")
    (folder / "bin").mkdir(parents=True)
    for name in ("perf", "trace-cmd", "mount", "stat", "setpriv"):
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\nid > {folder}/ran\nexit 1\n")
        program.chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    yield folder
    RULE.unlink(missing_ok=True)
    shutil.rmtree(folder)


def allow(text: str) -> None:
    RULE.write_text(text)
    RULE.chmod(0o440)
    subprocess.run(["visudo", "-qcf", str(RULE)], check=True)


def as_nobody(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": "/",
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "TMPDIR": f"{folder}/bin",
        "PERF_CONFIG": f"{folder}/bin/config",
        "PYTHONPATH": f"{folder}/bin",
        "LD_PRELOAD": "",
    }
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    words += ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
    words += ["/usr/bin/sudo", "-n", *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, timeout=120)


def test_the_rule_allows_recording_alone(theirs: Path) -> None:
    """The file that is handed out, for another path and user."""
    text = (ROOT / "docs/sudoers").read_text()
    allow(text.replace("/usr/bin/fusetools", str(FUSETOOLS)).replace("%tracers", "nobody"))
    refused = "not allowed to execute|a password is required|not allowed to set"
    for command in (
        [FUSETOOLS, "record", "--as-root", "--", "id"],
        [FUSETOOLS, "record", "-o", "x", "--as-root", "--", "id"],
        [FUSETOOLS, "clean"],
        [FUSETOOLS, "doctor"],
        [FUSETOOLS],
        ["/bin/sh"],
        ["PYTHONPATH=/tmp", FUSETOOLS, "record", "--", "id"],
        ["LD_PRELOAD=/tmp/x.so", FUSETOOLS, "record", "--", "id"],
    ):
        done = as_nobody(theirs, *command)
        assert done.returncode != 0 and re.search(refused, done.stderr), (command, done.stderr)
    for output in ("/etc/fusetools-test", "/root/x", "/etc/cron.d/x"):
        done = as_nobody(theirs, FUSETOOLS, "record", "-o", output, "--", "id", "-u")
        assert "nobody, who invoked sudo, may not write there" in done.stderr
        assert done.returncode == 1 and not Path(output).exists()
    assert not (theirs / "ran").exists()


@pytest.mark.parametrize("kept", [False, True])
def test_roots_tools_are_roots(theirs: Path, kept: bool) -> None:
    """Also where sudo lets the whole environment through."""
    options = "!env_reset, setenv, !secure_path" if kept else "env_reset"
    allow(f"Defaults:nobody {options}\nnobody ALL=(root) NOPASSWD:SETENV: {FUSETOOLS} doctor\n")
    more = ["-E"] if kept else []
    done = as_nobody(theirs, *more, FUSETOOLS, "doctor")
    assert done.stdout.startswith("This host: Linux "), done.stderr
    assert not (theirs / "ran").exists()
