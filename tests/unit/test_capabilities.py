"""doctor's conclusions for a host that lacks something."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fusetools.cli import main
from fusetools.errors import Error
from fusetools.host import probe
from fusetools.host.facts import HostFacts, Library, Mount, Tool
from fusetools.host.probe import CAPABILITIES
from fusetools.plan.capabilities import Diagnosis, diagnose
from fusetools.plan.options import Options, Workload
from fusetools.record import doctor, preflight
from fusetools.results.doctor import Described

HOSTS = Path(__file__).parents[1] / "host_facts"
NEWEST = HostFacts.from_json((HOSTS / "7.2" / "facts.json").read_text())
HERE = HostFacts.from_json((HOSTS / "6.18" / "facts.json").read_text())
OLD = HostFacts.from_json((HOSTS / "5.10" / "facts.json").read_text())
LIBRARY = Library("/usr/lib/libx.so", "/usr/lib/libx.so", 7, "08:01")
GOOD = Mount("/a", "fuse.sshfs", "h:", 45, 7, "sshfs", (LIBRARY,))
NO_DAEMON = Mount("/b", "fuse", "x", 46, why="it is gone")
OUT_OF_REACH = dataclasses.replace(
    GOOD, path="/c", libraries=(dataclasses.replace(LIBRARY, host_path=""),)
)


def of(facts: HostFacts, **changes: Any) -> Diagnosis:
    return diagnose(dataclasses.replace(facts, **changes))


def available(diagnosis: Diagnosis) -> dict[str, bool]:
    return {layer.name: layer.available for layer in diagnosis.layers}


def fixes(diagnosis: Diagnosis) -> list[str]:
    return [advice.fix for advice in diagnosis.advice]


def test_virtiofs_lacks_no_daemon() -> None:
    """Its daemon is on another machine: everything that can be recorded here is."""
    diagnosis = of(NEWEST, mounts=(dataclasses.replace(NO_DAEMON, fstype="virtiofs"),))
    assert diagnosis.works and diagnosis.advice == ()


def test_a_host_with_everything() -> None:
    diagnosis = of(NEWEST, mounts=(GOOD,))
    assert diagnosis.works and diagnosis.advice == ()
    assert set(available(diagnosis).values()) == {True}


def test_mounts_are_counted_by_what_is_probed() -> None:
    """The result agrees with each mount's own line, not with whether the daemon's files are
    reachable."""
    probed = ["callbacks", "nothing", "replies", "callbacks", "callbacks' entries", "nothing"]
    rows = [Described(f"/{n}", "x", "y", "", probed=what) for n, what in enumerate(probed)]
    layers = doctor.counted(of(NEWEST, mounts=(GOOD,)), rows).layers
    (layer,) = (layer for layer in layers if layer.name == "daemon")
    said = "callbacks of 2, callbacks' entries of 1, replies of 1, nothing of 2"
    assert layer.how == f"uprobes, 6 mounts: {said}"


@pytest.mark.parametrize(
    ("changes", "lost", "fix"),
    [
        (
            {"perf": None, "perf_can_record": False, "perf_why": "perf is not installed"},
            {"syscalls", "requests", "daemon", "off-CPU"},
            "apt-get install -y linux-perf",
        ),
        (
            {
                "perf": Tool("/usr/bin/perf", "6.8", (), False),
                "perf_can_record": False,
                "perf_why": "libtraceevent is necessary",
            },
            {"syscalls", "requests", "daemon", "off-CPU"},
            "apt-get install -y linux-perf",
        ),
        (
            {"tracefs": None, "tracefs_writable": False, "perf_can_record": False},
            {"syscalls", "kernel", "requests", "daemon", "off-CPU"},
            "mount -t tracefs nodev /sys/kernel/tracing",
        ),
        (
            {"tracefs_writable": False},
            {"kernel", "daemon"},
            "mount -o remount,rw /sys/kernel/tracing",
        ),
        (
            {"tracefs_writable": False, "lockdown": "confidentiality"},
            {"kernel", "daemon"},
            "boot it with lockdown=integrity",
        ),
        (
            {"dynamic_events": ("kprobe",)},
            {"daemon"},
            "boot a kernel built with CONFIG_UPROBE_EVENTS=y",
        ),
    ],
)
def test_doctor_lists_missing_requirements(
    changes: dict[str, Any], lost: set[str], fix: str
) -> None:
    diagnosis = of(NEWEST, **changes)
    assert not diagnosis.works
    assert {name for name, there in available(diagnosis).items() if not there} == lost
    needed = [advice.fix for advice in diagnosis.advice if advice.needed]
    assert needed == [fix]


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"trace_cmd": None}, "apt-get install -y trace-cmd"),
        ({"trace_cmd": None, "distribution": ("rocky", "rhel")}, "yum install -y trace-cmd"),
        ({"trace_cmd": None, "distribution": ("ubuntu", "debian")}, "apt-get install -y trace-cmd"),
        (
            {"trace_cmd": None, "distribution": ("mine",)},
            "install trace-cmd with your distribution's package manager",
        ),
        (
            {"perf": Tool("/usr/bin/perf", "5.4", ("-k",), True)},
            "install perf 5.10 or later: any perf runs on any kernel",
        ),
        ({"addresses": False}, "sysctl kernel.kptr_restrict=0"),
        ({"own_events": ("fuse_daemon/x",)}, "fusetools clean   # once no recording runs"),
        (
            {"mounts": (GOOD, NO_DAEMON)},
            f"run fusetools where the daemon runs; if it has ended: umount -l {NO_DAEMON.path}",
        ),
        (  # a kernel that does not show whose connections descriptors are
            {"mounts": (GOOD, NO_DAEMON), "kallsyms_fuse": ("fuse_get_req",)},
            "fusetools record --pid PID -- …",
        ),
        ({"mounts": (GOOD, OUT_OF_REACH)}, "run fusetools as root, outside of containers"),
    ],
)
def test_doctor_lists_improvements(changes: dict[str, Any], fix: str) -> None:
    diagnosis = of(NEWEST, **changes)
    assert diagnosis.works
    assert [(advice.fix, advice.needed) for advice in diagnosis.advice] == [(fix, False)]


def test_perf_of_ubuntu_is_named_after_the_kernel() -> None:
    diagnosis = of(NEWEST, perf=None, distribution=("ubuntu", "debian"), perf_can_record=False)
    assert fixes(diagnosis) == ["apt-get install -y linux-tools-$(uname -r)"]


def test_unprivileged() -> None:
    """Report one cause, not a list of its consequences."""
    diagnosis = of(
        HERE,
        uid=1000,
        capabilities=(),
        tracefs=None,
        tracefs_writable=False,
        tracers=(),
        dynamic_events=(),
        tracepoints=(),
        perf_can_record=False,
        addresses=False,
    )
    assert not diagnosis.works
    assert fixes(diagnosis) == ["sudo fusetools doctor"]


@pytest.mark.parametrize(
    "changes",
    [
        {"perf": None, "perf_can_record": False, "perf_why": "perf is not installed"},
        {"perf_can_record": False, "perf_why": "No permission", "capabilities": ()},
        {"tracefs_writable": False},
        {"tracefs_writable": False, "lockdown": "confidentiality"},
        {"tracefs": None, "tracefs_writable": False, "perf_can_record": False},
        {"uid": 1000},  # also a user who may use perf and write to tracefs
    ],
)
def test_record_refuses_as_doctor_says(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dataclasses.replace(NEWEST, mounts=(GOOD,), **changes)
    monkeypatch.setattr(preflight, "read_host", lambda trial, paths: facts)
    with pytest.raises(Error) as refused:
        preflight.prepare(Options(Workload(("true",))))
    diagnosis = diagnose(facts)
    first = diagnosis.advice[0]
    assert not diagnosis.works and first.needed
    assert (refused.value.what, refused.value.why) == ("cannot record", first.problem)
    assert refused.value.fix == first.fix.replace("doctor", "record …")


def test_root_of_a_container() -> None:
    diagnosis = of(
        HERE,
        capabilities=("cap_chown",),
        tracefs=None,
        tracefs_writable=False,
        unreadable=(("/sys/kernel/tracing/available_tracers", "Permission denied"),),
        perf_can_record=False,
        perf_why="No permission",
    )
    assert not diagnosis.works
    assert "Permission denied" in diagnosis.advice[0].problem
    assert diagnosis.advice[0].fix == "run it outside of the container, or in a privileged one"


APPARMOR = "AppArmor's profile docker-default"
SELINUX = "SELinux's type container_t"
RUN_WITH = "run it outside of the container, or run the container with --security-opt"
NO_PERF = {"perf_can_record": False, "perf_why": "No permission"}
READS = (("/sys/kernel/tracing/available_tracers", "Permission denied"),)
WRITES = (("/sys/kernel/tracing/uprobe_events", "Permission denied"),)
MOUNTED_RO = (("/sys/kernel/tracing/uprobe_events", "Read-only file system"),)


@pytest.mark.parametrize(
    ("changes", "problem", "fix"),
    [
        (
            {**NO_PERF, "perf_refused": "seccomp"},
            "seccomp filter",
            f"{RUN_WITH} seccomp=unconfined",
        ),
        (
            {**NO_PERF, "perf_refused": "module", "confined": SELINUX},
            f"{SELINUX} refuses perf events",
            f"{RUN_WITH} label=disable",
        ),
        (
            {"tracefs_writable": False, "unreadable": WRITES, "confined": APPARMOR},
            f"{APPARMOR} does not let this process write",
            f"{RUN_WITH} apparmor=unconfined",
        ),
        (  # whatever confines it
            {"tracefs_writable": False, "unreadable": MOUNTED_RO, "confined": APPARMOR},
            "cannot be written",
            "mount -o remount,rw /sys/kernel/tracing",
        ),
        (
            {"tracefs": None, "tracefs_writable": False, "unreadable": READS, "confined": SELINUX},
            f"{SELINUX} does not let this process read tracefs",
            f"{RUN_WITH} label=disable",
        ),
    ],
)
def test_a_filter_or_module_that_refuses_something_is_named(
    changes: dict[str, Any], problem: str, fix: str
) -> None:
    every = tuple(f"cap_{name}" for name in CAPABILITIES)
    diagnosis = of(NEWEST, capabilities=every, **changes)
    assert not diagnosis.works
    assert problem in diagnosis.advice[0].problem and diagnosis.advice[0].fix == fix


@pytest.mark.parametrize("missing", ["ipc_lock", "sys_ptrace"])
def test_a_missing_capability_is_named(missing: str) -> None:
    every = {f"cap_{name}" for name in CAPABILITIES}
    assert not [a for a in of(HERE, capabilities=tuple(every)).advice if "lacks" in a.problem]
    diagnosis = of(HERE, capabilities=tuple(every - {f"cap_{missing}"}))
    (advice,) = [advice for advice in diagnosis.advice if "lacks" in advice.problem]
    assert f"CAP_{missing.upper()}" in advice.problem
    assert advice.fix.endswith(f"--cap-add {missing.upper()}")


@pytest.mark.parametrize("mount", [NO_DAEMON, OUT_OF_REACH])
def test_mounts_of_which_none_can_be_traced(mount: Mount) -> None:
    diagnosis = of(NEWEST, mounts=(mount,))
    assert not diagnosis.works and not available(diagnosis)["daemon"]
    assert [advice.needed for advice in diagnosis.advice] == [True]


def test_requests_need_a_tracepoint_or_a_kprobe() -> None:
    seeing = of(OLD, mounts=(GOOD,))
    assert available(seeing)["requests"] and seeing.works
    blind = of(OLD, mounts=(GOOD,), dynamic_events=("uprobe",), tracers=("nop",))
    assert available(blind) == {
        "syscalls": True,
        "kernel": False,
        "requests": False,
        "daemon": True,
        "off-CPU": True,
    }
    assert not blind.works


def test_unique_that_is_not_told_is_said() -> None:
    def how(unique: bool | None) -> str:
        layers = of(HERE, fuse_send_unique=unique).layers
        return next(layer.how for layer in layers if layer.name == "requests")

    assert how(True) == how(None)
    assert "no unique" in how(False)


def run(monkeypatch: pytest.MonkeyPatch, facts: HostFacts, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(probe, "read_host", lambda: facts)
    monkeypatch.setattr(doctor, "self_test_unique", lambda seconds: True)
    result = CliRunner().invoke(main, ["doctor", *arguments])
    return result.exit_code, result.output


def test_exit_status_says_whether_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, HERE)[0] == 0
    assert run(monkeypatch, dataclasses.replace(HERE, mounts=(NO_DAEMON,)))[0] == 1


def test_json_has_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dataclasses.replace(HERE, mounts=(GOOD, NO_DAEMON))
    status, text = run(monkeypatch, facts, "--json")
    data = json.loads(text)
    assert status == 0 and data["works"] is True
    stored = HostFacts.from_json(json.dumps(data["facts"]))
    assert stored == dataclasses.replace(facts, fuse_send_unique=True)
    _, shown = run(monkeypatch, facts)
    words = " ".join(shown.split())
    for layer in data["layers"]:
        assert f"{layer['name']} {'yes' if layer['available'] else 'no'} {layer['how']}" in words
    for advice in data["advice"]:
        assert advice["problem"] in words and " ".join(advice["fix"].split()) in words


def test_names_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = dataclasses.replace(GOOD, path="/a\x1b[31m\n\udcff", comm="\x9b2J")
    _, shown = run(monkeypatch, dataclasses.replace(HERE, mounts=(mount,)))
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "/a\\x1b[31m\\n" in shown
