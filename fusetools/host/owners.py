"""Processes as a batch system sees them: command line, user, cgroup and job."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fusetools.host.asuser import Rights, as_user
from fusetools.host.cgroup import name
from fusetools.host.files import Files
from fusetools.host.processes import read_stat

LONGEST = 200  # characters of a command line
_PATIENCE = 2.0  # seconds for all processes
_MOST_BYTES = 16 << 20
_FORKED = 0x40  # PF_FORKNOEXEC, include/linux/sched.h
# A cgroup that names a job: of Slurm, PBS, HTCondor and Kubernetes.
_JOBS = (
    ("SLURM", re.compile(r"/slurm[^/]*/(?:[^/]+/)*?job_(\d+)(?:/|$)")),
    ("PBS", re.compile(r"/pbs(?:pro|_jobs)?(?:\.service)?/(?:jobid/)?(\d[^/]*)")),
    ("HTCondor", re.compile(r"/(?:htcondor|condor)[^/]*/condor_([^/]+)")),
    ("pod", re.compile(r"/kubepods.*?pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")),
)
# Variables of the environment that name one.
_VARIABLES = {
    "SLURM_JOB_ID": "SLURM",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "_CONDOR_SLOT": "HTCondor",
}


class Owner(NamedTuple):
    """A process. ``start``: in ticks since boot; ``forked``: it runs its parent's program, and may
    be about to run another; ``job``: "" if it is in none."""

    start: int
    forked: bool
    comm: str
    command: str
    uid: int
    cgroup: str
    job: str


def job_of(cgroup: str, environment: str = "") -> str:
    """Return the batch job by the cgroup, or else by the environment; "" if there is none."""
    for system, pattern in _JOBS:
        if match := pattern.search(cgroup):
            return f"{system} {match[1].replace('_', '-') if system == 'pod' else match[1]}"
    for line in environment.split("\0"):
        key, _, value = line.partition("=")
        if key in _VARIABLES and re.fullmatch(r"[\w.@\[\]-]{1,64}", value):
            return f"{_VARIABLES[key]} {value}"
    return ""


def users(passwd: str) -> dict[int, str]:
    """Return names by uid from the text of /etc/passwd."""
    fields = (line.split(":") for line in passwd.splitlines())
    return {int(row[2]): row[0] for row in fields if len(row) > 2 and row[2].isdecimal()}


def owners(pids: Iterable[int], user: Rights | None) -> dict[int, Owner]:
    """Return what ``user`` (None: we) may see of these processes, without those that have ended.

    If the memory map of one of them is locked, no process has a command line or an environment.
    """
    pids = list(pids)
    for memory in (True, False):
        text = as_user(user, partial(_read, pids, memory), _PATIENCE, _MOST_BYTES)
        if text is not None:
            return {int(pid): Owner(*row) for pid, row in json.loads(text).items()}
    return {}


def _read(pids: Iterable[int], memory: bool) -> str:
    found = ((pid, read(Files(Path("/")), pid, memory)) for pid in pids)
    return json.dumps({pid: owner for pid, owner in found if owner})


def read(files: Files, pid: int, memory: bool = True) -> Owner | None:
    """Return a process; None if it has ended or is a kernel thread. ``memory``: also read files
    that need the lock of its memory map."""
    stat = read_stat(files, pid)
    status = files.read(f"/proc/{pid}/status", quiet=True) or ""
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    if stat is None or stat.of_kernel or stat.state in "ZX" or uid is None:
        return None
    cgroup = name(files.read(f"/proc/{pid}/cgroup", quiet=True) or "")
    command = environment = ""
    if memory:
        command = files.read(f"/proc/{pid}/cmdline", quiet=True) or ""
        environment = files.read(f"/proc/{pid}/environ", quiet=True) or ""
    words = command.rstrip("\0").split("\0") if command else []
    return Owner(
        start=stat.start,
        forked=bool(stat.flags & _FORKED),
        comm=stat.comm,
        command=shlex.join(words)[:LONGEST],
        uid=int(uid[1]),
        cgroup=cgroup,
        job=job_of(cgroup, environment),
    )
