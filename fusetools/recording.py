"""Recording: opens a perf.data and answers in the types of fusetools.model. The public Python API.

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

import json
import math
import os
import shlex
import stat
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fusetools.errors import Error
from fusetools.host.files import answers
from fusetools.missing import Missing
from fusetools.model import (
    LAYERS,
    READ_TO_REPLY,
    Calls,
    Count,
    Counts,
    Errors,
    Exported,
    Facts,
    Graph,
    GraphCall,
    GraphCalls,
    GraphNode,
    Histogram,
    Histograms,
    LeftOut,
    Losses,
    Named,
    Queue,
    RequestColumns,
    Requests,
    Session,
    Shown,
    Slowest,
    Stacks,
    Throttled,
)

if TYPE_CHECKING:
    from fusetools.model import Stages
    from fusetools.requests import Questions, Span
    from fusetools.stories import Stories

# enum fuse_opcode of include/uapi/linux/fuse.h, in lower case.
_OPCODES = """
lookup forget getattr setattr readlink symlink mknod mkdir unlink rmdir rename link open read write
statfs release fsync setxattr getxattr listxattr removexattr flush init opendir readdir releasedir
fsyncdir getlk setlk setlkw access create interrupt bmap destroy ioctl poll notify_reply
batch_forget fallocate readdirplus rename2 lseek copy_file_range setupmapping removemapping syncfs
tmpfile statx
"""
OPERATIONS = frozenset(_OPCODES.split())

# Callbacks and kernel functions whose name is not their operation's.
_OTHER_NAMES = {
    "forget_multi": "batch_forget",
    "dentry_revalidate": "lookup",
    "dir_open": "opendir",
}

# Measures what a probe costs (see record/): never a result.
CALIBRATION = "fusetools_calibrate"

_MEND = "fusetools record -- WORKLOAD"
_LONGEST = 400  # letters of a command that is printed


class Probe(NamedTuple):
    """A line of the catalogue: an event of the recording and its meaning."""

    event: str
    layer: str
    function: str
    operation: str
    role: str


_ROLES = (
    "entry",
    "return",
    "graph_entry",
    "graph_exit",
    "begin",
    "sent",
    "end",
    "reply",
    "inode",
    "taken",
    "sys_enter",
    "sys_exit",
    "switch",
    "waking",
    "length",
)


@dataclass(frozen=True)
class Filters:
    """What to leave in. Empty: everything.

    ``pids`` and ``comms`` are those of the caller, whose system call made the request; ``mounts``
    are mount points of the session; ``start`` and ``end`` are ns since the first event.
    """

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None


def open(path: str | os.PathLike[str] = "perf.data") -> Recording:
    """Open a recording. Raises fusetools.Error if it cannot be read."""
    return Recording(path)


class Recording:
    """A perf.data file; each question is one pass over it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_readable(self.path)
        described = _ask("describe", str(self.path))
        self._warnings: list[str] = []
        self.session = Session(self._read_session(described.get("session")))
        self._addresses: dict[str, int] = {}
        self._catalogue = self._read_probes()
        told = {p.event for p in self._catalogue}
        self._catalogue += by_convention(
            (e for e in described["events"] if e not in told), {p.role for p in self._catalogue}
        )
        self._described = described
        self._events: list[str] = described["events"]
        # The kernel's functions of function_graph: start and name.
        self._functions: list[tuple[int, str]] = described.get("functions", [])
        if any(p.role == "graph_entry" for p in self._catalogue):
            graphed = {bare(name) for _, name in self._functions}
            self._catalogue = [
                p
                for p in self._catalogue
                if not (p.role in ("entry", "return") and p.layer == "kernel")
                or p.function not in graphed
            ]
        if all(p.layer == "syscall" for p in self._catalogue):
            raise Error(f"{self.path} holds no FUSE events", "it was not made by fusetools", _MEND)

    @property
    def detail(self) -> str:
        """How much was recorded, one of fusetools.plan.request.DETAILS."""
        detail = self.session.facts.get("detail")
        return detail if detail in ("latency", "stages") else "stacks"

    def _with_detail(self, detail: str) -> str:
        """The command that records the same with more."""
        words = [str(word) for word in _list(self.session.facts.get("arguments"))]
        command = [str(word) for word in _list(self.session.facts.get("command"))]
        more = [] if detail == "stacks" else ["--detail", detail]
        if words[:1] != ["record"] or len(shlex.join(words)) > _LONGEST:
            return " ".join(["fusetools record", *more, "-- WORKLOAD"])
        before = words[1 : len(words) - len(command)]
        for at, word in enumerate(before):
            if word == "--detail" or word.startswith("--detail="):
                before[at : at + 1 + (word == "--detail")] = []
                break
        return shlex.join(["fusetools", "record", *more, *before, *command])

    def _needing(self, facts: Facts, layers: Sequence[str] = ()) -> Facts:
        """With what a recording of little detail does not hold, of those layers, or all."""
        if self.detail != "latency":
            return facts
        why, again = "recorded with --detail latency", self._with_detail("stages")
        names = {
            "syscall": "system calls",
            "kernel": "kernel functions",
            "off_cpu": "switches of tasks",
        }
        layers = layers or tuple(names)
        lacking = (Missing(names[one], why, again, one) for one in layers if one in names)
        return replace(facts, missing=(*facts.missing, *lacking))

    # Answers

    def hist(
        self, *patterns: str, layers: Sequence[str] = (), filters: Filters | None = None
    ) -> Histograms:
        """Latency histograms of the operations or functions that match a shell pattern, or all."""
        paired = _paired(self._catalogue)
        catalogue = [
            p for p in self._catalogue if p.role != "entry" or (p.layer, p.function) in paired
        ]
        found, facts = self._series(catalogue, patterns, layers, filters or Filters(), True)
        unmatched = _unmatched(found)
        # Of kernel functions that call one another the one that was called from outside, unless
        # they are asked for.
        found = [
            s
            for s in found
            if s["layer"] != "kernel"
            or s["outermost"]
            or any(fnmatchcase(s["function"], pattern) for pattern in patterns)
        ]
        histograms = [_histogram(s) for s in found]
        calls: dict[str, int] = {}
        for h in histograms:
            # The kernel often needs no request for what it is called for.
            known = h.count if h.layer != "kernel" else 0
            calls[h.operation] = max(calls.get(h.operation, 0), known)
        histograms.sort(
            key=lambda h: (
                not h.operation,
                -calls[h.operation],
                h.operation,
                LAYERS.index(h.layer),
                -h.count,
                -(h.total or 0),
                h.function,
            )
        )
        return Histograms(tuple(histograms), facts, unmatched)

    def counts(
        self, regex: str = "", layers: Sequence[str] = (), filters: Filters | None = None
    ) -> Counts:
        """Calls of each function in whose name, or operation, the regular expression is found."""
        found, facts = self._series(self._catalogue, (), layers, filters or Filters())
        paired = _paired(self._catalogue)
        counts = []
        functions = matching(regex, [s["function"] for s in found])
        operations = matching(regex, [s["operation"] for s in found])
        found = [s for s, f, o in zip(found, functions, operations) if f or o]
        for s in found:
            function, layer = s["function"], s["layer"]
            timed = layer in ("request", "syscall") or (layer, function) in paired
            timed = timed or s["self"] is not None or function == READ_TO_REPLY
            counts.append(
                Count(
                    function,
                    s["operation"],
                    layer,
                    s["entries"],
                    s["address"] or self._addresses.get(function),
                    _histogram(s) if timed else None,
                )
            )
        counts.sort(key=lambda c: (-c.count, LAYERS.index(c.layer), c.function, c.operation))
        return Counts(tuple(counts), facts, _unmatched(found))

    def calls(self, *patterns: str, filters: Filters | None = None) -> Calls:
        """Single calls as numpy columns; the patterns are those of hist()."""
        import numpy as np

        columns = self._columns(patterns, filters)
        raw = columns["calls"]
        return Calls(
            functions=tuple(columns["functions"]),
            layer=np.frombuffer(raw["layer"], "u1"),
            function=np.frombuffer(raw["function"], "<u2"),
            start=np.frombuffer(raw["start"], "<u8"),
            duration=np.frombuffer(raw["duration"], "<u8"),
            pid=np.frombuffer(raw["pid"], "<i4"),
            tid=np.frombuffer(raw["tid"], "<i4"),
            unique=np.frombuffer(raw["unique"], "<u8"),
        )

    def requests(self, filters: Filters | None = None) -> RequestColumns:
        """FUSE requests as numpy columns."""
        import numpy as np

        raw = self._columns((), filters)["requests"]
        return RequestColumns(
            connection=np.frombuffer(raw["connection"], "<u8"),
            unique=np.frombuffer(raw["unique"], "<u8"),
            opcode=np.frombuffer(raw["opcode"], "<u4"),
            begin=np.frombuffer(raw["begin"], "<u8"),
            end=np.frombuffer(raw["end"], "<u8"),
            error=np.frombuffer(raw["error"], "<i4"),
            pid=np.frombuffer(raw["pid"], "<i4"),
            tid=np.frombuffer(raw["tid"], "<i4"),
            callback_start=np.frombuffer(raw["callback_start"], "<u8"),
            callback_end=np.frombuffer(raw["callback_end"], "<u8"),
            sent=np.frombuffer(raw["sent"], "<u8"),
            woken=np.frombuffer(raw["woken"], "<u8"),
        )

    def stories(self, filters: Filters | None = None) -> Stories:
        """Each request's whole story, as numpy columns."""
        from fusetools.stories import needed, stories_of

        asked = self._core_filters(filters or Filters())
        asked["functions"] = [(at, name, "") for at, name in self._functions]
        catalogue = needed(self._catalogue, self._events)
        return stories_of(_ask("stories", str(self.path), catalogue, asked))

    def stages(self, *patterns: str, by: str = "", filters: Filters | None = None) -> Stages:
        """Where the requests' time went, by operation and stage.

        ``patterns``: operations, as shell patterns; ``by``: also apart by "comm", "pid" (of the
        caller), "daemon-thread", "mount" or "size" (bytes, as powers of two).
        """
        from fusetools.stages import stages_of
        from fusetools.stories import needed

        filters = filters or Filters()
        asked = self._core_filters(filters)
        asked["functions"] = [(at, name, "") for at, name in self._functions]
        catalogue = needed(self._catalogue, self._events)
        answer = _ask("stages", str(self.path), catalogue, asked, by)
        mounts = {connection: path for path, (_, connection) in self._mounts().items()}
        facts = self._needing(self._facts(answer, filters))
        found = stages_of(answer, patterns, by, mounts, catalogue, facts)
        if patterns and not found.operations:
            operations = {"operation": "", "function": ""}
            known = [{**operations, "operation": g["operation"]} for g in answer["groups"]]
            self._say_no_match(patterns, known)
        return found

    def graph(self, function: str = "", filters: Filters | None = None) -> Graph:
        """What the kernel's functions called, added up over all calls, or over those of a function.

        ``function`` is a name or a shell pattern: then its calls, wherever they happened, are the
        outermost ones. Raises Error where no kernel function has a duration, or none that name.
        """
        found, facts = self._graph(filters or Filters(), False)
        return Graph(tuple(self._tree(found, function)), found["unmatched"], facts)

    def graph_calls(self, function: str = "", filters: Filters | None = None) -> GraphCalls:
        """The single calls, each with what it called, by start; ``function`` as in graph()."""
        found, facts = self._graph(filters or Filters(), True)
        self._tree(found, function)  # is there any?
        calls = _single_calls(found, function)
        return GraphCalls(calls, found["first"], found["unmatched"], facts)

    # Single requests

    def slowest(self, *patterns: str, most: int = 20, filters: Filters | None = None) -> Slowest:
        """The slowest requests, of the operations that a shell pattern matches, slowest first.

        Those that have not ended count up to the recording's end.
        """
        from fusetools import helpers, requests

        asked = self._requests()
        found, facts = asked("slowest", filters, requests.operations(patterns), most)
        spans = [requests.at_work(one) for one in found["kept"]]
        moments = self._moments(asked.probes, spans)
        result = requests.slowest(found, moments, asked.probes, asked.names, facts)
        gather = partial(self._moments, asked.probes)
        chains = helpers.chains(spans, moments, gather, asked.probes)
        told = zip(result.requests, chains)
        return replace(result, requests=tuple(helpers.helped(*pair) for pair in told))

    def show(self, unique: int, filters: Filters | None = None) -> Shown:
        """One request's story, by its number. Raises Error if there is none, or several."""
        from fusetools import helpers, requests

        asked = self._requests()
        found, facts = asked("numbered", filters, unique)
        kept = requests.only(found["kept"], unique, asked.names, self.path)
        caller, daemon = self._moments(asked.probes, requests.spans(kept))
        sides = (caller, daemon)
        result = requests.shown(
            kept,
            sides,
            asked.probes,
            self._functions,
            found["first"],
            asked.names,
            self._needing(facts),
        )
        span, gather = requests.at_work(kept), partial(self._moments, asked.probes)
        (chain,) = helpers.chains([span], [daemon], gather, asked.probes)
        return replace(result, request=helpers.helped(result.request, chain))

    def errors(self, *patterns: str, filters: Filters | None = None) -> Errors:
        """What requests were answered with, by operation; ``patterns`` as in slowest()."""
        from fusetools import requests

        wanted = requests.operations(patterns)
        asked = self._requests()
        found, facts = asked("errors", filters)
        return requests.errors(found, wanted, asked.probes, facts)

    def queue(self, filters: Filters | None = None) -> Queue:
        """How many requests wait for the daemon, and how many of its threads work, over time."""
        from fusetools import requests

        asked = self._requests()
        found, facts = asked("queue", filters, requests.PARTS)
        return requests.queue(found, asked.names, self._needing(facts))

    def export(self, path: str, form: str, filters: Filters | None = None) -> Exported:
        """Write the requests into a file: "perfetto", "csv" or "json", as they are complete."""
        from fusetools import requests

        asked = self._requests()
        return requests.export(asked, Path(path), form, filters)

    def _requests(self) -> Questions:
        from fusetools.requests import Names, Questions, catalogue

        mounts = {connection: path for path, (_, connection) in self._mounts().items()}
        daemons = {
            m["daemon_pid"]: str(m.get("comm") or "")
            for m in _dicts(self.session.facts.get("mounts"))
            if _natural(m.get("daemon_pid"))
        }

        probes = catalogue(self._catalogue, self._events)

        def ask(question: str, filters: Filters | None, *more: Any) -> tuple[dict[str, Any], Facts]:
            filters = filters or Filters()
            asked = self._core_filters(filters)
            asked["functions"] = [(at, name, "") for at, name in self._functions]
            found = _ask(question, str(self.path), probes, asked, *more)
            return found, self._facts(found, filters)

        return Questions(ask, probes, Names(mounts, daemons))

    def _moments(
        self, probes: Sequence[Probe], spans: Sequence[Span | None]
    ) -> list[list[tuple[Any, ...]]]:
        """What happened in each span to its thread; nothing in none."""
        wanted = [span for span in spans if span]
        found = iter(_ask("moments", str(self.path), probes, wanted) if wanted else ())
        return [next(found) if span else [] for span in spans]

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
        callers' stacks alone, with it alone the daemon's. ``states``: of waits, of flames.STATES.
        Functions are named by what the recording holds, unless ``kallsyms``, a copy of the recorded
        kernel's /proc/kallsyms, or ``symfs``, a directory with the recorded programs' files, is
        given. Raises Error where nothing of that was recorded.
        """
        from fusetools import flames

        filters = filters or Filters()
        if graph == "graph":
            return self._graph_stacks(patterns, filters, everything)
        asked = self._core_filters(filters)
        asked["functions"] = [(at, name, "") for at, name in self._functions]
        daemons = [
            name for m in _dicts(self.session.facts.get("mounts")) if (name := m.get("comm"))
        ]
        operations = flames.operations_of(patterns, OPERATIONS)
        described = {**self._described, "name": self.path.name}
        again = {"detail": self.detail, "again": self._with_detail("stacks")}
        given = flames.symbols(kallsyms, symfs)
        by_request = bool(patterns or filters.mounts or filters.pids or filters.comms)
        probes = flames.question(graph, self._catalogue, {**described, **again}, by_request)
        ask = {
            "graph": graph,
            "all": everything,
            "states": list(states),
            "who": None if not layers else "daemon" if "daemon" in layers else "workload",
            "workload": _natural(self.session.facts.get("workload_pid")),
            "filters": asked,
            "operations": operations,
            **given,
        }
        if len({layer == "daemon" for layer in layers}) == 2:
            ask["who"] = None
        found = _ask("flame", str(self.path), probes, ask)
        units = dict(self._described["samples"])
        unit = "ns" if graph == "on-cpu" and units[probes[0].event] else "samples"
        facts = self._facts(found, filters)
        said = [*patterns, *layers, *states, *filters.comms, *filters.mounts]
        said += [f"pid {pid}" for pid in filters.pids] + ["all"] * everything
        callbacks = {p.function for p in self._catalogue if p.layer == "daemon"}
        path, host = shlex.quote(str(self.path)), described["hostname"] or "its host"
        merge = f"fix, on {host}: fusetools merge {path} -o {path}"
        said_of = ", ".join(said)
        # What copies of all stacks would mend; for x86-64 alone there is an unwinder.
        copy = "" if self.session.facts.get("call_graph") == "dwarf" else flames.COPY
        copy = copy if described["arch"] == "x86_64" else ""
        shown = flames.stacks_of(
            graph, found, unit, facts, said_of, daemons, callbacks, given, merge, copy
        )
        shares = [_natural(n) or 0 for n in _list(self.session.facts.get("stacks"))]
        if graph == "on-cpu" or len(shares) != 3:
            return shown
        return replace(shown, notes=(*shown.notes, *flames.sampled(*shares[:2])))

    def _graph_stacks(self, patterns: Sequence[str], filters: Filters, everything: bool) -> Stacks:
        from fusetools import flames

        graphs = [self.graph(pattern, filters) for pattern in patterns or ("",)]
        graph = graphs[0]
        roots = [root for g in graphs for root in g.roots]
        # A daemon that reads requests mostly waits for one.
        idle = [r for r in roots if r.function in flames.IDLE and not (patterns or everything)]
        roots = [root for root in roots if root not in idle]
        stacks: dict[str, float] = {}
        for path, weight in flames.folded_graph(roots):
            stacks[path] = stacks.get(path, 0) + weight
        names = {frame for path in stacks for frame in path.split(";")}
        return Stacks(
            graph="graph",
            asked=", ".join([*patterns, *filters.comms] + ["all"] * everything),
            stacks=stacks,
            unit="us",
            kinds={name: flames.kind_of(name, "", True) or "" for name in names},
            count=sum(root.calls for root in roots),
            total=sum(root.total for root in roots),
            stackless=0,
            cut=None,
            left_out=LeftOut((sum(r.calls for r in idle), sum(r.total for r in idle))),
            unfinished=graph.unmatched,
            states={},
            daemons=0,
            shared=0,
            kernel=Named("recording", len(names), 0),
            user=Named("", 0, 0),
            notes=(),
            facts=graph.facts,
        )

    # How

    def _series(
        self,
        catalogue: Sequence[Probe],
        patterns: Sequence[str],
        layers: Sequence[str],
        filters: Filters,
        by_operation: bool = False,
    ) -> tuple[list[dict[str, Any]], Facts]:
        names = [name for _, name in self._functions]
        # Without callbacks: from the daemon's read of a request to its reply.
        windows = not any(
            p.layer == "daemon" and (p.role == "reply" or (p.role == "entry" and p.operation))
            for p in self._catalogue
        )
        windows = windows and (not layers or "daemon" in layers)
        needed = prune(catalogue, patterns, layers, filters, names, by_operation, windows)
        asked = self._core_filters(filters)
        if windows:
            asked["windows"] = True
        if any(p.layer == "kernel" for p in needed):
            asked["functions"] = [(at, name, operation_of(name)) for at, name in self._functions]
            asked["by_operation"] = by_operation
        answer = _ask("scan", str(self.path), needed, asked)
        series = [s for s in answer["series"] if s["function"] != CALIBRATION]
        # A function that was probed and never called is a result too.
        seen = {(s["layer"], s["function"]) for s in series}
        for p in needed:
            if p.role in ("entry", "reply") and (p.layer, p.function) not in seen:
                seen.add((p.layer, p.function))
                series.append(_nothing(p))
        found = [
            s
            for s in series
            if (not layers or s["layer"] in layers) and (not patterns or _asked_for(s, patterns))
        ]
        if patterns and not found:
            self._say_no_match(patterns, series)
        facts = self._facts(answer, filters)
        # A daemon without callbacks has the time from its reads to its replies.
        wanted = [*layers, *(["syscall"] if windows else [])]
        return found, self._needing(facts, wanted) if wanted else facts

    def _say_no_match(self, patterns: Sequence[str], series: Iterable[dict[str, Any]]) -> None:
        if any(_matches(patterns, name, f"FUSE_{name.upper()}") for name in OPERATIONS):
            return  # an operation that nobody called: that is an answer
        known = sorted(
            {s["operation"] for s in series} | {p.operation for p in self._catalogue} - {""}
        )
        raise Error(
            f"no operation or function matches {' '.join(patterns)}",
            f"{self.path} has {', '.join(k for k in known if k)}",
            f"fusetools count -i {shlex.quote(str(self.path))}",
        )

    def _columns(self, patterns: Sequence[str], filters: Filters | None) -> dict[str, Any]:
        filters = filters or Filters()
        names = [name for _, name in self._functions]
        needed = prune(self._catalogue, patterns, (), filters, names)
        needed += [p for p in self._catalogue if p.role == "sent" and p not in needed]
        asked = self._core_filters(filters)
        asked["functions"] = [(at, name, "") for at, name in self._functions]
        columns: dict[str, Any] = _ask("columns", str(self.path), needed, asked)
        return columns

    def _graph(self, filters: Filters, calls: bool) -> tuple[dict[str, Any], Facts]:
        roles = ("graph_entry", "graph_exit")
        if not any(p.role in roles for p in self._catalogue):
            roles = ("entry", "return")  # of the functions that were probed
        needed = [p for p in self._catalogue if p.layer == "kernel" and p.role in roles]
        if not any(p.role == roles[1] for p in needed):
            raise Error(
                f"{self.path} holds no calls of kernel functions",
                "neither function_graph nor return probes were recorded",
                "fusetools record --backend graph -- WORKLOAD",
            )
        asked = self._core_filters(filters)
        asked["functions"] = [(at, name, "") for at, name in self._functions]
        found: dict[str, Any] = _ask("graph", str(self.path), needed, asked, calls)
        answer = {**found, "requests": {"begun": 0, "ended": 0, "matched": 0}}
        if found["full"]:
            answer["warnings"] = [*found["warnings"], "too many ways to call: some are left out"]
        return found, self._facts(answer, filters)

    def _tree(self, found: dict[str, Any], function: str) -> list[GraphNode]:
        tree = _tree(found, function)
        if function and not tree:
            raise Error(
                f"no call of a kernel function {function}",
                f"{self.path} has {', '.join(sorted(set(found['functions']))) or 'none'}",
                f"fusetools count -i {shlex.quote(str(self.path))} --layer kernel",
            )
        return tree

    def _core_filters(self, filters: Filters) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        if filters.pids:
            asked["pids"] = list(filters.pids)
        if filters.comms:
            asked["comms"] = list(filters.comms)
        if filters.start is not None:
            asked["from_ns"] = filters.start
        if filters.end is not None:
            asked["to_ns"] = filters.end
        everywhere = self._mounts()
        asked["daemons"] = [m for m in everywhere.values() if m[0]]
        if filters.mounts:
            mounts = [everywhere[self._mount(path)] for path in filters.mounts]
            asked["connections"] = [connection for _, connection in mounts]
            asked["daemon_pids"] = [pid for pid, _ in mounts if pid]
        return asked

    def _mounts(self) -> dict[str, tuple[int, int]]:
        """The daemon's pid, 0 if unknown, and the connection of each mount point."""
        mounts = {}
        for m in _dicts(self.session.facts.get("mounts")):
            path, pid, connection = m.get("path"), m.get("daemon_pid"), m.get("connection")
            if isinstance(path, str) and (connection := _natural(connection)) is not None:
                pid = _natural(pid) or 0
                mounts[path] = (pid if pid < 1 << 31 else 0, connection)
        return mounts

    def _mount(self, path: str) -> str:
        mounts = self._mounts()
        for name in (path, os.path.normpath(path)):
            if name in mounts:
                return name
        if not mounts:
            raise Error(
                f"cannot tell the mounts of {self.path} apart",
                "it holds no facts of its own: it was not made by fusetools",
                _MEND,
            )
        raise Error(
            f"{path} is no mount of {self.path}",
            f"it has {', '.join(mounts)}",
            f"fusetools hist --mount {shlex.quote(next(iter(mounts)))}",
        )

    def _facts(self, answer: dict[str, Any], filters: Filters) -> Facts:
        session = self.session.facts
        span = (answer["last"] - answer["first"]) / 1e9
        seconds = session.get("seconds")
        if filters.start is not None or filters.end is not None:
            end = span if filters.end is None else min(span, filters.end / 1e9)
            seconds = max(0.0, end - (filters.start or 0) / 1e9)
        elif not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds <= 0:
            seconds = span
        requests = Requests(**answer["requests"])
        warnings = list(self._warnings)
        if requests.unanswered:
            warnings += self._daemons
        if requests.begun and not (requests.matched or requests.unanswered):
            warnings.append(
                "no request could be matched to its end: some kernels' fuse:fuse_request_send "
                "gives every request the number 0"
            )
        lost = _counters(session.get("lost"))
        told = session.get("warnings")
        told = [w for w in told if isinstance(w, str)] if isinstance(told, list) else []
        return Facts(
            name=self.path.name,
            seconds=float(seconds),
            requests=requests,
            losses=Losses(
                # What perf lost stands in the recording too, what others lost only in the session.
                max(answer["lost"], lost.pop("perf", 0)) + sum(lost.values()),
                answer["throttled"],
                tuple(dict.fromkeys((*warnings, *told, *answer["warnings"], *self._misses()))),
            ),
            missing=tuple(map(_missing, _dicts(session.get("unavailable")))),
            probe_cost=_natural(session.get("probe_cost_ns")),
            event_cost=_natural(session.get("event_cost_ns")),
            pair_cost=_natural(session.get("pair_cost_ns")),
            throttled=tuple(_throttled(session.get("cgroups"))),
        )

    @cached_property
    def _daemons(self) -> list[str]:
        """What became of the daemons that did not answer all requests."""
        from fusetools.stories import needed

        mounts = self._mounts()
        asked: dict[str, Any] = {"daemons": [m for m in mounts.values() if m[0]]}
        probes = needed(self._catalogue, self._events)
        found = _ask("daemons", str(self.path), probes, asked)
        paths = {connection: path for path, (_, connection) in mounts.items()}
        return [line for state in found for line in _fate_of(state, paths)]

    def _misses(self) -> list[str]:
        return [
            f"{event}: the probe missed {n:,} of its calls"
            for event, n in _counters(self.session.facts.get("misses")).items()
        ]

    def _read_session(self, text: str | None) -> dict[str, Any]:
        if text is None:
            return {}
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            self._warnings.append("the recording's own facts cannot be read: names are guessed")
            return {}
        if facts.get("format") != 1:
            self._warnings.append("made by another version of fusetools: some facts may be missing")
        return facts

    def _read_probes(self) -> list[Probe]:
        probes = []
        for row in _dicts(self.session.facts.get("probes")):
            probe = Probe(*(row.get(key) or "" for key in Probe._fields))
            if (
                not all(isinstance(value, str) for value in probe)
                or probe.role not in _ROLES
                or probe.layer not in LAYERS
            ):
                self._warnings.append("a probe in the recording's own facts makes no sense")
                continue
            if probe.function == CALIBRATION or probe.event.startswith(
                f"fuse_daemon:{CALIBRATION}"
            ):
                continue
            probes.append(probe)
            address = _natural(row.get("address"))
            if address and probe.role in ("entry", "reply"):
                self._addresses[probe.function] = address
        return probes


