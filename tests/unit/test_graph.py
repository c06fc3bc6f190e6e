"""fusetools graph and the kernel layer as printed for users, on given calls."""

from __future__ import annotations

import contextlib
from array import array
from typing import Any

import golden
import pytest
from fake_core import FakeCore, Made
from fixtures import Fake, Invoke
from schemas import held

import fusetools
from fusetools.answers.filters import Filters
from fusetools.results.graph import GraphNode

UNFINISHED = 2**64 - 1
EVENTS = ["ftrace:funcgraph_entry", "ftrace:funcgraph_exit"]
FUNCTIONS = [
    "fuse_lookup",
    "fuse_simple_request",
    "fuse_get_req.isra.0",
    "request_wait_answer",
    "fuse_dev_read",
    "fuse_getattr",
]
LOOKUP, SIMPLE, GET, WAIT, READ, GETATTR = range(6)
# (parent, function, calls, total, self)
NODES = [
    (-1, LOOKUP, 3, 300_000, 30_000),
    (0, SIMPLE, 3, 270_000, 45_000),
    (1, GET, 3, 15_000, 15_000),
    (1, WAIT, 3, 210_000, 210_000),
    (-1, READ, 0, 0, 0),  # never returned
    (-1, GETATTR, 2, 120_000, 20_000),
    (5, SIMPLE, 2, 100_000, 10_000),
    (6, WAIT, 2, 90_000, 90_000),
]
# (function, level, start, duration, tid, comm): tree by tree
CALLS = [
    (LOOKUP, 0, 5_000_100_000, 120_000, 20, 1),
    (SIMPLE, 1, 5_000_101_000, 100_000, 20, 1),
    (GET, 2, 5_000_102_000, 900, 20, 1),
    (WAIT, 2, 5_000_110_000, 80_000, 20, 1),
    (READ, 0, 5_000_150_000, UNFINISHED, 30, 0),
    (GETATTR, 0, 5_000_300_000, 60_000, 20, 1),
    (SIMPLE, 1, 5_000_301_000, 50_000, 20, 1),
]


class Graphed(FakeCore):
    def describe(self, path: str) -> dict[str, Any]:
        functions = [(0x1000 + 64 * i, name) for i, name in enumerate(FUNCTIONS)]
        return {**super().describe(path), "functions": functions}

    def graph(
        self, path: str, catalogue: list[Any], filters: dict[str, Any], calls: bool
    ) -> dict[str, Any]:
        self.asked.append((path, catalogue, filters))
        found: dict[str, Any] = {
            "first": 5_000_000_000,
            "last": 6_500_000_000,
            "lost": self.lost,
            "throttled": 0,
            "warnings": [],
            "functions": FUNCTIONS,
            "nodes": NODES,
            "unmatched": 1,
            "full": False,
        }
        if calls:
            kinds = ("I", "I", "Q", "Q", "i", "I")
            names = ("function", "level", "start", "duration", "tid", "comm")
            columns = {
                name: array(kind, column).tobytes()
                for name, kind, column in zip(names, kinds, zip(*CALLS))
            }
            columns["cpu"] = array("I", [i % 2 for i in range(len(CALLS))]).tobytes()
            found |= {"calls": columns, "comms": ["", "find\x1b[2J"]}
        return found


