"""The flight recorder on each kernel, with its suite's perf: by kprobes before Linux 6.12."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS, LEFT, mount

import fusetools

pytestmark = pytest.mark.vm

FILE = "/run/mount/dir-00/file-000"


def test_a_slow_request_one_that_hangs_and_a_snap(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    guest(
        f"""{mount("--delay open=4s")}
        export PATH={tools}:$PATH
        lines() {{
          n=0
          until [ $(grep -c "$1" "$2") -ge "$3" ]; do
            n=$((n+1))
            if [ $n -gt 900 ] || ! kill -0 $recorder; then cat said >&2; exit 1; fi
            sleep 0.2
          done
        }}
        {FUSETOOLS} record --json --flight 5 --when 'open > 1s' --when 'waiting > 0 for 15s' \\
          > told 2> said &
        recorder=$!
        lines 'flight recorder:' said 1
        stat {FILE} > /dev/null
        cat {FILE} > /dev/null &
        caller=$!
        lines snap told 1
        wait $caller
        {FUSETOOLS} snap > snapped 2>&1
        kill -TERM $recorder
        wait $recorder
        {LEFT}""",
        600,
    )
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    first, second = told[0], told[-1]
    assert re.match(r"open > 1s: open of cat \(pid \d+\) ", first["why"]), told
    assert second["why"] == "fusetools snap"
    assert (tmp_path / "snapped").read_text() == f"{second['output']}\n"
    assert [one["lost"] for one in told] == [0] * len(told)
    data = tmp_path / Path(first["output"]).name
    (slowest,) = fusetools.open(data).slowest("open", most=1).requests
    assert slowest.operation == "open" and slowest.duration_ns > 1_000_000_000
    account = json.loads((tmp_path / f"{data.name}.stuck.json").read_text())
    assert account["mounts"][0]["path"] == "/run/mount"
    assert (tmp_path / "left").read_text() == ""
