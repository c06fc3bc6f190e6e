"""A 32-bit program."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

# A program without a library, as few machines have 32-bit ones. It opens the given file (openat,
# 295 on i386), reads it (3), calls fstat64 (197) and closes it (6).
NARROW = """
static int call(int number, int a, int b, int c) {
  int result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}
__attribute__((used)) static void run(char **words) {
  char bytes[256];
  int file = call(295, -100, (int)words[2], 0);
  int n = call(3, file, (int)bytes, sizeof bytes);
  int left = call(197, file, (int)bytes, 0) | call(6, file, 0, 0);
  call(1, n > 0 && !left ? 0 : 1, 0, 0);
}
__asm__(".globl _start\\n_start: mov %esp, %eax\\n push %eax\\n call run\\n");
"""


def program(folder: Path) -> Path:
    """Build the program there. Skip the test if this machine cannot build or run it."""
    if platform.machine() != "x86_64":
        pytest.skip("runs i386 programs")
    source, made = folder / "narrow.c", folder / "narrow"
    source.write_text(NARROW)
    build: list[str | Path] = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-fno-pie"]
    build += ["-fno-stack-protector", "-o", made, source]
    if subprocess.run(build, capture_output=True).returncode:
        pytest.skip("this compiler makes no programs of 32 bits")
    try:
        subprocess.run([made, "/proc/self/maps"], check=True)
    except OSError:
        pytest.skip("this kernel runs no programs of 32 bits")
    return made
