"""Checks and escapes for text that is written into lines for tracefs and perf.

Paths, thread names and function names come from daemons, so anybody can choose them.
"""

from __future__ import annotations

import re

# tracefs splits its lines at white space and ends them at "#"; the last ":" of a probe's place
# counts (trace_parse_run_command, trace_uprobe_create); a line is at most 4096 bytes.
_WORD = re.compile(r"[A-Za-z0-9_./:+@=,~%$()<>-]{1,2048}")
_FILE = re.compile(r"/[A-Za-z0-9_./+@=,~%-]{1,1024}")

# Maximum length of an event's name: the kernel allows 63, and "__return" and a number are appended
LONGEST = 40


def is_word(text: str) -> bool:
    """Return whether tracefs accepts the text as one word of a line."""
    return _WORD.fullmatch(text) is not None


def is_file(path: str) -> bool:
    """Return whether a probe can be set on a file with this name."""
    return _FILE.fullmatch(path) is not None


def is_line(text: str) -> bool:
    """Return whether tracefs accepts the text as one line: a newline would begin another
    definition."""
    return re.fullmatch(r"[ -~]{1,4000}", text) is not None


def is_pattern(text: str) -> bool:
    """Return whether the text is one name or pattern of kernel functions, for set_ftrace_filter."""
    return re.fullmatch(r"[A-Za-z0-9_.*?\[\]!^-]{1,256}", text) is not None


def is_cgroup(name: str) -> bool:
    """Return whether perf -G accepts the text as one cgroup."""
    return re.fullmatch(r"[A-Za-z0-9_./:@\\=+~ -]{1,2048}", name) is not None


def event_name(function: str) -> str:
    """Return an event name for a function that the kernel and perf's parser accept.

    perf has words of its own ("read", "mem", "cycles", "r1a"), none of them with a "_" between
    letters.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", function).strip("_")[-LONGEST:].strip("_")
    return name if re.match(r"[A-Za-z]{2,}[A-Za-z0-9]*_[A-Za-z0-9]", name) else f"call_{name}"


def quoted(comm: str) -> str:
    """Return a comparison with a thread's name for event filters.

    Characters that filters cannot hold become "?".
    """
    held = re.sub(r"[^ !#-)+->@-Z^-~]", "?", comm)
    return f'{"==" if held == comm else "~"} "{held}"'
