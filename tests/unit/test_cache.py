"""`fusetools cache`, compared with counts by hand of the table of requests."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import golden
import pytest
from columns import Columns
from fixtures import Invoke
from schemas import held

import fusetools
from fusetools.answers.filters import Filters
from fusetools.render.text.cache import render
from fusetools.results.cache import CachedCalls, Transfer

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


@pytest.fixture(scope="module")
def table() -> Columns:
    """The requests of the demo, which changes no file. Each has ended."""
    table = Columns(fusetools.open(DEMO).requests())
    assert not {"write", "create", "setattr", "unlink"} & set(table.operation)
    assert (table.end_ns > 0).all()
    return table


def test_questions_asked_again_are_those_of_the_table(table: Columns) -> None:
    """An attribute is asked again if the same file was before, a name if the same path was."""
    found = fusetools.open(DEMO).cache().asked
    for operation in ("lookup", "getattr"):
        rows = [
            at for at in table.end_ns.argsort(kind="stable") if table.operation[at] == operation
        ]
        answered: dict[object, int] = {}
        after: list[int] = []
        fresh: dict[object, int] = {}
        saved = 0
        for at in rows:
            key = table.path[at] if operation == "lookup" else table.inode[at]
            begin = int(table.begin_ns[at])
            if key in answered:
                after.append(begin - answered[key])
            answered[key] = int(table.end_ns[at])
            if key in fresh and begin <= fresh[key] + 10**9:
                saved += 1
            else:
                fresh[key] = answered[key]
        mine = [row for row in found if row.operation == operation]
        assert sum(row.requests for row in mine) == len(rows) > 0
        assert sum(row.questions for row in mine) == len(answered)
        assert sum(row.again for row in mine) == len(after)
        assert sum(row.saved[0].requests for row in mine) == saved
        soonest = [row.soonest_ns for row in mine if row.soonest_ns is not None]
        assert min(soonest, default=None) == min(after, default=None)


def test_reads_are_those_of_the_table(table: Columns) -> None:
    read: dict[str, set[int]] = defaultdict(set)
    ends: dict[str, int] = {}
    expected: dict[bool, list[int]] = {}
    for at in table.begin_ns.argsort(kind="stable"):
        if table.operation[at] != "read":
            continue
        waits, path = bool(table.waits[at]), str(table.path[at])
        begin, size = int(table.offset_bytes[at]), int(table.size_bytes[at])
        row = expected.setdefault(waits, [0, 0, 0, 0, 0, 0])
        followed = path in ends
        row[0] += 1
        row[2] = max(row[2], size)
        # A read at the file's end gets fewer bytes than it requested.
        size = int(table.reply_bytes[at]) - 16
        pages = set(range(begin, begin + size))
        row[1] += size
        row[3] += followed
        row[4] += followed and ends[path] == begin
        row[5] += len(pages & read[path])
        read[path] |= pages
        ends[path] = begin + size
    found = {
        row.waits: [
            row.requests,
            row.total_bytes,
            row.largest_bytes,
            row.followed,
            row.in_order,
            row.again_bytes,
        ]
        for row in fusetools.open(DEMO).cache().transfers
        if row.operation == "read"
    }
    assert found == expected


def test_calls_are_those_of_stages() -> None:
    recording = fusetools.open(DEMO)
    for filters in (Filters(), Filters(end_ns=300_000_000), Filters(comms=("nobody",))):
        found = {row.syscall: row for row in recording.cache(filters).calls}
        stages = {row.syscall: row for row in recording.stages(filters=filters).calls}
        assert found.keys() == stages.keys()
        for name, row in found.items():
            assert row.calls == stages[name].calls and row.requests == stages[name].requests
            assert row.requests >= row.one + 2 * row.several
            assert row.one + row.several + (row.none or 0) <= row.calls
            cached = stages[name].cached
            assert (row.none or 0) == (cached.calls if cached else 0)


def test_printed(run: Invoke) -> None:
    said = run("cache", "-i", str(DEMO))
    golden.check("cache.txt", said.output)
    assert all(len(line) <= 80 for line in said.output.splitlines())
    held("cache", run("cache", "-i", str(DEMO), "--json").output)
    none = run("cache", "-i", str(DEMO), "--comm", "nobody")
    assert none.output.startswith("no requests of ")


def test_calls_with_a_path_have_no_share_without_requests() -> None:
    found = replace(
        fusetools.open(DEMO).cache(),
        calls=(CachedCalls("newfstatat", 4, None, 3, 1, 5), CachedCalls("fstat", 4, 3, 1, 0, 1)),
        asked=(),
        transfers=(),
    )
    said = render(found).splitlines()
    assert said[1].split()[:3] == ["newfstatat", "4", "-"]
    assert said[2].split()[:4] == ["fstat", "4", "75.0", "%"]
    assert said[3].startswith("-: not recorded: ")


def test_writeback_is_counted_in_pages() -> None:
    rows = (
        Transfer("write", False, 3, 3, 81920, 65536, 2, 2, None),
        Transfer("write", True, 1, 1, 100, 100, 0, 0, None),
    )
    found = replace(fusetools.open(DEMO).cache(), calls=(), asked=(), transfers=rows, unknown=2)
    said = render(found)
    assert "writeback: 20 dirty pages, 6.67 a request\n" in said
    assert "2 requests of an unknown file or place: in no order\n" in said


def test_json_names_the_timeouts() -> None:
    from fusetools.render.json.answer import render as to_json

    asked = json.loads(to_json("cache", fusetools.open(DEMO).cache()))["asked"]
    assert [saved["timeout_seconds"] for saved in asked[0]["saved"]] == [1.0, 60.0]
