"""`--by` on a live recording: two processes in two directories, one of them in a batch job."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from mounts import HANGS, end_with_the_test
from recording import environment, opened, printed
from sample import Mounter

from fusetools.host.owners import owners
from fusetools.reasons import Code

pytestmark = pytest.mark.live
TIMES = {"dir-01": 211, "dir-02": 307}
CALLER = """
import contextlib, os, sys
path, times, folder = sys.argv[1:]
open(f"{folder}/go").read()
for _ in range(int(times)):
    with contextlib.suppress(OSError):
        os.getxattr(path, "user.x")
open(f"{folder}/done", "w").close()
"""


class Nobody:
    uid = 65534
    gid = 65534
    groups: Sequence[int] = ()


def test_a_user_learns_of_processes_what_proc_shows() -> None:
    """Their environments are root's alone."""
    own = os.getpid()
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, env=environment(SLURM_JOB_ID="4711")
    ) as caller:
        found = owners([caller.pid, own], None)
        seen = owners([caller.pid, own], Nobody())
        caller.communicate()
    assert found[caller.pid].job == "SLURM 4711"
    assert seen == {pid: owner._replace(job="") for pid, owner in found.items()}
    assert seen[caller.pid].command == "cat"


def test_groups_are_the_processes_directories_and_jobs(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    mount = sample_mount()
    script = tmp_path / "caller.py"
    script.write_text(CALLER)
    callers = []
    for directory, times in TIMES.items():
        folder = tmp_path / directory
        folder.mkdir()
        os.mkfifo(folder / "go")
        os.mkfifo(folder / "done")
        file = mount.path / directory / "file-000"
        job = {"SLURM_JOB_ID": "4711"} if directory == "dir-01" else {}
        callers.append(
            subprocess.Popen(
                [sys.executable, script, file, str(times), folder],
                env=environment(**job),
                preexec_fn=end_with_the_test,
            )
        )
    both = [shlex.quote(str(tmp_path / directory)) for directory in TIMES]
    release = "; ".join(f"echo >{folder}/go; cat {folder}/done" for folder in both)
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", release)
    assert [caller.wait(HANGS) for caller in callers] == [0, 0]

    def requests(by: str) -> dict[object, int]:
        groups = recording.groups(by, "getxattr").groups
        return {g.unknown.code if g.unknown else g.pid or g.label: g.requests for g in groups}

    one, other = TIMES.values()
    assert requests("process") == {callers[0].pid: one, callers[1].pid: other}
    assert requests("directory") == {f"{mount.path}/{name}": n for name, n in TIMES.items()}
    assert requests("file") == {f"{mount.path}/{name}/file-000": n for name, n in TIMES.items()}
    assert requests("job") == {"SLURM 4711": one, Code.NO_JOB: other}
    assert requests("user") == {"root": one + other}
    assert list(requests("cgroup").values()) == [one + other]
    first, second = recording.groups("process", "getxattr", order="requests").groups
    assert (first.requests, second.requests) == (other, one)
    assert first.label.startswith(f"{sys.executable} {script} {mount.path}/dir-02"[:200])
    said = printed("count", "-i", recording.path, "--by", "job", "getxattr")
    assert [line.split()[0] for line in said.splitlines()[1:3]] == [str(other), str(one)]


def test_short_lived_processes_belong_where_their_parent_does(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    """They end long before record looks at processes the next time."""
    mount = sample_mount()
    folder = tmp_path / "job"
    folder.mkdir()
    os.mkfifo(folder / "go")
    os.mkfifo(folder / "done")
    loop = f"for n in $(seq 60); do stat -f {mount.path}/dir-0$1 >/dev/null; done"
    # One shell in a job, which is there before; the workload in none.
    job = subprocess.Popen(
        ["sh", "-c", f"read go <{folder}/go; {loop}; echo >{folder}/done", "sh", "1"],
        env=environment(SLURM_JOB_ID="4711"),
        preexec_fn=end_with_the_test,
    )
    work = f"{loop}; echo go >{folder}/go; cat {folder}/done"
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", work, "sh", "2")
    assert job.wait(HANGS) == 0

    def requests(by: str) -> dict[object, int]:
        found = recording.groups(by, "statfs", most=200).groups
        return {g.unknown.code if g.unknown else g.pid or g.label: g.requests for g in found}

    assert list(requests("process").values()) == [1] * 120
    # A child of a process in no job may have begun one. `record` may have looked while one lived.
    jobs = requests("job")
    assert jobs.pop("SLURM 4711") == 60
    assert sum(jobs.values()) == 60 and jobs.keys() <= {Code.NOT_NOTED, Code.NO_JOB}
    assert sum(requests("cgroup").values()) == 120 and Code.NOT_NOTED not in requests("cgroup")
    # System calls outside of the workload are not recorded: such a process may change its user.
    users = requests("user")
    assert users == {"root": 60 + jobs.get(Code.NO_JOB, 0), Code.NOT_NOTED: jobs[Code.NOT_NOTED]}
