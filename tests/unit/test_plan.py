"""The planner, on stored hosts: the recording that it plans there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import pytest
from schemas import held

from fusetools.errors import Error
from fusetools.host import words
from fusetools.host.facts import HostFacts, Library, Mount, Tool
from fusetools.names import CALIBRATION, DETAILS, LOCKS, READS, RINGS
from fusetools.plan import callbacks, collectors, daemons, planner, tasks
from fusetools.plan.bundles import bundled, unbundled
from fusetools.plan.callbacks import Symbols
from fusetools.plan.daemons import Target
from fusetools.plan.filters import Filter, OfWorkload, any_of, condition, place
from fusetools.plan.ftrace import THREADS, all_by_perf, by_perf
from fusetools.plan.kernel import OF_FUNCTIONS
from fusetools.plan.options import Caller, Count, Options, Stream, Workload, stream
from fusetools.plan.planner import ProbePlan
from fusetools.plan.probeset import builtin
from fusetools.reasons import Code
from fusetools.record.attached import RANGES, ranges
from fusetools.record.perf import Since, Sizes, Threads, command_line, per_task_line, sizes
from fusetools.record.planned import summary
from fusetools.render.json.answer import render as to_json
from fusetools.render.text.plan import render

HOSTS = Path(__file__).parents[1] / "host_facts"
KERNELS = (
    "3.10", "4.4", "4.15", "4.18", "5.3", "5.4", "5.10", "5.15", "6.1", "6.8", "6.12", "6.14",
    "6.18", "7.2",
)  # fmt: skip

# A real client's (2.12.0) callbacks, as in its .symtab; made-up addresses.
NAMES = (
    "_ZN5cvmfsL12cvmfs_lookupEP8fuse_reqmPKc",
    "_ZN5cvmfsL13cvmfs_getattrEP8fuse_reqmP14fuse_file_info",
    "_ZN5cvmfsL14cvmfs_readlinkEP8fuse_reqm",
    "_ZN5cvmfsL13cvmfs_opendirEP8fuse_reqmP14fuse_file_info",
    "_ZN5cvmfsL13cvmfs_readdirEP8fuse_reqmmlP14fuse_file_info",
    "_ZN5cvmfsL16cvmfs_releasedirEP8fuse_reqmP14fuse_file_info",
    "_ZN5cvmfsL10cvmfs_openEP8fuse_reqmP14fuse_file_info",
    "_ZN5cvmfsL10cvmfs_readEP8fuse_reqmmlP14fuse_file_info",
    "_ZN5cvmfsL13cvmfs_releaseEP8fuse_reqmP14fuse_file_info",
    "_ZN5cvmfsL12cvmfs_forgetEP8fuse_reqmm",
    "_ZN5cvmfsL18cvmfs_forget_multiEP8fuse_reqmP16fuse_forget_data",
    "_ZN5cvmfsL12cvmfs_statfsEP8fuse_reqm",
    "_ZN5cvmfsL14cvmfs_getxattrEP8fuse_reqmPKcm",
    "_ZN5cvmfsL15cvmfs_listxattrEP8fuse_reqmm",
)
OTHERS = (
    "_ZN5cvmfsL10cvmfs_initEPvP14fuse_conn_info",
    "_ZN5cvmfsL13cvmfs_destroyEPv",
    "_ZN7catalog13cvmfs_lookupEv",
    "main",
)
PLAIN = {
    name: "cvmfs::cvmfs_" + name.partition("cvmfs_")[2].rpartition("EP8fuse_req")[0]
    for name in NAMES
}
PLAIN |= {
    OTHERS[0]: "cvmfs::cvmfs_init",
    OTHERS[1]: "cvmfs::cvmfs_destroy",
    OTHERS[2]: "catalog::cvmfs_lookup",
}


def library(name: str, inode: int = 1) -> Library:
    path = f"/usr/lib64/{name}"
    return Library(path=path, host_path=path, inode=inode, device="fd:00")


CALLBACKS = library("libcvmfs_fuse3.so.2.12.0")
FUSE = library("libfuse3.so.3.14.0", 2)
OWN = library("_core.so", 3)
SYMBOLS = {
    CALLBACKS.host_path: [
        (name, 0x20000 + 64 * i, 60, 0x1F000 + 64 * i) for i, name in enumerate(NAMES + OTHERS)
    ],
    FUSE.host_path: [("fuse_reply_err", 0x100, 9, 0x100), ("fuse_reply_entry", 0x200, 9, 0x200)],
    OWN.host_path: [("fusetools_calibrate", 0x5000, 2, 0x4000)],
}


def mount(path: str = "/cvmfs/sft.cern.ch", **more: object) -> Mount:
    usual = Mount(
        path=path,
        fstype="fuse",
        source="cvmfs2",
        connection=45,
        daemon_pid=2024,
        comm="cvmfs2",
        libraries=(library("libc.so.6", 9), CALLBACKS, FUSE),
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def host(kernel: str = "6.18", *mounts: Mount) -> HostFacts:
    facts = HostFacts.from_json((HOSTS / kernel / "facts.json").read_text())
    return replace(facts, mounts=mounts or (mount(),))


def targets(facts: HostFacts, options: Options, fs: str | None = None) -> tuple[Target, ...]:
    sets = builtin()
    chosen = None
    if fs:
        name, *extra = fs.split("+")
        chosen = daemons.select(next(one for one in sets if one.name == name), extra)
    return daemons.targets(facts, options, sets, chosen)


def make(
    facts: HostFacts,
    options: Options | None = None,
    fs: str | None = None,
    symbols: object = SYMBOLS,
    cgroup: bool = True,
) -> ProbePlan:
    options = options or Options(Workload(("find",)))
    found = targets(facts, options, fs)
    return planner.plan(facts, options, found, Symbols(symbols, PLAIN), OWN, cgroup=cgroup)  # type: ignore[arg-type]


def filled(since: Since, only: Filter) -> str:
    return Threads(since).filled(only)


def text(plan: ProbePlan, facts: HostFacts) -> str:
    """Return a plan for people: events, probes, perf's command line, missing parts."""
    assert facts.perf is not None
    room = Sizes(32 << 20, 1 << 40)
    per_task = any(event.per_task for event in plan.events)
    argv = command_line(plan, facts.perf, "perf.data", ("ctl", "ack"), room, "user/fusetools-1")
    lines = [f"{facts.kernel}: {', '.join(plan.layers)}", ""]
    lines += [probe.definition() for probe in plan.probes]
    if plan.graph:
        lines += ["", f"function_graph ({len(plan.functions)}): {' '.join(plan.graph)}"]
    by_ftrace = [event for event in plan.events if event.ftrace]
    lines += [""] * bool(by_ftrace)
    lines += [f"ftrace: {e.name}{f' if {e.condition}' if e.condition else ''}" for e in by_ftrace]
    lines += ["", " ".join(argv).replace(" -e ", "\n  -e ").replace(" -G ", "\n  -G ")]
    if per_task:
        argv = per_task_line(plan, facts.perf, "perf.tasks", ("ctl", "ack"), room, [2024])
        lines += ["", " ".join(argv).replace(" -e ", "\n  -e ")]
    lines += [""] + [f"missing {m.layer or '-'}: {m.text}" for m in plan.missing]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kernel", KERNELS)
def test_plan_of_a_stored_host(kernel: str) -> None:
    # Events of the kernels' own; no stored facts list them
    facts = replace(host(kernel), pid_max=1 << 15)
    plan = bundled(facts, make(facts))
    golden.check(f"plan-{kernel}.txt", text(plan, facts))
    held("record-dry-run", to_json("record", summary(facts, plan)))


