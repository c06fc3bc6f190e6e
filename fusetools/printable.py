"""Escaping of untrusted text for the terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""Escape every character that could control a terminal, e.g. as ``\x1b``.

    Names of functions, tasks and mounts in a recording are untrusted. Control and format characters
    (also those that change the writing direction), line ends, surrogates and unassigned code points
    are escaped.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c == " " or unicodedata.category(c)[0] not in "CZ" else ascii(c)[1:-1] for c in text
    )
