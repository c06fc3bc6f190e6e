"""The public Python API: opens a perf.data and answers in the types of fusetools.results.

>>> import fusetools
>>> recording = fusetools.open("perf.data")  # doctest: +SKIP
>>> recording.counts("lookup").counts[0].count  # doctest: +SKIP
1796

Single calls come as numpy columns (this alone needs numpy):

>>> calls = recording.calls("lookup")  # doctest: +SKIP
>>> slow = calls.duration_ns > 1_000_000  # ns  # doctest: +SKIP
>>> calls.start_ns[slow & calls.of("cvmfs_lookup")]  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools.answers.filters import Filters
from fusetools.answers.source import Source

if TYPE_CHECKING:
    from fusetools.results.calls import Calls, RequestColumns
    from fusetools.results.count import Counts
    from fusetools.results.errors import Errors
    from fusetools.results.export import Exported
    from fusetools.results.flame import Stacks
    from fusetools.results.graph import Graph, GraphCalls
    from fusetools.results.hist import Histograms
    from fusetools.results.queue import Queue
    from fusetools.results.show import Shown
    from fusetools.results.slow import Slowest
    from fusetools.results.stages import Stages
    from fusetools.results.stories import Stories
    from fusetools.session import Session


def open(path: str | os.PathLike[str] = "perf.data") -> Recording:
    """Open a recording. Raises fusetools.Error if it cannot be read."""
    return Recording(path)


class Recording:
    """A perf.data file; each question is one pass over it."""

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
        """The recording's own facts."""
        return self._source.session

    def hist(
        self,
        *patterns: str,
        layers: Sequence[str] = (),
        filters: Filters | None = None,
        corrected: bool = False,
    ) -> Histograms:
        """Latency histograms of the operations or functions that match a shell pattern, or all.

        ``corrected``: durations less what recording took, except for kernel functions. Raises Error
        if that was not measured.
        """
        from fusetools.answers.hist import hist

        return hist(self._source, patterns, layers, filters or Filters(), corrected)

    def counts(
        self, regex: str = "", layers: Sequence[str] = (), filters: Filters | None = None
    ) -> Counts:
        """Calls of each function whose name or operation matches the regular expression."""
        from fusetools.answers.count import count

        return count(self._source, regex, layers, filters or Filters())

    def calls(self, *patterns: str, filters: Filters | None = None) -> Calls:
        """Single calls as numpy columns; patterns as in hist()."""
        from fusetools.answers.calls import calls

        return calls(self._source, patterns, filters or Filters())

    def requests(self, filters: Filters | None = None) -> RequestColumns:
        """FUSE requests as numpy columns."""
        from fusetools.answers.calls import requests

        return requests(self._source, filters or Filters())

    def stories(self, filters: Filters | None = None) -> Stories:
        """Each request's whole story, as numpy columns."""
        from fusetools.answers.stories import stories

        return stories(self._source, filters or Filters())

    def stages(
        self,
        *patterns: str,
        by: str = "",
        filters: Filters | None = None,
        corrected: bool = False,
    ) -> Stages:
        """Where the requests' time went, by operation and stage.

        ``patterns``: operations, as shell patterns; ``by``: also grouped by "comm", "pid" (of the
        caller), "daemon-thread", "mount" or "size" (bytes, as powers of two); ``corrected``: less
        what recording took of each stage. Raises Error if that was not measured.
        """
        from fusetools.answers.stages import stages

        return stages(self._source, patterns, by, filters or Filters(), corrected)

    def graph(self, function: str = "", filters: Filters | None = None) -> Graph:
        """What the kernel's functions called, summed up over all calls, or over those of a
        function.

        ``function`` is a name or a shell pattern: then its calls, wherever they happened, are the
        roots. Raises Error if no kernel function has a duration, or none has that name.
        """
        from fusetools.answers.graph import graph

        return graph(self._source, function, filters or Filters())

    def graph_calls(self, function: str = "", filters: Filters | None = None) -> GraphCalls:
        """The single calls, each with what it called, by start; ``function`` as in graph()."""
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
        """The slowest requests, of operations that match a shell pattern, slowest first;
        ``least_ns``: only those that took this long or longer; ``path``: only files whose path,
        with the mount point, matches this shell pattern ("*" matches "/", too).

        Requests that have not ended count up to the recording's end.
        """
        from fusetools.answers.slow import slow

        return slow(self._source, patterns, most, least_ns, filters or Filters(), path)

    def show(self, unique: int, filters: Filters | None = None) -> Shown:
        """One request's story, by its number. Raises Error if there is none, or several."""
        from fusetools.answers.show import show

        return show(self._source, unique, filters or Filters())

    def errors(self, *patterns: str, filters: Filters | None = None) -> Errors:
        """Which errors requests were answered with, by operation; ``patterns`` as in slowest()."""
        from fusetools.answers.errors import errors

        return errors(self._source, patterns, filters or Filters())

    def queue(self, filters: Filters | None = None) -> Queue:
        """How many requests wait for the daemon, and how many of its threads work, over time."""
        from fusetools.answers.queue import queue

        return queue(self._source, filters or Filters())

    def export(self, path: str, form: str, filters: Filters | None = None) -> Exported:
        """Write the requests into a file: "perfetto", "csv" or "json". It appears once it is
        complete."""
        from fusetools.answers.export import export

        return export(self._source, Path(path), form, filters or Filters())

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
        """Stacks for a flame graph.

        ``graph``: "on-cpu" (what ran), "off-cpu" (what was waited for inside requests, or anywhere
        with ``everything``), "off-wake" (the same, with the wakers), "requests" (what callers
        waited for, and what the daemon did meanwhile) or "graph" (the kernel's functions). The
        patterns select operations, with "graph" functions. ``layers``: without "daemon" only the
        callers' stacks, with "daemon" alone only the daemon's. ``states``: of waits, from STATES in
        fusetools.results.flame. The recording's symbols name functions, unless ``kallsyms``, a copy
        of the recorded kernel's /proc/kallsyms, or ``symfs``, a directory with the recorded
        programs' files, is given. Raises Error if nothing of that was recorded.
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
