"""Figures of repeated runs, and a plan in parts."""

from __future__ import annotations

import random
import re
import statistics
from dataclasses import replace
from itertools import product

import golden
import pytest
from schemas import held
from test_plan import KERNELS, host, make

from fusetools.experiments.estimate import estimate
from fusetools.plan.options import Options, Workload
from fusetools.plan.parts import PARTS, parts
from fusetools.reasons import Code, Reason
from fusetools.render.json.answer import render as to_json
from fusetools.render.text.estimate import confidence
from fusetools.render.text.overhead import render
from fusetools.results.estimate import Estimate
from fusetools.results.overhead import Cost, Overhead


@pytest.mark.parametrize("n", range(1, 12))
def test_an_interval_is_as_sure_as_it_says(n: int) -> None:
    """Compare with all ways in which n values can lie below and above the true median, 0."""
    held = 0
    for signs in product((-1, 1), repeat=n):
        e = estimate([sign * (i + 1) for i, sign in enumerate(signs)])
        held += e.low <= 0 <= e.high
    assert e.confidence == held / 2**n
    assert e.confidence >= 0.95 or n < 6
    assert e.runs == n


def test_an_interval_holds_the_median_of_a_skewed_distribution() -> None:
    draw = random.Random(7)
    true = statistics.NormalDist().inv_cdf(0.5)
    found = [estimate([draw.lognormvariate(true, 2) for _ in range(10)]) for _ in range(2000)]
    share = sum(e.low <= 1 <= e.high for e in found) / len(found)
    assert share == pytest.approx(found[0].confidence, abs=0.012)
    assert found[0].confidence == pytest.approx(0.9785, abs=0.0001)  # of tables: 2nd to 9th of 10


def test_an_interval_grows_no_wider_with_more_runs() -> None:
    draw = random.Random(1)
    values = [draw.gauss(100, 5) for _ in range(101)]
    few, many = estimate(values[:11]), estimate(values)
    assert many.high - many.low < few.high - few.low
    assert many.low < statistics.median(values) == many.median < many.high


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_event_of_a_plan_is_in_one_part(kernel: str) -> None:
    whole = make(host(kernel), Options(Workload(("find",))))
    cut = parts(whole)
    assert list(cut) == [name for name in PARTS if name in cut]
    names = [event for part in cut.values() for event in part.events]
    assert sorted(map(str, names)) == sorted(map(str, whole.events))
    made = [probe for part in cut.values() for probe in part.probes]
    assert sorted(map(str, made)) == sorted(map(str, whole.probes))
    assert [name for name, part in cut.items() if part.graph] == ["kernel"] * bool(whole.graph)
    assert [name for name, part in cut.items() if part.switch_records] == ["off-CPU"]
    in_part = parts(replace(whole, in_part=True))
    assert [name for name, part in in_part.items() if part.in_part] == ["off-CPU"]
    for part in cut.values():  # the program to record has been built
        own = {event.name for event in part.events if event.name.startswith("fuse_")}
        assert own == {probe.event for probe in part.probes}


def _overhead(runs: int) -> Overhead:
    plain = tuple(0.2 + 0.001 * i for i in range(runs))

    def cost(part: str, factor: float, events: float) -> Cost:
        seconds = tuple(factor * s for s in plain)
        extra = statistics.median(seconds) - statistics.median(plain)
        ratios = estimate([factor + 0.01 * i for i in range(runs)])
        event_ns = 1e9 * extra / events
        return Cost(part, seconds, ratios, events, 80 * events, event_ns, 1.46, part != "all")

    costs = (cost("syscall", 1.11, 7200), cost("daemon", 1.2, 7358), cost("all", 1.5, 57764))
    missing = Reason(Code.NO_KPROBES, fix="boot another", layer="kernel")
    return Overhead(("find", "/mnt", "-size", "+1M"), plain, costs, 2870.0, 1460, 3, (missing,), ())


@pytest.mark.parametrize(("name", "runs"), [("overhead", 10), ("overhead-few", 3)])
def test_overhead_as_text(name: str, runs: int) -> None:
    said = render(_overhead(runs))
    golden.check(f"{name}.txt", said)
    assert all(len(line) <= 80 for line in said.splitlines())


def test_overhead_as_json_has_the_texts_figures() -> None:
    result = _overhead(10)
    found = held("overhead", to_json("overhead", result))
    text = render(result)
    for row in found["costs"]:
        assert f"{row['slow_down']['median']:.3f}" in text
        assert row["events_per_second"] == row["events"] / row["median_seconds"]
    assert "the recording's own estimate: about 1.460 times" in text
    assert found["costs"][-1]["estimated"] == 1.46 and found["costs"][0]["estimated_at_least"]
    assert found["pair_ns"] == 2870 and "2.87 us a call" in text
    assert found["lost"] == 3 and "3 LOST events" in text


def test_noise_is_not_shared_out_among_events() -> None:
    result = _overhead(10)
    noise = estimate([0.9, 1.2, 0.8, 1.3, 1.0, 1.1, 0.7])
    # CPU time of other processes, in the runs without
    quicker = estimate([0.9, 0.92, 0.8, 0.83, 0.95, 0.9, 0.7])
    for ratios, per_event in ((noise, 3120.0), (quicker, -835_000.0)):
        cost = replace(result.costs[0], slow_down=ratios, event_ns=per_event)
        rows = render(replace(result, costs=(cost, *result.costs[1:]))).splitlines()[2:5]
        (row,) = [row for row in rows if row.startswith("syscall")]
        assert "not measurable  runs differ by" in row
        assert re.split(r"  +", row)[5] == "-"
        assert all(" us " in row for row in rows if row.startswith(("daemon", "all")))


def test_one_run_has_no_interval() -> None:
    assert estimate([2.5]) == Estimate(2.5, 2.5, 2.5, 0.0, 1)
    assert confidence(estimate([1.0])) == "of one run there is no interval"
