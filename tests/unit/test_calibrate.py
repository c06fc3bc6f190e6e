"""The function that measures the probes' cost costs as much as a callback."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from fusetools import _core


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is x86-64's")
def test_it_begins_with_a_push() -> None:
    # The kernel emulates a push at a uprobe, such as the first instruction of a callback, and
    # single-steps most others (arch/x86/kernel/uprobes.c): that would make the cost ten times too
    # high.
    (offset,) = (f[3] for f in _core.elf_functions(_core.__file__) if f[0] == "fusetools_calibrate")
    code = Path(_core.__file__).read_bytes()[offset : offset + 2]
    assert code[0] in range(0x50, 0x58) or (code[0] == 0x41 and code[1] in range(0x50, 0x58))
