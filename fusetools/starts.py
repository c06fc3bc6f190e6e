"""Functions with which threads began: a thread's name says little (all threads of CernVM-FS are
called cvmfs2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# Functions that run a thread's start function: of C libraries, C++'s std::thread, Rust and Go; and
# main(), which is no name of a thread.
_RUNS_IT = re.compile(
    r"_*(GI_+)?(clone3?|start_thread|start|libc_start_(call_)?main(_impl)?(@.*)?|thread_start|main)$"
    r"|execute_native_thread_routine|thread_proxy$|std::(thread::|__?invoke)|core::ops::function::FnOnce|std::(sys|panic|sys_common|backtrace)"
    r"|runtime\.(goexit|mcall|mstart|systemstack)"
)
# Functions of C++'s library that it does not export.
_NAMELESS = ("[libstdc++.so", "[libc++.so")
_INTERPRETED = ("pythread_wrapper", "thread_run")  # functions that begin each thread of Python
_C_LIBRARY = ("libc.so", "libc-2", "libpthread", "ld-")  # as in native/core/src/programs/stacks.rs


def says_nothing(name: str, file: str) -> bool:
    """Return whether a function of a file is one of the C library, or begins a thread or a
    program."""
    return file.startswith(_C_LIBRARY) or name.startswith("[") or bool(_RUNS_IT.match(name))


def start_of(functions: Iterable[str]) -> str:
    """Return the start function of a thread from its functions, outermost first, without its
    parameters and namespaces.

    Return "" if it has no name.
    """
    for name in functions:
        name = name.replace("(anonymous namespace)::", "")
        if not _RUNS_IT.match(name) and not name.startswith(_NAMELESS):
            plain = name.partition("(")[0]
            short = plain if "<" in plain else plain.rpartition("::")[2]
            return "" if name.startswith("[") or short in _INTERPRETED else short
    return ""


def start_of_frames(frames: Iterable[tuple[str, str, bool]]) -> str:
    """Return the start function of a thread from a recorded stack, outermost first: the name, file
    and "is the kernel's" of each frame.

    Return "" unless the stack reaches the C library's function that starts threads, and for a
    process's first thread.
    """
    user = [(name, os.path.basename(path)) for name, path, kernel in frames if not kernel]
    own = next((n for n, (_, file) in enumerate(user) if not file.startswith(_C_LIBRARY)), 0)
    if not own:
        return ""
    names = [name for name, _ in user[:own]]
    if any(not name.startswith("[") and not _RUNS_IT.match(name) for name in names):
        return ""
    found: list[str] = []
    for name, file in user[own:]:
        if not file or file.startswith(_C_LIBRARY):
            break
        found.append(name)
    return start_of(found) if found[:1] != ["main"] else ""
