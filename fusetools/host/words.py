"""Checks and escapes, in one place, what is written in lines for tracefs and perf.

Paths, thread names and function names come from daemons, that is, from anybody.
"""

from __future__ import annotations

import re

# tracefs splits its lines at white space and ends them at "#"; the last ":" of a probe's place
# counts (trace_parse_run_command, trace_uprobe_create); a line is at most 4096 bytes.
_WORD = re.compile(r"[A-Za-z0-9_./:+@=,~%$()<>-]{1,2048}")
_FILE = re.compile(r"/[A-Za-z0-9_./+@=,~%-]{1,1024}")

LONGEST = 40  # of an event's name: the kernel takes 63, "__return" and a number are appended


def is_word(text: str) -> bool:
    """Whether tracefs takes it as one word of a line."""
    return _WORD.fullmatch(text) is not None


def is_file(path: str) -> bool:
    """Whether a probe can be put on a file by this name."""
    return _FILE.fullmatch(path) is not None


def is_line(text: str) -> bool:
    """Whether tracefs takes it as one line: a newline would begin another definition."""
    return re.fullmatch(r"[ -~]{1,4000}", text) is not None


def is_pattern(text: str) -> bool:
    """Whether it is one name or pattern of kernel functions, for set_ftrace_filter."""
    return re.fullmatch(r"[A-Za-z0-9_.*?\[\]!^-]{1,256}", text) is not None


def is_cgroup(name: str) -> bool:
    """Whether perf -G takes it as one cgroup."""
    return re.fullmatch(r"[A-Za-z0-9_./:@\\=+~ -]{1,2048}", name) is not None


def event_name(function: str) -> str:
    """An event's name after a function, which the kernel and perf's parser take.

    perf has words of its own ("read", "mem", "cycles", "r1a"), none with a "_" between letters.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", function).strip("_")[-LONGEST:].strip("_")
    return name if re.match(r"[A-Za-z]{2,}[A-Za-z0-9]*_[A-Za-z0-9]", name) else f"call_{name}"


def quoted(comm: str) -> str:
    """A comparison with a thread's name, for event filters; what they cannot hold becomes "?"."""
    held = re.sub(r"[^ !#-)+->@-Z^-~]", "?", comm)
    return f'{"==" if held == comm else "~"} "{held}"'
