"""Functions of stripped Go programs, as nm and a disassembler find them in the unstripped ones."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from fusetools import _core

GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
pytestmark = pytest.mark.skipif(GO is None, reason="no Go compiler here")

SOURCE = """
package main

type T struct{ n int }

//go:noinline
func (t *T) Grow(n int) int {
	var room [512]int
	room[n&511] = t.n
	if n == 0 {
		return room[0]
	}
	return t.Grow(n-1) + room[n&511]
}

//go:noinline
func (t *T) Large(n int) int {
	var room [64]int
	room[n&63] = t.n
	if n == 0 {
		return room[0]
	}
	return t.Small(n-1) + room[n&63]
}

//go:noinline
func (t *T) Small(n int) int {
	if n <= 0 {
		return t.n
	}
	return t.Large(n-1) + 1
}

func main() {
	println((&T{3}).Large(10))
	println((&T{3}).Grow(1000))
}
"""


class Program(NamedTuple):
    """`whole` and `stripped` in a folder."""

    folder: Path
    arch: str


def go(folder: Path, *arguments: str, arch: str = "amd64") -> None:
    """Run go there; the folders beside it share what it compiled."""
    assert GO is not None
    settings = {"GOARCH": arch, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    environment = {**os.environ, "GOCACHE": str(folder.parent / "go-cache"), **settings}
    done = subprocess.run(
        [GO, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def symbols(program: Path) -> list[tuple[str, int]]:
    """Return functions and their addresses, by nm. Go's own takes half a minute to compile."""
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    return [(line[2], int(line[0], 16)) for line in lines if len(line) == 3 and line[1] in "Tt"]


@pytest.fixture(scope="module", params=["amd64", "arm64"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program of SOURCE, once position independent, once not."""
    arch = request.param
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(SOURCE)
    (folder / "go.mod").write_text("module hello\n\ngo 1.18\n")
    build = ("build", f"-buildmode={'pie' if arch == 'amd64' else 'exe'}")
    go(folder, *build, "-o", "whole", ".", arch=arch)
    go(folder, *build, "-ldflags=-s -w", "-o", "stripped", ".", arch=arch)
    return Program(folder, arch)


def test_against_nm(program: Program, tmp_path: Path) -> None:
    folder, arch = program
    whole, stripped = folder / "whole", folder / "stripped"
    machine = "x86_64" if arch == "amd64" else "aarch64"
    # The table has no calling convention.
    text = {
        (re.sub(r"\.abi(0|internal)$", "", name).replace("\u00b7", "."), at)
        for name, at in symbols(whole)
    }
    # nm prints a dot for the linker's own letter.
    rows = _core.elf_functions(stripped)
    found = {(name.replace("\u00b7", "."), at) for name, at, *_ in rows}
    assert found <= text
    assert {name for name, at in text if at not in {at for _, at in found}} <= {"runtime.etext"}
    assert {"main.main", "main.(*T).Grow", "runtime.schedinit"} <= {name for name, _ in found}
    assert _core.elf_about(stripped) == (machine, "Go", [])
    # Go 1.16's table has one function, with its arguments on the stack.
    old = struct.pack("<IBBBB7Q", 0xFFFFFFFA, 0, 0, 1, 8, 1, 0, 64, 64, 64, 64, 64) + bytes(64)
    (tmp_path / "table").write_bytes(old)
    update = f"--update-section={section_of(stripped)}={tmp_path / 'table'}"
    if arch == "amd64":  # objcopy knows its own architecture
        subprocess.run(["objcopy", update, stripped, tmp_path / "old"], check=True)
        assert _core.elf_about(tmp_path / "old") == (machine, "Go (before 1.18)", [])


def section_of(program: Path) -> str:
    """The name of the section with the table."""
    done = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True)
    return next(word for word in done.stdout.split() if word.endswith(".gopclntab"))


@pytest.mark.parametrize("name", ["Grow", "Large", "Small"])
def test_behind_the_check_of_the_stack(program: Program, name: str) -> None:
    """A probe is at a place that each call passes once, though the call restarts after its stack
    has grown.

    The place follows the first branch to that, by a disassembler.
    """
    folder, arch = program
    out = folder / "whole"
    _, address, _, offset = next(
        row for row in _core.elf_functions(out) if row[0] == f"main.(*T).{name}"
    )
    assert address == dict(symbols(out))[f"main.(*T).{name}"]
    headers = subprocess.run(["readelf", "-lW", out], capture_output=True, text=True).stdout
    loads = [line.split() for line in headers.splitlines() if " R E " in line]
    start, virtual = (int(word, 16) for word in loads[0][1:3])
    if arch == "amd64":
        listing = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", f"--start-address={address}", out],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        code = re.findall(r"^ *([0-9a-f]+):\s+(\S+)", listing, re.MULTILINE)[:8]
        branch = [instruction for _, instruction in code].index("jbe")
        behind = int(code[branch + 1][0], 16)
    else:  # binutils disassemble their own architecture only: B.LS is 0x54, an offset, and 9
        words = struct.unpack_from("<8I", out.read_bytes(), start + address - virtual)
        branch = [word & 0xFF00001F for word in words].index(0x54000009)
        # Another form of the check gets no probe.
        behind = address + 4 * (branch + 1) if branch == 2 else address
    assert offset - start + virtual == behind
