"""Shell patterns."""

from __future__ import annotations

import re
from collections.abc import Collection

MOST = 60  # names in a message


def instead(name: str, known: Collection[str]) -> str:
    """What an unknown name may stand for: the names similar to it, or all of them."""
    from difflib import get_close_matches  # only for a mistake: it takes a millisecond

    if close := get_close_matches(name, known, cutoff=0.7):
        return f"similar names: {', '.join(close)}"
    names = sorted(known)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"known names: {', '.join(names[:MOST]) or 'none'}{more}"


def expression(pattern: str) -> str:
    """A shell pattern as a regular expression of the core: * matches "/", too."""
    regex, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        end = pattern.find("]", at + 2 if pattern[at : at + 1] == "!" else at + 1)
        if letter == "[" and end > 0:
            inside = pattern[at:end]
            negated = inside.startswith("!")
            # Ranges and letters; the core takes "--" for a difference.
            inside = re.sub(r"(?s)(.)-(.)|(.)", _escaped, inside[negated:])
            regex += f"[{'^' if negated else ''}{inside}]"
            at = end + 1
        else:
            regex += {"*": ".*", "?": "."}.get(letter, re.escape(letter))
    return rf"(?s)\A(?:{regex})\z"


def _escaped(range_or_letter: re.Match[str]) -> str:
    return "-".join(re.escape(letter) for letter in range_or_letter.groups() if letter)
