"""Functions and build ids equal those of binutils and pyelftools."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import frame_pointers
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from fusetools import _core
from fusetools.host.facts import Library
from fusetools.record import symbols

CPP = """
#include <cstdlib>
#include <string>
namespace cvmfs {
__attribute__((noinline)) static int cvmfs_lookup(void *req, unsigned long ino, const char *name) {
  if (__builtin_expect(ino == 7, 0)) { std::string s(name); s += "x"; throw s; }
  return name[0] + (req != nullptr);
}
}
extern "C" int entry(void *req, unsigned long ino, const char *name) {
  try { return cvmfs::cvmfs_lookup(req, ino, name); } catch (std::string &s) { abort(); }
}
"""
LOOKUP = "_ZN5cvmfsL12cvmfs_lookupEPvmPKc"


def run(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose functions' file offsets differ from their addresses, with .cold halves."""
    folder = tmp_path_factory.mktemp("elf")
    source, out = folder / "a.cc", folder / "liba.so"
    source.write_text(CPP)
    flags = ["-O2", "-shared", "-fPIC", "-Wl,--build-id", "-Wl,-Ttext-segment=0x10000"]
    run("g++", *flags, source, "-o", out)
    return out


def real_files() -> list[Path]:
    """Large libraries of this host, the interpreter (an executable) and the core itself."""
    names = ("libc.so.6", "libstdc++.so.6", "libfuse3.so.3", "libcrypto.so.3")
    lines = [line.split() for line in run("/sbin/ldconfig", "-p").splitlines()]
    found = [Path(line[-1]) for line in lines if line[0] in names]
    return [*found, Path(sys.executable).resolve(), Path(_core.__file__)]


def by_pyelftools(path: Path) -> set[tuple[str, int, int, int]]:
    found = set()
    with path.open("rb") as file:
        elf = ELFFile(file)
        loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        for table in (".symtab", ".dynsym"):
            section = elf.get_section_by_name(table)
            for symbol in section.iter_symbols() if isinstance(section, SymbolTableSection) else ():
                if symbol["st_info"]["type"] != "STT_FUNC" or symbol["st_shndx"] == "SHN_UNDEF":
                    continue
                name = symbol.name.split("@")[0]
                if name.endswith(".cold"):
                    continue
                address = symbol["st_value"]
                for load in loads:
                    inside = address - load["p_vaddr"]
                    if 0 <= inside < load["p_filesz"]:
                        found.add((name, address, symbol["st_size"], load["p_offset"] + inside))
    return found


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_functions_of_real_files(path: Path) -> None:
    expected = by_pyelftools(path)
    places = {row[:3]: row[3] for row in expected}
    code = path.read_bytes()
    # Functions in libfuse's table have no size.
    found = [row for row in _core.elf_functions(path) if row[2] or not row[0].startswith("do_")]
    for name, address, size, offset in found:
        inside = offset - places[name, address, size]
        push = 0x50 <= code[offset + (code[offset] == 0x41)] < 0x58
        assert inside == 0 or (0 < inside < size and push), name
    # One row per name and address, though the two tables may disagree on the size.
    assert {(name, address) for name, address, *_ in found} == {row[:2] for row in expected}
    assert len({row[:2] for row in found}) == len(found)
    assert found == sorted(found, key=lambda row: (row[1], row[0]))


