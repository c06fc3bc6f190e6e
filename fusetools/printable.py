"""Text of unknown origin, made harmless."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""``text`` with everything that could steer a terminal written as an escape, e.g. ``\x1b``.

    Names of functions, tasks and mounts come out of a recording and are not to be trusted:
    control and format characters (also those that turn the writing direction), line ends,
    surrogates and unassigned code points never reach the terminal raw.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c == " " or unicodedata.category(c)[0] not in "CZ" else ascii(c)[1:-1] for c in text
    )
