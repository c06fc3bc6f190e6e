"""New mounts since a flight recorder began: autofs mounts and unmounts all the time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from fusetools.host.facts import Mount
from fusetools.host.files import Files
from fusetools.host.mounts import all_namespaces, mount_on, read_mounts
from fusetools.host.processes import open_files, read_stat

SEARCH = 60.0  # seconds between two looks at all processes


class NewMounts:
    """Watches for new mounts.

    ``recorded``: the daemon (pid and start time) of each connection, None if unknown. ``paths``:
    only the mounts that contain these paths; None: all.
    """

    def __init__(
        self, files: Files, paths: Sequence[str], recorded: Mapping[int, tuple[int, int] | None]
    ) -> None:
        self._files = files
        self._paths = paths
        self._recorded = dict(recorded)
        self._searched = -SEARCH
        self._before: list[str] = []

    def look(self) -> list[str]:
        """Return the paths of unrecorded mounts that were seen twice: by then their daemons are in
        the background."""
        mounts = all_namespaces(self._files)
        for connection in self._recorded.keys() - {mount.connection for mount in mounts}:
            del self._recorded[connection]  # another mount may get this number later
        others = self._succeeded()
        new = sorted(
            mount.path
            for mount in self._wanted(mounts)
            if mount.connection not in self._recorded or mount.connection in others
        )
        before, self._before = self._before, new
        return new if new == before else []

    def _wanted(self, mounts: Sequence[Mount]) -> list[Mount]:
        if not self._paths:
            return list(mounts)
        on = (mount_on(mounts, path) for path in self._paths)
        return [mount for mount in on if mount]

    def _succeeded(self) -> set[int]:
        """Return connections whose daemon has ended and that another daemon serves.

        They were mounted again between two looks. Without another daemon the mount is dead, and
        there is nothing to record.
        """
        ended = {
            connection
            for connection, daemon in self._recorded.items()
            if daemon and not self._runs(*daemon)
        }
        if not ended or time.monotonic() - self._searched < SEARCH:
            return set()
        serving = {
            mount.connection
            for mount in read_mounts(self._files, open_files(self._files), [])
            if mount.daemon_pid is not None
        }
        if not ended & serving:
            self._searched = time.monotonic()
        return ended & serving

    def _runs(self, pid: int, start: int) -> bool:
        process = read_stat(self._files, pid)
        return process is not None and process.state != "Z" and process.start == start
