"""From what perf and trace-cmd wrote to the one perf.data, with the session sample in it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools import __version__
from fusetools.core import native
from fusetools.errors import Error, merging
from fusetools.host.facts import VIRTIOFS
from fusetools.host.files import Files
from fusetools.host.full import full
from fusetools.host.limits import limits
from fusetools.host.mounts import all_namespaces
from fusetools.host.processes import lowered
from fusetools.names import CALIBRATION, FTRACE, OF_TASKS
from fusetools.plan.collectors import CLOCK
from fusetools.plan.daemons import Target
from fusetools.plan.events import NUMBER
from fusetools.plan.ftrace import PAIRED
from fusetools.plan.kernel import NO_UNIQUE
from fusetools.plan.probeset import HELPERS
from fusetools.reasons import Code, Reason
from fusetools.record import kept, symbols, tracecmd
from fusetools.record.daemons import Daemons, Mapped
from fusetools.record.handover import hand_over
from fusetools.record.job import Job
from fusetools.record.merger import Merger, Stuck
from fusetools.record.owners import Owners
from fusetools.record.scratch import Scratch
from fusetools.record.throttling import weighed_by
from fusetools.results.record import Outcome
from fusetools.session import (
    BYTES,
    MOST_PATHS,
    NAMING,
    File,
    Flight,
    Host,
    Opened,
    Peer,
    Process,
    RecordedProbe,
    Session,
    Took,
    TracedMount,
    encoded,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

SESSION = "fusetools:session"


@dataclass
class Recorded:
    """The parts of a recording, before they are put together.

    ``raw``, ``tasks``, ``ring``, ``graph``: the files of perf, its per-task events, ftrace's
    instance and trace-cmd; ``maps``: code of daemons and callers; ``hits``: how often each probe
    was hit, ``misses``: returns that were missed, ``lost``: events that were dropped, by whom;
    ``pair_cost``, ``event_cost``: ns of the two probes of a call, and of an event without a stack.
    ``span``: ns from when to when perf and ftrace both recorded, None: perf alone did. ``window``:
    of overwriting buffers; None: perf wrote all that happened. ``held``: what Now.held() returned.
    ``flight``: why a flight recorder wrote it.
    """

    raw: Path
    started: datetime
    daemons: Daemons
    maps: list[Mapped]
    tasks: Path | None = None
    ring: Path | None = None
    graph: Path | None = None
    callers: tuple[int, ...] = ()
    has_exit_status: bool = False
    opened: tuple[Opened, ...] = ()
    owners: Owners | None = None
    hits: Mapping[str, int] = field(default_factory=dict)
    misses: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    pair_cost: int | None = None
    event_cost: int | None = None
    span: tuple[int, int] | None = None
    window: native.Window | None = None
    held: Path | None = None
    flight: Flight | None = None

    def written(self) -> bool:
        """Return whether perf or ftrace recorded anything."""
        files = [path for path in (self.raw, self.tasks, self.ring) if path]
        return any(os.path.exists(path) and os.path.getsize(path) for path in files)


class Finisher:
    """Puts what was recorded together into one perf.data, with the session sample.

    ``made``: where it was recorded; ``merger``: one that has begun already; ``give_up``: asked now
    and then; ``meanwhile``: called once, while it merges; ``merged``: called with what merging
    found out.
    """

    def __init__(
        self,
        job: Job,
        made: Scratch,
        recorded: Recorded,
        merger: Merger | None = None,
        give_up: Callable[[], bool] = lambda: False,
        meanwhile: Callable[[], None] = lambda: None,
        merged: Callable[[native.MergeInfo], None] = lambda _: None,
    ) -> None:
        self.job, self.made, self.recorded = job, made, recorded
        self.merger, self.give_up, self.meanwhile, self.merged = merger, give_up, meanwhile, merged
        # Sources of the names in stacks: the kernel's symbols, files that are not opened, and the
        # only ones that are (None: any).
        self.kallsyms: str | None = symbols.KALLSYMS
        self.avoid: list[str] = []
        self.only: list[str] | None = None
        self.peers: tuple[Peer, ...] = ()
        self.processes: tuple[Process, ...] = ()
        self.files: tuple[File, ...] = ()
        self.limits: dict[int, dict[str, int]] = {}
        # By daemon: how it yields to others on a CPU, and what sets its share of one
        self.priorities: dict[int, tuple[str, str]] = {}
        self.cost: int | None = None  # ns that a daemon call's duration holds of its probes'
        # Numbers of switches: with a stack of their own, with one of another alike, without.
        self.stacks = (0, 0, 0)
        self.stacks_ns = 0  # time that taking stacks took, of the threads whose stacks they are

    def _report_new_mounts(self) -> None:
        """Report mounts that were not there when the recording was planned, unless others were
        requested: autofs mounts when a path is used first."""
        if self.job.options.mounts or self.job.options.pid is not None:
            return
        known = {mount.connection for mount in self.job.facts.mounts}
        for mount in all_namespaces(Files(Path("/"))):
            if mount.connection not in known:
                fix = "record again, now that it is mounted"
                path = {"path": mount.path}
                self.job.missing.append(Reason(Code.MOUNTED_MEANWHILE, path, {}, fix, "request"))

    def scope(self) -> list[int] | None:
        """Return the processes whose switches and system calls the recording is about, with all
        that they start; None: everybody's.

        fusetools is not one: perf is its child. A cgroup holds the workload exactly; only root may
        see others of the same names as the daemon's threads.
        """
        job = self.job
        if self.recorded.callers and not job.plan.by_pid and not job.user:
            return None
        servers = [pid for pid in job.servers() if pid != job.pid]
        return [*servers, *self.recorded.callers]

    def finish(self) -> Outcome:
        """Make the one perf.data, with its name and its owner. If that fails, keep what there is.

        Raise Error if nothing was recorded, or it is another user's and cannot be merged.
        """
        outcome = self.job.outcome
        try:
            self._hand_over(self.assemble())
        except native.CoreError as error:
            (self.made.path / "merged").unlink(missing_ok=True)
            self._keep_raw(": ".join(map(str, error.args)))
        outcome.missing = tuple(self.job.missing)
        return outcome

    def assemble(self) -> Path:
        """Put it together, and leave it where it was recorded.

        Raise Error if nothing was recorded, CoreError if it cannot be merged.
        """
        try:
            return self._assembled()
        finally:
            if self.merger:  # one that has begun, and was not needed
                self.merger.close()

    def look(self) -> None:
        """Note what the machine says of the mounts and the daemons when the recording ends."""
        self._report_new_mounts()
        self.peers = tuple(self.recorded.daemons.peers())
        self.files = tuple(self.recorded.daemons.files())
        mounts = [target.mount for target in self.job.plan.targets]
        self.limits = limits([mount.connection for mount in mounts])
        pids = {mount.daemon_pid for mount in mounts if mount.daemon_pid is not None}
        self.priorities = {pid: (lowered(pid), weighed_by(Files(Path("/")), pid)) for pid in pids}
        for pid in self.recorded.daemons.started:
            for place in full(pid):
                text = f"the file system on {place} is full, where the daemon (pid {pid}) has files"
                self.job.outcome.warnings.append(text)

    def _assembled(self) -> Path:
        outcome = self.job.outcome
        self.look()
        if not self.recorded.written():
            why = outcome.warnings[0] if outcome.warnings else "perf wrote nothing"
            raise Error("nothing was recorded", why)
        whole = self.made.path / "merged"
        self._write(whole)
        outcome.size_bytes = whole.stat().st_size
        outcome.missing = tuple(self.job.missing)
        return whole

    def _keep_raw(self, why: str) -> None:
        """Keep what perf and ftrace wrote: beside the recording's place, where root records for
        itself. Raise Error if it is another user's recording; where it is kept for root."""
        assert self.job.output is not None
        ring = self.recorded.ring
        ring = ring if ring and ring.exists() else None
        beside = {"tasks": (self.recorded.tasks, OF_TASKS), "ring": (ring, FTRACE)}
        parts = {kind: (path, end) for kind, (path, end) in beside.items() if path}
        if self.job.user:
            paths = self._kept(
                {"perf": self.recorded.raw, **{kind: path for kind, (path, _) in parts.items()}}
            )
            where = (
                f"what was recorded is root's, as it was not merged: {os.path.dirname(paths[0])}"
            )
            fix = f"{merging(paths)}   # as root"
            raise Error("the recording could not be merged", f"{why}; {where}", fix)
        text = f"{why}; kept as perf wrote it"
        if parts:
            paths = [os.path.join(self.job.output.parent, self.job.output.name)]
            paths += [str(self._keep_beside(path, end)) for path, end in parts.values()]
            text += f"{', and ftrace' * bool(ring)}: {merging(paths)}"
        self.job.outcome.warnings.append(text)
        self.job.outcome.failed = True
        self.job.outcome.size_bytes = self.recorded.raw.stat().st_size
        self._hand_over(self.recorded.raw)

    def _kept(self, parts: Mapping[str, Path]) -> list[str]:
        """Keep raw files of a user's recording for root alone. Return their paths. Raise Error if
        nothing is kept."""
        assert self.job.output is not None and self.job.user is not None
        output, source = self.job.output, self.made.descriptor
        files = {kind: path.name for kind, path in parts.items()}
        register, uid = self.job.lock.place, self.job.user.uid
        try:
            return kept.keep(
                register, uid, output.parent, output.directory, output.name, source, files
            )
        except (kept.Refused, OSError) as error:
            what = "the recording could not be merged, and is lost"
            raise Error(what, str(error), "fusetools clean   # as root") from error

    def _hand_over(self, whole: Path) -> None:
        """Give the file its name and its owner. Until then only root can open it."""
        assert self.job.output is not None
        directory = self.made.descriptor
        try:
            hand_over(directory, whole.name, self.job.user)
        except Error as error:
            raise native.CoreError(error.what, error.why) from error
        self.job.outcome.output = Path(os.path.abspath(self.job.output.path))
        try:
            self.job.output.take(directory, whole.name, keep=True)
        except OSError as error:
            # Somebody made a directory of that name meanwhile: the recording is not lost.
            name = f"{self.job.output.name[:200]}.{os.urandom(4).hex()}"
            os.rename(whole.name, name, src_dir_fd=directory, dst_dir_fd=self.job.output.directory)
            self.job.outcome.output = Path(self.job.output.parent, name)
            why = f"{self.job.output.path} could not be replaced: {error.strerror}"
            self.job.outcome.warnings.append(f"{why}; the recording is {self.job.outcome.output}")
            self.job.outcome.failed = True

    def _write(self, whole: Path) -> None:
        """Write the recording. Examine its contents once it is there, and note the results in the
        room that the session has for them."""
        session = encoded(self._session())
        owners = self.recorded.owners.size if self.recorded.owners else 0
        room = min(len(session) + owners + 8192 + 64 * len(self.job.plan.recorded), BYTES)
        merged = self._merge(whole, session.ljust(room))
        self.merged(merged)
        self.stacks = merged["stacks"]
        self.stacks_ns = merged["stacks_ns"]
        count = merged["missing_switches"]
        if count:
            figures = {"switches": count}
            self.job.missing.append(Reason(Code.SWITCHES_MISSING, {}, figures, layer="off_cpu"))
        self.cost = self._examine(whole, merged["left_out"])
        text = encoded(self._session(), room)
        if len(text) > room:
            self.job.outcome.warnings.append("what was found out about it does not fit into it")
            return
        rest = text.ljust(room, "\0").encode()
        with whole.open("r+b") as file:
            for start, end in merged["session_at"]:
                file.seek(start)
                file.write(rest[: end - start])
                rest = rest[end - start :]

    def _merge(self, whole: Path, session: str) -> native.MergeInfo:
        """perf's events, function_graph's, and the session, into one file, with what names its
        stacks elsewhere: what the daemons had mapped, and the functions in stacks."""
        merge = partial(
            self._merged,
            kallsyms=self.kallsyms,
            maps=self.recorded.maps,
            avoid=self.avoid,
            bundles=self._bundles(),
            daemons=self.job.servers(),
            scope=self.scope(),
            threads=self.job.threads(),
            window=self.recorded.window,
            span=self.recorded.span,
            packed=self.job.facts.perf is not None
            and self.job.facts.perf.zstd is True,  # it shall read it
            private=self.job.user is not None,
        )
        inputs = [str(self.recorded.raw)]
        if self.recorded.tasks and self.recorded.tasks.exists():
            inputs.append(str(self.recorded.tasks))
        if self.recorded.ring and self.recorded.ring.exists():
            inputs.append(str(self.recorded.ring))
        if self.recorded.held:
            inputs.append(str(self.recorded.held))
        graph = self.recorded.graph
        if graph and graph.exists():
            try:
                merged = merge([*inputs, str(graph)], str(whole), session)
                why = self._clocks_disagree(whole)
                if not why:
                    return merged
            except native.CoreError as error:
                why = ": ".join(error.args)
            whole.unlink(missing_ok=True)
            self.job.outcome.warnings.append(f"{self._keep_graph(graph)}: {why}")
        return merge(inputs, str(whole), session)

    def _merged(
        self, inputs: list[str], whole: str, session: str, **more: Unpack[native.MergeOptions]
    ) -> native.MergeInfo:
        """Merge in a process of its own; if that fails, again by one thread, without the programs
        that name stacks."""
        try:
            first, self.merger = self.merger or Merger(), None
            first.only = self.only
            merged = first.merge(inputs, whole, session, self.give_up, self.meanwhile, **more)
            self.job.outcome.warnings += first.hung
            return merged
        except (Stuck, native.CoreError, OSError) as error:
            why = ": ".join(map(str, error.args)) if not isinstance(error, OSError) else str(error)
            Path(whole).unlink(missing_ok=True)
        more["avoid"] = ["/"]
        try:
            merged = Merger(alone=True).merge(inputs, whole, session, lambda: False, **more)
        except (Stuck, OSError) as error:
            raise native.CoreError("cannot merge the recording", str(error)) from error
        self.job.outcome.warnings.append(f"{why}: stacks have no names")
        return merged

    def _keep_graph(self, graph: Path) -> str:
        """Keep what trace-cmd recorded; where, in words."""
        if not self.job.user:
            return f"function_graph is kept apart, in {self._keep_beside(graph, '.trace.dat')}"
        try:
            (path,) = self._kept({"graph": graph})
        except Error as error:
            return f"function_graph is lost: {error.why}"
        return f"function_graph is kept apart for root, in {path}"

    def _keep_beside(self, part: Path, end: str) -> Path:
        """Put what trace-cmd or ftrace recorded beside root's own recording."""
        assert self.job.output is not None and self.job.user is None
        name = self.job.output.name + end
        directories = {"src_dir_fd": self.made.descriptor, "dst_dir_fd": self.job.output.directory}
        os.rename(part.name, name, **directories)
        return Path(self.job.output.parent, name)

    def _bundles(self) -> list[tuple[str, str, list[tuple[int, str, list[str]]]]]:
        """Return (event, the field that tells its probes apart, (number, event, fields that it does
        not have) of each)."""
        bundles: dict[str, list[tuple[int, str, list[str]]]] = {}
        for probe in self.job.plan.recorded:
            if probe.bundle:
                bundles.setdefault(probe.bundle, []).append(
                    (probe.number, probe.event, probe.padding)
                )
        return [(event, NUMBER, probes) for event, probes in bundles.items()]

    def _clocks_disagree(self, whole: Path) -> str:
        """Return why function_graph's clock is not that of the rest of ``whole``; empty: it is, or
        nothing tells."""
        ours = [p for p in self.job.plan.probes if p.in_kernel]
        pairs = [p for p in ours if p.role in ("entry", "return")]
        if not pairs:
            return ""
        function = pairs[0].function
        if any(p.role == "return" for p in pairs):
            ours = [p for p in pairs if p.function == function]
        rows = [native.Probe(p.event, p.layer, p.function, "", p.role) for p in ours]
        graph = [
            native.Probe(f"ftrace:funcgraph_{way}", "kernel", "", "", f"graph_{way}")
            for way in ("entry", "exit")
        ]
        # Without a return a request's time serves: its caller waits while it is in flight.
        spans = (native.spans(str(whole), of, function) for of in (rows, graph))
        return tracecmd.clocks_disagree(function, *spans)

    def _session(self) -> Session:
        facts, outcome, options = self.job.facts, self.job.outcome, self.job.options
        return Session(
            version=__version__,
            command=options.command,
            arguments=self.job.arguments,
            call_graph=options.call_graph,
            stack_bytes=options.stack_bytes,
            detail=options.detail,
            started=self.recorded.started.isoformat(timespec="seconds"),
            seconds=round(outcome.seconds, 6),
            exit_status=outcome.exit_status if self.recorded.has_exit_status else None,
            clock=self.job.plan.clock,
            host=Host(
                kernel=facts.kernel,
                arch=facts.arch,
                cpus=facts.cpus,
                perf=facts.perf.version if facts.perf else None,
                trace_cmd=facts.trace_cmd.version if facts.trace_cmd else None,
            ),
            workload_pid=self.recorded.callers[0] if self.recorded.callers else None,
            descendants=self.recorded.callers[1:],
            recorders=tuple(self.job.recorders),
            mounts=tuple(
                _mount(target, self.limits, self.priorities, self.recorded.daemons.followers)
                for target in self.job.plan.targets
            ),
            probes=tuple(
                RecordedProbe(p.event, p.layer, p.function, p.operation, p.role, p.address)
                for p in self.job.plan.recorded
            ),
            missing=tuple(self.job.missing),
            misses=self.recorded.misses,
            lost=self.recorded.lost,
            probe_cost_ns=self.cost,
            pair_cost_ns=self.recorded.pair_cost,
            event_cost_ns=self.recorded.event_cost,
            took=self.job.outcome.took,
            stacks=self.stacks,
            warnings=tuple(outcome.warnings),
            throttled=tuple(outcome.throttled),
            peers=self.peers,
            ends=tuple(self.recorded.daemons.ends),
            files=self.files,
            opened=self.recorded.opened,
            flight=self.recorded.flight,
            processes=self.processes,
        )

    def _examine(self, recording: Path, left_out: Mapping[str, int]) -> int | None:
        """Read what was recorded (counts, losses, probes that never fired), and return its cost.

        ``left_out``: samples of an event that are other daemons', and not in it.
        """
        rows = [
            native.Probe(probe.event, probe.layer, probe.function, probe.operation, probe.role)
            for probe in self.job.plan.recorded
        ]
        fuse = [event.name for event in self.job.plan.events if event.name.startswith("fuse:")]
        catalogue = native.Catalogue(rows, fuse).inferred([]).rows
        try:
            seen = native.scan(str(recording), catalogue, {})
        except native.CoreError as error:
            self.job.outcome.warnings.append(": ".join(error.args))
            return None
        samples: Counter[str] = Counter()
        for name, count in seen["events"]:  # an event of two scopes is there twice
            if name != SESSION:
                samples[name] += count
        own = {probe.event for probe in self.job.plan.probes if probe.function == CALIBRATION}
        wanted = {name: n for name, n in samples.items() if name not in own}
        self.job.outcome.events = sum(wanted.values())
        self.job.outcome.requests = seen["requests"]["begun"]
        self.job.outcome.took = self._took(wanted)
        if self.recorded.owners:
            workload = next(iter(self.recorded.callers), None)
            self.processes = self.recorded.owners.processes(seen["callers"], workload)
        if seen["lost"]:
            self.recorded.lost["perf"] = seen["lost"]
        self.job.outcome.lost = sum(self.recorded.lost.values())
        self.job.outcome.warnings += seen["warnings"]
        for probe in self.job.plan.probes:
            if probe.in_kernel:
                continue  # it has a filter, perhaps
            names = [one.event for one in probe.apart()]
            seen_of_it = sum(samples[name] + left_out.get(name, 0) for name in names)
            missed = self.recorded.hits.get(probe.event, 0) - seen_of_it
            if missed > 0:
                self.recorded.misses[probe.event] = missed
        if (
            self.recorded.window is None
        ):  # a window may hold no more than a request that is not answered
            requests = seen["requests"]
            if requests["begun"] and requests["ended"] and not requests["matched"]:
                self.job.lacks(NO_UNIQUE)
            self._silent(recording, catalogue, samples)
            self._silent_kernel(samples)
        for series in seen["series"]:
            if series["function"] == CALIBRATION and series["count"]:
                return int(series["percentiles_ns"]["50"])
        return None

    def _took(self, samples: Mapping[str, int]) -> Took | None:
        """From what an event and a probe were measured to cost in this recording, and from when
        each stack was begun and done."""
        probes = {probe.event for probe in self.job.plan.recorded if not probe.in_kernel}
        uprobes = sum(n for name, n in samples.items() if name in probes)
        rest = sum(n for name, n in samples.items() if name not in probes and name != CLOCK)
        ns = rest * (self.recorded.event_cost or 0) + uprobes * (self.recorded.pair_cost or 0) / 2
        known = {CLOCK, *PAIRED} if self.recorded.ring else {CLOCK}
        least = any(event.stack and event.name not in known for event in self.job.plan.events)
        # A probe in the kernel costs more than its event.
        least |= self.recorded.graph is not None or any(
            probe.in_kernel for probe in self.job.plan.probes
        )
        least |= rest > 0 and self.recorded.event_cost is None
        least |= uprobes > 0 and self.recorded.pair_cost is None
        least |= any(samples.get(event) for event in self.job.plan.expensive)
        total = round(ns) + self.stacks_ns
        return Took(total, least, self.job.outcome.requests) if total else None

    def _silent(
        self,
        recording: Path,
        catalogue: Sequence[native.Probe],
        samples: Counter[str],
    ) -> None:
        """A daemon that had requests and none of whose probes fired runs another file."""
        daemons = self.recorded.daemons
        for target in self.job.plan.targets:
            pid = target.mount.daemon_pid
            if pid in daemons.stopped or not daemons.lives(pid or 0):
                continue  # it did nothing, and that is why
            places = {library.host_path for _, library in target.groups}
            ours = [
                p
                for p in self.job.plan.recorded
                if p.place.rpartition(":")[0] in places and p.role not in HELPERS
            ]
            if not ours or any(samples[probe.event] for probe in ours):
                continue
            seen = native.scan(
                str(recording), catalogue, {"connections": [target.mount.connection]}
            )
            known = {probe.operation for probe in ours}
            if any(
                series["layer"] == "request"
                and series["entries"]
                and known & {series["operation"], ""}
                for series in seen["series"]
            ):
                program = {target.mount.program} == {file.path for _, file in target.groups}
                code, fix = Code.ANOTHER_COPY, "mount it again"
                if program:  # there is no other copy of what runs
                    code = Code.OTHER_FUNCTIONS
                    fix = "fusetools record --fs FILE.toml -- …   # docs/probe-sets.md"
                about = {"part": "daemon", "path": target.mount.path}
                self.job.missing.append(Reason(code, about, {"probes": len(ours)}, fix, "daemon"))

    def _silent_kernel(self, samples: Counter[str]) -> None:
        """A stage of requests that was never seen though others were. virtiofs's are read by nobody
        here."""
        stages = [
            probe
            for probe in self.job.plan.probes
            if probe.in_kernel and probe.layer == "request" and probe.role not in NAMING
        ]
        if {target.mount.fstype for target in self.job.plan.targets} == {VIRTIOFS}:
            stages = [probe for probe in stages if probe.role != "sent"]
        fired = {probe.role for probe in stages if samples[probe.event]}
        places: dict[str, str] = {}
        for probe in stages:
            # Further probes of a role are for requests by a ring, or virtiofs's.
            places.setdefault(probe.role, probe.place)
        for role, place in places.items():
            if fired and role not in fired:
                subject = {"stage": role, "function": place}
                self.job.missing.append(Reason(Code.STAGE_SILENT, subject, layer="request"))


def _mount(
    target: Target,
    limits: Mapping[int, Mapping[str, int]],
    priorities: Mapping[int, tuple[str, str]],
    followers: Mapping[str, int],
) -> TracedMount:
    mount = target.mount
    priority, weighed = priorities.get(mount.daemon_pid or 0, ("", ""))
    files = [os.path.basename(library.path) for library in mount.libraries]
    imports = {name for library in mount.libraries for name in library.imports}
    return TracedMount(
        path=mount.path,
        also=mount.also[:MOST_PATHS],
        connection=mount.connection,
        fstype=mount.fstype,
        source=mount.source,
        daemon_pid=mount.daemon_pid,
        comm=mount.comm or "",
        fs=target.probe_set.name if target.probe_set else None,
        limits=limits.get(mount.connection, {}),
        servers=tuple(pid for pid in mount.servers if pid != mount.daemon_pid),
        program=os.path.basename(mount.program),
        library=next((name for name in files if re.match(r"libfuse3?\.so", name)), ""),
        options=mount.options,
        parses=any(re.match("fuse_(main|parse_cmdline|setup)", name) for name in imports),
        priority=priority,
        weighed_by=weighed,
        follower=followers.get(mount.path),
    )
