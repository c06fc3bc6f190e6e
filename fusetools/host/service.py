"""Messages to systemd from a service of Type=notify."""

from __future__ import annotations

import contextlib
import os
import socket


def ready() -> None:
    """Tell systemd that this service has started, if it is one. Source: sd_notify(3)."""
    address = os.environ.pop("NOTIFY_SOCKET", "")  # no workload may speak for this process
    if address[:1] not in ("/", "@"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.setblocking(False)
        service.sendto(b"READY=1", address.replace("@", "\0", 1))