@pytest.mark.parametrize("kernel", ["3.10", "4.18"])
def test_a_perf_without_commands_records(kernel: str) -> None:
    facts = host(kernel)
    assert facts.perf is not None
    known = tuple(option for option in facts.perf.options if option != "--control")
    perf = replace(facts.perf, options=known)
    facts = replace(facts, perf=perf)
    plan = make(facts)
    assert [why.subject for why in plan.missing if why.code is Code.NO_CONTROL] == [
        {"version": perf.version}
    ]
    assert not plan.in_part
    argv = command_line(plan, perf, "perf.data", ("ctl", "ack"), Sizes(1 << 20, 1 << 20))
    assert not {"--control", "-D"} & {*argv}
    for options in (Options(Stream(), detail="latency"), Options(Count(("ls",)))):
        with pytest.raises(Error, match="as they happen"):
            make(facts, options)


def test_plan_without_a_workload() -> None:
    facts = host()
    plan = bundled(facts, make(facts, Options()))
    golden.check("plan-no-workload.txt", text(plan, facts))


def test_every_callback_has_entry_and_return() -> None:
    probes = make(host()).probes
    entries = {p.event for p in probes if p.role == "entry" and p.function != CALIBRATION}
    assert len(entries) == len(NAMES)
    assert {p.event for p in probes if p.role == "return"} >= {e + "__return" for e in entries}
    for probe in probes:
        assert (probe.kind, probe.role) in (("p", "entry"), ("r", "return"), ("p", "inode"))
    batch = next(probe for probe in probes if probe.function == "cvmfs_forget_multi")
    assert batch.operation == "batch_forget"
    lookup = next(probe for probe in probes if probe.event == "fuse_daemon:cvmfs_lookup")
    assert lookup.definition() == (
        "p:fuse_daemon/cvmfs_lookup /usr/lib64/libcvmfs_fuse3.so.2.12.0:0x1f000 "
        "unique=+8(%di):u64 ino=%si:u64 name=+0(%dx):string"
    )
    assert lookup.address == 0x20000


def test_other_architectures() -> None:
    probes = make(replace(host(), arch="aarch64")).probes
    lookup = next(probe for probe in probes if probe.function == "cvmfs_lookup")
    assert dict(lookup.arguments)["name"] == "+0(%x2):string"
    probes = make(replace(host(), arch="vax")).probes  # no registers known: no arguments
    assert all(probe.arguments == () for probe in probes)


def test_system_calls_that_are_probes_are_left_out() -> None:
    filters = {e.name: str(e.condition) for e in make(host()).events if e.name.startswith("raw_")}
    assert "id < 335 || id > 336" in filters["raw_syscalls:sys_enter"]
    assert "id >= 0" in filters["raw_syscalls:sys_exit"]
    events = make(replace(host(), arch="aarch64")).events
    assert all("335" not in str(event.condition) for event in events)


def holds(condition: str, fields: Mapping[str, object]) -> bool:
    """A tracepoint's filter, as the kernel accepts it."""
    if not condition:
        return True
    text = condition.replace("&&", " and ").replace("||", " or ").replace("!(", " not (")
    names = {**fields, "COMM": fields["prev_comm"], "common_pid": fields["prev_pid"]}
    return bool(eval(text, {"__builtins__": {}}, names))  # filters that the planner makes


PIDS = {"swapper/0": 0, "cvmfs2": 2024, "find": 31_000, "bash": 29_000}


@pytest.mark.parametrize("call_graph", ["fp", "auto", "dwarf", "kernel"])
@pytest.mark.parametrize("frame_pointers", [1.0, 0.2])
@pytest.mark.parametrize("way", ["by pid", "cgroup", "everybody", "attach"])
@pytest.mark.parametrize("anew", [False, True])
def test_each_switch_is_recorded_once(
    call_graph: str, frame_pointers: float, way: str, anew: bool
) -> None:
    """With its stack: from the same event, or from perf beside ftrace."""
    libc = replace(library("libc.so.6", 9), frame_pointers=frame_pointers)
    facts = host("6.18", mount(libraries=(libc, CALLBACKS, FUSE)))
    by_pid = way in ("by pid", "attach")
    facts = replace(facts, pid_max=1 << 22 if by_pid else 0)
    options: Options = Options(Workload(("find",)), call_graph=call_graph)
    if way == "attach":  # it runs already, and is older than any new process
        options = Options(Caller(31_000), call_graph=call_graph)
    first, also = (30_000, ()) if way != "attach" else (32_000, ((30_990, 31_001),))
    since = Since(first, 1 << 15 if anew else 1 << 22, also)
    plan = make(facts, options, cgroup=way in ("cgroup", "attach"))
    assert plan.by_pid == by_pid and plan.switch_records == (way == "cgroup")
    alone = [e for e in all_by_perf(plan.events) if e.name == "sched:sched_switch"]
    events = [event for event in plan.events if event.name == "sched:sched_switch"]
    for (before, state), after in itertools.product(
        [*itertools.product(("cvmfs2", "find", "bash"), (0, 1, 2, 256)), ("swapper/0", 0)], PIDS
    ):
        fields = {"prev_comm": before, "prev_pid": PIDS[before], "prev_state": state}
        fields |= {"next_comm": after, "next_pid": PIDS[after]}
        # An event of the workload's cgroup belongs to a process in it.
        seen = [
            event
            for event in events
            if holds(filled(since, event.condition), fields)
            and (not event.workload or before == "find")
        ]
        wanted = way == "everybody" or bool({before, after} & {"cvmfs2", "find"})
        # PERF_RECORD_SWITCH reports the next task in a cgroup.
        if way == "cgroup" and not {before, after} & {"cvmfs2"}:
            wanted = before == "find"
        whole = [event for event in seen if event.ftrace == by_pid]
        assert len(whole) == wanted, (fields, seen)
        if by_pid:  # and if no instance can be made after all
            perfs = [event for event in alone if holds(filled(since, event.condition), fields)]
            assert len(perfs) == wanted and not any(event.ftrace for event in perfs)
            assert [e.stack for e in perfs if e.stack] == [e.stack for e in seen if e.stack]
        stacks = [event.stack for event in seen if event.stack]
        if not by_pid and before not in ("cvmfs2", "find"):
            continue
        # The stack of an unrelated thread shows nothing.
        assert len(stacks) == (wanted and before in ("cvmfs2", "find")), (fields, seen)
        if before == "cvmfs2" and wanted:
            # A wait for another thread has the stack with which its system call was entered.¶A copy
            # at a preemption would cost more than it shows.
            copies = call_graph == "dwarf" or (call_graph == "auto" and frame_pointers < 0.9)
            own = copies and state == 2
            assert stacks == ["dwarf" if (call_graph == "dwarf" and by_pid) or own else "fp"]
        elif stacks:
            assert stacks == ["dwarf" if call_graph == "dwarf" and by_pid else "fp"]
    assert all(event.per_task == (event.stack == "dwarf") for event in plan.events)


def test_numbers_of_threads_begin_anew() -> None:
    of = any_of(condition("COMM == 'x'"), place(OfWorkload("common_pid")))
    assert filled(Since(1_000, 1 << 22), of) == "COMM == 'x' || common_pid >= 1000"
    low = Since(30_000, 32_768)
    assert filled(low, of) == (
        "COMM == 'x' || (common_pid >= 30000 || (common_pid >= 300 && common_pid < 21808))"
    )
    assert low.room == 2_768 + 21_508
    assert Since(5_000, 32_768).below == 0
    assert filled(Since(9, 1 << 22, ((3, 3), (5, 7))), of) == (
        "COMM == 'x' || (common_pid >= 9 || common_pid == 3 || "
        "(common_pid >= 5 && common_pid <= 7))"
    )


