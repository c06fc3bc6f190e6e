"""fusetools stages: the same workload recorded in different ways goes through the same stages."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import vm
from samplefs import SAMPLES

import fusetools

FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
pytestmark = pytest.mark.vm


def usual(operation: dict[str, Any]) -> list[str]:
    """Stages that most requests have: now and then a caller has its answer before it sleeps."""
    most = 0.5 * operation["matched"]
    return [s["name"] for s in operation["stages"] if s["requests"] > most]


def test_kprobes_and_function_graph(
    kernel: vm.Kernel, guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    record = f"{FUSETOOLS} record --backend $way -o $way.data -- {SAMPLES}/workload"
    guest(
        f"""set -e
        export PATH={tools}:$PATH
        mkdir /run/mount
        {SAMPLES}/make_tree /run/tree
        {SAMPLES}/with-symbols/samplefs --kernel-cache 0 --delay statfs=5ms /run/tree /run/mount
        for way in graph kprobe; do
          {record} mixed --processes 1 /run/mount > $way.workload 2> $way.said
          {FUSETOOLS} stages -i $way.data --json > $way.json
        done"""
    )
    told = {}
    for way in ("graph", "kprobe"):
        found = json.loads((tmp_path / f"{way}.json").read_text())
        requests = found["recording"]["requests"]
        assert requests["begun"] > 1_000
        assert requests["matched"] >= 0.999 * requests["begun"]
        for o in found["operations"]:
            assert sum(s["total_ns"] for s in o["stages"]) == o["total_ns"]
        told[way] = {(o["operation"], o["waits"]): o for o in found["operations"] if o["matched"]}
    for key, o in told["graph"].items():
        other = told["kprobe"].get(key)
        if key[0] in ("read", "flush"):  # whether a page's reader sleeps is a matter of time
            continue
        assert other and other["matched"] == o["matched"], key
        assert usual(other) == usual(o), key
    before, after = ["vfs_entry", "setup"], ["caller_wakeup", "vfs_exit"]
    inside = ["queue", "dispatch", "daemon", "reply"]
    for way in told:
        # After the lookup of its path.
        assert usual(told[way]["statfs", True]) == ["between", "setup", *inside, *after]
        assert usual(told[way]["lookup", True]) == [*before, *inside, "caller_wakeup"]
        assert usual(told[way]["release", False]) == inside
        daemon = next(s for s in told[way]["statfs", True]["stages"] if s["name"] == "daemon")
        assert daemon["p50_ns"] > 5_000_000
        # Nothing but its sleeping is counted so, and of some request nearly all of it.
        assert 0 < daemon["parts_ns"]["blocked"] < daemon["total_ns"]
        stories = fusetools.open(tmp_path / f"{way}.data").stories()
        assert stories.blocked[stories.of("statfs")].max() > 0.7 * 5_000_000
