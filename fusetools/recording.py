"""The public Python API: answers about a perf.data, in the types of fusetools.results.

>>> import fusetools
>>> recording = fusetools.open("perf.data")  # doctest: +SKIP
>>> recording.counts("lookup").counts[0].count  # doctest: +SKIP
1796

Requests and single calls are Arrow tables, for pyarrow, polars, pandas, DuckDB and others:

>>> import polars
>>> requests = polars.DataFrame(recording.requests())  # doctest: +SKIP
>>> requests.group_by("operation").agg(polars.col("duration_ns").max())  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools.answers.filters import Filters
from fusetools.answers.source import Source

if TYPE_CHECKING:
    from fusetools.results.bundle import Bundle
    from fusetools.results.cache import Cache
    from fusetools.results.count import Counts
    from fusetools.results.errors import Errors
    from fusetools.results.export import Exported, Tables
    from fusetools.results.flame import Stacks
    from fusetools.results.graph import Graph, GraphCalls
    from fusetools.results.groups import Groups
    from fusetools.results.heat import Heat
    from fusetools.results.hist import Histograms
    from fusetools.results.queue import Queue
    from fusetools.results.show import Shown
    from fusetools.results.slow import Slowest
    from fusetools.results.stages import Stages
    from fusetools.results.table import Table
    from fusetools.results.whatif import WhatIf
    from fusetools.results.why import Why
    from fusetools.session import Session


def open(path: str | os.PathLike[str] = "perf.data") -> Recording:
    """Open a recording. Raises fusetools.Error if it cannot be read."""
    return Recording(path)


class Recording:
    """A perf.data file. Each method that answers a question makes one pass over it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._source = Source(path)

    def __repr__(self) -> str:
        host, mounts = self.session.host, self.session.mounts
        on = f", Linux {host.kernel}" if host.kernel else ""
        of = f", {', '.join(mount.path for mount in mounts)}" if mounts else ""
        return f"<Recording {self.path}{on}{of}>"

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def session(self) -> Session:
        """Facts that the recording holds about itself: host, mounts, command, probes."""
        return self._source.session

    def hist(
        self,
        *patterns: str,
        layers: Sequence[str] = (),
        filters: Filters | None = None,
        corrected: bool = False,
    ) -> Histograms:
        """Return latency histograms of all operations and functions that match a shell pattern.

        Without a pattern, all match. ``corrected``: subtract the measured overhead of recording
        from durations, except for kernel functions. Raises Error if it was not measured.
        """
        from fusetools.answers.hist import hist

        return hist(self._source, patterns, layers, filters or Filters(), corrected)

    def heat(self, *patterns: str, columns: int = 60, filters: Filters | None = None) -> Heat:
        """Return the requests of matching operations by begin (``columns``) and latency."""
        from fusetools.answers.heat import heat

        return heat(self._source, patterns, filters or Filters(), columns)

    def counts(
        self, regex: str = "", layers: Sequence[str] = (), filters: Filters | None = None
    ) -> Counts:
        """Count calls of each function whose name or operation matches the regular expression."""
        from fusetools.answers.count import count

        return count(self._source, regex, layers, filters or Filters())

    def calls(self, *patterns: str, filters: Filters | None = None) -> Table:
        """Return the matched calls of all layers as a table; patterns as in hist()."""
        from fusetools.answers.tables import calls

        return calls(self._source, patterns, filters or Filters())

    def requests(self, filters: Filters | None = None) -> Table:
        """Return the FUSE requests as a table: times, stages, caller, file, thread of the daemon.

        Its columns: see fusetools.results.table."""
        from fusetools.answers.tables import requests

        return requests(self._source, filters or Filters())

    def waits(
        self,
        *patterns: str,
        filters: Filters | None = None,
        states: Sequence[str] = (),
        everything: bool = False,
    ) -> Table:
        """Return waits off the CPU, with their stacks, as a table; arguments as in stacks().

        A wait that was first blocked, then runnable has a row for each of the two."""
        from fusetools.answers.tables import waits

        return waits(self._source, patterns, filters or Filters(), states, everything)

    def durations(self, daemon: bool = False) -> dict[str, bytes]:
        """Return the requests' durations by operation: ns as little-endian int64, by begin.

        ``daemon``: of the daemon's callbacks instead."""
        from fusetools.answers.tables import durations

        return durations(self._source, daemon)

    def stages(
        self,
        *patterns: str,
        by: str = "",
        filters: Filters | None = None,
        corrected: bool = False,
    ) -> Stages:
        """Return the requests' time by operation and stage.

        ``patterns``: shell patterns of operations. ``by``: group also by "comm", "pid" (of the
        caller), "daemon-thread", "mount" or "size" (bytes, as powers of two). ``corrected``:
        subtract the measured overhead from each stage. Raises Error if it was not measured.
        """
        from fusetools.answers.stages import stages

        return stages(self._source, patterns, by, filters or Filters(), corrected)

    def groups(
        self,
        by: str,
        *patterns: str,
        order: str = "time",
        most: int = 20,
        least_ns: int = 0,
        path: str | None = None,
        filters: Filters | None = None,
        corrected: bool = False,
    ) -> Groups:
        """Return the requests of matching operations by file, directory, process, and so on.

        ``by``: one of fusetools.results.groups.BY; ``order``: one of ORDERS there; ``most``:
        maximum number of groups, the others are summed. ``patterns``, ``least_ns`` and ``path`` as
        in slowest(), ``corrected`` as in stages(). Raises Error if the recording does not hold what
        to group by.
        """
        from fusetools.answers.groups import groups

        chosen = filters or Filters()
        return groups(self._source, by, patterns, chosen, order, most, least_ns, path, corrected)

    def graph(self, function: str = "", filters: Filters | None = None) -> Graph:
        """Return the call tree of kernel functions, summed over all calls.

        ``function``: a name or shell pattern; calls of matching functions at any depth become the
        roots. Raises Error if no kernel function has a duration, or none has that name.
        """
        from fusetools.answers.graph import graph

        return graph(self._source, function, filters or Filters())

    def graph_calls(self, function: str = "", filters: Filters | None = None) -> GraphCalls:
        """Return single calls by start time, each with its callees; ``function`` as in graph()."""
        from fusetools.answers.graph import graph_calls

        return graph_calls(self._source, function, filters or Filters())

    def slowest(
        self,
        *patterns: str,
        most: int = 20,
        least_ns: int = 0,
        path: str | None = None,
        filters: Filters | None = None,
    ) -> Slowest:
        """Return the slowest requests of matching operations, slowest first.

        ``patterns``: shell patterns of operations; ``most``: maximum number of requests;
        ``least_ns``: minimum duration; ``path``: shell pattern of the file's path with the mount
        point ("*" also matches "/"). A request that did not end counts until the recording's end.
        """
        from fusetools.answers.slow import slow

        return slow(self._source, patterns, most, least_ns, filters or Filters(), path)

    def show(self, unique: int, filters: Filters | None = None) -> Shown:
        """Return one request's timeline, by its number. Raises Error unless exactly one has it."""
        from fusetools.answers.show import show

        return show(self._source, unique, filters or Filters())

    def errors(self, *patterns: str, filters: Filters | None = None) -> Errors:
        """Count the error replies by operation and error; ``patterns`` as in slowest()."""
        from fusetools.answers.errors import errors

        return errors(self._source, patterns, filters or Filters())

    def queue(self, filters: Filters | None = None) -> Queue:
        """Return the numbers of requests that wait and of busy daemon threads, over time."""
        from fusetools.answers.queue import queue

        return queue(self._source, filters or Filters())

    def why(self, filters: Filters | None = None) -> Why:
        """Return findings: why callers waited, most important first."""
        from fusetools.answers.why import why

        return why(self._source, filters or Filters())

    def cache(self, filters: Filters | None = None) -> Cache:
        """Return what the kernel's caches save: calls without a request, what is asked again."""
        from fusetools.answers.cache import cache

        return cache(self._source, filters or Filters())

    def whatif(self, settings: Sequence[str], filters: Filters | None = None) -> WhatIf:
        """Replay the requests with other limits, each NAME=NUMBER, as `fusetools whatif` does."""
        from fusetools.answers.whatif import whatif

        return whatif(self._source, settings, filters or Filters())

    def export(self, path: str, form: str, filters: Filters | None = None) -> Exported:
        """Write the requests to a file, as "perfetto", "csv" or "json".

        The file appears once it is complete."""
        from fusetools.answers.export import export

        return export(self._source, Path(path), form, filters or Filters())

    def tables(
        self,
        folder: str,
        *,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        filters: Filters | None = None,
    ) -> Tables:
        """Write the tables as Parquet below a folder, for `fusetools fleet`.

        ``labels``: further properties of the recording, such as its rack; ``key``: file of a key
        that replaces paths and users by hashes. Needs pyarrow."""
        from fusetools.answers.parquet import write

        return write(self._source, folder, filters or Filters(), labels, key)

    def bundle(self, filters: Filters | None = None) -> Bundle:
        """Return the files of a mount that were opened or read, by their first request."""
        from fusetools.answers.bundle import bundle

        return bundle(self._source, filters or Filters())

    def stacks(
        self,
        graph: str = "on-cpu",
        *patterns: str,
        layers: Sequence[str] = (),
        filters: Filters | None = None,
        states: Sequence[str] = (),
        everything: bool = False,
        kallsyms: str | None = None,
        symfs: str | None = None,
    ) -> Stacks:
        """Return stacks for a flame graph. Raises Error if there are none in the recording.

        ``graph`` is one of:

        - "on-cpu": time on CPU;
        - "off-cpu": waits inside requests, or all waits with ``everything``;
        - "off-wake": the same with the stack of the waker;
        - "requests": waits of callers, and the daemon's work meanwhile;
        - "graph": kernel functions.

        ``patterns`` select operations, with "graph" functions. ``layers``: without "daemon" only
        callers' stacks, with "daemon" alone only the daemon's. ``states``: kinds of waits, from
        STATES in fusetools.results.flame. Symbols come from the recording, unless ``kallsyms`` (a
        copy of the recorded kernel's /proc/kallsyms) or ``symfs`` (a directory with the recorded
        programs' files) is given.
        """
        from fusetools.answers.flame import flame

        return flame(
            self._source,
            graph,
            patterns,
            layers,
            filters or Filters(),
            states,
            everything,
            kallsyms,
            symfs,
        )
