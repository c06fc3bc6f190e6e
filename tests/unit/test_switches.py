"""Test of the kernel's switch tracepoint by perf's counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusetools.host.facts import Tool
from fusetools.record import switches

COUNTS = """\
# started on Sat Nov 28 06:08:36 2026

CPU0,12,,sched:sched_switch,309592093,100.00,,
CPU1,{},,sched:sched_switch,319598817,100.00,,
"""


@pytest.mark.parametrize(
    ("text", "misses"),
    [
        (COUNTS.format(3), False),
        (COUNTS.format(0), True),
        (COUNTS.format("<not counted>"), True),
        ("", True),
    ],
)
def test_a_cpu_without_a_count_is_one(text: str, misses: bool) -> None:
    assert switches.misses(text, {0, 1}) is misses


@pytest.mark.parametrize(("status", "misses"), [(0, False), (1, True)])
def test_perf_counts(tmp_path: Path, status: int, misses: bool) -> None:
    """A perf that cannot count is one whose own records are needed."""
    perf = tmp_path / "perf"
    lines = "".join(f"CPU{cpu},1,,sched:sched_switch\n" for cpu in range(1024))
    (tmp_path / "counts").write_text(lines)
    perf.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        f'cat {tmp_path}/counts >"$2"; exit {status}\n'
    )
    perf.chmod(0o755)
    tool = Tool(str(perf), "6.1")
    assert switches.perf_misses_switches(tool, tmp_path) is misses
    assert switches.perf_misses_switches(Tool(str(tmp_path / "nothing"), ""), tmp_path) is True
