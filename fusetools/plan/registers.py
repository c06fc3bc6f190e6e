"""The registers of a function's arguments on entry, named as in the kernel's uprobe events."""

from __future__ import annotations

import re

ARGUMENT = re.compile(r"\barg(\d)\b")

# arch/*/kernel/ptrace.c (regoffset_table); the System V and AAPCS64 conventions, and others.
REGISTERS = {
    "x86_64": ("di", "si", "dx", "cx", "r8", "r9"),
    "aarch64": tuple(f"x{n}" for n in range(6)),
    "riscv64": tuple(f"a{n}" for n in range(6)),
    "ppc64le": tuple(f"gpr{n}" for n in range(3, 9)),
    "s390x": tuple(f"r{n}" for n in range(2, 7)),
}

# The integer registers of Go's ABIInternal (src/cmd/compile/abi-internal.md), since Go 1.17.
# A receiver is the first argument; a string takes two, a slice three. Programs of older Go pass
# arguments on the stack: the fetched values are then meaningless, and harmless.
GO_REGISTERS = {
    "x86_64": ("ax", "bx", "cx", "di", "si", "r8", "r9", "r10", "r11"),
    "aarch64": tuple(f"x{n}" for n in range(9)),
    "riscv64": ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s0"),
    "ppc64le": (*(f"gpr{n}" for n in range(3, 11)), "gpr14"),
}


def fetch(text: str, arch: str, machine: str = "", abi: str = "c") -> str | None:
    """``text`` with argN replaced by its register; None if the architecture has none for it.

    ``machine``: of the probed file, from native.elf_about: a 32-bit program on a 64-bit kernel
    passes arguments elsewhere. ``abi``: "c" or "go".
    """
    if machine not in ("", arch):
        return None
    registers = (GO_REGISTERS if abi == "go" else REGISTERS).get(arch, ())
    numbers = [int(number) for number in ARGUMENT.findall(text)]
    if any(number > len(registers) for number in numbers):
        return None
    return ARGUMENT.sub(lambda match: "%" + registers[int(match[1]) - 1], text)