def test_filters_of_a_caller_with_many_threads_fit() -> None:
    """The kernel accepts a page."""
    names = {2024: [f"{'x' * 14}{n}" for n in range(8)]}
    numbers = ranges(list(range(100_000, 900_000, 777)), RANGES)
    facts = replace(host(), pid_max=1 << 22)
    found = targets(facts, Options(Caller(1)))
    plan = planner.plan(facts, Options(Caller(1)), found, Symbols(SYMBOLS, PLAIN), OWN, names)
    since = Since(1 << 21, 1 << 22, numbers)
    filters = [filled(since, event.condition) for event in plan.events]
    assert any("2097152" in text for text in filters)
    assert max(map(len, filters)) < 4096


def test_details() -> None:
    """Each level records what the previous levels do; only the last one has stacks."""
    facts = replace(host(), pid_max=1 << 22)
    plans = [make(facts, Options(Workload(("x",)), detail=detail)) for detail in DETAILS]
    names = [{event.name for event in plan.events} for plan in plans]
    assert names[0] < names[1] < names[2]
    assert names[1] - names[0] == {
        "fuse_daemon:fuse_reply_entry",
        RINGS["fetched"],
        RINGS["ring_wait"],
        "sched:sched_switch",
        "sched:sched_waking",
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
    }
    assert names[2] - names[1] == {collectors.CLOCK}
    assert not any(event.stack for plan in plans[:2] for event in plan.events)
    assert plans[1].probes == plans[2].probes
    # Names of files answer other questions than latency does.
    found = set(plans[1].probes) - set(plans[0].probes)
    assert {probe.role for probe in found} == {"inode"}
    assert not any(probe.role == "inode" for probe in plans[0].probes)
    # Nothing is missing that was not requested.
    assert Code.NO_RAW_SYSCALLS not in {one.code for one in plans[0].missing}


def by_ftrace(facts: HostFacts, options: Options) -> dict[str, set[bool]]:
    """Return the recorder of each event: ftrace, perf, or some of the events by each."""
    found: dict[str, set[bool]] = {}
    for event in make(facts, options).events:
        found.setdefault(event.name, set()).add(event.ftrace)
    return found


def test_rings_of_io_uring_are_recorded_where_fuse_has_them() -> None:
    def rings(kernel: str, detail: str = "stacks") -> dict[str, str]:
        facts = host(kernel)
        facts = replace(facts, tracepoints=(*facts.tracepoints, *RINGS.values()), pid_max=1 << 22)
        plan = make(facts, Options(Workload(("x",)), detail=detail))
        return {
            event.name: str(event.condition)
            for event in plan.events
            if event.name in RINGS.values()
        }

    for detail in ("stages", "stacks"):
        filters = rings("6.18", detail)
        assert set(filters) == set(RINGS.values())
        assert all('COMM == "cvmfs2"' in text for text in filters.values())
        assert filters[RINGS["committed"]].endswith("opcode == 46")
        assert filters[RINGS["fetched"]].endswith("res == 0")
    assert list(rings("6.18", "latency")) == [RINGS["committed"]]
    assert rings("6.12") == rings("6.12", "latency") == {}


def test_ftrace_records_what_has_no_stack() -> None:
    libc = replace(library("libc.so.6", 9), frame_pointers=0.1)
    facts = host("6.18", mount(libraries=(libc, CALLBACKS, FUSE)))
    facts = replace(facts, pid_max=1 << 22)
    for detail in ("latency", "stages"):
        plan = make(facts, Options(Workload(("x",)), detail=detail))
        assert all(event.ftrace for event in plan.events), detail
        assert [event.name for event in plan.events].count("sched:sched_switch") <= 1
        # An instance has one filter per event.
        assert len({event.name for event in plan.events}) == len(plan.events)
        assert not plan.switch_records and not any(event.workload for event in plan.events)
        assert plan.by_pid == (detail == "stages")
    stacks = by_ftrace(facts, Options(Workload(("x",))))
    assert {name for name, by in stacks.items() if False in by} == {
        "sched:sched_switch",
        collectors.CLOCK,
        "raw_syscalls:sys_enter",  # copies of the daemon's stacks, in calls in which it waits
    }
    # ftrace gets the numbers of all threads of the workload.
    assert stacks["sched:sched_switch"] == stacks["raw_syscalls:sys_enter"] == {False, True}
    assert stacks[collectors.CLOCK] == {False} and stacks[THREADS] == {True}
    plan = make(facts, Options(Workload(("x",))))
    assert plan.by_pid and not plan.switch_records
    assert not any(event.workload for event in plan.events)
    assert all(event.stack == "" for event in plan.events if event.ftrace)
    # With --attach there is no workload, and names of files are needed immediately.
    assert by_ftrace(facts, Options(detail="stages"))["sched:sched_switch"] == {True}
    assert not any(True in by for by in by_ftrace(facts, stream()).values())


@pytest.mark.parametrize(
    ("lack", "why"),
    [
        ({"instances": False}, "no instances"),
        ({"clocks": ("local", "perf")}, "no clock"),
        ({"pid_namespace": True}, "other numbers"),
    ],
)
def test_perf_records_all_where_ftrace_cannot(lack: dict[str, object], why: str) -> None:
    facts = replace(host(), pid_max=1 << 22, **lack)  # type: ignore[arg-type]
    assert why in by_perf(facts)
    for detail in DETAILS:
        plan = make(facts, Options(Workload(("x",)), detail=detail))
        assert not any(event.ftrace for event in plan.events)
        assert THREADS not in {event.name for event in plan.events}
    assert by_perf(host()) == ""


def test_few_numbers_of_threads_leave_a_workload_to_perf() -> None:
    facts = replace(host(), pid_max=tasks.PIDS - 1)
    stages = Options(Workload(("x",)), detail="stages")
    assert not any(event.ftrace for event in make(facts, stages).events)
    assert all(e.ftrace for e in make(facts, Options(Workload(("x",)), detail="latency")).events)


@pytest.mark.parametrize("kernel", ["5.10", "6.12"])
def test_latency_needs_no_kernel_functions(kernel: str) -> None:
    plan = make(host(kernel), Options(Workload(("x",)), detail="latency"))
    assert not plan.graph and not any(probe.layer == "kernel" for probe in plan.probes)
    assert {"begin", "end"} <= {probe.role for probe in plan.probes if probe.in_kernel} or any(
        event.name == "fuse:fuse_request_send" for event in plan.events
    )
    assert not {one.code for one in plan.missing} & OF_FUNCTIONS
    asked = Options(Workload(("x",)), detail="latency", functions=("fuse_lookup",))
    assert make(host(kernel), asked).functions or any(
        probe.layer == "kernel" for probe in make(host(kernel), asked).probes
    )


def test_a_request_has_the_stack_of_its_callers_wait() -> None:
    def begin(options: Options) -> str:
        plan = make(host(), options)
        return next(e.stack for e in plan.events if e.name == "fuse:fuse_request_send")

    assert begin(Options(Workload(("x",)))) == ""
    assert begin(Options()) == "fp"  # only the daemon's waits are recorded


def test_a_plan_is_shown() -> None:
    """Everything that would be recorded, and nothing else, as text and as JSON."""
    facts = host()
    plan = make(facts)
    shown = render(summary(facts, plan))
    made = {probe.event for probe in plan.probes}
    for event in plan.events:
        assert event.name in shown or event.name in made
        assert str(event.condition) in shown
    assert "/cvmfs/sft.cern.ch: 29 probes" in shown
    assert "missing: kernel functions" in shown
    found = json.loads(to_json("record", summary(facts, plan)))
    assert [(e["name"], e["filter"], e["whose"]) for e in found["events"]] == [
        (event.name, str(event.filter), str(event.whose)) for event in plan.events
    ]
    assert {one["definition"] for one in found["probes"]} == {
        probe.definition() for probe in plan.probes
    }


def test_perf_may_take_fewer_samples() -> None:
    plan = make(replace(host(), sample_rate=50))
    assert {event.frequency for event in plan.events} == {0, 50}