# The catalogue


# What tells a request's begin, its copy to the daemon and its end: kprobes, then the kernel's own.
# `unique` is 0 in some kernels' fuse_request_send (fs/fuse/dev.c until 6.14).
_STAGES = {
    "begin": ("queue_request", "queue_request_and_unlock", "fuse_dev_queue_req"),
    "sent": ("fuse_copy_args",),
    "end": ("fuse_request_end", "request_end"),
}
_TRACEPOINTS = {
    "begin": "fuse:fuse_request_send",
    "sent": "fuse:fuse_request_sent",
    "end": "fuse:fuse_request_end",
}
_FIXED = {
    "raw_syscalls:sys_enter": ("syscall", "sys_enter"),
    "raw_syscalls:sys_exit": ("syscall", "sys_exit"),
    "ftrace:funcgraph_entry": ("kernel", "graph_entry"),
    "ftrace:funcgraph_exit": ("kernel", "graph_exit"),
}


def by_convention(events: Iterable[str], roles: Iterable[str] = ()) -> list[Probe]:
    """The catalogue of a recording that does not explain itself, from its events' names.

    ``roles`` of requests are told already.
    """
    names, roles = set(events), set(roles)
    probes = []
    fixed = dict(_FIXED)
    by_kprobe = {
        role: next((f"fuse_kernel:{f}" for f in functions if f"fuse_kernel:{f}" in names), None)
        for role, functions in _STAGES.items()
    }
    for role, tracepoint in _TRACEPOINTS.items():
        # Where the begin is a kprobe, the rest is joined to it by the request's address.
        kprobe = by_kprobe[role] if by_kprobe["begin"] and "begin" not in roles else None
        if role not in roles:
            fixed[kprobe or tracepoint] = ("request", role)
    for event in sorted(names):
        group, _, name = event.partition(":")
        function, returns, _ = name.partition("__return")
        if event in fixed:
            layer, role = fixed[event]
            probes.append(Probe(event, layer, "", "", role))
        if group in ("fuse_daemon", "fuse_kernel") and function != CALIBRATION:
            layer = group[len("fuse_") :]
            role = "return" if returns else "entry"
            probes.append(Probe(event, layer, function, operation_of(function), role))
    return probes


