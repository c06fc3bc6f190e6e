"""Callbacks of a stripped library, read from the table in its memory, equal the symbols of the same
library before it was stripped."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from fusetools import _core
from fusetools.host import exported
from fusetools.host.files import Files
from fusetools.host.memory import Memory
from fusetools.host.processes import code
from fusetools.plan.probeset import builtin

SET = ("lookup", "getattr", "readlink", "open", "read", "release", "forget", "forget_multi")
(GROUP,) = (g for s in builtin() if s.name == "cvmfs" for g in s.groups if g.exports)
PAD = 14  # words before the table, as in the client's own structure


def source(members: dict[str, str], words: int = PAD, again: bool = False) -> str:
    """Return a library's source: a structure with a table of these members, by function."""
    functions = "".join(
        f"__attribute__((noinline)) static int cb_{name}(int *a) {{ return *a + {i} + rand(); }}\n"
        for i, name in enumerate(dict.fromkeys([*members.values(), "other"]))
    )
    size = len(exported.MEMBERS)
    lines = "".join(
        f"  p->table[{at}] = (void *)cb_{function};\n"
        + (f"  p->second[{at}] = (void *)cb_{function};\n" if again else "")
        for member, function in members.items()
        for at in [exported.MEMBERS.index(member)]
    )
    return (
        "#include <stdlib.h>\n"
        + functions
        + f"struct e {{ unsigned version; void *before[{words}]; void *table[{size}];\n"
        + f"  void *second[{size}]; void *end[64]; }};\n"
        + "struct e *g_cvmfs_exports;\n"
        + "__attribute__((constructor)) static void make(void) {\n"
        + "  struct e *p = g_cvmfs_exports = calloc(1, sizeof *p);\n"
        + "  p->version = 5; p->before[9] = (void *)cb_other;\n"
        + lines
        + "}\n"
    )


def build(folder: Path, text: str, *flags: str) -> tuple[Path, dict[str, int]]:
    """Return a stripped library, and the addresses of its functions by nm."""
    (folder / "a.c").write_text(text)
    whole, stripped = folder / "whole.so", folder / "liba.so"
    command = ["gcc", "-Os", "-shared", "-fPIC", "-Wl,-Ttext-segment=0x10000", *flags]
    subprocess.run([*command, str(folder / "a.c"), "-o", str(whole)], check=True)
    subprocess.run(["strip", "-s", "-o", str(stripped), str(whole)], check=True)
    names = subprocess.run(["nm", str(whole)], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in names.splitlines() if " t cb_" in line.lower())
    return stripped, {name[3:]: int(address, 16) for address, _, name in rows}


def read(path: Path) -> dict[str, tuple[int, int, int]]:
    """Load the library, and return its callbacks."""
    library = ctypes.CDLL(str(path))
    try:
        status = path.stat()
        mapped = [one for one in code(Files(Path("/")), os.getpid()) if one.inode == status.st_ino]
        assert mapped
        assert GROUP.exports
        with Memory("/proc/self") as memory:
            rows = exported.callbacks(
                memory, mapped, str(path), GROUP.exports[0], list(GROUP.operations)
            )
        return {member: tuple(rest) for member, *rest in rows}  # type: ignore[misc]
    finally:
        _ctypes.dlclose(library._handle)


WHOLE = {member: member for member in ("init", "destroy", *SET)}


@pytest.mark.parametrize("flags", [(), ("-fcf-protection=full",)])
@pytest.mark.parametrize("words", [10, PAD])
def test_a_stripped_library(tmp_path: Path, words: int, flags: tuple[str, ...]) -> None:
    if flags and os.uname().machine != "x86_64":
        pytest.skip("an option of x86-64")
    path, addresses = build(tmp_path, source(WHOLE, words), *flags)
    assert not [name for name, *_ in _core.elf_functions(path) if name.startswith("cb_")]
    for _ in range(2):  # also loaded again, as after the client's reload
        found = read(path)
        assert {member: row[0] for member, row in found.items()} == {n: addresses[n] for n in SET}
        whole = {name: row for name, *row in _core.elf_functions(tmp_path / "whole.so")}
        for member, row in found.items():
            assert list(row) == whole[f"cb_{member}"]


def test_an_uncertain_table_names_nothing(tmp_path: Path) -> None:
    cases = {
        "as it is": source(WHOLE),
        "a member that the client never sets": source({**WHOLE, "write": "write"}),
        "without lookup": source({m: f for m, f in WHOLE.items() if m != "lookup"}),
        "two members with one function": source({**WHOLE, "read": "getattr"}),
        "two tables": source(WHOLE, again=True),
        "inside of a function": source(WHOLE).replace("(void *)cb_open;", "(void *)cb_open + 1;"),
        "outside of the library": source(WHOLE).replace("(void *)cb_open;", "(void *)rand;"),
        "no table yet": source(WHOLE).replace("calloc(1, sizeof *p)", "0; return"),
        "a wild pointer": source(WHOLE) + "__attribute__((constructor(65535)))"
        "static void wild(void) { g_cvmfs_exports = (void *)0x123456789a8; }",
    }
    found = {}
    for number, (name, text) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        found[name] = sorted(read(build(folder, text)[0]))
    assert found == {name: sorted(SET) if name == "as it is" else [] for name in cases}


def test_without_unwind_tables_nothing_is_certain(tmp_path: Path) -> None:
    path, _ = build(
        tmp_path, source(WHOLE), "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"
    )
    assert read(path) == {}


def test_a_library_without_the_variable(tmp_path: Path) -> None:
    path, _ = build(tmp_path, source(WHOLE).replace("g_cvmfs_exports", "g_other"))
    assert read(path) == {}
    assert _core.elf_exported(path, "g_cvmfs_exports")[1] is None
    names = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in names.splitlines() if line.endswith(" g_other")]
    assert _core.elf_exported(path, "g_other")[1] == int(line.split()[0], 16)


def test_starts_equal_pyelftools() -> None:
    for path in (Path(_core.__file__), *Path("/lib").glob("*-linux-gnu/libfuse3.so.3")):
        with path.open("rb") as file:
            entries = ELFFile(file).get_dwarf_info().EH_CFI_entries()
            expected = {
                (entry["initial_location"], entry["address_range"])
                for entry in entries
                if isinstance(entry, FDE)
            }
        addresses = [start for start, _ in expected]
        asked = [*addresses[:500], *(start + 1 for start in addresses[:500])]
        found = {(start, size) for start, size, _ in _core.elf_starts(path, asked)}
        assert found == {row for row in expected if row[0] in set(asked)}
        assert len(found) > 100
