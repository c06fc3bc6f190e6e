"""`--by` of count, errors, hist, slow and stages, on recordings of real mounts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import data
import golden
import numpy as np
import pytest
from columns import Columns
from fixtures import Invoke
from schemas import validate

import fusetools
from fusetools import _core
from fusetools.answers.filters import Filters
from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.owners import Owner, job_of, read
from fusetools.names import BY
from fusetools.reasons import Code
from fusetools.record import owners
from fusetools.render.text.groups import render
from fusetools.results.groups import Groups
from fusetools.session import Process

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
CLIENT = "cernvmfs-6.1"
COMMANDS = ("count", "errors", "hist", "slow", "stages")
RECORDED = [by for by in BY if by not in ("user", "cgroup", "job")]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    inputs = [data.unpack(f"{CLIENT}/{n}.zst", folder / n) for n in ("perf.data", "trace.dat")]
    _core.merge(inputs, folder / "merged.data", "")
    return folder / "merged.data"


def total(found: Groups) -> dict[str, Any]:
    """Return the sums over all groups."""
    stages: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    fates: Counter[str] = Counter()
    for g in found.groups:
        stages.update(g.stages_ns)
        errors.update(dict(g.errors))
        fates.update(dict(g.unanswered))
    return {
        "requests": sum(g.requests for g in found.groups),
        "begun": sum(g.begun for g in found.groups),
        "whole": (
            sum(g.whole.count for g in found.groups),
            sum(g.whole.total_ns for g in found.groups),
            max(g.whole.max_ns or 0 for g in found.groups),
        ),
        "latency": (
            sum(g.latency.count for g in found.groups),
            sum(g.latency.total_ns for g in found.groups),
            max(g.latency.max_ns or 0 for g in found.groups),
        ),
        "stages": stages,
        "answered": sum(g.answered for g in found.groups),
        "errors": errors,
        "unanswered": fates,
        "negative": sum(g.negative or 0 for g in found.groups),
    }


def ungrouped(recording: fusetools.Recording, *operations: str, **more: Any) -> dict[str, Any]:
    """Return the same figures from the commands without --by."""
    stages = recording.stages(*operations, **more).operations
    latency = recording.hist(*operations, layers=["request"], **more).histograms
    counts = recording.counts(
        "^(" + "|".join(operations) + ")$" if operations else "", layers=["request"], **more
    ).counts
    replies = recording.errors(*operations, **more).operations
    sums: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    fates: Counter[str] = Counter()
    for o in stages:
        sums.update({s.name: s.total_ns for s in o.stages})
    for row in replies:
        errors.update(dict(row.errors))
        fates.update(dict(row.unanswered))
    return {
        "requests": sum(o.requests for o in stages),
        "begun": sum(c.count for c in counts),
        "whole": (
            sum(o.timed for o in stages),
            sum(o.total_ns for o in stages),
            max(o.max_ns or 0 for o in stages),
        ),
        "latency": (
            sum(h.count for h in latency),
            sum(h.total_ns or 0 for h in latency),
            max(h.max_ns or 0 for h in latency),
        ),
        "stages": sums,
        "answered": sum(row.requests for row in replies),
        "errors": errors,
        "unanswered": fates,
        "negative": sum(row.negative or 0 for row in replies),
    }


@pytest.mark.parametrize("recorded", ["demo", "client"])
def test_sums_over_groups_are_the_ungrouped_figures(client: Path, recorded: str) -> None:
    recording = fusetools.open(DEMO if recorded == "demo" else client)
    expected = ungrouped(recording)
    for by in RECORDED:
        found = recording.groups(by, most=3)
        assert total(found) == expected
        assert sum(g.time_share for g in found.groups) == pytest.approx(1)
        assert sum(g.requests_share for g in found.groups) == pytest.approx(1)


def test_operations_and_filters_select_as_without_groups() -> None:
    recording = fusetools.open(DEMO)
    middle = int(recording.counts().facts.seconds / 2 * 1e9)
    for operations in (("lookup",), ("read", "open")):
        for filters in (Filters(end_ns=middle), Filters(mounts=("/mnt/sample",))):
            found = recording.groups("file", *operations, filters=filters)
            assert total(found) == ungrouped(recording, *operations, filters=filters)
    assert not recording.groups("file", filters=Filters(comms=("nobody",))).groups


def test_corrected_durations_are_those_without_groups() -> None:
    recording = fusetools.open(DEMO)
    found = total(recording.groups("comm", corrected=True))
    stages = recording.stages(corrected=True).operations
    assert found["whole"][1] == sum(o.total_ns for o in stages)
    latency = recording.hist(layers=["request"], corrected=True).histograms
    assert found["latency"][1] == sum(h.total_ns or 0 for h in latency)


@pytest.mark.parametrize("by", ["file", "directory", "process", "comm"])
def test_groups_are_those_of_the_table_of_requests(client: Path, by: str) -> None:
    for path in (DEMO, client):
        recording = fusetools.open(path)
        table = Columns(recording.requests())
        mounts = {mount.connection: mount.path.rstrip("/") for mount in recording.session.mounts}
        expected: Counter[object] = Counter()
        partial = 0
        for at in range(len(table)):
            if by == "process":
                expected[int(table.pid[at])] += 1
            elif by == "comm":
                expected[str(table.comm[at])] += 1
            else:
                # The table has names as they were known at that moment only.
                if not table.path_whole[at]:
                    partial += 1
                    continue
                file = f"{mounts.get(int(table.connection[at]), '')}/{table.path[at]}".rstrip("/")
                above = file.rpartition("/")[0] if table.path[at] else file
                expected[(file if by == "file" else above) or "/"] += 1
        found = recording.groups(by, most=10_000)
        counts: Counter[object] = Counter()
        for g in found.groups:
            counts[g.pid if by == "process" and g.pid is not None else g.label] += g.requests
        assert sum(counts.values()) == len(table)
        if by in ("process", "comm"):
            unknown = counts.pop("", 0)
            assert unknown == expected.pop(-1, 0) + expected.pop("", 0)
            assert counts == expected
        else:
            assert not expected - counts  # others became known later
            assert sum((counts - expected).values()) == partial


def test_the_slowest_request_of_each_process_is_named() -> None:
    recording = fusetools.open(DEMO)
    slow = recording.slowest(most=10_000).requests
    for g in recording.groups("process", order="slowest").groups:
        first = next(r for r in slow if r.pid == g.pid)
        assert (g.slowest, g.whole.max_ns) == (first.unique, first.duration_ns)


def test_least_and_path_select_as_slow_does() -> None:
    recording = fusetools.open(DEMO)
    slow = recording.slowest(most=10_000, least_ns=100_000, path="*/d1/*").requests
    found = recording.groups("file", least_ns=100_000, path="*/d1/*", most=10_000)
    assert sum(g.requests for g in found.groups) == len(slow)
    assert found.pathless is not None


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("by", ["file", "process"])
def test_printed_groups(run: Invoke, command: str, by: str) -> None:
    said = run(command, "-i", str(DEMO), "--by", by)
    assert said.exit_code == 0
    golden.check(f"by-{by}-{command}.txt", said.output)
    assert "…" not in said.output  # piped, names are whole


@pytest.mark.parametrize("command", COMMANDS)
def test_json_has_all_groups_in_the_schema(run: Invoke, command: str) -> None:
    value = json.loads(run(command, "-i", str(DEMO), "--by", "file", "--json").output)
    validate(value, "groups")
    assert value["command"] == command
    assert len(value["groups"]) > 20 and not value["groups"][-1]["others"]


def test_regex_of_count_selects_operations(run: Invoke) -> None:
    said = run("count", "-i", str(DEMO), "--by", "comm", "--json", "^(open|read)$")
    found = sum(g["requests"] for g in json.loads(said.output)["groups"])
    assert found == sum(o.requests for o in fusetools.open(DEMO).stages("open", "read").operations)
    wrong = run("count", "-i", str(DEMO), "--by", "comm", "no-such")
    assert wrong.exit_code == 1 and "no FUSE operation matches no-such" in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        "count --by comm --live -- true",
        "count --by comm --csv -",
        "count --by comm --layer request",
        "hist --by comm --style cvmfs",
        "hist --by comm --overhead",
        "hist --by comm --layer daemon",
        "stages --by comm --overhead",
    ],
)
def test_options_that_exclude_by(run: Invoke, words: str) -> None:
    first, *rest = words.split()
    said = run(first, "-i", str(DEMO), *rest)
    assert said.exit_code == 2 and "excludes" in said.stderr


def with_processes(*processes: Process) -> fusetools.Recording:
    recording = fusetools.open(DEMO)
    source = recording._source
    source.session = replace(source.session, processes=processes)
    return recording


def test_processes_give_users_cgroups_jobs_and_command_lines() -> None:
    recording = fusetools.open(DEMO)
    table = Columns(recording.requests())
    pids = [int(pid) for pid in np.unique(table.pid) if pid >= 0]
    of = {pid: int((table.pid == pid).sum()) for pid in pids}
    known = pids[0]
    noted = with_processes(Process(known, "grep", "grep -r x /mnt", "ann", "/a/b", "SLURM 7"))
    for by, label in (("user", "ann"), ("cgroup", "/a/b"), ("job", "SLURM 7")):
        found = noted.groups(by).groups
        assert (found[0].label, found[0].requests) == (label, of[known])
        ended = [g for g in found if g.unknown]
        assert [g.unknown.code for g in ended if g.unknown] == [Code.NOT_NOTED] * (len(pids) > 1)
        assert sum(g.requests for g in ended) == len(table) - of[known]
    by_pid = {g.pid: g for g in noted.groups("process").groups}
    assert by_pid[known].label == "grep -r x /mnt" and by_pid[known].comm
    changed = with_processes(Process(known, "sh", "sh grep.sh", "ann"))
    row = next(g for g in changed.groups("process").groups if g.pid == known)
    assert (row.label, row.comm) == ("", "grep")  # the program that called has another name
    in_none = with_processes(*(Process(pid, user="ann", cgroup="/") for pid in pids))
    (row,) = in_none.groups("job").groups
    assert row.unknown and row.unknown.code == Code.NO_JOB and row.requests == len(table)


def test_requests_of_processes_that_were_not_noted_are_counted() -> None:
    """core/src/answers/groups.rs tests whose user, cgroup and job they have."""
    workload = fusetools.open(DEMO).session.workload_pid or 0
    found = with_processes(Process(workload, "sh", "sh", "ann")).groups("user")
    assert found.inherited == 0 and "before record noted" not in render("count", found)
    text = " ".join(render("count", replace(found, inherited=3_000)).split())
    assert "3,000 requests of processes that ended before record noted their user" in text


@pytest.mark.parametrize("by", ["user", "cgroup", "job"])
def test_an_older_recording_is_refused(run: Invoke, by: str) -> None:
    with pytest.raises(Error, match=f"cannot group the requests of .* by {by}"):
        fusetools.open(DEMO).groups(by)
    said = run("stages", "-i", str(DEMO), "--by", by)
    assert said.exit_code == 1 and "fix: fusetools record" in said.stderr


@pytest.mark.parametrize(
    ("cgroup", "environment", "job"),
    [
        ("/slurm/uid_1000/job_123/step_0", "", "SLURM 123"),
        ("/system.slice/slurmstepd.scope/job_45/step_0/user/task_0", "", "SLURM 45"),
        ("/pbs_jobs.service/jobid/12.server", "", "PBS 12.server"),
        (
            "/htcondor/condor_var_lib_execute_slot1_1@host",
            "",
            "HTCondor var_lib_execute_slot1_1@host",
        ),
        (
            "/kubepods.slice/kubepods-burstable.slice/"
            "kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-1.scope",
            "",
            "pod 01234567-89ab-cdef-0123-456789abcdef",
        ),
        ("/user.slice", "A=1\0SLURM_JOB_ID=99\0B=2", "SLURM 99"),
        ("/user.slice", "_CONDOR_SLOT=slot1_2\0", "HTCondor slot1_2"),
        ("/slurm/job_1", "SLURM_JOB_ID=2", "SLURM 1"),
        ("/user.slice", "SLURM_JOB_ID=a b\nc", ""),
        ("/user.slice/job_7", "XSLURM_JOB_ID=1", ""),
    ],
)
def test_jobs_are_found_by_cgroup_and_environment(cgroup: str, environment: str, job: str) -> None:
    assert job_of(cgroup, environment) == job


def test_a_process_is_read_without_what_needs_its_memory(tmp_path: Path) -> None:
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    fields = "7 (a b) S 1 1 1 0 -1 64 " + " ".join("0" * 12) + " 99 " + " ".join("0" * 20)
    (folder / "stat").write_text(fields)
    (folder / "status").write_text("Name:\ta\nUid:\t5\t6\t6\t6\n")
    (folder / "cgroup").write_text("0::/x\n")
    (folder / "cmdline").write_bytes(b"python3\0a b.py\0")
    (folder / "environ").write_bytes(b"SLURM_JOB_ID=4\0")
    files = Files(tmp_path)
    assert read(files, 7) == Owner(99, True, "a b", "python3 'a b.py'", 5, "/x", "SLURM 4")
    assert read(files, 7, memory=False) == Owner(99, True, "a b", "", 5, "/x", "")
    assert read(files, 8) is None
    (folder / "stat").write_text(fields.replace(" S ", " Z "))
    assert read(files, 7) is None  # it has ended


class Proc:
    """Processes that come and go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: dict[int, Owner] = {}
        self.asked: list[list[int]] = []
        monkeypatch.setattr(owners, "owners", self._owners)
        monkeypatch.setattr(Files, "list", lambda *_: [*map(str, self.pids), "self"])
        monkeypatch.setattr(Files, "read", lambda *_, **__: "root:x:0:0\n")

    def _owners(self, pids: list[int], _: object) -> dict[int, Owner]:
        self.asked.append(list(pids))
        return {pid: self.pids[pid] for pid in pids if pid in self.pids}


