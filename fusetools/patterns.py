"""Shell patterns."""

from __future__ import annotations

import re


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
            # In brackets only "-" keeps its meaning from the pattern.
            inside = re.sub(r"([\\\[\]^&~])", r"\\\1", inside[negated:])
            regex += f"[{'^' if negated else ''}{inside}]"
            at = end + 1
        else:
            regex += {"*": ".*", "?": "."}.get(letter, re.escape(letter))
    return rf"(?s)\A(?:{regex})\z"
