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

# The integer registers of Go's ABIInternal (src/cmd/compile/abi-internal.md), from Go 1.17 on.
# A receiver is the first argument; a string takes two, a slice three. Programs of Go before that
# pass arguments on the stack: what is fetched of them is nonsense, and harmless.
GO_REGISTERS = {
    "x86_64": ("ax", "bx", "cx", "di", "si", "r8", "r9", "r10", "r11"),
    "aarch64": tuple(f"x{n}" for n in range(9)),
    "riscv64": ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s0"),
    "ppc64le": (*(f"gpr{n}" for n in range(3, 11)), "gpr14"),
}


def fetch(text: str, arch: str, machine: str = "", abi: str = "c") -> str | None:
    """``text`` with argN replaced by its register; None where the architecture has none for it.

    ``machine``: of the probed file, as native.elf_about tells it: one of 32 bits on a kernel of 64
    passes arguments in other places. ``abi``: "c" or "go".
    """
    if machine not in ("", arch):
        return None
    registers = (GO_REGISTERS if abi == "go" else REGISTERS).get(arch, ())
    numbers = [int(number) for number in ARGUMENT.findall(text)]
    if any(number > len(registers) for number in numbers):
        return None
    return ARGUMENT.sub(lambda match: "%" + registers[int(match[1]) - 1], text)