def test_a_mount_by_any_of_its_paths() -> None:
    """Bind mounts, also below another mount; a mount that covers another one."""
    below = mount("/b", connection=46, also=("/cvmfs/sft.cern.ch/b", "/bind"))
    covered, covering = mount("/c", connection=47), mount("/c", connection=48)
    elsewhere = mount("/c", connection=49, seen_by=7)
    facts = host("6.18", mount(), below, covered, covering, elsewhere)
    for path, connection in (
        ("/cvmfs/sft.cern.ch/bb", 45),
        ("/cvmfs/sft.cern.ch/b", 46),
        ("/bind/x", 46),
        ("/c/x", 48),
    ):
        found = targets(facts, Options(mounts=(path,)))
        assert [target.mount.connection for target in found] == [connection], path


def test_without_a_cgroup_everybody_is_recorded() -> None:
    plan = make(host(), cgroup=False)
    assert not any(event.workload for event in plan.events)
    assert not plan.switch_records
    assert Code.NO_CGROUP in {one.code for one in plan.missing}


def test_only_the_mounts_asked_for() -> None:
    two = (mount(), mount("/cvmfs/atlas.cern.ch", connection=46, daemon_pid=2050))
    facts = host("6.18", *two)
    plan = make(facts)
    sent = next(event for event in plan.events if event.name == "fuse:fuse_request_send")
    assert str(sent.filter) == "connection==45 || connection==46"
    # one library, one set of probes
    assert len([p for p in plan.probes if p.function == "cvmfs_lookup"]) == 2
    for options in (
        Options(mounts=("/cvmfs/atlas.cern.ch",)),
        Options(mounts=("/cvmfs/atlas.cern.ch/some/directory",)),
        Options(pid=2050),
    ):
        assert [t.mount.connection for t in targets(facts, options)] == [46]
    with pytest.raises(Error, match="no FUSE file system is mounted on /cvmfs/atlas"):
        targets(facts, Options(mounts=("/cvmfs/atlas",)))
    with pytest.raises(Error, match="process 7 serves no known FUSE mount"):
        targets(facts, Options(pid=7))
    with pytest.raises(Error, match="no FUSE file system is mounted here"):
        targets(replace(facts, mounts=()), Options())


def test_two_versions_of_a_library_get_two_names() -> None:
    other = library("libcvmfs_fuse3.so.2.11.0", 7)
    facts = host("6.18", mount(), mount("/b", connection=46, daemon_pid=7, libraries=(other,)))
    symbols = {**SYMBOLS, other.host_path: SYMBOLS[CALLBACKS.host_path]}
    probes = [p for p in make(facts, symbols=symbols).probes if p.function == "cvmfs_lookup"]
    assert [probe.event for probe in probes] == [
        "fuse_daemon:cvmfs_lookup",
        "fuse_daemon:cvmfs_lookup__return",
        "fuse_daemon:cvmfs_lookup_2",
        "fuse_daemon:cvmfs_lookup_2__return",
    ]


def test_the_probe_set_fits_the_daemon() -> None:
    program = replace(library("lowlevel", 8), imports=("fuse_reply_err", "fuse_session_new"))
    sshfs = mount("/home/me/x", comm="lowlevel", libraries=(program, FUSE))
    (target,) = targets(host("6.18", sshfs), Options())
    assert target.probe_set is not None and target.probe_set.name == "libfuse"
    plan = make(host("6.18", sshfs))
    assert [p.role for p in plan.probes if p.function.startswith("fuse_reply")] == ["reply"] * 2
    assert "the daemon's replies" in plan.layers
    told = {p.function: dict(p.arguments).get("ino") for p in plan.probes}
    assert told["fuse_reply_entry"] == "+0(%si):u64" and told["fuse_reply_err"] is None
    (target,) = targets(host(), Options(), fs="libfuse")
    assert {library.path for _, library in target.groups} == {FUSE.path}
    with pytest.raises(Error) as caught:
        targets(host("6.18", sshfs), Options(), fs="cvmfs")
    assert "fits no daemon here" in caught.value.what
    assert "--fs libfuse" in caught.value.fix
    with pytest.raises(Error) as caught:
        targets(host(), Options(), fs="cvmfs+stubb")
    assert caught.value.why == "its groups: callbacks, inodes, stub"


def test_handlers_of_libfuse() -> None:
    """The library's functions that call a low-level daemon's callbacks, with inodes, names and
    sizes."""
    program = replace(library("lowlevel", 8), imports=("fuse_reply_err", "fuse_add_direntry_plus"))
    one = mount(comm="lowlevel", libraries=(program, FUSE))
    names = ("do_lookup", "do_read", "do_rename2", "do_init", "fuse_add_direntry_plus")
    more = [(name, 0x1000 * i, 0, 0x1000 * i) for i, name in enumerate(names, 1)]
    symbols = {**SYMBOLS, FUSE.host_path: [*SYMBOLS[FUSE.host_path], *more]}
    plan = make(host("6.18", one), symbols=symbols)
    found = {p.function: p for p in plan.probes if p.role != "return"}
    assert "do_init" not in found  # answers no request of a caller
    handlers = [p for p in plan.probes if p.function.startswith("do_")]
    assert {p.operation for p in handlers} == {"lookup", "read", "rename2"}
    assert {p.role for p in handlers} == {"entry"}
    assert dict(found["do_lookup"].arguments) == {
        "unique": "+8(%di):u64",
        "ino": "%si:u64",
        "name": "+0(%dx):string",
    }
    read = dict(found["do_read"].arguments)
    assert (read["size"], read["off"]) == ("+16(%dx):u32", "+8(%dx):s64")
    assert dict(found["do_rename2"].arguments)["name"] == "+16(%dx):string"
    assert found["fuse_add_direntry_plus"].role == "listed"
    # A library without such a table gets the same plan as before, and is not reported as stripped.
    plan = make(host("6.18", one))
    assert [p.function for p in plan.probes if p.role == "reply"] == [
        "fuse_reply_err",
        "fuse_reply_entry",
    ]
    assert Code.STRIPPED not in {lack.code for lack in plan.missing}


def test_a_stripped_library() -> None:
    """Its replies are recorded, and the missing part is reported; a requested set is never
    replaced."""
    symbols = {**SYMBOLS, CALLBACKS.host_path: []}
    plan = make(host(), symbols=symbols)
    assert plan.targets[0].probe_set is not None and plan.targets[0].probe_set.name == "libfuse"
    assert {p.role for p in plan.probes if p.function != "fusetools_calibrate"} == {"reply"}
    assert plan.missing[0].code is Code.STRIPPED
    assert plan.missing[0].subject == {
        "part": "callbacks",
        "path": "/cvmfs/sft.cern.ch",
        "comm": "cvmfs2",
        "pid": 2024,
        "file": "libcvmfs_fuse3.so.2.12.0",
        "group": "callbacks",
    }
    assert plan.missing[0].fix.startswith("install its debug symbols")
    with pytest.raises(Error) as caught:
        make(host(), fs="cvmfs", symbols=symbols)
    assert caught.value.what == (
        "cannot probe the daemon of /cvmfs/sft.cern.ch: libcvmfs_fuse3.so.2.12.0 of cvmfs2 is "
        "stripped, it has no symbol for its callbacks"
    )
    assert caught.value.fix.startswith("fusetools record --fs libfuse -- …")