def operation_of(function: str) -> str:
    """The FUSE operation that a callback or a kernel function is named after, or ""."""
    function = bare(function)
    for prefix in ("", "cvmfs_", "stub_", "fuse_lib_", "fuse_"):
        name = function[len(prefix) :]
        name = _OTHER_NAMES.get(name, name)
        if function.startswith(prefix) and name in OPERATIONS:
            return name
    return ""


def bare(function: str) -> str:
    """A kernel function's name without what the compiler adds (`.isra.0`)."""
    return function.partition(".")[0]


def prune(
    catalogue: Iterable[Probe],
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    graphed: Sequence[str] = (),
    by_operation: bool = False,
    windows: bool = False,
) -> list[Probe]:
    """The part of the catalogue that a question needs: what is not in it is not even decoded.

    ``graphed``: the functions of function_graph, which has one event for all. ``windows``: from a
    daemon's read to its reply is asked for, too.
    """
    catalogue = list(catalogue)

    def wants(layer: str) -> bool:
        return not layers or layer in layers

    functions = [
        p
        for p in catalogue
        if p.role in ("entry", "return", "reply")
        and wants(p.layer)
        # Without symbols the request alone tells a reply's operation.
        and (not patterns or p.role == "reply" or _matches(patterns, p.operation, p.function))
    ]
    replies = any(p.role == "reply" for p in functions)
    # A pattern that names functions only needs no request; one that nothing here explains may be
    # the name of a system call.
    named = [p.function for p in functions]
    if wants("kernel"):
        named += graphed
    only_functions = all(
        any(fnmatchcase(name, pattern) for name in named)
        and not any(
            fnmatchcase(name, pattern) or fnmatchcase(f"FUSE_{name.upper()}", pattern)
            for name in OPERATIONS
        )
        for pattern in patterns
    )
    about_requests = not patterns or not only_functions
    if wants("kernel"):
        # One that is asked for by what is requested in it can have any name.
        functions += [
            p
            for p in catalogue
            if p.layer == "kernel"
            and p not in functions
            and (
                (about_requests and by_operation and p.role in ("entry", "return"))
                or (
                    p.role in ("graph_entry", "graph_exit")
                    and (
                        about_requests
                        or any(_matches(patterns, "", function) for function in graphed)
                    )
                )
            )
        ]
    kernel = by_operation and any(p.layer == "kernel" for p in functions)
    windows = windows and about_requests
    # A caller that returns without an answer was interrupted.
    syscalls = replies or windows or (about_requests and (wants("syscall") or wants("request")))
    callers = bool(filters.pids or filters.comms or filters.mounts)
    requests = syscalls or callers or kernel or (wants("request") and about_requests)
    roles = {"begin", "end"} if requests else set()
    # Where a kprobe tells the begin, often before the request has a number, and a tracepoint the
    # end: the copy to the daemon tells both. So it does to a daemon's call, of whose caller.
    ends = {p.role: p.event.partition(":")[0] for p in catalogue if p.layer == "request"}
    if requests and ends.get("begin") == "fuse_kernel" and (callers or ends.get("end") == "fuse"):
        roles.add("sent")
    if syscalls:
        roles |= {"sys_enter", "sys_exit"}
    if replies or windows:
        roles.add("sent")  # which thread picked the request up
    if by_operation and any(p.layer == "daemon" and p.role == "return" for p in functions):
        roles |= {"end", "sys_enter"}  # when a callback replies
    if any(p.layer == "daemon" and p.role == "entry" for p in functions):
        roles.add("taken")  # calls that do not tell which request they are of
    found = functions + [p for p in catalogue if p.role in roles]
    return found + (lengths(catalogue) if windows else [])