def test_processes_are_noted_once_and_once_more_before_they_run_their_own_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proc = Proc(monkeypatch)
    job: Any = type("Job", (), {"user": None, "options": type("O", (), {"command": ("find", "x")})})
    noted = owners.Owners(job)
    proc.pids = {
        1: Owner(1, False, "init", "init", 0, "/", ""),
        5: Owner(2, True, "sh", "sh", 0, "/fusetools-9", ""),
        6: Owner(2, True, "sh", "sh", 7, "/a/fusetools-9", ""),
    }
    noted.look()
    proc.pids[5] = Owner(2, False, "find", "find /mnt", 0, "/fusetools-9", "")
    del proc.pids[6]  # it ended, and may have run another program before
    noted.look()
    noted.look()
    assert proc.asked == [[1, 5, 6], [5]]
    assert noted.processes([5, 6, 8], None) == (
        Process(5, "", "find /mnt", "root", "/", ""),
        Process(6, "sh", "", "7", "/a", ""),
    )
    # The last program counts, where the process has not ended.
    proc.pids[5] = Owner(2, False, "du", "du /mnt", 0, "/fusetools-9", "")
    assert noted.processes([5], None) == (Process(5, "", "du /mnt", "root", "/", ""),)
    assert noted.processes([1], 1)[0].command == "find x"
    # Another process has the number of one that ended: which of them made a request is unknown.
    proc.pids[6] = Owner(9, False, "cat", "cat", 0, "/", "")
    noted.look()
    assert noted.processes([6], None) == ()
    looks = len(proc.asked)
    proc.pids[7] = Owner(9, False, "cat", "cat", 0, "/", "")
    noted._due = float("inf")
    noted.meanwhile()
    assert len(proc.asked) == looks
    noted._due = 0.0
    noted.meanwhile()
    assert proc.asked[looks:] == [[7]] and noted._due > 0
    assert noted.size >= len(json.dumps([vars(p) for p in noted.processes([1, 5], None)]))
