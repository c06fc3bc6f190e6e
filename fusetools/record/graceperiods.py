"""The kernel's RCU grace periods, expedited while a recording is armed, and while it ends.

Closing a probe's event waits for several of them, one event after the other: with 28 events 3.0 s
became 1.9 s; making an instance of ftrace's took 50 ms, and 10 ms since (Linux 6.18, 2 CPUs). An
expedited one interrupts all CPUs instead of waiting for them, so nothing is expedited while
something is measured.
Source: Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_expedited.
"""

from __future__ import annotations

import os
from pathlib import Path

SETTING = Path("/sys/kernel/rcu_expedited")
# Set on real-time hosts: no CPU is to be interrupted, whatever the other setting is.
FORBIDDEN = Path("/sys/kernel/rcu_normal")


def may_be_expedited(setting: Path = SETTING, forbidden: Path = FORBIDDEN) -> bool:
    """Return whether they are not expedited yet, and nobody forbids it."""
    try:
        return setting.read_text().strip() == "0" and forbidden.read_text().strip() == "0"
    except OSError:
        return False


def expedite(on: bool, setting: Path = SETTING) -> bool:
    """Expedite grace periods, or stop to. Return False if the kernel refuses."""
    try:
        descriptor = os.open(setting, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        os.write(descriptor, b"1" if on else b"0")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