def test_a_library_that_cannot_be_read() -> None:
    """One mount's trouble does not affect others."""
    odd = replace(library("libfuse3.so.3", 77), host_path="/srv/x")
    other = mount("/x", connection=46, comm="x", daemon_pid=9, libraries=(odd,))
    facts = host("6.18", mount(), other)
    found = daemons.targets(facts, Options(), builtin())
    plan = planner.plan(facts, Options(), found, Symbols(SYMBOLS, PLAIN, {"/srv/x": "EIO"}), OWN)
    (lack,) = [one for one in plan.missing if one.code is Code.FILE_UNREADABLE]
    assert (lack.subject["part"], lack.subject["path"]) == ("daemon", "/x")
    assert lack.subject["message"] == "EIO"
    assert sum(p.role == "entry" for p in plan.probes) == len(NAMES) + 1
    lost = mount("/x", connection=46, daemon_pid=9, libraries=(replace(odd, host_path=""),))
    facts = host("6.18", mount(), lost)
    plan = planner.plan(
        facts, Options(), daemons.targets(facts, Options(), builtin()), Symbols(SYMBOLS)
    )
    assert [m.subject["path"] for m in plan.missing if m.code is Code.FILE_UNNAMED] == ["/x"]


def test_probes_on_instructions_that_the_kernel_steps_are_expensive() -> None:
    facts = host()
    found = daemons.targets(facts, Options(), builtin())
    *_, offset = SYMBOLS[CALLBACKS.host_path][0]
    stepped = frozenset({f"{CALLBACKS.host_path}:0x{offset:x}"})
    plan = planner.plan(facts, Options(), found, Symbols(SYMBOLS, PLAIN, {}, stepped), OWN)
    assert {probe.place for probe in plan.probes if probe.event in plan.expensive} == stepped


def test_a_process_that_serves_other_mounts_too() -> None:
    """Without these it is unknown whose calls they are: so the other mounts are named."""
    mounts = mount("/a b"), mount("/c", connection=46), mount("/d", connection=47, daemon_pid=9)
    facts = host("6.18", *mounts, mount("/bound", connection=46))

    def shared(*paths: str) -> list[tuple[object, str]]:
        options = Options(mounts=paths)
        found = daemons.targets(facts, options, builtin())
        plan = planner.plan(facts, options, found, Symbols(SYMBOLS, PLAIN), OWN)
        shared_ones = [one for one in plan.missing if one.code is Code.DAEMON_SHARED]
        return [(one.subject, one.fix) for one in shared_ones]

    ((subject, fix),) = shared("/a b")
    assert subject == {"comm": "cvmfs2", "pid": 2024, "others": ("/c",)}
    assert fix == "fusetools record --mount '/a b' --mount /c -- …"
    assert shared("/a b", "/c") == shared("/d") == []


HIGH = {
    **SYMBOLS,
    FUSE.host_path: [
        (name, 0x100 * i, 9, 0x100 * i)
        for i, name in enumerate(
            ("fuse_fs_getattr", "fuse_fs_read_buf", "fuse_req_userdata", "fuse_reply_err"), 1
        )
    ],
}


@pytest.mark.parametrize(
    ("imports", "fs"),
    [
        (("fuse_main_real", "fuse_opt_parse"), "libfuse_highlevel"),
        (("fuse_new",), "libfuse_highlevel"),
        (("fuse_new_31", "fuse_loop_mt"), "libfuse_highlevel"),
        (("fuse_setup",), "libfuse_highlevel"),
        (("fuse_session_new", "fuse_reply_attr"), "libfuse"),
        (("fuse_session_new", "fuse_session_mount"), None),  # Rust's fuser
        ((), "libfuse_highlevel"),  # looked up at run time, as Python's ctypes does
    ],
)
def test_imports_decide_the_probe_set(imports: tuple[str, ...], fs: str | None) -> None:
    program = replace(library("daemon", 8), imports=imports)
    one = mount(libraries=(program, FUSE), program=program.path)
    plan = make(host("6.18", one), symbols=HIGH)
    (target,) = plan.targets
    if fs is None:
        assert all(p.function == "fusetools_calibrate" for p in plan.probes)
        assert plan.missing[0].code is Code.DAEMON_UNSUPPORTED
    else:
        assert target.probe_set is not None and target.probe_set.name == fs
    if fs == "libfuse_highlevel":
        roles = [(p.function, p.role) for p in plan.probes if p.function.startswith("fuse_")]
        assert roles == [
            ("fuse_fs_getattr", "entry"),
            ("fuse_fs_getattr", "return"),
            ("fuse_fs_read_buf", "entry"),
            ("fuse_fs_read_buf", "return"),
            ("fuse_req_userdata", "taken"),
            ("fuse_reply_err", "reply"),
        ]
        assert dict(plan.probes[0].arguments)["name"] == "+0(%si):string"
        assert plan.probes[2].operation == "read"


@pytest.mark.parametrize("handlers", [("do_lookup", "do_getattr", "do_destroy"), ()])
def test_callbacks_identify_their_request(handlers: tuple[str, ...]) -> None:
    """libfuse's own handlers report it, if they are known; probes on the functions that these call
    are expensive."""
    program = replace(library("daemon", 8), imports=("fuse_main_real",))
    one = mount(libraries=(program, FUSE), program=program.path)
    names = ("fuse_fs_getattr", "fuse_req_userdata", "fuse_reply_err", *handlers)
    rows = [(name, 0x100 * i, 9, 0x100 * i) for i, name in enumerate(names, 1)]
    plan = make(host("6.18", one), symbols={**SYMBOLS, FUSE.host_path: rows})
    taken = {p.function: dict(p.arguments)["unique"] for p in plan.probes if p.role == "taken"}
    assert list(taken) == [*(handlers[:2] or ["fuse_req_userdata"])]
    assert set(taken.values()) == {"+8(%di):u64"}
    assert Code.NO_REQUESTS_OF_CALLBACKS not in {missing.code for missing in plan.missing}


@pytest.mark.parametrize(
    ("file", "read", "getattr", "opened"),
    [
        ("libfuse3.so.3.14.0", "+16(%r9):u64", "+16(%cx):u64", "+16(%si):u64"),
        ("libfuse.so.2.9.9", "+24(%r9):u64", None, "+24(%si):u64"),
        ("daemon", None, None, None),  # the version inside is unknown
    ],
)
def test_handles_of_open_files(
    file: str, read: str | None, getattr: str | None, opened: str | None
) -> None:
    """By the version of libfuse: a daemon that wants no paths gets nothing else."""
    one = mount(libraries=(library(file, 8),), program=library(file, 8).path)
    names = (
        "fuse_fs_read",
        "fuse_fs_getattr",
        "fuse_reply_open",
        "fuse_fs_symlink",
        "fuse_req_userdata",
    )
    rows = [(name, 0x100 * i, 9, 0x100 * i) for i, name in enumerate(names, 1)]
    plan = make(host("6.18", one), symbols={**SYMBOLS, library(file, 8).host_path: rows})
    handles = {p.function: dict(p.arguments).get("fh") for p in plan.probes if p.role != "return"}
    assert [handles[name] for name in names[:3]] == [read, getattr, opened]
    # A symbolic link's own path, not its target's.
    links = [p for p in plan.probes if p.function == "fuse_fs_symlink" and p.role == "entry"]
    assert [dict(p.arguments)["name"] for p in links] == ["+0(%dx):string"]


def test_programs_with_everything_inside() -> None:
    """Static programs, Rust's and Go's: by their symbols."""
    program = library("prog", 8)
    rust = "<hello::HelloFS as fuser::Filesystem>::lookup"
    go = "github.com/hanwen/go-fuse/v2/fuse.doLookup"
    for name, fs, role, shown in (
        ("fuse_reply_err", "libfuse", "reply", "fuse_reply_err"),
        ("fuse_fs_open", "libfuse_highlevel", "entry", "fuse_fs_open"),
        (rust, "fuser", "entry", "lookup"),
        (go, "gofuse", "entry", "fuse.doLookup"),
        ("main", None, "", ""),
    ):
        runtime = "Go" if fs == "gofuse" else ""
        one = mount(libraries=(replace(program, runtime=runtime),), program=program.path)
        symbols = {**SYMBOLS, program.host_path: [(name, 0x100, 9, 0x100)]}
        plan = make(host("6.18", one), symbols=symbols)
        ours = [p for p in plan.probes if p.function != "fusetools_calibrate"]
        if fs is None:
            assert not ours and plan.missing[0].code is Code.DAEMON_UNSUPPORTED
            continue
        (target,) = plan.targets
        assert target.probe_set is not None and target.probe_set.name == fs
        assert (ours[0].role, ours[0].function) == (role, shown)
        assert any(p.role == "return" for p in ours) == (role == "entry" and not runtime)
        if runtime:
            (why,) = [m for m in plan.missing if m.code is Code.RETURNS_RUNTIME]
            assert why.subject["runtime"] == "Go"