def lengths(catalogue: Iterable[Probe]) -> list[Probe]:
    """The events once more that tell how long requests and answers are: after what they are read
    for first."""
    told = [p for p in catalogue if p.role in ("begin", "end") and p.event.startswith("fuse:")]
    return [Probe(p.event, "request", "", "", "length") for p in told]


def _paired(catalogue: Iterable[Probe]) -> set[tuple[str, str]]:
    """(layer, function) of those that have a duration: both ends probed, or answered by a reply."""
    return {(p.layer, p.function) for p in catalogue if p.role in ("return", "reply")}


def _matches(patterns: Iterable[str], operation: str, function: str) -> bool:
    return any(
        fnmatchcase(operation, pattern) or fnmatchcase(function, pattern) for pattern in patterns
    )


# The native core


def core() -> Any:
    """The native core; the tests put another in its place."""
    try:
        from fusetools import _core
    except ImportError as error:
        raise Error("fusetools is not built", str(error), "make build") from error
    return _core


def _ask(question: str, *arguments: Any) -> Any:
    native = core()
    try:
        return getattr(native, question)(*arguments)
    except native.CoreError as error:
        what, why = (*map(str, error.args), "", "")[:2]
        raise Error(what, why, _MEND) from error


def matching(regex: str, texts: Sequence[str]) -> list[bool]:
    """Whether the regular expression (of Rust's crate regex: no backtracking) is found in each.
    ValueError: it is none."""
    from fusetools import _core

    try:
        return _core.matching(regex, texts)
    except UnicodeEncodeError as error:
        raise ValueError("it is no UTF-8 text") from error


