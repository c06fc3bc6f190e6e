"""Debian's sudo, and a user who may run `fusetools record` and nothing else (docs/sudoers)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounts import HANGS
from sample import BUILD, ROOT, Mounter

pytestmark = pytest.mark.live

FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
DAEMON, NOBODY = 1, 65534  # users of every Debian
RULE = Path("/etc/sudoers.d/fusetools-test")
Sudo = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A user's directory, with programs of the user that record that they ran."""
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


def allow_recording(more: str = "") -> None:
    """Install the documented file for another path and user; ``more``: lines before it."""
    text = (ROOT / "docs/sudoers").read_text()
    text = text.replace("/usr/bin/fusetools", str(FUSETOOLS)).replace("%tracers", "nobody")
    allow(more + text)


def test_the_rule_allows_recording_alone(theirs: Path) -> None:
    allow_recording()
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
    """The same holds if sudo passes on the whole environment."""
    options = "!env_reset, setenv, !secure_path" if kept else "env_reset"
    allow(f"Defaults:nobody {options}\nnobody ALL=(root) NOPASSWD:SETENV: {FUSETOOLS} doctor\n")
    more = ["-E"] if kept else []
    done = as_nobody(theirs, *more, FUSETOOLS, "doctor")
    assert done.stdout.startswith("This host: Linux "), done.stderr
    assert not (theirs / "ran").exists()


def test_the_rule_keeps_the_users_environment_out(theirs: Path) -> None:
    """Python would run the user's sitecustomize.py as root before any code of fusetools.

    This holds if another rule of the host keeps such variables.
    """
    (theirs / "bin/sitecustomize.py").write_text(f"open({str(theirs / 'ran')!r}, 'w')\n")
    allow_recording('Defaults env_keep += "PYTHONPATH HOME"\n')
    done = as_nobody(theirs, FUSETOOLS, "record", "--help")
    assert done.returncode == 0, done.stderr
    assert not (theirs / "ran").exists()


SET = """
[[group]]
library = 'libcvmfs_fuse3\\.so.*'
function = '_ZN5cvmfsL\\d+cvmfs_(lookup|read)E.*'
[group.operations]
lookup = "lookup"
read = "read"
[group.arguments]
lookup = { unique = "+8(arg1):u64", name = "+0(arg3):string" }
"""
SERVE = """set -e
mount -t tmpfs -o dev,mode=755 none {place}
mknod -m 666 {place}/fuse c 10 229
mount --bind {place}/fuse /dev/fuse
mkdir {place}/tree {place}/mount
chown {uid} {place}/tree {place}/mount
setpriv --reuid {uid} --regid {uid} --clear-groups {samplefs} -f {place}/tree {place}/mount &
until grep -q ' {place}/mount ' /proc/self/mountinfo; do
    kill -0 $! || exit 1
    sleep 0.01
done
echo $!
read end || true
kill $!
wait $!
"""


@contextlib.contextmanager
def served_by(uid: int) -> Iterator[tuple[Path, int]]:
    """A mount that a user made, in a private mount namespace, and its daemon."""
    place = Path(f"/var/tmp/fusetools-of-{uid}-{os.getpid()}")
    place.mkdir()
    samplefs = BUILD / "with-symbols/samplefs"
    script = SERVE.format(place=place, uid=uid, samplefs=samplefs)
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        try:
            yield place / "mount", int(shell.stdout.readline())
        finally:
            shell.stdin.close()
            shell.wait(HANGS)
            place.rmdir()


Plan = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plan(theirs: Path, samples: Path) -> Plan:
    """`sudo fusetools record --dry-run` of a user with no other rights."""
    allow_recording()
    (theirs / "mine.toml").write_text(SET)

    def run(*options: object) -> subprocess.CompletedProcess[str]:
        words = (FUSETOOLS, "record", "--dry-run", "--json", *options, "--", "true")
        return as_nobody(theirs, *words)

    return run