def test_arguments_of_go_are_in_registers_since_1_18() -> None:
    """Before that version they lie on the stack, at different places."""
    for runtime, arguments in (
        ("Go", {"unique": "+8(+24(%bx)):u64", "name": "+40(+24(%bx)):string"}),
        ("Go (before 1.18)", {}),
    ):
        program = replace(library("prog", 8), runtime=runtime)
        for fork in ("hanwen", "seaweedfs"):
            name = f"github.com/{fork}/go-fuse/v2/fuse.doLookup"
            symbols = {**SYMBOLS, program.host_path: [(name, 0x100, 9, 0x100)]}
            one = mount(libraries=(program,), program=program.path)
            plan = make(host("6.18", one), symbols=symbols)
            (probe,) = (p for p in plan.probes if p.function != "fusetools_calibrate")
            found = dict(probe.arguments)
            assert {key: found.get(key) for key in arguments} == arguments
            assert bool(found) == bool(arguments)


SERVING = {
    "bazil": ("bazil.org/fuse/fs.(*Server).serve", "+4(+32(+40(%cx))):u16"),
    "jacobsa": (
        "github.com/jacobsa/fuse/fuseutil.(*fileSystemServer).handleOp",
        "+4(+24(+0(+40(%di)))):u16",
    ),
}


@pytest.mark.parametrize("fs", SERVING)
def test_a_function_that_serves_all_operations(fs: str) -> None:
    """One probe in the kernel. Its argument shows the operation, each of which has an event in the
    recording."""
    name, opcode = SERVING[fs]
    program = replace(library("prog", 8), runtime="Go")
    symbols = {**SYMBOLS, program.host_path: [(name, 0x100, 9, 0x100)]}
    facts = host("6.18", mount(libraries=(program,), program=program.path))
    plan = make(facts, symbols=symbols)
    assert [t.probe_set.name for t in plan.targets if t.probe_set] == [fs]
    for recording in (0, 2):  # the only one, and one beside others
        shared = bundled(facts, plan, recording)
        for made in (shared, unbundled(shared, recording)):
            (probe,) = (p for p in made.probes if p.function != "fusetools_calibrate")
            assert probe.by_opcode and f" probe={opcode}" in probe.definition()
            assert probe.definition().count("probe=") == 1
            assert [e.name for e in made.events if e.name == probe.recorded_as]
            apart = {p.number: p for p in made.recorded if p.layer == "daemon" and p.operation}
            assert (apart[1].operation, apart[15].operation) == ("lookup", "read")
            assert apart[1].function == probe.function + ":lookup"
            assert {p.recorded_as for p in apart.values()} == {probe.recorded_as}
            assert not any(p.padding for p in apart.values())
            assert len({p.event for p in apart.values()}) == len(apart) > 40
            assert all(re.fullmatch(r"fuse_daemon:\w+", p.event) for p in apart.values())


@pytest.mark.parametrize(
    ("function", "shown", "event"),
    [
        ("cvmfs::cvmfs_lookup", "cvmfs_lookup", "cvmfs_lookup"),
        ("a::LruCache<b::Key, c::D>::get", "get", "call_get"),
        ("<x::Fs as fuser::Filesystem>::read", "read", "call_read"),
        (
            "github.com/a/b/v2/fs.(*rawBridge).Lookup",
            "fs.(*rawBridge).Lookup",
            "fs_rawBridge_Lookup",
        ),
        ("r1a", "r1a", "call_r1a"),
        ("_start", "_start", "call_start"),
        ("9p_read", "9p_read", "call_9p_read"),
        ("\u00e9", "\u00e9", "call_"),
        ("very_" * 40 + "long", "very_" * 40 + "long", "very_" * 7 + "long"),
    ],
)
def test_names_of_events(function: str, shown: str, event: str) -> None:
    assert callbacks.short_name(function) == shown
    assert words.event_name(shown) == event


