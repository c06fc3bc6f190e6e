"""Selection of kernel functions, and how each identifies its request."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import data
import pytest

from fusetools.errors import Error
from fusetools.host.facts import HostFacts
from fusetools.plan import kernel
from fusetools.plan.events import Probe
from fusetools.plan.kernel import KernelPlan
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Code
from fusetools.record.finisher import Finisher
from fusetools.results.record import Outcome
from fusetools.session import Took

HOSTS = Path(__file__).parents[1] / "host_facts"
REAL = {
    "5.10": "5.10.0-46-amd64",
    "6.1": "6.1.0-56-amd64",
    "6.12": "6.12.117+deb13-amd64",
    "7.2": "7.2.13+deb14-amd64",
}
ROLES = ("begin", "sent", "end")
RINGS = ["fuse_kernel:fuse_uring_queue_fuse_req", "fuse_kernel:fuse_uring_queue_bq_req"]


def host(name: str, **changes: object) -> HostFacts:
    facts = HostFacts.from_json((HOSTS / name / "facts.json").read_text())
    return replace(facts, **changes)  # type: ignore[arg-type]


def without(facts: HostFacts, *gone: str, instead: tuple[str, ...] = ()) -> HostFacts:
    names = tuple(sorted({*facts.kallsyms_fuse, *instead} - set(gone)))
    listed = tuple(sorted({*facts.filter_functions_fuse, *instead} - set(gone)))
    return replace(facts, kallsyms_fuse=names, filter_functions_fuse=listed)


def stage(plan: KernelPlan, role: str) -> list[str]:
    """The events of each stage."""
    probes = [probe.event for probe in plan.probes if probe.role == role]
    named = {"begin": "send", "sent": "sent", "end": "end"}[role]
    return probes + [e.name for e in plan.events if e.name == f"fuse:fuse_request_{named}"]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in HOSTS.glob("*/facts.json")))
def test_every_stage_is_told_by_one_event(name: str) -> None:
    facts = host(name)
    plan = kernel.plan(facts, [45])
    if "kprobe" not in facts.dynamic_events:
        assert not plan.probes and not plan.graph
        return
    # Requests over io_uring pass functions of their own.
    by_ring = [event for event in stage(plan, "begin") if "_uring_" in event]
    assert by_ring == (RINGS if name == "6.14" else [])
    assert [len(set(stage(plan, role)) - set(by_ring)) for role in ROLES] == [1, 1, 1]
    assert {probe.function for probe in plan.probes if probe.layer == "kernel"} == {
        "request_wait_answer"
    }
    assert plan.missing == ()
    assert "fuse_lookup" in dict(plan.functions)
    assert dict(plan.functions)["fuse_lookup"] == "lookup"


def test_requests_by_io_uring_that_cannot_be_probed_are_named() -> None:
    probes = kernel.plan(host("6.14"), [45]).probes
    for event in RINGS:
        (probe,) = [probe for probe in probes if probe.event == event]
        assert dict(probe.arguments).keys() >= {"req", "unique", "connection", "opcode"}
    facts = without(
        host("6.14"), "fuse_uring_queue_bq_req", instead=("fuse_uring_queue_bq_req.isra.0",)
    )
    plan = kernel.plan(facts, [45])
    assert len(stage(plan, "begin")) == 2
    (lack,) = plan.missing
    assert lack.code is Code.STAGE_VARIANT
    assert lack.subject == {
        "function": "fuse_uring_queue_bq_req",
        "variant": "fuse_uring_queue_bq_req.isra.0",
        "stage": "queued",
        "transport": "io_uring or virtiofs",
    }


@pytest.mark.parametrize("name", REAL)
def test_arguments_are_those_that_were_recorded_on_that_kernel(name: str) -> None:
    """data/kernels holds recordings whose probes had these offsets, set by hand, and reported the
    right values."""
    path = data.find(f"kernels/{REAL[name]}/recording/probes.txt")
    recorded = {}
    for line in path.read_text().splitlines():
        event, _, *arguments = line.split()
        kind, _, full = event.partition(":")
        recorded[kind, full.rpartition("/")[2]] = dict(one.split("=", 1) for one in arguments)
    told = 0
    facts = host(name, tracepoints=())
    for probe in kernel.plan(facts, [45], backend="kprobe").probes:
        by_hand = recorded.get((probe.kind[0], probe.event.partition(":")[2]), {})
        for argument, value in probe.arguments:
            if argument in by_hand:
                told += 1
                plain = re.sub(r":x64$", ":u64", by_hand[argument])
                assert value == plain, (probe.event, argument)
    assert told >= 9


def test_requests_of_virtiofs_pass_a_function_of_its_own() -> None:
    """Its module's types are not read: it takes the parameter of the device's function."""
    plan = kernel.plan(without(host("6.12"), instead=("virtio_fs_send_req",)), [45])
    device, virtiofs = (probe for probe in plan.probes if probe.role == "begin")
    names = ["fuse_kernel:fuse_dev_queue_req", "fuse_kernel:virtio_fs_send_req"]
    assert [device.event, virtiofs.event] == names
    assert device.arguments == virtiofs.arguments and "req" in dict(virtiofs.arguments)
    assert plan.missing == ()


def test_a_stage_that_was_never_seen_is_missing_and_not_one_of_its_ways() -> None:
    probes = kernel.plan(without(host("6.12"), instead=("virtio_fs_send_req",)), [45]).probes
    finishing = object.__new__(Finisher)
    finishing.job = SimpleNamespace()  # type: ignore[assignment]
    finishing.job.plan = ProbePlan((), probes, ())
    for fired, lack in (
        (["virtio_fs_send_req", "fuse_request_end"], ["sent"]),
        (["fuse_dev_queue_req", "fuse_copy_args", "fuse_request_end"], []),
        (["fuse_copy_args", "fuse_request_end"], ["begin"]),
        ([], []),
    ):
        finishing.job.missing = []
        finishing._silent_kernel(Counter(f"fuse_kernel:{name}" for name in fired))
        assert {m.code for m in finishing.job.missing} <= {Code.STAGE_SILENT}
        assert [m.subject["stage"] for m in finishing.job.missing] == lack


def test_probes_for_names_may_stay_silent() -> None:
    """A workload that reads nothing fires no probe on reads' sizes."""
    names, _ = kernel.names(host("6.1"), [45])
    assert {"asked", "sized", "forgotten"} <= {probe.role for probe in names}
    finishing = object.__new__(Finisher)
    finishing.job = SimpleNamespace()  # type: ignore[assignment]
    finishing.job.plan = ProbePlan((), (*kernel.plan(host("6.1"), [45]).probes, *names), ())
    finishing.job.missing = []
    fired = ("queue_request_and_unlock", "fuse_copy_args", "fuse_request_end", "about")
    finishing._silent_kernel(Counter({f"fuse_kernel:{name}": 1 for name in fired}))
    assert finishing.job.missing == []