def check_readable(path: Path) -> None:
    """Raise Error unless ``path`` is a file that can be read."""
    what = f"cannot read {path}"
    if not answers(str(path)):
        raise Error(what, "its file system does not answer")
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            inside = path / "perf.data"
            mend = f"fusetools hist -i {shlex.quote(str(inside))}" if inside.exists() else _MEND
            raise Error(what, "it is a directory", mend)
        if not stat.S_ISREG(kind):
            raise Error(what, "it is not a file", _MEND)
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise Error(what, "there is no such file", _MEND) from error
    except PermissionError as error:
        mend = f'sudo chown "$USER" {shlex.quote(str(path))}'
        raise Error(what, "permission denied", mend) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise Error(what, getattr(error, "strerror", None) or str(error), _MEND) from error


def _tree(found: dict[str, Any], function: str) -> list[GraphNode]:
    """The core's nodes, those of one function put together where they are called the same way."""
    names: list[str] = found["functions"]
    wanted = [not function or fnmatchcase(name, function) for name in names]
    places: dict[tuple[int, str], int] = {}
    figures: list[list[int]] = []  # calls, total, self
    below: list[list[int]] = []
    roots: list[int] = []
    place_of: list[int] = []  # by node; -1: outside of what is asked for
    for parent, code, *added in found["nodes"]:
        around = place_of[parent] if parent >= 0 else -1
        if around < 0 and not wanted[code]:
            place_of.append(-1)
            continue
        place = places.setdefault((around, names[code]), len(figures))
        if place == len(figures):
            figures.append([0, 0, 0])
            below.append([])
            (below[around] if around >= 0 else roots).append(place)
        figures[place] = [a + b for a, b in zip(figures[place], added)]
        place_of.append(place)
    functions = [name for _, name in places]
    done: dict[int, GraphNode] = {}

    def sort(nodes: Iterable[int]) -> tuple[GraphNode, ...]:
        found = [done[node] for node in nodes]
        found = [node for node in found if node.calls or node.children]
        return tuple(sorted(found, key=lambda node: (-node.total, node.function)))

    # From the last one on: a node comes after its parent.
    for place in reversed(range(len(figures))):
        calls, total, own = figures[place]
        done[place] = GraphNode(functions[place], calls, total, own, sort(below[place]))
    return list(sort(roots))


