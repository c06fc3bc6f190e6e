"""Shell patterns as regular expressions, and suggestions for unknown names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from fusetools.errors import Error

MOST = 60  # maximum number of names in a message


def similar(name: str, known: Iterable[str], least: float = 0.6) -> list[str]:
    """Return the known names that are most similar, at least by ``least`` of 1."""
    from difflib import get_close_matches  # imported for a mistake only: it takes 1 ms

    return get_close_matches(name, list(known), cutoff=least)


def unknown(what: str, name: str, known: Collection[str], fix: str) -> Error:
    """Return the error of an unknown name: with the most similar known name in its place, or with
    all known names and ``fix``."""
    if close := similar(name, known, 0.7):
        return Error(what, f"similar names: {', '.join(close)}", fix, (name, close[0]))
    names = sorted(known)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return Error(what, f"known names: {', '.join(names[:MOST]) or 'none'}{more}", fix)


def matches(patterns: Iterable[str], operation: str, function: str) -> bool:
    """Return whether a shell pattern matches the operation or the function."""
    return any(
        fnmatchcase(operation, pattern) or fnmatchcase(function, pattern) for pattern in patterns
    )


def expression(pattern: str) -> str:
    """Translate a shell pattern to a regular expression of the core; * also matches "/"."""
    regex, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        end = pattern.find("]", at + 2 if pattern[at : at + 1] == "!" else at + 1)
        if letter == "[" and end > 0:
            inside = pattern[at:end]
            negated = inside.startswith("!")
            # Escape ranges and letters one by one: "--" is set difference in the core's syntax.
            inside = re.sub(r"(?s)(.)-(.)|(.)", _escaped, inside[negated:])
            regex += f"[{'^' if negated else ''}{inside}]"
            at = end + 1
        else:
            regex += {"*": ".*", "?": "."}.get(letter, re.escape(letter))
    return rf"(?s)\A(?:{regex})\z"


def _escaped(range_or_letter: re.Match[str]) -> str:
    return "-".join(re.escape(letter) for letter in range_or_letter.groups() if letter)
