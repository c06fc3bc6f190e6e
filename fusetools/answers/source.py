"""An open recording, as all questions use it."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools import core, session
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions, selected
from fusetools.answers.removed import NAMED, Selected, removed
from fusetools.core import names_operation
from fusetools.errors import RECORD, Error, merging
from fusetools.figures import plural
from fusetools.host.files import check_readable
from fusetools.names import CALIBRATION, FTRACE, OF_TASKS, TRACE_DAT
from fusetools.patterns import expression, unknown
from fusetools.reasons import LOW_DETAIL, Code, Reason
from fusetools.results.facts import Corrected, Facts, Losses, Requests
from fusetools.starts import start_of

if TYPE_CHECKING:
    from typing_extensions import Concatenate

    from fusetools.core import Arguments, T

_LONGEST = 400  # maximum number of characters of a printed command


class Source:
    """An open recording.

    ``catalogue``: its events and their meaning; ``described``: the core's description;
    ``functions``: (start address, name) of function_graph's kernel functions; ``addresses``:
    addresses of probed functions by name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_readable(self.path)
        try:
            self.described = core.ask(core.native.describe, str(self.path))
        except Error as error:
            with self.path.open("rb") as file:
                if file.read(len(TRACE_DAT)) != TRACE_DAT:
                    raise
            why = "it is a trace.dat, which is read together with its perf.data"
            fix = merging(["perf.data", str(self.path)])
            raise Error(f"cannot read {self.path}", why, fix) from error
        self.session, self._warnings = session.read(self.described.get("session"))
        self.addresses: dict[str, int] = {}
        self.functions: Sequence[tuple[int, str]] = self.described.get("functions", [])
        catalogue = core.native.Catalogue(self._read_probes(), self.described["events"])
        self.catalogue = catalogue.inferred([name for _, name in self.functions])
        self.probes = self.catalogue.rows
        used = {p.event.partition("#")[0] for p in self.probes}
        if sampled := sorted(used.intersection(self.described["sampled"])):
            raise Error(
                f"only some events of {self.path} were sampled: {', '.join(sampled[:3])}",
                "counts and durations cannot be known (perf record -F or a period above 1)",
                f"perf record -c 1 …   # each event\n{RECORD}",
            )
        if all(p.layer == "syscall" for p in self.probes):
            why = next(iter(self.described["warnings"]), "it was not made by fusetools")
            rest = Path(f"{self.path}{FTRACE}")
            if rest.is_file():
                of_tasks = Path(f"{self.path}{OF_TASKS}")
                parts = [str(path) for path in (self.path, of_tasks, rest) if path.is_file()]
                raise Error(f"{self.path} holds no FUSE events", f"{rest} does", merging(parts))
            raise Error(f"{self.path} holds no FUSE events", why, RECORD)

    def _read_probes(self) -> list[core.native.Probe]:
        probes = []
        for row in self.session.probes:
            if row.function == CALIBRATION or row.event.startswith(f"fuse_daemon:{CALIBRATION}"):
                continue
            fields = row.event, row.layer, row.function, row.operation, row.role
            probes.append(core.native.Probe(*fields))
            if row.address and row.role in ("entry", "reply"):
                self.addresses[row.function] = row.address
        return probes

    def with_stacks(self, catalogue: core.native.Catalogue) -> Sequence[core.native.Probe]:
        """Return the rows, and the stacks of waits: what callers wait for outside of requests."""
        switches = {p.event for p in catalogue.rows if p.role == "switch"}
        stacks = [event for event in self.described["stacks"] if event in switches]
        return catalogue.with_events("stack", stacks).rows

    def start_functions(self, threads: Iterable[int | None]) -> dict[int, str]:
        """Return the start functions of threads, of those whose recorded stacks reach their
        start."""
        rows = self.with_stacks(self.catalogue.named())
        wanted = sorted({tid for tid in threads if tid is not None})
        if not wanted or not any(row.role == "stack" for row in rows):
            return {}
        found = self.query(core.native.starts, rows, wanted)
        return {tid: name for tid, functions in found if (name := start_of(functions))}

    def query(
        self,
        question: Callable[Concatenate[str, Arguments], T],
        *arguments: Arguments.args,
        **more: Arguments.kwargs,
    ) -> T:
        """Call a function of the core with this recording's path, and return its answer."""
        return core.ask(question, str(self.path), *arguments, **more)

    @property
    def detail(self) -> str:
        """The recording's level of detail, one of fusetools.names.DETAILS."""
        return self.session.detail

    def with_detail(self, detail: str) -> str:
        """Return the command that records the same with more detail."""
        words = list(self.session.arguments)
        command = list(self.session.command)
        more = [] if detail == "stacks" else ["--detail", detail]
        if words[:1] != ["record"] or len(shlex.join(words)) > _LONGEST:
            return " ".join(["fusetools record", *more, "-- WORKLOAD"])
        before = words[1 : len(words) - len(command)]
        for at, word in enumerate(before):
            if word == "--detail" or word.startswith("--detail="):
                before[at : at + 1 + (word == "--detail")] = []
                break
        return shlex.join(["fusetools", "record", *more, *before, *command])

    def with_missing_detail(self, facts: Facts, layers: Sequence[str] = ()) -> Facts:
        """Add to ``facts.missing`` the layers that ``--detail latency`` left out.

        ``layers``: only these; none: all."""
        if self.detail != "latency":
            return facts
        again = self.with_detail("stages")
        lacking = (
            Reason(Code.LOW_DETAIL, {"detail": self.detail}, {}, again, layer)
            for layer in layers or LOW_DETAIL
            if layer in LOW_DETAIL
        )
        return replace(facts, missing=(*facts.missing, *lacking))

    @property
    def pair_cost(self) -> int | None:
        """Cost in ns of a callback's two probes, or else of the part within its duration."""
        session = self.session
        return session.probe_cost_ns if session.pair_cost_ns is None else session.pair_cost_ns

    def corrected(self) -> Corrected:
        """Return the measured costs of recording, which can be subtracted.

        Error: nothing was measured."""
        event, pair = self.session.event_cost_ns, self.session.pair_cost_ns
        if event is None and pair is None:
            raise Error(
                f"cannot correct the durations of {self.path}",
                "what an event and a probe cost was not measured while it was recorded",
                self.with_detail(self.detail),
            )
        roles = {(p.layer, p.role) for p in self.probes}
        callbacks = bool({("daemon", "entry"), ("daemon", "reply")} & roles)
        remaining = {
            "events": event is None,
            "the probes of callbacks": callbacks and pair is None,
            "stacks": bool(self.described["stacks"]),
            "function_graph": ("kernel", "graph_entry") in roles,
            "kernel probes": any(p.event.startswith("fuse_kernel:") for p in self.probes),
        }
        left = tuple(what for what, there in remaining.items() if there)
        return Corrected(event, self.pair_cost if callbacks else None, left)

    def core_filters(
        self, filters: Filters, functions: bool = True, corrected: bool = False
    ) -> core.native.Filters:
        """Convert the filters to the core's form.

        ``functions``: with kernel functions of function_graph; ``corrected``: subtract the overhead
        of recording from durations."""
        native: core.native.Filters = {}
        if filters.pids:
            native["pids"] = list(filters.pids)
        if filters.comms:
            native["comms"] = list(filters.comms)
        if filters.start_ns is not None:
            native["from_ns"] = filters.start_ns
        if filters.end_ns is not None:
            native["to_ns"] = filters.end_ns
        if self.session.flight:
            native["begun_before"] = True
        event = self.session.event_cost_ns
        if corrected or event is not None:
            native["cost"] = (event or 0, self.pair_cost or 0)
            native["corrected"] = corrected
        everywhere = self._mounts()
        native["daemons"] = self._servers()
        if filters.mounts:
            mounts = [everywhere[self._mount(path)] for path in filters.mounts]
            native["connections"] = [connection for _, connection in mounts]
            native["daemon_pids"] = [pid for pid, _ in mounts if pid]
        opened = self.session.opened
        native["opened"] = [(file.pid, file.fd, file.connection) for file in opened]
        if functions:
            native["functions"] = [(at, name, "") for at, name in self.functions]
        return native

    @property
    def mount_points(self) -> dict[int, str]:
        """Mount points by connection."""
        return {connection: path for path, (_, connection) in self._mounts().items()}

    def _mounts(self) -> dict[str, tuple[int, int]]:
        """Return (daemon's PID or 0 if unknown, connection) by mount point."""
        return {
            mount.path: (mount.daemon_pid or 0, mount.connection)
            for mount in self.session.mounts
            if mount.connection is not None
        }

    def _servers(self) -> list[tuple[int, int]]:
        """Return (process, connection) of all that may serve: daemons first."""
        daemons = [mount for mount in self._mounts().values() if mount[0]]
        others = (
            (pid, mount.connection)
            for mount in self.session.mounts
            if mount.connection is not None
            for pid in mount.servers
        )
        return list(dict.fromkeys((*daemons, *others)))

    def _mount(self, path: str) -> str:
        mounts = self._mounts()
        also = {other: mount.path for mount in self.session.mounts for other in mount.also}
        names = {**also, **{name: name for name in mounts}}
        for name in (path, os.path.normpath(path), os.path.abspath(path)):
            if name in names:
                return names[name]
        if not mounts:
            raise Error(
                f"cannot tell the mounts of {self.path} apart",
                "it holds no facts of its own: it was not made by fusetools",
                RECORD,
            )
        known = next(iter(mounts))
        raise Error(
            f"{path} is no mount of {self.path}",
            f"it has {', '.join(mounts)}",
            shlex.join(["fusetools", "hist", "-i", str(self.path), "--mount", known]),
            instead=(path, known),
        )

    def facts(self, answer: core.native.Answer, filters: Filters, corrected: bool = False) -> Facts:
        """Return the facts from the core's answer and the session."""
        session = self.session
        span = (answer["last"] - answer["first"]) / 1e9
        seconds = session.seconds
        if filters.start_ns is not None or filters.end_ns is not None:
            end = span if filters.end_ns is None else min(span, filters.end_ns / 1e9)
            seconds = max(0.0, end - (filters.start_ns or 0) / 1e9)
        elif seconds is None:
            seconds = span
        requests = Requests(**answer.get("requests", {}))
        none = "requests" in answer and not (requests.begun or requests.ended)
        warnings = list(self._warnings)
        if requests.unanswered:
            warnings += self._daemons
        if requests.ended and not requests.begun:
            warnings.append(
                "no request's begin was recorded: the recording is limited to the daemon (perf "
                "record -p, -t), whose callers make them; record with -a, or: fusetools record"
            )
        if requests.begun and not (requests.matched or requests.unanswered):
            warnings.append(
                "no request could be matched to its end: some kernels' fuse:fuse_request_send "
                "gives every request the number 0"
            )
        lost = dict(session.lost)
        misses = [
            f"{event}: the probe missed {n:,} of its calls" for event, n in session.misses.items()
        ]
        return Facts(
            name=self.path.name,
            seconds=float(seconds),
            requests=requests,
            losses=Losses(
                # The recording itself counts perf's losses; others are in the session only.
                max(answer["lost"], lost.pop("perf", 0)) + sum(lost.values()),
                answer["throttled"],
                tuple(dict.fromkeys((*warnings, *session.warnings, *answer["warnings"], *misses))),
            ),
            missing=session.missing,
            probe_cost_ns=session.probe_cost_ns,
            event_cost_ns=session.event_cost_ns,
            pair_cost_ns=session.pair_cost_ns,
            took=session.took,
            corrected=self.corrected() if corrected else None,
            throttled=session.throttled,
            host=self.described.get("hostname") or "",
            kernel=session.host.kernel or self.described.get("release") or "",
            mounts=tuple(mount.path for mount in session.mounts),
            command=() if filters.start_ns or filters.end_ns else session.command,
            detail=session.detail if session.arguments else "",
            removed=removed(self._count, Selected(filters)) if none else (),
        )

    def with_removed(
        self,
        facts: Facts,
        filters: Filters,
        patterns: Sequence[str] = (),
        least: int = 0,
        path: str | None = None,
    ) -> Facts:
        """Add to the facts of an answer without requests which filters removed them."""
        if facts.removed and not patterns and not least and path is None:
            return facts  # counted already
        given = Selected(filters, patterns, least, path)
        return replace(facts, removed=removed(self._count, given))

    def _count(self, given: Selected, by: str) -> Counter[str]:
        """Count requests by mount, comm, PID or operation; otherwise under one name."""
        probes = self.catalogue.named().rows
        filters = self.core_filters(given.filters)
        counts: Counter[str] = Counter()
        if given.least_ns or given.path is not None:
            path = None if given.path is None else expression(given.path)
            wanted = expressions(given.patterns), given.least_ns, path
            grouping = "", dict[int, str]()
            mounts = self.mount_points
            every = self.query(
                core.native.groups, probes, filters, wanted, mounts, grouping, ("time", 1)
            )
            counts[""] = sum(row["requests"] for row in every["groups"])
            return +counts
        key = by if by in NAMED and by != "operation" else ""
        for row in self.query(core.native.stages, probes, filters, key, 0)["groups"]:
            if selected(row["operation"], given.patterns):
                value = row["operation"] if by == "operation" else row["key"]
                if by == "mount":
                    value = self.mount_points.get(value, value)
                counts["" if value is None else str(value)] += row["requests"]
        return +counts

    @cached_property
    def unanswering(self) -> core.native.Daemons:
        """States of daemons that did not answer all requests."""
        filters: core.native.Filters = {"daemons": [m for m in self._mounts().values() if m[0]]}
        return self.query(core.native.daemons, self.catalogue.requests().rows, filters)

    @cached_property
    def _daemons(self) -> list[str]:
        """Warnings about daemons that did not answer all requests."""
        answer = self.unanswering
        mounts, first = self.mount_points, answer["first"]
        return [line for state in answer["daemons"] for line in _fate_of(state, mounts, first)]

    def no_match(self, patterns: Sequence[str], operations: Iterable[str]) -> None:
        """Raise Error, unless a pattern matches an operation: 0 calls of it are a valid answer."""
        names = [*patterns, *(p.removeprefix("FUSE_").lower() for p in patterns)]
        if any(map(names_operation, names)):
            return
        known = {*operations, *(p.operation for p in self.probes)} - {""}
        raise unknown(
            f"no operation or function of {self.path} matches {' '.join(patterns)}",
            " ".join(patterns),
            known,
            f"fusetools count -i {shlex.quote(str(self.path))}",
        )


def _fate_of(state: core.native.DaemonState, mounts: dict[int, str], first: int) -> Iterator[str]:
    path = mounts.get(state["connection"])
    who = f"the daemon{f' of {path}' if path else ''}, pid {state['pid']},"
    waiting = plural(state["unanswered"], "request")

    def at(ns: int) -> str:
        return f"{max(ns - first, 0) / 1e9:.3f} s"

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