_UNFINISHED = (1 << 64) - 1


def _single_calls(found: dict[str, Any], function: str) -> Iterator[GraphCall]:
    names: list[str] = found["functions"]
    wanted = [not function or fnmatchcase(name, function) for name in names]
    raw = found["calls"]

    def column(name: str, kind: str) -> array[int]:
        values = array(kind)
        values.frombytes(raw[name])
        if sys.byteorder == "big":
            values.byteswap()
        return values

    columns = (
        *(column(name, "I") for name in ("function", "level", "cpu", "comm")),
        column("tid", "i"),
        *(column(name, "Q") for name in ("start", "duration")),
    )
    path: list[GraphCall] = []  # open ones, from the outermost
    top = 0  # the outermost one's level
    for code, level, cpu, comm, tid, start, duration in zip(*columns):
        if path and level <= top:
            yield path[0]
            path = []
        if not path and not wanted[code]:
            continue
        if not path:
            top = level
        del path[level - top :]
        took = None if duration == _UNFINISHED else duration
        call = GraphCall(names[code], start, took, tid, found["comms"][comm], cpu)
        if path:
            path[-1].children.append(call)
        path.append(call)
    if path:
        yield path[0]


def _asked_for(series: dict[str, Any], patterns: Sequence[str]) -> bool:
    """read is an operation and a system call, in which other operations may have been requested:
    who asks for the operation does not mean those."""
    operation, function = series["operation"], series["function"]
    if series["layer"] == "syscall":
        named = any(_matches([p], name, "") for p in patterns for name in OPERATIONS)
        function = "" if named else function
    return _matches(patterns, operation, function)


