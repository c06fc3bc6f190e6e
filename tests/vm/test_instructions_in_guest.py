"""The cost of a recording by default, in instructions: a change that costs more must say so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import vm
from instructions import DEFAULT, Figures, measure

pytestmark = pytest.mark.vm

HELD = Path(__file__).with_name("instructions.json")


def added(bare: Figures, during: Figures) -> dict[str, float]:
    """Return what the recording adds to a request, and to a round of each loop of others."""
    loops = {loop: count - bare.others[loop] for loop, count in during.others.items()}
    return {"request": during.request - bare.request, **loops}


def test_the_default_costs_what_it_cost(kernel: vm.Kernel, tmp_path: Path) -> None:
    """Other releases of the kernel, of perf and of the compiler may differ by more than 3 %."""
    bare, during = measure(kernel, tmp_path / "default", DEFAULT)
    # The measure itself: a loop of known length, during a recording, too; and the same loop twice.
    assert bare.others["spin"] == pytest.approx(2, rel=0.01)
    assert during.others["spin"] == pytest.approx(2, rel=0.01)
    for loop, count in bare.later.items():
        assert count == pytest.approx(bare.others[loop], rel=0.01)

    held = json.loads(HELD.read_text()) if HELD.exists() else {}
    found = {name: round(count) for name, count in added(bare, during).items() if name != "spin"}
    if os.environ.get("BLESS"):
        held[kernel.suite] = {"release": kernel.release, "added": found}
        HELD.write_text(json.dumps(held, indent=1) + "\n")
    if kernel.suite not in held:
        pytest.skip(f"no figures of {kernel.suite} are held: BLESS=1 writes them")
    near = 0.03 if held[kernel.suite]["release"] == kernel.release else 0.15
    assert found == pytest.approx(held[kernel.suite]["added"], rel=near)