def test_expensive_probes_make_the_cost_a_lower_bound() -> None:
    probe = Probe("fuse_daemon:x", "p", "/x:0x1", "daemon", "x", "read", "entry")
    finishing = object.__new__(Finisher)
    finishing.job = SimpleNamespace()  # type: ignore[assignment]
    recorded = SimpleNamespace(ring=None, graph=None, event_cost=100, pair_cost=2000)
    finishing.recorded, finishing.stacks_ns = recorded, 0  # type: ignore[assignment]
    finishing.job.outcome = Outcome(requests=7)
    for expensive, least in ((frozenset[str](), False), (frozenset({probe.event}), True)):
        finishing.job.plan = ProbePlan((), (probe,), (), expensive=expensive)
        assert finishing._took({probe.event: 3, "other": 2}) == Took(3200, least, 7)
        assert finishing._took({"other": 2}) == Took(200, False, 7)


def test_unnumbered_requests_are_identified_by_address() -> None:
    plan = kernel.plan(host("6.12"), [45])
    (probe,) = [probe for probe in plan.probes if probe.role == "begin"]
    assert probe.definition() == (
        "p:fuse_kernel/fuse_dev_queue_req fuse_dev_queue_req unique=+64($arg2):u64 "
        "connection=+344(+0(+144($arg2))):u32 opcode=+60($arg2):u32 nodeid=+72($arg2):u64 "
        "req=$arg2:u64"
    )
    assert all("req" in dict(probe.arguments) for probe in plan.probes)
    # the kernel's own events do not report it, and one reports 0
    assert not any(event.name.startswith("fuse:") for event in plan.events)
    newer = {event.name for event in kernel.plan(host("7.2"), [45]).events}
    assert {"fuse:fuse_request_send", "fuse:fuse_request_sent", "fuse:fuse_request_end"} < newer