def _unmatched(found: Iterable[dict[str, Any]]) -> int:
    """Calls without their return and the reverse. Of a kernel function each operation's series has
    all of them."""
    lost: dict[tuple[str, str, str], int] = {}
    for s in found:
        operation = "" if s["layer"] == "kernel" else s["operation"]
        key = (s["layer"], s["function"], operation)
        lost[key] = max(lost.get(key, 0), s["lost"])
    return sum(lost.values())


def _histogram(series: dict[str, Any]) -> Histogram:
    """Of a callback also its two parts."""

    def part(name: str) -> Histogram | None:
        figures = series.get(name)
        if not figures:
            return None
        return _histogram({**series, **figures, name: None, "self": None, "unmatched": 0})

    until, after = part("until_reply"), part("after_reply")
    count = series["count"]
    return Histogram(
        operation=series["operation"],
        layer=series["layer"],
        function=series["function"],
        count=count,
        unmatched=series["unmatched"],
        min=series["min"] if count else None,
        max=series["max"] if count else None,
        mean=series["sum"] / count if count else None,
        percentiles=dict(series["percentiles"]) if count else {},
        buckets=tuple((low, high, n) for low, high, n in series["buckets"]),
        total=series["sum"],
        self_time=series["self"],
        unanswered=series["unanswered"],
        least=series["least"],
        until_reply=until,
        after_reply=after,
    )