def test_pid_is_a_process_that_serves_the_mount(plan: Plan, sample_mount: Mounter) -> None:
    root = sample_mount()
    none = f"fusetools: process {os.getpid()} serves no FUSE mount\n"
    done = plan("--mount", root.path, "--pid", os.getpid())
    assert done.returncode == 1 and done.stderr.startswith(none), done.stderr
    assert plan("--pid", os.getpid()).stderr.startswith(none)
    done = plan("--pid", 1)
    assert done.stderr.startswith("fusetools: process 1 serves no FUSE mount\n"), done.stderr
    with Path("/dev/fuse").open("rb", buffering=0):  # of no mount
        assert plan("--mount", root.path, "--pid", os.getpid()).stderr.startswith(none)
    with served_by(DAEMON) as (theirs, other), served_by(NOBODY) as (mine, own):
        for path, pid in ((root.path, root.pid), (theirs, other), (mine, own)):
            done = plan("--mount", path, "--pid", pid)
            assert done.returncode == 0 and "cvmfs_lookup" in done.stdout, done.stderr
        done = plan("--mount", mine, "--pid", other)
        assert done.stderr.startswith(f"fusetools: process {other} does not serve {mine}\n")
        assert f"why: it serves {theirs}\n" in done.stderr


def test_own_probe_sets_are_for_own_daemons(
    plan: Plan, theirs: Path, sample_mount: Mounter, leaves_nothing: None
) -> None:
    """It could read another user's memory."""

    def refused(path: Path) -> None:
        done = plan("--mount", path, "--fs", "mine.toml")
        assert done.returncode == 1 and done.stdout == "", done.stdout
        what = f"fusetools: the probe set mine cannot be used on {path}\n"
        assert done.stderr.startswith(what), done.stderr
        assert "which nobody, who invoked sudo, may not read" in done.stderr

    root = sample_mount()
    refused(root.path)
    assert plan("--mount", root.path, "--fs", "cvmfs").returncode == 0
    with served_by(DAEMON) as (other, _), served_by(NOBODY) as (mine, own):
        refused(other)
        for options in (("--mount", mine), ("--mount", mine, "--pid", own)):
            done = plan(*options, "--fs", "mine.toml")
            assert done.returncode == 0 and "name=+0(%dx):string" in done.stdout, done.stderr
        words = (FUSETOOLS, "record", "--mount", mine, "--fs", "mine.toml", "--", "true")
        done = as_nobody(theirs, *words)
        assert done.returncode == 0 and (theirs / "perf.data").stat().st_uid == NOBODY, done.stderr
        done = plan("--mount", mine, "--mount", other, "--fs", "mine.toml")
        assert done.returncode == 1 and f"--mount {mine}   # a daemon of nobody" in done.stderr


def test_roots_files_are_not_read_for_a_user(plan: Plan, theirs: Path) -> None:
    """Neither by name nor through a link: a parser's message would quote the files.

    The message does not reveal whether such files exist.
    """
    hidden = Path(f"/root/fusetools-test-{os.getpid()}")
    hidden.mkdir(mode=0o700)
    secret, link = hidden / "secret.toml", theirs / "link.toml"
    secret.write_text("about = ['hunter2']\n")
    secret.chmod(0o600)
    link.symlink_to(secret)
    try:
        for path in (secret, hidden / "none.toml", f"{secret}+callbacks", link):
            done = plan("--fs", path)
            assert done.returncode == 1 and "hunter2" not in done.stdout + done.stderr
            assert done.stderr.endswith("why: Permission denied\n"), done.stderr
        program = hidden / "program"
        program.touch(0o755)
        for path in (program, hidden / "none"):
            done = as_nobody(theirs, FUSETOOLS, "record", "--dry-run", "--", path)
            assert done.returncode == 1, done.stdout
            assert "there is no command" in done.stderr, done.stderr
        (hidden / "x").symlink_to("hunter2")
        for path in (hidden / "x", hidden / "new", hidden / "none/new"):
            done = as_nobody(theirs, FUSETOOLS, "record", "-o", path, "--", "true")
            assert done.stderr == (
                f"fusetools: cannot write {path}\n"
                "  why: nobody, who invoked sudo, may not write there\n"
                "  fix: -o FILE in a directory of yours, or: --as-root\n"
            )
    finally:
        shutil.rmtree(hidden)
