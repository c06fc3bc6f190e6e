"""The native core: reads recordings and ELF files. Raw events never become Python objects.

Nothing here is public: `fusetools.recording` answers in the types of `fusetools.model`.
Every function that reads a file raises `CoreError` when it cannot.
"""

from __future__ import annotations

from os import PathLike

class CoreError(Exception):
    """`args` is `(what, why)`: what could not be done and why, a line each."""

def elf_functions(
    path: str | PathLike[str], debug_path: str | PathLike[str] | None = None
) -> list[tuple[str, int, int, int]]:
    """Functions of .symtab and .dynsym as (name, virtual address, size, file offset), by address.

    Names are as in the file (mangled), without a symbol version; `.cold` halves are left out. The
    file offset is where a uprobe goes (vaddr - p_vaddr + p_offset of the segment). `debug_path`
    adds the symbols of a separate debug file, which must have the same build id.
    """

def elf_build_id(path: str | PathLike[str]) -> str | None:
    """The GNU build id in lower-case hexadecimal."""

def demangle(name: str) -> str:
    """A C++ or Rust name without its arguments (`cvmfs::cvmfs_lookup`); any other as it is."""

def calibrate(n: int) -> int:
    """Calls the exported, empty function `fusetools_calibrate` n times; ns that took."""
