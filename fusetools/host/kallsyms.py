"""The running kernel's symbols, for recordings that were made on it."""

from __future__ import annotations

import os

KALLSYMS = "/proc/kallsyms"


def kallsyms_of(release: str | None, hostname: str | None) -> str | None:
    """Their place, where this host runs the kernel of a recording; None on another one.

    Whether it is the same boot the addresses tell that the recording holds.
    """
    here = os.uname()
    same = (here.release, here.nodename) == (release, hostname)
    return KALLSYMS if same and os.access(KALLSYMS, os.R_OK) else None
