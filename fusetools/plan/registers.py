"""Where a function's arguments are on entry, as the kernel's uprobe events name registers."""

from __future__ import annotations

import re

ARGUMENT = re.compile(r"\barg(\d)\b")

# arch/*/kernel/ptrace.c (regoffset_table); the System V and AAPCS64 calling conventions and alike.
REGISTERS = {
    "x86_64": ("di", "si", "dx", "cx", "r8", "r9"),
    "aarch64": tuple(f"x{n}" for n in range(6)),
    "riscv64": tuple(f"a{n}" for n in range(6)),
    "ppc64le": tuple(f"gpr{n}" for n in range(3, 9)),
    "s390x": tuple(f"r{n}" for n in range(2, 7)),
}


def fetch(text: str, arch: str) -> str | None:
    """``text`` with argN replaced by its register; None where the architecture has none for it."""
    registers = REGISTERS.get(arch, ())
    numbers = [int(number) for number in ARGUMENT.findall(text)]
    if any(number > len(registers) for number in numbers):
        return None
    return ARGUMENT.sub(lambda match: "%" + registers[int(match[1]) - 1], text)