def test_probes_go_behind_what_the_kernel_would_step_over(tmp_path: Path) -> None:
    """endbr64 and mov; not where the stack pointer has moved, as a return probe is set there,
    too."""
    source, out = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text(
        "void f(void *); void other(void *);\n"
        "int saves(int *a) { int *mine = a; f(a); return *mine; }\n"
        "void calls(void) { long room[9]; f(room); }\n"
        "int first(long a, long b) { f((void *) b); return a; }\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("places are chosen on x86-64 only")
    for flags, behind in ((("-fcf-protection=full",), 4), (("-fcf-protection=none",), 0)):
        run("gcc", "-O2", *flags, "-fPIC", "-shared", str(source), "-o", str(out))
        rows = {name: row for name, *row in _core.elf_functions(out)}
        address = {name: int(at, 16) for at, kind, name in map(str.split, nm(out)) if kind == "T"}
        inside = {name: rows[name][2] - address[name] for name in ("saves", "calls", "first")}
        assert inside == {"saves": behind, "calls": 0, "first": behind}
        places = {name: row[2] for name, row in rows.items() if name in inside}
        # The reported cost of a recording is measured where the kernel emulates.
        assert _core.elf_stepped(out, list(places.values())) == [places["calls"]]
        named = Library(path=str(out), host_path=str(out), inode=0, device="")
        stepped = symbols.functions([(named, None)]).stepped
        assert {name for name, at in places.items() if f"{out}:{at:#x}" in stepped} == {"calls"}
        assert _core.elf_stepped(out, [1 << 40, 2**64 - 1]) == [1 << 40, 2**64 - 1]
        out.unlink()
    with pytest.raises(_core.CoreError, match="No such file"):
        _core.elf_stepped(out, [0])


HANDLERS = """
typedef void (*handler)(void *req, unsigned long ino, const void *arg);
#define HANDLER(name) static void do_##name(void *req, unsigned long ino, const void *arg) \\
  { __asm__ volatile("" :: "r"(#name), "r"(req)); }
HANDLER(lookup) HANDLER(forget) HANDLER(getattr) HANDLER(open) HANDLER(read) HANDLER(access)
static struct { handler function; const char *name; } TABLE fuse_ll_ops[] = {
  [1] = {do_lookup, "LOOKUP"}, [2] = {do_forget, "FORGET"}, [3] = {do_getattr, "GETATTR"},
  [14] = {do_open, "OPEN"}, [15] = {do_read, "READ"}, [34] = {do_access, "ACCESS"},
  [31] = {do_access, "GETLK"}, [41] = {0, "NOTIFY_REPLY"}, [43] = {do_forget + 1, "OTHER"},
};
#ifdef TWO
static struct { handler function; const char *name; } fuse_ll_ops2[] = {
  [1] = {do_lookup, "LOOKUP"}, [2] = {do_forget, "FORGET"}, [3] = {do_getattr, "GETATTR"},
  [14] = {do_open, "OPEN"}, [15] = {do_read, "READ"},
};
void second(int opcode) { fuse_ll_ops2[opcode].function(0, 0, fuse_ll_ops2[opcode].name); }
#endif
void fuse_reply_entry(int opcode) { fuse_ll_ops[opcode].function(0, 0, fuse_ll_ops[opcode].name); }
int main(void) { return 0; }
"""


@pytest.mark.parametrize("flags", [("-shared", "-fPIC"), ("-no-pie",)], ids=("library", "program"))
def test_handlers_of_libfuse_without_symbols(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Names come from the library's table; a function in two of its places has no name."""
    source, out = tmp_path / "a.c", tmp_path / "a.out"
    source.write_text(HANDLERS)
    build = ("gcc", "-O1", *flags, "-rdynamic", source, "-o", out)
    run(*build, "-DTABLE=")
    named = {name: int(at, 16) for at, kind, name in map(str.split, nm(out)) if kind == "t"}
    run("strip", out)
    handlers = {n: a for n, a, *_ in _core.elf_functions(out) if n.startswith("do_")}
    wanted = ("do_lookup", "do_forget", "do_getattr", "do_open", "do_read")
    assert handlers == {name: named[name] for name in wanted}
    # A program with the library inside exports none of its functions.
    text = HANDLERS.replace("void fuse_reply_entry", "void serve")
    source.write_text(text.replace("main(void) {", "main(void) { serve(1);"))
    run("gcc", "-O1", *flags, source, "-o", out, "-DTABLE=")
    inside = {name: int(at, 16) for at, kind, name in map(str.split, nm(out)) if kind == "t"}
    run("strip", out)
    handlers = {n: a for n, a, *_ in _core.elf_functions(out) if n.startswith("fuse_ll_ops.")}
    assert handlers == {name.replace("do_", "fuse_ll_ops."): inside[name] for name in wanted}
    source.write_text(HANDLERS)
    # If two tables exist, the library's one is unknown; other symbols with those names do not
    # count.
    run(*build, "-DTABLE=", "-DTWO")
    run("strip", out)
    assert not [name for name, *_ in _core.elf_functions(out) if name.startswith("do_")]


def nm(path: Path) -> list[str]:
    return [line for line in run("nm", path).splitlines() if len(line.split()) == 3]


def test_handlers_of_this_hosts_libfuse() -> None:
    """Each probe is on an instruction, according to the disassembler.

    If it is not the function's first one, it is on a jump or a push, before which no instruction
    writes the arguments' registers.
    """
    (path,) = [path for path in real_files() if path.name.startswith("libfuse3")]
    rows = [row for row in _core.elf_functions(path) if row[0].startswith("do_")]
    if not rows:
        pytest.skip(f"{path} has several tables of handlers, or none")
    names = {name for name, *_ in rows}
    assert len(names) > 35 and {"do_lookup", "do_readdirplus", "do_write"} <= names
    inside = 0
    for _, address, _, offset in rows:
        # In libfuse3 the addresses of code are its offsets.
        span = [f"--start-address={address}", f"--stop-address={offset + 16}"]
        listing = run("objdump", "-d", "--no-show-raw-insn", *span, path).splitlines()
        code = [
            line.strip().split(":", 1) for line in listing if re.match(r"\s+[0-9a-f]+:\s", line)
        ]
        at = [int(where, 16) for where, _ in code].index(offset)
        if at and platform.machine() == "x86_64":
            inside += 1
            assert re.match(r"\s*(j[a-z]+|push)\s", code[at][1]), code
            for _, before in code[:at]:
                written = re.search(r"%(\w+)$", before.partition("#")[0].strip())
                compares = re.match(r"\s*(test|cmp)", before)
                assert compares or not written or written[1] not in ARGUMENTS, code
    assert inside > 10 or platform.machine() != "x86_64"


ARGUMENTS = {"rdi", "edi", "rsi", "esi", "rdx", "edx", "di", "si", "dx", "dl", "dh", "sil", "dil"}


def test_cold_halves_and_offsets(library: Path) -> None:
    symbols = [line.split() for line in run("nm", library).splitlines() if " t " in line]
    assert f"{LOOKUP}.cold" in {name for *_, name in symbols}, "the compiler made no .cold half"
    functions = {name: row for name, *row in _core.elf_functions(library)}
    assert not [name for name in functions if "cold" in name]
    address, size, offset = functions[LOOKUP]
    assert address == next(int(at, 16) for at, _, name in symbols if name == LOOKUP)
    assert offset != address
    # The bytes there in the file are those that the disassembler shows at the address.
    span = [f"--start-address={address}", f"--stop-address={address + size}"]
    listing = run("objdump", "-d", *span, library).splitlines()
    first = next(line for line in listing if line.strip().startswith(f"{address:x}:"))
    code = bytes.fromhex(first.split("\t")[1].replace(" ", ""))
    assert library.read_bytes()[offset : offset + len(code)] == code
    assert _core.demangle(LOOKUP) == "cvmfs::cvmfs_lookup"


def test_debug_file(library: Path, tmp_path: Path) -> None:
    """Symbols come from the debug file, offsets from the stripped one: a debug file has no
    contents."""
    debug, stripped = tmp_path / "liba.debug", tmp_path / "liba.so"
    run("objcopy", "--only-keep-debug", library, debug)
    run("objcopy", "--strip-all", library, stripped)
    assert LOOKUP not in {name for name, *_ in _core.elf_functions(stripped)}
    assert _core.elf_functions(stripped, debug) == _core.elf_functions(library)
    assert _core.elf_build_id(debug) == _core.elf_build_id(stripped) is not None
    with pytest.raises(_core.CoreError, match="build id"):
        _core.elf_functions(stripped, _core.__file__)


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_build_ids(path: Path) -> None:
    with path.open("rb") as file:
        notes = [
            note["n_desc"]
            for section in ELFFile(file).iter_sections()
            if isinstance(section, NoteSection)
            for note in section.iter_notes()
            if note["n_type"] == "NT_GNU_BUILD_ID"
        ]
    assert _core.elf_build_id(path) == (notes[0] if notes else None)


def test_names_as_binutils_reads_them() -> None:
    """The functions of libstdc++ as c++filt prints them; a few templates differ."""
    path = next(path for path in real_files() if path.name.startswith("libstdc++"))
    names = [name for name, *_ in _core.elf_functions(path) if name.startswith("_Z")]
    filtered = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(filtered) == len(names) > 1000
    ours = [_core.demangle(name) for name in names]
    simple = [i for i, name in enumerate(filtered) if not set("<(") & set(name)]
    assert len(simple) > 300
    differing = [(ours[i], filtered[i]) for i in simple if ours[i] != filtered[i]]
    assert not differing
    assert sum(a != b for a, b in zip(ours, names)) > 0.99 * len(names)


def test_errors(tmp_path: Path) -> None:
    cases = {
        tmp_path / "none": "No such file or directory",
        tmp_path: "not a file",
        Path(__file__): "not an ELF file",
    }
    for path, why in cases.items():
        with pytest.raises(_core.CoreError) as caught:
            _core.elf_functions(path)
        what, said = caught.value.args
        assert str(path) in what
        assert why in said


def test_damaged_files(library: Path, tmp_path: Path) -> None:
    """With each word of the headers and tables set to extremes, reading fails or succeeds
    quickly."""
    good = library.read_bytes()
    bad = tmp_path / "bad.so"
    with library.open("rb") as file:
        sections = ELFFile(file)["e_shoff"]
    for place in (*range(0, 64 + 12 * 56, 4), *range(sections, len(good) - 4, 4)):
        for value in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0"):
            bad.write_bytes(good[:place] + value + good[place + 4 :])
            for read in (
                *(_core.elf_functions, _core.elf_build_id, _core.elf_frame_pointers),
                *(partial(_core.elf_exported, name="x"), partial(_core.elf_starts, addresses=[0])),
            ):
                try:
                    read(bad)
                except _core.CoreError as error:
                    assert len(error.args) == 2
    for size in range(0, len(good), 97):
        bad.write_bytes(good[:size])
        with pytest.raises(_core.CoreError):
            _core.elf_functions(bad)


FRAMES = """
#include <stdio.h>
#include <string.h>
int one(int n, char **list) { int sum = 0; for (int i = 0; i < n; i++) sum += printf("%s", list[i]);
  for (int i = n; i-- > 1;) sum += puts(list[i]) + i + n; return sum; }
int two(int a, int b, int c, int d, int e, int f) {
  int s = puts("x"); return s + a + puts("y") * b + puts("z") * c + puts("w") * d + e + f; }
int leaf(int a) { return a + 1; }
int buffered(const char *s) { char b[4000]; strcpy(b, s); return puts(b); }
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="compiles for x86-64")
@pytest.mark.parametrize("level", ["-O0", "-Os", "-O2", "-O3"])
@pytest.mark.parametrize("flag", ["-fno-omit-frame-pointer", "-fomit-frame-pointer"])
def test_frame_pointers(tmp_path: Path, level: str, flag: str) -> None:
    """Compare the compiler's options, and readelf's view of the same tables."""
    source, out = tmp_path / "a.c", tmp_path / "liba.so"
    source.write_text(FRAMES)
    run("gcc", level, flag, "-w", "-shared", "-fPIC", "-nostartfiles", source, "-o", out)
    assert _core.elf_frame_pointers(out) == (flag == "-fno-omit-frame-pointer")
    run("strip", "-s", out)
    assert _core.elf_frame_pointers(out) == (frame_pointers.by_readelf(out) or 0.0)
    run("objcopy", "--remove-section", ".eh_frame", out)
    assert _core.elf_frame_pointers(out) is None


def test_frame_pointers_of_a_mixture(library: Path) -> None:
    """Functions of both kinds, from C++ with exceptions: by bytes, as readelf shows."""
    assert _core.elf_frame_pointers(library) == frame_pointers.by_readelf(library)


def test_calibrate_is_exported() -> None:
    exported = run("nm", "-D", "--defined-only", _core.__file__)
    assert " T fusetools_calibrate\n" in exported
    assert "fusetools_calibrate" in {name for name, *_ in _core.elf_functions(_core.__file__)}
    assert 0 < _core.calibrate(1000) < 10**8
