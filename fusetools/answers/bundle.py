"""Files that were read, for CernVM-FS to fetch before they are needed."""

from __future__ import annotations

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import RequestQuery
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.printable import printable
from fusetools.results.bundle import Bundle


def bundle(source: Source, filters: Filters) -> Bundle:
    """Return the files of a mount that were opened or read, by their first request.

    Each is there once. An open or read request that failed, or that is about a directory, does not
    count. Error: the mount is ambiguous, or no file's path is known."""
    query = RequestQuery(source)
    answer, facts = query(core.native.files, filters)
    mounts = list(dict.fromkeys(connection for connection, *_ in answer["files"]))
    name = printable(source.path.name)
    if len(mounts) > 1:
        paths = [query.names.mount(mount) or f"connection {mount}" for mount in mounts]
        why = f"files were read on {', '.join(map(printable, paths))}"
        raise Error(f"{name} is about several mounts", why, "fusetools export --mount PATH …")
    if not mounts:
        cached = "the kernel had the files' names cached before the recording"
        raise Error(
            f"{name} holds no path of a file that was opened or read",
            cached if answer["unnamed"] else "",
            "echo 2 > /proc/sys/vm/drop_caches; fusetools record -- COMMAND",
        )
    return Bundle(
        query.names.mount(mounts[0]),
        tuple(f"/{path}" for _, path, _ in answer["files"]),
        sum(waited for *_, waited in answer["files"]),
        answer["unnamed"],
        facts,
    )
