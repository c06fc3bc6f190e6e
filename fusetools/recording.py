"""The public Python API: opens a perf.data and answers in the types of fusetools.results.

>>> import fusetools
>>> recording = fusetools.open("perf.data")  # doctest: +SKIP
>>> recording.counts("lookup").counts[0].count  # doctest: +SKIP
1796

Single calls come as numpy columns (this alone needs numpy):

>>> calls = recording.calls("lookup")  # doctest: +SKIP
>>> slow = calls.duration > 1_000_000  # ns  # doctest: +SKIP
>>> calls.start[slow & calls.of("cvmfs_lookup")]  # doctest: +SKIP
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

        ``corrected``: durations without what recording took of them, but for kernel functions.
        Raises Error where that was not measured.
        """
        from fusetools.answers.hist import hist

        return hist(self._source, patterns, layers, filters or Filters(), corrected)

    def counts(
        self, regex: str = "", layers: Sequence[str] = (), filters: Filters | None = None
    ) -> Counts:
        """Calls of each function in whose name, or operation, the regular expression is found."""
        from fusetools.answers.count import count

        return count(self._source, regex, layers, filters or Filters())

    def calls(self, *patterns: str, filters: Filters | None = None) -> Calls:
        """Single calls as numpy columns; the patterns are those of hist()."""
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

        ``patterns``: operations, as shell patterns; ``by``: also apart by "comm", "pid" (of the
        caller), "daemon-thread", "mount" or "size" (bytes, as powers of two); ``corrected``:
        without what recording took of each stage. Raises Error where that was not measured.
        """
        from fusetools.answers.stages import stages

        return stages(self._source, patterns, by, filters or Filters(), corrected)

    def graph(self, function: str = "", filters: Filters | None = None) -> Graph:
        """What the kernel's functions called, added up over all calls, or over those of a function.

        ``function`` is a name or a shell pattern: then its calls, wherever they happened, are the
        outermost ones. Raises Error where no kernel function has a duration, or none that name.
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
        least: int = 0,
        path: str | None = None,
        filters: Filters | None = None,
    ) -> Slowest:
        """The slowest requests, of the operations that a shell pattern matches, slowest first;
        ``least``: those that took so many ns or more; ``path``: those of files whose path, with
        the mount point, a shell pattern matches ("*" matches "/", too).

        Those that have not ended count up to the recording's end.
        """
        from fusetools.answers.slow import slow

        return slow(self._source, patterns, most, least, filters or Filters(), path)

    def show(self, unique: int, filters: Filters | None = None) -> Shown:
        """One request's story, by its number. Raises Error if there is none, or several."""
        from fusetools.answers.show import show

        return show(self._source, unique, filters or Filters())

    def errors(self, *patterns: str, filters: Filters | None = None) -> Errors:
        """What requests were answered with, by operation; ``patterns`` as in slowest()."""
        from fusetools.answers.errors import errors

        return errors(self._source, patterns, filters or Filters())

    def queue(self, filters: Filters | None = None) -> Queue:
        """How many requests wait for the daemon, and how many of its threads work, over time."""
        from fusetools.answers.queue import queue

        return queue(self._source, filters or Filters())

    def export(self, path: str, form: str, filters: Filters | None = None) -> Exported:
        """Write the requests into a file: "perfetto", "csv" or "json", as they are complete."""
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
        with ``everything``), "off-wake" (the same, with who ended it), "requests" (what callers
        waited for, and what the daemon did meanwhile) or "graph" (the kernel's functions). The
        patterns are of operations, with "graph" of functions. ``layers``: without "daemon" the
        callers' stacks alone, with it alone the daemon's. ``states``: of waits, of STATES in
        fusetools.results.flame. Functions are named by what the recording holds, unless
        ``kallsyms``, a copy of the recorded kernel's /proc/kallsyms, or ``symfs``, a directory with
        the recorded programs' files, is given. Raises Error where nothing of that was recorded.
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