@pytest.fixture
def core(fake: Fake) -> Graphed:
    made = [
        Made("kernel", "fuse_lookup", "lookup", [100_000] * 3),
        Made("request", "FUSE_LOOKUP", "lookup", [90_000] * 3),
    ]
    return fake(Graphed(made, events=EVENTS, requests=(3, 3, 3)))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("graph", ["graph"]),
        ("graph-function", ["graph", "fuse_simple_request"]),
        ("graph-json", ["graph", "--json"]),
        ("graph-calls", ["graph", "--calls"]),
        ("graph-calls-function", ["graph", "--calls", "fuse_simple*", "--unit", "us"]),
        ("graph-calls-json", ["graph", "--calls", "--json"]),
    ],
)
def test_output(core: Graphed, run: Invoke, name: str, args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 0
    golden.check(f"{name}.txt", result.output)
    assert "\x1b" not in result.output
    if "json" in name:
        held("graph", result.output)
    else:
        assert all(len(line) <= 80 for line in result.output.splitlines())


def test_a_functions_calls_are_put_together_from_all_who_call_it(core: Graphed) -> None:
    (root,) = fusetools.open().graph("fuse_simple_request").roots
    assert root == GraphNode(
        "fuse_simple_request",
        5,
        370_000,
        55_000,
        (
            GraphNode("request_wait_answer", 5, 300_000, 300_000),
            GraphNode("fuse_get_req.isra.0", 3, 15_000, 15_000),
        ),
    )


def test_single_calls_are_trees(core: Graphed) -> None:
    calls = list(fusetools.open().graph_calls().calls)
    assert [call.function for call in calls] == ["fuse_lookup", "fuse_dev_read", "fuse_getattr"]
    assert [call.duration_ns for call in calls] == [120_000, None, 60_000]
    (simple,) = calls[0].children
    assert [call.function for call in simple.children] == [
        "fuse_get_req.isra.0",
        "request_wait_answer",
    ]


def test_filters_reach_the_core(core: Graphed, run: Invoke) -> None:
    assert run("graph", "--pid", "7", "--comm", "find", "--from", "1").exit_code == 0
    _, catalogue, filters = core.asked[-1]
    assert {row.event for row in catalogue} == set(EVENTS)
    assert (filters["pids"], filters["comms"], filters["from_ns"]) == ([7], ["find"], 10**9)


def test_an_unknown_function(core: Graphed, run: Invoke) -> None:
    for args in (["graph", "fuse_nothing"], ["graph", "fuse_nothing", "--calls"]):
        result = run(*args)
        assert result.exit_code == 1
        assert "no call of a kernel function fuse_nothing" in result.stderr
        assert "fusetools count -i perf.data --layer kernel" in result.stderr


def test_no_kernel_function_was_recorded(fake: Fake, run: Invoke) -> None:
    fake(FakeCore([], events=["fuse:fuse_request_send", "fuse_kernel:fuse_lookup"]))
    result = run("graph")
    assert result.exit_code == 1
    assert "holds no calls of kernel functions" in result.stderr


def test_function_graph_goes_before_kprobes(fake: Fake) -> None:
    events = [*EVENTS, "fuse_kernel:fuse_lookup", "fuse_kernel:fuse_lookup__return"]
    core = fake(Graphed([], events=[*events, "fuse_kernel:fuse_x", "fuse_kernel:fuse_x__return"]))
    fusetools.open().hist()
    rows = {(row.event, row.role) for row in core.asked[-1][1]}
    assert rows == {
        ("ftrace:funcgraph_entry", "graph_entry"),
        ("ftrace:funcgraph_exit", "graph_exit"),
        ("fuse_kernel:fuse_x", "entry"),
        ("fuse_kernel:fuse_x__return", "return"),
    }


@pytest.mark.parametrize(
    ("patterns", "layers", "graphed"),
    [
        ((), (), True),
        (("lookup",), (), True),  # by the requests made in a call
        (("fuse_lookup",), (), True),
        (("cvmfs_lookup",), (), False),
        ((), ("daemon",), False),
        ((), ("kernel",), True),
    ],
)
def test_function_graph_is_read_where_it_is_asked_for(
    fake: Fake, patterns: tuple[str, ...], layers: tuple[str, ...], graphed: bool
) -> None:
    daemon = ["fuse_daemon:cvmfs_lookup", "fuse_daemon:cvmfs_lookup__return"]
    made = [Made("daemon", "cvmfs_lookup", "lookup", [1]), Made("kernel", "fuse_lookup", "", [2])]
    core = fake(Graphed(made, events=[*EVENTS, *daemon, "fuse:fuse_request_send"]))
    with contextlib.suppress(fusetools.Error):  # the fake core has no function_graph
        fusetools.open().hist(*patterns, layers=layers, filters=Filters())
    assert ("ftrace:funcgraph_entry" in {row.event for row in core.asked[-1][1]}) == graphed