def test_a_bit_field_is_fetched_as_one() -> None:
    plan = kernel.plan(host("7.2", tracepoints=()), [45])
    (probe,) = [probe for probe in plan.probes if probe.role == "sent"]
    assert dict(probe.arguments)["write"] == "+64($arg1):b1@0/8"
    assert dict(probe.arguments)["unique"] == "+64(+0($arg1)):u64"


def test_registers_where_the_kernel_knows_no_argument_numbers() -> None:
    for name, offset in (("3.10", 156), ("4.4", 156), ("4.15", 156), ("4.18", 100)):
        facts = host(name)
        assert "$arg<N>" not in facts.fetch_args
        probes = {probe.role: probe for probe in kernel.plan(facts, [45], "kprobe").probes}
        assert dict(probes["end"].arguments) == {
            "unique": "+64(%si):u64",
            "error": f"+{offset}(%si):s32",
            "req": "%si:u64",
        }
    assert probes["return"].definition().startswith("r1024:")
    old = kernel.plan(host("3.10"), [45], "kprobe").probes
    assert {p.definition()[:2] for p in old if p.kind == "r"} == {"r:"}  # knows no maxactive


def test_offsets_of_request_numbers_without_btf() -> None:
    """By the table, and by the BTF of a 5.4.

    (In guests with each of these kernels the daemon received the same numbers.)
    """

    def told(facts: HostFacts) -> tuple[str, str, str]:
        probes = {probe.role: probe for probe in kernel.plan(facts, [45], "kprobe").probes}
        end, sent = (dict(probes[role].arguments) for role in ("end", "sent"))
        return end["unique"], end["error"], sent["unique"]

    for name, unique, error in (("4.15", 64, 156), ("5.3", 56, 148), ("5.4", 64, 100)):
        without = told(host(name, fuse_members=(), fuse_functions=()))
        starts = f"+{unique}(", f"+{error}(", f"+{unique}(+8("
        assert all(map(str.startswith, without, starts)), without
        assert without == told(host(name))
    assert host("5.4").fuse_members


@pytest.mark.parametrize("suffix", [".isra.0", ".constprop.0", ".part.0.isra.3"])
def test_a_variant_s_arguments_are_not_trusted(suffix: str) -> None:
    facts = without(host("6.1"), "fuse_request_end", instead=("fuse_request_end" + suffix,))
    plan = kernel.plan(facts, [45])
    assert stage(plan, "end") == []
    (missing,) = plan.missing
    assert (missing.code, missing.subject["stage"]) == (Code.STAGE_VARIANT, "ended")
    assert missing.subject["variant"] == f"fuse_request_end{suffix}"
    # its durations can still be measured
    assert f"fuse_request_end{suffix}" in dict(plan.functions)


def test_llvm_s_suffix_is_the_function_itself() -> None:
    facts = without(host("6.1"), "fuse_request_end", instead=("fuse_request_end.llvm.123",))
    (probe,) = [p for p in kernel.plan(facts, [45]).probes if p.role == "end"]
    assert (probe.place, probe.event) == (
        "fuse_request_end.llvm.123",
        "fuse_kernel:fuse_request_end",
    )


def test_cold_parts_are_never_taken() -> None:
    facts = without(host("6.1"), "fuse_request_end", instead=("fuse_request_end.cold",))
    plan = kernel.plan(facts, [45])
    assert stage(plan, "end") == []
    assert not any(".cold" in name for name, _ in plan.functions)
    plan = kernel.plan(facts, [45], backend="kprobe", functions=("fuse_*",))
    assert not any(".cold" in probe.place for probe in plan.probes)


def test_two_functions_of_one_name_are_noticed() -> None:
    facts = host("6.1")
    twice = replace(facts, kallsyms_fuse=(*facts.kallsyms_fuse, "fuse_request_end"))
    plan = kernel.plan(twice, [45])
    assert stage(plan, "end") == []
    assert plan.missing[0].code is Code.STAGE_AMBIGUOUS
    assert plan.missing[0].subject["function"] == "fuse_request_end"
    assert plan.missing[0].figures == {"functions": 2}


def test_a_function_that_may_not_be_traced_is_said() -> None:
    facts = host("6.1")
    listed = tuple(n for n in facts.filter_functions_fuse if n != "fuse_copy_args")
    plan = kernel.plan(replace(facts, filter_functions_fuse=listed), [45])
    assert plan.missing[0].code is Code.STAGE_UNTRACEABLE
    assert plan.missing[0].subject["function"] == "fuse_copy_args"