def _nothing(probe: Probe) -> dict[str, Any]:
    names = (
        "entries",
        "count",
        "unmatched",
        "unanswered",
        "lost",
        "min",
        "max",
        "sum",
        "outermost",
    )
    counters = dict.fromkeys(names, 0)
    return {
        "self": None,
        "least": None,
        "until_reply": None,
        "after_reply": None,
        "address": None,
        "layer": probe.layer,
        "function": probe.function,
        "operation": probe.operation,
        "percentiles": {},
        "buckets": [],
        **counters,
    }


# The session is somebody else's JSON: nothing in it is taken on trust.


def _missing(row: dict[str, Any]) -> Missing:
    what, why, mend = (str(row.get(key) or "") for key in ("what", "why", "mend"))
    layer = row.get("layer")
    if not isinstance(layer, str):  # an older recording does not tell
        words = {"system call": "syscall", **{layer: layer for layer in LAYERS}}
        layer = next((words[word] for word in words if word in what), "")
    return Missing(what, why, mend, layer)


def _throttled(value: Any) -> Iterator[Throttled]:
    for row in _dicts(value):
        times, ns = _natural(row.get("nr_throttled")), _natural(row.get("throttled_ns"))
        if times:
            yield Throttled(str(row.get("cgroup")), str(row.get("whose")), times, ns or 0)


def _fate_of(state: dict[str, Any], mounts: dict[int, str]) -> Iterator[str]:
    path = mounts.get(state["connection"])
    who = f"the daemon{f' of {path}' if path else ''}, pid {state['pid']},"
    waiting = f"{state['unanswered']:,} request{'s' if state['unanswered'] != 1 else ''}"

    def at(ns: int) -> str:
        return f"{ns / 1e9:.3f} s"

    if state["ended"] is not None:
        yield f"{who} ended at {at(state['ended'])}: {waiting} without an answer"
    elif state["stopped"] is not None:
        yield (
            f"{who} has been stopped since {at(state['stopped'])}, by a signal or a debugger: "
            f"{waiting} without an answer (kill -CONT {state['pid']})"
        )
    elif state["hangs"]:
        since = "in this recording" if state["ran"] is None else f"since {at(state['ran'])}"
        yield f"{who} has not run {since}: {waiting} without an answer: it is stopped or hangs"


def _natural(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 1 << 64 else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _counters(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(key): n for key, n in value.items() if _natural(n)}
