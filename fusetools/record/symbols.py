"""The functions of a daemon's libraries, with those of a separate debug file, and the kernel's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fusetools import _core
from fusetools.errors import Error
from fusetools.host.facts import Library
from fusetools.host.files import Files

KALLSYMS = "/proc/kallsyms"


def functions(
    libraries: Iterable[tuple[Library, int | None]],
) -> tuple[dict[str, list[tuple[str, int, int, int]]], dict[str, str]]:
    """(functions by the library's host_path, plain names by mangled ones).

    ``libraries``: each with the pid whose root its debug file may lie under. Error: not readable.
    """
    found: dict[str, list[tuple[str, int, int, int]]] = {}
    plain: dict[str, str] = {}
    for library, pid in libraries:
        if library.host_path in found:
            continue
        if not library.host_path:
            why = "its file is gone, was replaced, or does not answer: restart the daemon"
            raise Error(f"cannot read {library.path}", why)
        try:
            found[library.host_path] = _core.elf_functions(
                library.host_path, debug_file(library.host_path, pid)
            )
        except _core.CoreError as error:
            what, why = error.args
            raise Error(what, why) from error
        for name, *_ in found[library.host_path]:
            if name.startswith(("_Z", "_R")):
                plain[name] = _core.demangle(name)
    return found, plain


def kernel_address(files: Files, name: str) -> int:
    """Of a kernel function, by kallsyms; 0 where it does not tell."""
    text = files.read(KALLSYMS, quiet=True) or ""
    match = re.search(rf"^([0-9a-f]+) [tT] {re.escape(name)}(?:\t|$)", text, re.MULTILINE)
    return int(match[1], 16) if match else 0


def debug_file(path: str, pid: int | None) -> str | None:
    """The separate debug file of the same build id, here or under the daemon's root."""
    build_id = _core.elf_build_id(path)
    if not build_id:
        return None
    name = f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    roots = ["/"] if pid is None else ["/", f"/proc/{pid}/root/"]
    return next((root + name for root in roots if Path(root + name).is_file()), None)
