"""Probes that share an event: on kernels that support it, and only probes that are alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from test_plan import KERNELS, host, make

from fusetools.plan.bundles import LONGEST, bundled, can_be_numbered, unbundled
from fusetools.plan.events import RETURN
from fusetools.plan.planner import ProbePlan

# Multi-probe events and constants appeared in that version.
BEFORE_5_4 = ("3.10", "4.4", "4.15", "4.18", "5.3")


def without(kernel: str) -> ProbePlan:
    return make(host(kernel))


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_probe_is_recorded_once(kernel: str) -> None:
    plan = without(kernel)
    shared = bundled(host(kernel), plan)
    assert [probe.event for probe in shared.probes] == [probe.event for probe in plan.probes]
    names = Counter(event.name for event in shared.events)
    for probe in shared.probes:
        assert names[probe.recorded_as] == 1
    # Other lines than probes keep their order.
    ours = {probe.event for probe in plan.probes} | {p.recorded_as for p in shared.probes}
    rest = [event for event in plan.events if event.name not in ours]
    assert [event for event in shared.events if event.name not in ours] == rest
    apart = unbundled(shared)
    assert apart.probes == plan.probes
    assert set(apart.events) == set(plan.events) and len(apart.events) == len(plan.events)
    if kernel in BEFORE_5_4:
        assert shared == plan
    else:
        assert len(shared.events) < len(plan.events) - 15
        assert not [probe for probe in shared.probes if probe.bundle and probe.in_kernel]


def test_the_probes_of_an_event_are_alike_and_told_apart() -> None:
    shared = bundled(host("6.1"), without("6.1"))
    bundles = {probe.bundle for probe in shared.probes if probe.bundle}
    assert bundles
    for bundle in bundles:
        probes = [probe for probe in shared.probes if probe.bundle == bundle]
        assert len(probes) > 1
        assert sorted(probe.number for probe in probes) == list(range(1, len(probes) + 1))
        assert len({probe.kind for probe in probes}) == 1
        layouts = set()
        for probe in probes:
            kind, place, *arguments = probe.definition().split(" ")
            assert kind == f"{probe.kind}:{bundle.replace(':', '/')}"
            assert place == probe.place
            assert arguments[-1] == f"probe=\\{probe.number}:u16"
            values = dict(argument.split("=", 1) for argument in arguments[:-1])
            layouts.add(tuple((name, value.split(":")[-1]) for name, value in values.items()))
            absent = [name for name, value in values.items() if value.startswith("\\0:")]
            assert absent == probe.padding
            own = [(name, value) for name, value in values.items() if name not in absent]
            assert sorted(own) == sorted(probe.arguments)
        assert len(layouts) == 1


def test_probes_of_different_numbers_share_an_event() -> None:
    """A text is read from the daemon's memory, so it cannot stand for none."""
    plan = without("6.1")
    of_daemon = [probe for probe in plan.probes if not probe.in_kernel]
    assert len({probe.arguments for probe in of_daemon if probe.kind == "p"}) > 4
    shared = bundled(host("6.1"), plan)
    events = {probe.recorded_as for probe in shared.probes if not probe.in_kernel}
    assert len(events) == 3, events
    exact = bundled(host("6.1"), plan, padded=False)
    assert not any(probe.padding for probe in exact.probes)
    assert len({probe.recorded_as for probe in exact.probes if not probe.in_kernel}) > 4


def test_an_event_with_many_arguments_is_not_shared() -> None:
    plan = without("6.1")
    first, *rest = [probe for probe in plan.probes if not probe.in_kernel and probe.kind == "p"]
    many = tuple((f"number_{n}", "%si:u64") for n in range(LONGEST + 1))
    other = replace(first, arguments=tuple((f"other_{n}", "%si:u64") for n in range(3)))
    conflict = replace(rest[0], arguments=(("number_1", "%si:s32"),))
    probes = {first.event: replace(first, arguments=many), rest[0].event: conflict}
    probes |= {rest[1].event: replace(rest[1], arguments=other.arguments)}
    plan = replace(plan, probes=tuple(probes.get(probe.event, probe) for probe in plan.probes))
    shared = {probe.event: probe for probe in bundled(host("6.1"), plan).probes}
    assert not shared[first.event].bundle
    assert "number_1" in dict(shared[rest[0].event].layout)
    assert dict(shared[rest[0].event].layout)["number_1"] == "s32"
    assert shared[rest[1].event].bundle


@pytest.mark.parametrize("kernel", KERNELS)
def test_recordings_at_once_share_no_event(kernel: str) -> None:
    """The kernel reports hits per event name, so no name is shared either."""
    plan = without(kernel)
    if not can_be_numbered(host(kernel).fetch_args):
        assert kernel in BEFORE_5_4
        return
    seen: set[str] = set()
    for number in range(3):
        shared = bundled(host(kernel), plan, number)
        found = set()
        for one in (shared, unbundled(shared, number)):
            assert [probe.event for probe in one.probes] == [probe.event for probe in plan.probes]
            events = Counter(event.name for event in one.events)
            names = {probe.recorded_as for probe in one.probes}
            assert {events[name] for name in names} == {1}
            # The remaining events are the kernel's, and concern all processes.
            assert not [name for name in set(events) - names if name.startswith("fuse_")]
            for probe in one.probes:
                name = probe.recorded_as.partition(":")[2]
                assert len(name) < 64
                returns = probe.event.endswith(RETURN) and "bundle" not in name
                assert name.endswith(RETURN) == returns
            found |= names
        assert not found & seen
        seen |= found
        assert len(shared.events) == len(bundled(host(kernel), plan).events)
