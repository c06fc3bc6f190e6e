"""Counting without a recording, and reading perf stat's output."""

from __future__ import annotations

from dataclasses import replace

import pytest
import test_plan

from fusetools import core
from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.plan.counting import ANY, LATER, OPCODES, Counted, counting, others_call, too_many
from fusetools.plan.filters import EVERY, condition
from fusetools.plan.options import Count, Options
from fusetools.record.live import command_line, read_counts


def rows_of(kernel: str) -> tuple[Counted, ...]:
    plan = test_plan.make(test_plan.host(kernel), Options(Count(("find",))))
    kept, rows = counting(plan)
    assert {p.role for p in kept.probes} <= {"entry", "begin"}
    assert not kept.graph and not kept.events
    return rows


def test_each_call_is_counted_once() -> None:
    rows = rows_of("6.1")
    own = [row for row in rows if row.layer != "request"]
    assert len({row.event for row in own}) == len(own)
    assert not any(row.event.endswith("__return") for row in rows)
    functions = {row.function for row in own if row.layer == "kernel"}
    assert {"fuse_lookup", "fuse_readdir", "request_wait_answer"} <= functions
    assert {row.function for row in own if row.layer == "daemon"} >= {"cvmfs_lookup"}
    requests = [row for row in rows if row.layer == "request"]
    assert {row.event for row in requests} == {"fuse_kernel:queue_request_and_unlock"}
    assert [row.operation for row in requests] == [*OPCODES.values(), *LATER.values(), ""]
    lookup = next(row for row in requests if row.function == "FUSE_LOOKUP")
    assert str(lookup.filter) == "opcode==1 && (connection==45)"
    assert str(requests[-1].filter) == "connection==45"


def test_without_kprobes_there_are_tracepoints() -> None:
    rows = rows_of("6.18")
    assert {row.event for row in rows if row.layer == "request"} == {"fuse:fuse_request_send"}
    assert not any(row.layer == "kernel" for row in rows)


ROWS = (
    Counted("fuse_daemon:cvmfs_lookup", EVERY, "cvmfs_lookup", "lookup", "daemon", 16),
    Counted("fuse:fuse_request_send", condition("opcode==1"), "FUSE_LOOKUP", "lookup", "request"),
    Counted("fuse:fuse_request_send", condition("opcode==3"), "FUSE_GETATTR", "getattr", "request"),
    Counted("fuse:fuse_request_send", EVERY, ANY, "", "request"),
)


def test_command_line() -> None:
    argv = command_line(ROWS[:2], Tool("/usr/bin/perf", "6.1"), "counts", ("ctl", "ack"))
    assert " ".join(argv) == (
        "/usr/bin/perf stat -a -x , -o counts -D -1 --control fifo:ctl,ack "
        "-e fuse_daemon:cvmfs_lookup -e fuse:fuse_request_send --filter opcode==1"
    )


def written(*counts: object) -> str:
    lines = [f"{n},,{row.event},95940020,100.00,,\n" for n, row in zip(counts, ROWS)]
    return "# started on Fri Nov 20 11:39:37 2026\n\n" + "".join(lines)


def test_counts_are_read_by_their_order() -> None:
    assert [n for _, n in read_counts(written(7, 5, 3, 8), ROWS)] == [7, 5, 3]
    rest = read_counts(written(7, 5, 3, 10), ROWS)[-1]
    assert (rest[0].function, rest[1]) == (ANY, 2)


def test_operations_without_a_name_have_a_number() -> None:
    assert not {*LATER} & {*core.OPCODES}
    number, name = next(iter(LATER.items()))
    only = condition(f"opcode=={number}")
    later = Counted("fuse:fuse_request_send", only, f"FUSE_{name.upper()}", name, "request")
    rows = (*ROWS[:2], later, ROWS[3])
    *_, row = read_counts(written(7, 5, 2, 7), rows)
    assert (row[0].function, row[1]) == (f"FUSE_OPCODE_{number}", 2)
    assert [n for _, n in read_counts(written(7, 5, 0, 5), rows)] == [7, 5]


@pytest.mark.parametrize("text", ["", written(7, 5, 3), written(7, "<not counted>", 3, 8)])
def test_uncounted_events_are_not_zero(text: str) -> None:
    with pytest.raises(Error, match="perf did not count all events"):
        read_counts(text, ROWS)


def test_count_reports_other_counted_processes() -> None:
    """An unrequested mount of the same files, and calls inside calls: calls of a known daemon are
    counted by its number."""
    ours, other = test_plan.mount(), test_plan.mount(path="/cvmfs/other.cern.ch")
    other = replace(other, connection=46, daemon_pid=4711)
    strange = replace(other, path="/mnt", connection=47, libraries=())
    facts = test_plan.host("6.18", ours, other, strange)
    options = Options(Count(("find",)), (ours.path,))
    plan, _ = counting(test_plan.make(facts, options))
    assert too_many(plan) == [] and others_call(plan, facts) == (ours.daemon_pid,)
    everything, _ = counting(test_plan.make(facts, Options(Count(("find",)))))
    assert others_call(everything, facts) == ()
    program = replace(test_plan.library("daemon", 8), imports=("fuse_new",))
    facts = test_plan.host("6.18", test_plan.mount(libraries=(program, test_plan.FUSE)))
    plan, _ = counting(test_plan.make(facts, options=options, symbols=test_plan.HIGH))
    assert "functions of libfuse that call each other" in "".join(too_many(plan))