def test_an_unknown_layout_is_said_and_the_rest_goes_on() -> None:
    facts = host("6.12", fuse_members=(), fuse_functions=())
    plan = kernel.plan(facts, [45])
    assert plan.events == ()
    assert [pattern for pattern in plan.graph if pattern[0] != "!"] == ["fuse_*"]
    assert {one.code for one in plan.missing} == {Code.STAGE_NO_LAYOUT}
    assert {one.subject["stage"] for one in plan.missing} == {"queued", "sent", "ended", "waiting"}


def test_a_table_s_offsets_leave_nothing_out() -> None:
    """Filter on the connection only if BTF tells its place: otherwise all events would be lost."""
    told = kernel.plan(host("6.1"), [45, 46])
    assert {str(event.filter) for event in told.events} == {
        "connection==45 || connection==46",
        "write==1 && (connection==45 || connection==46)",
        "",  # before 6.12 the return of a wait cannot be told apart, so its entry is left out
    }
    table = kernel.plan(host("5.10"), [45])
    assert {str(event.filter) for event in table.events} == {"", "write==1"}


def test_no_return_probe_cuts_stacks_where_function_graph_tells_the_return() -> None:
    for name in ("3.10", "4.18", "5.10", "5.15"):
        facts = host(name)
        assert not facts.unwinds_kretprobes
        plan = kernel.plan(facts, [45])
        assert [p.role for p in plan.probes if p.place == "request_wait_answer"] == ["entry"]
        assert {event.name for event in plan.events} >= {probe.event for probe in plan.probes}
        assert not [event for event in plan.events if event.name.endswith("__return")]
        # Durations from a single source are kept, and their cost is reported.
        for kept in (
            kernel.plan(facts, [45], "kprobe"),
            kernel.plan(facts, [45], functions=("fuse_lookup",)),
        ):
            assert "request_wait_answer" in {p.place for p in kept.probes if p.role == "return"}
            assert kept.missing[-1].code is Code.KERNEL_STACKS_CUT
        assert kernel.plan(facts, [45], counts=True).missing == ()  # records no stacks
    for name in ("6.1", "6.12", "7.2"):
        plan = kernel.plan(host(name), [45])
        assert [p.place for p in plan.probes if p.role == "return"] == ["request_wait_answer"]


def test_backends() -> None:
    facts = host("6.1")
    pairs = kernel.plan(facts, [45], "kprobe")
    assert pairs.graph == ()
    entries = {p.function for p in pairs.probes if p.role == "entry"}
    assert {p.function for p in pairs.probes if p.role == "return"} == entries
    assert {"fuse_lookup", "fuse_readdir", "fuse_read_folio", "request_wait_answer"} <= entries
    assert "fuse_readpage" not in entries  # the older name
    only = kernel.plan(facts, [45], "tracepoint")
    assert (only.probes, only.graph) == ((), ())
    assert only.missing[-1].code is Code.TRACEPOINTS_ONLY
    # without trace-cmd: kprobes, and a report of what would improve it
    bare = kernel.plan(replace(facts, trace_cmd=None), [45])
    assert {p.function for p in bare.probes if p.role == "entry"} == entries
    assert bare.missing[-1].code is Code.NO_TRACE_CMD
    assert bare.missing[-1].fix == "apt-get install -y trace-cmd"
    fedora = replace(facts, trace_cmd=None, distribution=("fedora",))
    assert kernel.plan(fedora, [45]).missing[-1].fix == "dnf install -y trace-cmd"
    with pytest.raises(Error, match="cannot use function_graph"):
        kernel.plan(replace(facts, trace_cmd=None), [45], "graph")
    # In a container perf alone, whose numbers of threads then are those of all events.
    inside = replace(facts, pid_namespace=True)
    alone = kernel.plan(inside, [45])
    assert alone.graph == () and "--pid=host" in alone.missing[-1].fix
    with pytest.raises(Error, match="cannot use function_graph"):
        kernel.plan(inside, [45], "graph")
    with pytest.raises(Error, match="cannot use kprobes"):
        kernel.plan(host("6.18"), [45], "kprobe")


