"""The mounts that a process's path lies on, by the process's own table of mounts. Pure.

Sources: proc_pid_mountinfo(5), Documentation/filesystems/overlayfs.rst.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fusetools.host.mounts import device, is_on, unescape

DEEPEST = 8  # maximum depth of overlays above overlays


class Row(NamedTuple):
    """A mount: its id, the device number of its file system, its mount point.

    ``lower``: the directories that an overlay shows, or the file of a loop device.
    """

    id: int
    device: int
    path: str
    lower: tuple[str, ...]


class Table:
    """The mounts that a process sees, from its mountinfo.

    ``host``: the mounts of this process, which may have mounted the process's overlays.
    ``file_of``: returns the file of a loop device, by its name.
    """

    def __init__(
        self,
        text: str,
        host: Table | None = None,
        file_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._rows = list(_rows(text, file_of))
        self._by_id = {row.id: row for row in self._rows}
        self._host = host

    def along(self, path: str, below: str = "", depth: int = 0, inside: bool = False) -> list[int]:
        """Return the devices of the mounts on the way to a path, the last one first.

        Only mounts below ``below`` count. The newest mount on a directory covers the others,
        except for a process that is ``inside`` already.
        """
        rows = [
            row
            for row in reversed(self._rows)
            if is_on(path, row.path) and (not below or len(row.path) > len(below))
        ]
        rows.sort(key=lambda row: -len(row.path))
        if not inside:
            tops: dict[str, Row] = {}
            for row in rows:
                tops.setdefault(row.path, row)
            rows = list(tops.values())
        return [device for row in rows for device in self._devices(row, depth)]

    def of_file(self, mount: int, path: str) -> list[int] | None:
        """Return the devices below an open file, or on the way from an open directory to a path.

        ``mount``: the mount id of the directory. Return None if the mount is not in the table.
        """
        row = self._by_id.get(mount)
        if row is None:
            return None
        return [*self.along(path, row.path), *self._devices(row, 0)]

    def _devices(self, row: Row, depth: int) -> Iterator[int]:
        yield row.device
        if depth < DEEPEST:
            for path in row.lower:
                for table in (self, self._host):
                    if table is not None:
                        yield from table.along(path, depth=depth + 1)


def _rows(text: str, file_of: Callable[[str], str]) -> Iterator[Row]:
    known: dict[str, int] = {}
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        number = device(fields, types, known) if len(fields) > 4 and len(types) > 1 else None
        if number is not None and fields[0].isdecimal():
            lower = _lower(unescape(types[2])) if types[0] == "overlay" and len(types) > 2 else ()
            if re.fullmatch("/dev/loop[0-9]+", types[1]) and (file := file_of(types[1][5:])):
                lower = (file,)
            yield Row(int(fields[0]), number, unescape(fields[4]), lower)


def _lower(options: str) -> tuple[str, ...]:
    """Return the directories of an overlay, absolute ones only."""
    paths = []
    for match in re.finditer(r"(?:^|,)(?:lowerdir|datadir|upperdir)\+?=((?:\\.|[^,\\])*)", options):
        for part in re.split(r"(?<!\\):", match[1]):
            path = re.sub(r"\\(.)", r"\1", part)
            if path.startswith("/"):
                paths.append(path)
    return tuple(paths)
