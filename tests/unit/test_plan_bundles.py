"""Probes that share an event: where the kernel takes them, and only those that are alike."""

from __future__ import annotations

from collections import Counter

import pytest
from test_plan import KERNELS, host, make

from fusetools.plan.bundles import bundled, can_be_numbered, unbundled
from fusetools.plan.events import RETURN
from fusetools.plan.planner import ProbePlan


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
    # What is no probe's is as it was, in its order.
    ours = {probe.event for probe in plan.probes} | {p.recorded_as for p in shared.probes}
    rest = [event for event in plan.events if event.name not in ours]
    assert [event for event in shared.events if event.name not in ours] == rest
    apart = unbundled(shared)
    assert apart.probes == plan.probes
    assert set(apart.events) == set(plan.events) and len(apart.events) == len(plan.events)
    if kernel in ("3.10", "4.18"):  # multi-probe events and constants came with 5.4
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
        types = {tuple((n, v.split(":")[-1]) for n, v in probe.arguments) for probe in probes}
        assert len(types) == 1
        for probe in probes:
            kind, place, *arguments = probe.definition().split(" ")
            assert kind == f"{probe.kind}:{bundle.replace(':', '/')}"
            assert place == probe.place
            assert arguments[-1] == f"probe=\\{probe.number}:u16"


@pytest.mark.parametrize("kernel", KERNELS)
def test_recordings_at_once_share_no_event(kernel: str) -> None:
    """Nor a name of one, by which the kernel tells how often each was hit."""
    plan = without(kernel)
    if not can_be_numbered(host(kernel).fetch_args):
        assert kernel in ("3.10", "4.18")
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
            # The rest is the kernel's, and everybody's.
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