def test_functions_of_one_s_own() -> None:
    facts = host("6.1")
    graph = kernel.plan(facts, [45], functions=("fuse_lookup*", "nothing_*"))
    assert graph.graph == ("fuse_lookup*",)
    assert dict(graph.functions) == {"fuse_lookup": "lookup", "fuse_lookup_name": ""}
    (absent,) = graph.missing
    assert (absent.code, absent.subject) == (Code.FUNCTION_ABSENT, {"pattern": "nothing_*"})
    pairs = kernel.plan(facts, [45], "kprobe", ("fuse_lookup*",))
    entries = {p.function for p in pairs.probes if p.role == "entry"}
    assert entries == {"fuse_lookup", "fuse_lookup_name", "request_wait_answer"}
    # By default function_graph leaves out small steps, but not if somebody asks for them.
    usual, everything = (kernel.plan(facts, [45], functions=of) for of in ((), ("fuse_*",)))
    assert "!fuse_copy_do" in usual.graph and everything.graph == ("fuse_*",)
    gone = dict(everything.functions).keys() - dict(usual.functions)
    assert gone == {pattern[1:] for pattern in usual.graph if pattern[0] == "!"}
    # Reported once, and the requests are still recorded
    for backend in ("auto", "graph", "kprobe"):
        none = kernel.plan(facts, [45], backend, ("nothing_*",))
        assert none.missing.count(absent) == 1
        assert not none.graph
        assert {"begin", "sent", "end"} <= {one.role for one in none.probes}


def test_no_event_is_made_twice() -> None:
    for name in ("3.10", "6.1", "6.12", "7.2"):
        for backend in ("auto", "kprobe"):
            plan = kernel.plan(host(name), [45], backend, ("fuse_*", "request_wait_answer"))
            events = [probe.event for probe in plan.probes]
            assert len(events) == len(set(events))
            names = [event.name for event in plan.events]
            assert len(names) == len(set(names)) and set(events) <= set(names)
            for event in events:  # a modifier for perf's parser, or a name that the kernel rejects
                assert re.fullmatch(r"fuse_kernel:[A-Za-z_]\w{2,}", event)


OF_NAMES = ["asked", "asked_second", "about", "about_async", "sized", "answered", "forgotten"]


@pytest.mark.parametrize("name", REAL)
def test_names_of_files(name: str) -> None:
    """By the offsets of the members in that kernel's types (5.10: from its debug symbols)."""
    probes, events = kernel.names(host(name), [45, 46])
    assert [probe.event for probe in probes] == [f"fuse_kernel:{name}" for name in OF_NAMES]
    assert {probe.layer for probe in probes} == {"request"}
    path = data.find(f"kernels/{REAL[name]}/btf-fuse.json")
    types = json.loads(path.read_text())["structs"]
    at = {
        f"{structure}.{member}": place["offset"]
        for structure in ("fuse_req", "fuse_args", "fuse_in_arg", "fuse_arg")
        for member, place in types[structure]["members"].items()
    }
    first = at["fuse_args.in_args"] + at["fuse_in_arg.value"]
    second = first + types["fuse_in_arg"]["size"]
    answer = at["fuse_args.out_args"] + at["fuse_arg.value"]
    values = [dict(probe.arguments) for probe in probes]
    args = at["fuse_req.args"]
    assert values[0]["name"] == f"+0(+{first}(+{args}($arg1))):string"
    assert values[0]["other"] == f"+0(+{second}(+{args}($arg1))):string"
    assert values[1]["name"] == values[0]["other"] and "other" not in values[1]
    assert values[5]["ino"] == f"+0(+{answer}(+{args}($arg1))):u64"
    assert values[6]["ino"] == "$arg3:u64"
    nodeid = at["fuse_req.in.h.nodeid"]
    assert [value["nodeid"] for value in values[:3]] == [f"+{nodeid}($arg1):u64"] * 3
    for event in events:
        assert str(event.filter).endswith("(connection==45 || connection==46)")


def test_kernels_that_do_not_tell_names() -> None:
    facts = host("6.1")
    assert kernel.names(facts, [45])[0]
    nothing: tuple[tuple[()], tuple[()]] = ((), ())
    assert kernel.names(facts, []) == nothing
    assert kernel.names(facts, [45], "tracepoint") == nothing
    assert kernel.names(without(facts, "fuse_queue_forget"), [45]) == nothing
    assert kernel.names(host("6.18"), [45]) == nothing  # no kprobes
    assert kernel.names(host("5.4"), [45]) == nothing  # the arguments' places are unknown