def test_suffixes_of_compilers_are_ignored() -> None:
    """A part of a function is not the function; if its arguments have moved, none is read."""
    lookup = NAMES[0]
    suffixes = (".part.0", ".llvm.4711", ".isra.0", ".constprop.1", ".lto_priv.0")
    names = [lookup, *(lookup + suffix for suffix in suffixes), "cvmfs_x"]
    symbols = {CALLBACKS.host_path: [(n, 64 * i, 9, 64 * i) for i, n in enumerate(names, 1)]}
    facts = host()
    found = daemons.targets(facts, Options(), builtin())
    plain = dict.fromkeys(names[:-1], "cvmfs::cvmfs_lookup")
    plan = planner.plan(facts, Options(), found, Symbols(symbols, plain))
    entries = [p for p in plan.probes if p.role == "entry"]
    assert [p.address // 64 for p in entries if p.arguments] == [1, 3, 6]
    assert [p.address // 64 for p in entries if not p.arguments] == [4, 5]


def test_long_names_stay_apart() -> None:
    names = [f"cvmfs::cvmfs_{'x' * 80}{i}" for i in range(3)]
    group = replace(
        builtin()[0].groups[0],
        function=re.compile(r"cvmfs::cvmfs_(x+\d)"),
        operations={"x" * 80 + str(i): "lookup" for i in range(3)},
    )
    chosen = replace(builtin()[0], groups=(group,))
    facts = host()
    symbols = {CALLBACKS.host_path: [(n, 64 * i, 9, 64 * i) for i, n in enumerate(names, 1)]}
    found = daemons.targets(facts, Options(), (), chosen)
    plan = planner.plan(facts, Options(), found, Symbols(symbols))
    events = [p.event for p in plan.probes]
    assert len(set(events)) == 6 and all(len(e.partition(":")[2]) < 64 for e in events)
    assert {p.function for p in plan.probes} == {n.partition("::")[2] for n in names}


def test_names_that_tracefs_cannot_take() -> None:
    for path in ("/a b.so", "/a\nb.so", "/a#b.so", "/a:b.so", "/a\u00e9.so"):
        assert not words.is_file(path)
    assert words.is_file("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
    assert words.is_file("/proc/12/map_files/7f00-7f01")
    probe = make(host()).probes[0]
    with pytest.raises(Error, match="tracefs does not take"):
        replace(probe, place="/a b.so:0x1").definition()


def test_a_daemon_that_is_not_found() -> None:
    lost = mount(daemon_pid=None, comm=None, libraries=(), why="no process here has it open")
    plan = make(host("6.18", lost))
    assert plan.layers == ("requests", "on-CPU", "off-CPU", "system calls")
    assert plan.missing[0].code is Code.DAEMON_UNKNOWN
    assert plan.missing[0].subject["message"] == "no process here has it open"
    with pytest.raises(Error) as caught:  # and no requests either
        make(replace(host("6.1", lost), tracers=("nop",), dynamic_events=("uprobe",)))
    assert caught.value.what == "nothing of /cvmfs/sft.cern.ch can be recorded"
    assert "no process here has it open" in caught.value.why


@pytest.mark.parametrize(
    ("comm", "condition"),
    [
        ("cvmfs2", '== "cvmfs2"'),
        ("a b", '== "a b"'),
        ('say "x"', '~ "say ?x?"'),
        ("a*b", '~ "a?b"'),
        ("x[1]\\", '~ "x?1??"'),
        ("\u00e9\n", '~ "??"'),
    ],
)
def test_names_in_filters(comm: str, condition: str) -> None:
    plan = make(host("6.18", mount(comm=comm)))
    event = next(e for e in plan.events if e.name == "sched:sched_waking" and not e.workload)
    assert str(event.condition) == f"comm {condition} || COMM {condition}"


def test_call_graphs() -> None:
    facts = host()
    beside_ftrace = replace(facts, pid_max=1 << 22)
    perf = facts.perf
    assert perf is not None
    room = sizes(2, 1 << 40)

    def argv(how: str, facts: HostFacts = facts, **more: Any) -> str:
        plan = make(facts, Options(Workload(("x",)), call_graph=how, **more))
        return " ".join(command_line(plan, perf, "o", ("c", "a"), room, "g"))

    def per_task(how: str, **more: Any) -> str:
        plan = make(beside_ftrace, Options(Workload(("x",)), call_graph=how, **more))
        return " ".join(per_task_line(plan, perf, "o", ("c", "a"), room, [7, 8]))

    assert "--kernel-callchains" in argv("kernel")
    assert "-e sched:sched_switch/call-graph=fp/ --filter" in argv("kernel")
    assert "-e cpu-clock/freq=99,call-graph=fp,name=cpu-clock/I" in argv("fp")
    assert "-e sched:sched_waking --filter" in argv("fp")
    assert "-e sched:sched_waking/call-graph=fp/ --filter" in argv("fp", wakers=True)
    assert "--kernel-callchains" not in argv("fp")
    # The kernel copies the memory of these processes alone.
    copied = "call-graph=dwarf,stack-size=8192"
    assert " record -p 7,8 " in per_task("dwarf") and " -a " not in per_task("dwarf")
    assert f"-e sched:sched_switch/{copied}/ --filter" in per_task("dwarf")
    assert "call-graph=dwarf,stack-size=65528/" in per_task("dwarf", stack_bytes=65528)
    assert f"-e cpu-clock/freq=99,{copied},name=cpu-clock/I" in per_task("dwarf")
    whole = argv("dwarf", beside_ftrace)
    assert " -a " in whole and "dwarf" not in whole
    assert "sched:sched_switch" not in whole and "cpu-clock" not in whole
    assert "dwarf" not in argv("dwarf") and "sched:sched_switch/call-graph=fp/" in argv("dwarf")


def test_probes_of_a_users_own_set_fire_in_the_daemon_alone() -> None:
    """Its arguments may read any memory of a process."""
    for facts in (host(), replace(host(), pid_max=1 << 22)):
        own = replace(next(one for one in builtin() if one.name == "cvmfs"), own=True)
        found = daemons.targets(facts, Options(Workload(("x",))), builtin(), own)
        plan = planner.plan(facts, Options(Workload(("x",))), found, Symbols(SYMBOLS, PLAIN), OWN)
        plan = bundled(facts, plan)
        probed = {probe.recorded_as: probe.function for probe in plan.probes if not probe.in_kernel}
        events = [event for event in plan.events if event.name in probed]
        assert len(events) > 1
        for event in events:
            ours = probed[event.name] == CALIBRATION  # fusetools calls it itself
            assert event.per_task != ours and not (event.per_task and event.ftrace)


def test_sources_of_file_names() -> None:
    """Names come from the kernel for mounts whose daemons do not report them."""
    silent = mount("/mnt/silent", connection=46, daemon_pid=2025, comm="silentd", libraries=(FUSE,))
    facts = host("6.1", mount(), silent)
    roles = ("asked", "about", "sized", "answered", "forgotten")

    def told(**more: Any) -> list[str]:
        plan = make(facts, Options(Workload(("find",)), **more))
        of_names = {probe.event for probe in plan.probes if probe.role in roles}
        filters = [str(event.condition) for event in plan.events if event.name in of_names]
        assert len(filters) == len(of_names)
        return filters

    assert len(told()) == 7
    assert all("connection==46" in one and "connection==45" not in one for one in told())
    assert told(detail="latency") == told(mounts=("/cvmfs/sft.cern.ch",)) == []


def test_perf_writes_much_at_once() -> None:
    facts = host()
    assert facts.perf is not None
    knows = replace(facts.perf, options=(*facts.perf.options, "--mmap-flush"))
    plan = make(facts)

    def argv(perf: Tool, room: Sizes) -> str:
        return " ".join(command_line(plan, perf, "o", ("c", "a"), room))

    assert "--mmap-flush 256K" in argv(knows, sizes(2, 1 << 40))
    assert "--mmap-flush" not in argv(facts.perf, sizes(2, 1 << 40))
    # A flight recorder's buffers are written completely, a pipe's immediately.
    assert "--mmap-flush" not in argv(knows, Sizes(1 << 20, 0))


def switches(plan: ProbePlan, name: str = "sched:sched_switch") -> list[tuple[str, str, bool]]:
    return [(str(e.condition), e.stack, e.workload) for e in plan.events if e.name == name]


def test_system_calls_with_copied_stacks() -> None:
    """Each call is recorded once, with its stack if the thread sleeps in it for another one."""
    libc = replace(library("libc.so.6", 9), frame_pointers=0.2)
    plan = make(host("6.18", mount(libraries=(libc, CALLBACKS, FUSE))), Options(Workload(("x",))))
    events = [e for e in plan.events if e.name == "raw_syscalls:sys_enter" and not e.workload]
    numbers = {"read": 0, "poll": 7, "writev": 20, "select": 23, "openat": 257, "connect": 42}
    numbers |= {"recvmsg": 47, "futex": 202, "clock_nanosleep": 230, "splice": 275}
    sleeps = {"poll", "select", "connect", "recvmsg", "futex", "clock_nanosleep"}
    for name, number in numbers.items():
        for comm in ("cvmfs2", "bash"):
            fields = {"prev_comm": comm, "prev_pid": 1, "id": number}
            stacks = [e.stack for e in events if holds(str(e.condition), fields)]
            copied = "dwarf" if name in sleeps else ""
            assert stacks == ([copied] if comm == "cvmfs2" else []), (name, stacks)


def test_waits_of_a_daemon_without_frame_pointers_are_copied() -> None:
    """By the host's facts about its files, including libc; each switch is in one event only."""
    auto = Options(Workload(("x",)), call_graph="auto")
    libc = replace(library("libc.so.6", 9), frame_pointers=0.22)
    own = replace(CALLBACKS, frame_pointers=1.0)
    client = mount(libraries=(libc, own, FUSE))
    assert daemons.without_frame_pointers(client) == ("libc.so.6",)
    both = 'prev_comm == "cvmfs2" || next_comm == "cvmfs2"'
    mine = 'COMM == "cvmfs2"'
    sleeps = f"{mine} && prev_state & 2"
    facts = host("6.18", client)
    assert switches(make(facts, auto)) == [
        (f"!({both})", "fp", True),
        (sleeps, "dwarf", False),
        (f"({both}) && (!({sleeps}))", "fp", False),
    ]
    assert [stack for _, stack, _ in switches(make(facts, auto), "raw_syscalls:sys_enter")] == [
        "",
        "dwarf",
        "",
    ]
    woken = 'comm == "cvmfs2" || COMM == "cvmfs2"'
    assert switches(make(facts, auto), "sched:sched_waking")[1:] == [(woken, "", False)]
    wakers = make(facts, replace(auto, wakers=True))
    # The kernel shows the waker's stack to the woken task's events: copied by number alone.
    own_thread = f'common_pid == $threads && {mine} && comm == "cvmfs2"'
    assert switches(wakers, "sched:sched_waking")[1:] == [
        (own_thread, "dwarf", False),
        (f"({woken}) && (!({own_thread}))", "fp", False),
    ]
    only = next(e.condition for e in wakers.events if str(e.condition) == own_thread)
    text = Threads(daemons=[7, 8]).filled(only)
    assert text.startswith('(common_pid == 7 || common_pid == 8) && COMM == "cvmfs2"')
    assert Threads(daemons=range(999)).filled(only).startswith("(common_pid == -1) && ")
    # The samples concern all processes.
    assert {e.stack for e in make(facts, auto).events if e.name == collectors.CLOCK} == {"fp"}

    # Each daemon is judged by its own files; if all keep frame pointers, or another way is
    # requested, nothing is copied.
    whole = mount("/b", connection=46, daemon_pid=7, comm="b", libraries=(own, FUSE))
    two = switches(make(host("6.18", client, whole), auto))
    assert two[1] == (sleeps, "dwarf", False) and "b" in two[2][0]
    for plan in (
        make(host("6.18", whole), auto),
        make(facts, Options(Workload(("x",)), call_graph="fp")),
        make(replace(facts, arch="aarch64")),
        # Go's own code keeps them, and has no tables, whatever it is linked with.
        make(host("6.18", mount(libraries=(libc, replace(library("x", 8), runtime="Go")))), auto),
    ):
        assert not plan.copies and len(switches(plan)) == 2
    assert make(facts, auto).copies


def test_calls_in_which_a_daemon_may_wait_have_stacks() -> None:
    """Stacks of all other calls show nothing: of the fcntl in each opendir, for example."""
    told = [n for n in range(-1, 600) if holds(str(tasks.WAITS), {"id": n, **SWITCH})]
    assert told == sorted(n for first, last in tasks._WAITS for n in range(first, last + 1))
    # asm/unistd_64.h: poll, flock, futex, epoll_wait, clock_nanosleep, ppoll, io_uring_enter.
    assert {7, 73, 202, 232, 230, 271, 426} <= set(told) and len(told) == 41
    # read to open, fcntl, getdents64, openat, newfstatat, statx, uretprobe.
    assert not {0, 1, 2, 17, 19, 20, 72, 217, 257, 262, 332, 335} & set(told)

    auto = Options(Workload(("x",)), call_graph="auto")
    whole = mount(libraries=(replace(CALLBACKS, frame_pointers=1.0), FUSE))
    cut = mount(libraries=(replace(library("libc.so.6", 9), frame_pointers=0.22), FUSE))
    for own, stack in ((whole, "fp"), (cut, "dwarf")):
        facts = replace(host("6.18", own), pid_max=1 << 22)
        facts = replace(facts, tracepoints=(*facts.tracepoints, LOCKS))
        (event,) = (e for e in make(facts, auto).events if e.name == LOCKS)
        assert (event.stack, event.ftrace) == (stack, False)
        for comm, command in itertools.product(("cvmfs2", "bash"), range(40)):
            # F_SETLKW and F_OFD_SETLKW of asm-generic/fcntl.h.
            waits = comm == "cvmfs2" and command in (7, 38)
            words = re.sub(r"\bcmd\b", str(command), str(event.condition))
            assert holds(words, {**SWITCH, "prev_comm": comm}) == waits
        for other in ({"detail": "stages"}, {"call_graph": "fp"}, {"call_graph": "dwarf"}):
            plan = make(facts, replace(auto, **other))  # type: ignore[arg-type]
            assert LOCKS not in {e.name for e in plan.events}


SWITCH = {"prev_comm": "x", "prev_pid": 1}


def test_reads_from_pipes_and_sockets_are_copied_and_no_others() -> None:
    """By the descriptors of each daemon, as idle threads are in the same system call."""
    libc = replace(library("libc.so.6", 9), frame_pointers=0.22)
    own = replace(CALLBACKS, frame_pointers=1.0)
    a = mount(libraries=(libc, FUSE), streams=(4, 11))
    b = mount("/b", connection=46, daemon_pid=7, comm="b", libraries=(libc,), streams=(5,))
    whole = mount("/c", connection=47, daemon_pid=8, comm="c", libraries=(own,), streams=(6,))
    facts = host("6.18", a, b, whole, mount("/d", connection=48, libraries=(libc,)))
    facts = replace(facts, tracepoints=(*facts.tracepoints, *READS))
    reads = [e for e in make(facts).events if e.name in READS]
    assert [(e.name, e.stack, e.workload) for e in reads] == [
        ("syscalls:sys_enter_read", "dwarf", False),
        ("syscalls:sys_enter_readv", "dwarf", False),
    ]
    comms = {"cvmfs2": {4, 11}, "b": {5}, "c": set(), "bash": set()}
    for event in reads:
        for comm, copied in comms.items():
            for number in range(20):
                words = re.sub(r"\bfd\b", str(number), str(event.condition))
                assert holds(words, {"prev_comm": comm, "prev_pid": 1}) == (number in copied)

    def recorded(*mounts: Mount, pid_max: int = 0, **more: object) -> set[str]:
        options = Options(Workload(("x",)), **more)  # type: ignore[arg-type]
        plan = make(replace(facts, mounts=mounts, pid_max=pid_max), options)
        return {e.name for e in plan.events} & set(READS)

    # Nothing if there is nothing to copy, as each event takes time to arm.
    assert recorded(a) and not recorded(whole) and not recorded(replace(a, streams=()))
    assert not recorded(a, call_graph="fp") and not recorded(a, detail="stages")
    assert not recorded(a, call_graph="dwarf", pid_max=1 << 22)
    many = [
        mount(f"/{i}", connection=i, comm=f"d{i}", streams=tuple(range(99)), libraries=(libc,))
        for i in range(30)
    ]
    (first, *_) = (e for e in make(replace(facts, mounts=tuple(many))).events if e.name in READS)
    assert len(str(first.filter)) < 4096


def test_buffers_and_limit() -> None:
    big = 1 << 40
    assert sizes(2, big).buffer == 32 << 20
    assert sizes(2, big, copies=True).buffer == 128 << 20
    assert sizes(128, big, copies=True).buffer == 4 << 20
    assert sizes(128, big).buffer == 4 << 20
    assert sizes(2048, big).buffer == 256 << 10
    # perf rejects more than a quarter of its buffer
    assert (sizes(2, big).left, sizes(2048, big).left) == (256 << 10, 64 << 10)
    for cpus, free in ((2, 4 << 20), (2, 100 << 20), (64, 10 << 30)):
        room = sizes(cpus, free)
        # twice the file and the buffers' content must fit
        assert 2 * (room.limit + room.buffer * cpus) <= free
        # if both write: twice perf's part, and three times ftrace's
        room = sizes(cpus, free, both=True)
        assert 5 * room.limit + 2 * room.buffer * cpus <= free


@pytest.mark.parametrize("detail", ["stages", "stacks"])
def test_a_daemons_system_calls(detail: str) -> None:
    """All are recorded: without one, its wait would seem to be a page fault."""
    facts = replace(host("6.18"), pid_max=1 << 22)
    plan = make(facts, Options(Workload(("find",)), detail=detail), cgroup=False)
    conditions = {e.name: e.condition for e in plan.events if e.name.startswith("raw_syscalls:")}

    def recorded(name: str, comm: str, number: int) -> bool:
        text = filled(Since(30_000, 1 << 22), conditions[f"raw_syscalls:{name}"])
        fields = {"prev_comm": comm, "prev_pid": PIDS[comm], "id": number, "ret": 0}
        return holds(text, fields)

    for name in ("sys_enter", "sys_exit"):
        for comm in ("find", "cvmfs2"):
            assert recorded(name, comm, 262) and recorded(name, comm, 0)  # newfstatat, read
        assert not recorded(name, "bash", 0)
    assert not recorded("sys_enter", "find", 335) and not recorded("sys_enter", "cvmfs2", 335)
