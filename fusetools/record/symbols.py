"""The functions of a daemon's libraries, with those of a separate debug file, and the kernel's.

The files are whatever a daemon, or a container, has made of them: each is read by a child process
that may do nothing else, with limits of time and memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict

from fusetools.core import native
from fusetools.host.debuginfod import debug_place
from fusetools.host.exported import callbacks
from fusetools.host.facts import Library
from fusetools.host.files import Files, bounded, open_regular
from fusetools.host.memory import Memory
from fusetools.host.mounts import MEMORY
from fusetools.host.processes import PATIENCE, code
from fusetools.host.rights import drop_privileges
from fusetools.plan.callbacks import Symbol, Symbols
from fusetools.plan.daemons import Target

KALLSYMS = "/proc/kallsyms"
SECONDS = 20.0  # for a file's symbols, on a busy machine: 300 MB take 2
MOST = 2_000_000  # functions of a file


class _Answer(TypedDict, total=False):
    """``why`` alone: why the file cannot be read."""

    why: str
    functions: list[Symbol]
    stepped: list[int]
    plain: dict[str, str]


def of_targets(targets: Iterable[Target]) -> Symbols:
    """Return the functions of the targets' libraries, for the planner. A stripped library that
    exports the table of its callbacks has them, as read from the daemon's memory."""
    targets = list(targets)
    pids = [target.mount.daemon_pid for target in targets]
    symbols = functions((one, pid) for t, pid in zip(targets, pids) for one in t.libraries)
    named = {path: list(rows) for path, rows in symbols.functions.items()}
    for target, pid in zip(targets, pids):
        pairs = [*target.groups, *(pair for _, groups in target.otherwise for pair in groups)]
        for group, library in pairs:
            rows = named.get(library.host_path)
            if pid is None or rows is None or group.exports is None:
                continue
            plain = (symbols.plain.get(name, name) for name, *_ in rows)
            if not any(map(group.function.fullmatch, plain)):
                rows += _exported(library, pid, *group.exports, list(group.operations))
    return replace(symbols, functions=named)


def _exported(
    library: Library, pid: int, variable: str, name: str, known: list[str]
) -> list[Symbol]:
    """Return the callbacks of a stripped library in a daemon, ``name`` with the member of libfuse's
    table in place of "*"."""

    identity = library.inode, library.device
    maps = code(Files(Path("/")), pid)
    mapped = [one for one in maps if (one.inode, one.device) == identity]

    def look() -> str:
        with Memory(f"/proc/{pid}") as memory:
            path = f"/proc/self/fd/{open_regular(library.host_path)}"
            drop_privileges()
            return json.dumps(callbacks(memory, mapped, path, variable, known))

    answer = json.loads(bounded(look, SECONDS, memory=MEMORY) or "[]")
    return [(name.replace("*", str(m)), int(a), int(s), int(o)) for m, a, s, o in answer]


def functions(libraries: Iterable[tuple[Library, int | None]]) -> Symbols:
    """Return the functions of libraries, each with the pid whose root its debug file may lie
    under."""
    symbols: dict[str, list[Symbol]] = {}
    plain: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    stepped: set[str] = set()
    for library, pid in libraries:
        path = library.host_path
        if not path or path in (*symbols, *unreadable):
            continue
        debug = debug_file(library.build_id or "", pid)
        answer = _asked(path, debug)
        if answer is None and debug:
            answer = _asked(path, None)
        if answer is None:
            unreadable[path] = "its symbols take too long, or too much memory, to be read"
        elif "why" in answer:
            unreadable[path] = str(answer["why"])
        else:
            symbols[path] = [(str(n), int(a), int(s), int(o)) for n, a, s, o in answer["functions"]]
            plain.update(answer["plain"])
            stepped.update(f"{path}:0x{offset:x}" for offset in answer["stepped"])
    return Symbols(symbols, plain, unreadable, frozenset(stepped))


def _asked(path: str, debug: str | None) -> _Answer | None:
    text = bounded(partial(_look, path, debug), SECONDS, memory=MEMORY)
    answer: _Answer | None = None if text is None else json.loads(text)
    return answer


def _look(path: str, debug: str | None) -> str:
    """Read a file's functions, as nobody, after opening it as root. For a child."""
    try:
        main = f"/proc/self/fd/{open_regular(path)}"
        more = f"/proc/self/fd/{open_regular(debug)}" if debug else None
    except OSError as error:
        return json.dumps({"why": error.strerror or str(error)})
    drop_privileges()
    try:
        rows = native.elf_functions(main, more)
        stepped = native.elf_stepped(main, [row[3] for row in rows])
    except native.CoreError as error:
        return json.dumps({"why": str(error.args[1]).replace(main, path)})
    if len(rows) > MOST:
        return json.dumps({"why": f"it has more than {MOST:,} functions"})
    mangled = [name for name, *_ in rows if name.startswith(("_Z", "_R"))]
    plain = {name: native.demangle(name) for name in mangled}
    return json.dumps({"functions": rows, "stepped": stepped, "plain": plain})


def is_same(library: Library) -> bool:
    """Return whether the very file of another host's library is here, by its build id."""
    if not library.host_path or not library.build_id:
        return False
    path = library.host_path

    def look() -> str:
        file = f"/proc/self/fd/{open_regular(path)}"
        drop_privileges()
        return native.elf_build_id(file) or ""

    return bounded(look, PATIENCE) == library.build_id


def kernel_address(files: Files, name: str) -> int:
    """Return the address of a kernel function, by kallsyms; 0 if that is hidden."""
    text = files.read(KALLSYMS, quiet=True) or ""
    match = re.search(rf"^([0-9a-f]+) [tT] {re.escape(name)}(?:\t|$)", text, re.MULTILINE)
    return int(match[1], 16) if match else 0


def debug_file(build_id: str, pid: int | None) -> str | None:
    """Return the separate debug file of that build id, here or under the daemon's root. None also
    where the daemon's file system does not answer."""
    name = debug_place(build_id)
    if name is None:
        return None

    def look(*paths: str) -> str:
        return next(filter(os.path.isfile, paths), "")

    paths = ["/" + name] if pid is None else ["/" + name, f"/proc/{pid}/root/{name}"]
    answer = bounded(partial(look, *paths), PATIENCE)
    return (bounded(partial(look, paths[0]), PATIENCE) if answer is None else answer) or None
