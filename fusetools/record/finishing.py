"""From what perf and trace-cmd wrote to the one perf.data, with the session sample in it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from fusetools.host.sockets import of_process, peers
from fusetools.names import CALIBRATION, FTRACE, OF_TASKS
from fusetools.plan.collectors import CLOCK
from fusetools.plan.daemons import Target
from fusetools.plan.events import NUMBER
from fusetools.plan.instances import PAIRED
from fusetools.plan.kernel import NO_UNIQUE
from fusetools.plan.probeset import HELPERS
from fusetools.reasons import Code, Reason
from fusetools.record import kept, symbols, tracecmd
from fusetools.record.handover import hand_over
from fusetools.record.merger import Merger, Stuck
from fusetools.record.state import started
from fusetools.record.things import Things
from fusetools.results.record import Outcome
from fusetools.session import (
    BYTES,
    NAMING,
    Host,
    Peer,
    RecordedProbe,
    Session,
    Took,
    TracedMount,
    encoded,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

SESSION = "fusetools:session"


class Finishing(Things):
    def _new_mounts(self) -> None:
        """Names the mounts that were not there when the recording was planned, unless others were
        asked for: autofs mounts when a path is used first."""
        if self.options.mounts or self.options.pid is not None:
            return
        known = {mount.connection for mount in self.facts.mounts}
        for mount in all_namespaces(Files(Path("/"))):
            if mount.connection not in known:
                fix = "record again, now that it is mounted"
                path = {"path": mount.path}
                self.missing.append(Reason(Code.MOUNTED_MEANWHILE, path, {}, fix, "request"))

    def _servers(self) -> list[int]:
        """The traced daemons, and who measures the probes' cost: where others run the same
        library, its probes fire there too."""
        mounts = [target.mount for target in self.plan.targets]
        pids = {self.pid, *(pid for mount in mounts for pid in mount.servers)}
        return sorted(pids | {m.daemon_pid for m in mounts if m.daemon_pid is not None})

    def _threads(self) -> dict[int, int]:
        """The process of each of the daemons' threads: perf's records tell it of most."""
        files = Files(Path("/"))
        return {
            int(thread): pid
            for pid in self._servers()
            for thread in files.list(f"/proc/{pid}/task")
            if thread.isdigit()
        }

    def _scope(self) -> list[int] | None:
        """Return the processes whose switches and system calls the recording is about, with all
        that they start; None: everybody's.

        fusetools is not one: perf is its child. A cgroup holds the workload exactly; only root may
        see others of the same names as the daemon's threads.
        """
        if self._callers and not self.plan.by_pid and not self.user:
            return None
        servers = [pid for pid in self._servers() if pid != self.pid]
        return [*servers, *self._callers]

    def _unmake(self) -> None:
        """Called while the recording is put together: of one that goes on, nothing goes."""

    def finish(self) -> Outcome:
        """The one perf.data, with the session sample, under its name and owned by the user."""
        outcome = self.outcome
        self._new_mounts()
        self.peers = tuple(self._connected())
        self.limits = limits([target.mount.connection for target in self.plan.targets])
        for pid in self.daemons:
            for place in full(pid):
                text = f"the file system on {place} is full, where the daemon (pid {pid}) has files"
                outcome.warnings.append(text)
        if self._written() == 0:
            why = outcome.warnings[0] if outcome.warnings else "perf wrote nothing"
            raise Error("nothing was recorded", why)
        whole = self.scratch / "merged"
        try:
            self._write(whole)
            outcome.size_bytes = whole.stat().st_size
            self._hand_over(whole)
        except native.CoreError as error:
            whole.unlink(missing_ok=True)
            self._keep_raw(": ".join(map(str, error.args)))
        outcome.missing = tuple(self.missing)
        return outcome

    def _keep_raw(self, why: str) -> None:
        """Keep what perf and ftrace wrote: beside the recording's place, where root records for
        itself. Error: it is another user's recording; where it is kept for root."""
        assert self.output is not None
        ring = self.ring.output if self.ring and self.ring.output.exists() else None
        beside = {"tasks": (self.raw_tasks, OF_TASKS), "ring": (ring, FTRACE)}
        parts = {kind: (path, end) for kind, (path, end) in beside.items() if path}
        if self.user:
            paths = self._kept(
                {"perf": self.raw, **{kind: path for kind, (path, _) in parts.items()}}
            )
            where = (
                f"what was recorded is root's, as it was not merged: {os.path.dirname(paths[0])}"
            )
            fix = f"{merging(paths)}   (as root)"
            raise Error("the recording could not be merged", f"{why}; {where}", fix)
        text = f"{why}; kept as perf wrote it"
        if parts:
            paths = [os.path.join(self.output.parent, self.output.name)]
            paths += [str(self._keep_beside(path, end)) for path, end in parts.values()]
            text += f"{', and ftrace' * bool(ring)}: {merging(paths)}"
        self.outcome.warnings.append(text)
        self.outcome.failed = True
        self.outcome.size_bytes = self.raw.stat().st_size
        self._hand_over(self.raw)

    def _kept(self, parts: Mapping[str, Path]) -> list[str]:
        """Keep raw files of a user's recording for root alone. Return their paths. Error: nothing
        is kept."""
        assert self.output is not None and self.made is not None and self.user is not None
        output, source = self.output, self.made.descriptor
        files = {kind: path.name for kind, path in parts.items()}
        register, uid = self.lock.place, self.user.uid
        try:
            return kept.keep(
                register, uid, output.parent, output.directory, output.name, source, files
            )
        except (kept.Refused, OSError) as error:
            what = "the recording could not be merged, and is lost"
            raise Error(what, str(error), "fusetools clean   (as root)") from error

    def _connected(self) -> Iterator[Peer]:
        """The connections that the daemons had all the time: a descriptor that was the same socket
        before."""
        for pid, before in self.sockets.items():
            after = of_process(pid) if before and started(pid) == self.daemons.get(pid) else {}
            same = {fd: inode for fd, inode in before.items() if after.get(fd) == inode}
            addresses = peers(pid, set(same.values()))
            for fd, inode in sorted(same.items()):
                if address := addresses.get(inode):
                    yield Peer(pid, fd, address)

    def _hand_over(self, whole: Path) -> None:
        """Gives the file its name and its owner; until then only root can get at it."""
        assert self.output is not None and self.made is not None
        directory = self.made.descriptor
        try:
            hand_over(directory, whole.name, self.user)
        except Error as error:
            raise native.CoreError(error.what, error.why) from error
        self.outcome.output = Path(os.path.abspath(self.output.path))
        try:
            self.output.take(directory, whole.name, keep=True)
        except OSError as error:
            # Somebody made a directory of that name meanwhile: the recording is not lost.
            name = f"{self.output.name[:200]}.{os.urandom(4).hex()}"
            os.rename(whole.name, name, src_dir_fd=directory, dst_dir_fd=self.output.directory)
            self.outcome.output = Path(self.output.parent, name)
            why = f"{self.output.path} could not be replaced: {error.strerror}"
            self.outcome.warnings.append(f"{why}; the recording is {self.outcome.output}")
            self.outcome.failed = True

    def _write(self, whole: Path) -> None:
        """The recording. What it holds is examined once it is there, and noted in the room that
        the session has been given for it."""
        session = encoded(self._session())
        room = min(len(session) + 8192 + 64 * len(self.plan.probes), BYTES)
        merged = self._merge(whole, session.ljust(room))
        self.stacks = merged["stacks"]
        self.stacks_ns = merged["stacks_ns"]
        count = merged["missing_switches"]
        if count:
            figures = {"switches": count}
            self.missing.append(Reason(Code.SWITCHES_MISSING, {}, figures, layer="off_cpu"))
        self.cost = self._examine(whole, merged["left_out"])
        text = encoded(self._session(), room)
        if len(text) > room:
            self.outcome.warnings.append("what was found out about it does not fit into it")
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
            kallsyms=symbols.KALLSYMS,
            maps=self.maps,
            avoid=[],
            bundles=self._bundles(),
            daemons=self._servers(),
            scope=self._scope(),
            threads=self._threads(),
            window=self.window,
            span=self.span,
            packed=self.facts.perf is not None and self.facts.perf.zstd is True,  # it shall read it
            private=self.user is not None,
        )
        inputs = [str(self.raw)]
        if self.raw_tasks and self.raw_tasks.exists():
            inputs.append(str(self.raw_tasks))
        if self.ring and self.ring.output.exists():
            inputs.append(str(self.ring.output))
        if self.held:
            inputs.append(str(self.held))
        graph = self.graph.output if self.graph else None
        if graph and graph.exists():
            try:
                merged = merge([*inputs, str(graph)], str(whole), session)
                why = self._clocks_disagree(whole, graph)
                if not why:
                    return merged
            except native.CoreError as error:
                why = ": ".join(error.args)
            whole.unlink(missing_ok=True)
            self.outcome.warnings.append(f"{self._keep_graph(graph)}: {why}")
        return merge(inputs, str(whole), session)

    def _merged(
        self, inputs: list[str], whole: str, session: str, **more: Unpack[native.MergeOptions]
    ) -> native.MergeInfo:
        """Merge in a process of its own; if that fails, again by one thread, without the programs
        that name stacks."""
        try:
            first, self.merger = self.merger or Merger(), None
            merged = first.merge(inputs, whole, session, self._asked_to_end, self._unmake, **more)
            self.outcome.warnings += first.hung
            return merged
        except (Stuck, native.CoreError, OSError) as error:
            why = ": ".join(map(str, error.args)) if not isinstance(error, OSError) else str(error)
            Path(whole).unlink(missing_ok=True)
        more["avoid"] = ["/"]
        try:
            merged = Merger(alone=True).merge(inputs, whole, session, lambda: False, **more)
        except (Stuck, OSError) as error:
            raise native.CoreError("cannot merge the recording", str(error)) from error
        self.outcome.warnings.append(f"{why}: stacks have no names")
        return merged

    def _keep_graph(self, graph: Path) -> str:
        """Keep what trace-cmd recorded; where, in words."""
        if not self.user:
            return f"function_graph is kept apart, in {self._keep_beside(graph, '.trace.dat')}"
        try:
            (path,) = self._kept({"graph": graph})
        except Error as error:
            return f"function_graph is lost: {error.why}"
        return f"function_graph is kept apart for root, in {path}"

    def _keep_beside(self, part: Path, end: str) -> Path:
        """Put what trace-cmd or ftrace recorded beside root's own recording."""
        assert self.output is not None and self.made is not None and self.user is None
        name = self.output.name + end
        directories = {"src_dir_fd": self.made.descriptor, "dst_dir_fd": self.output.directory}
        os.rename(part.name, name, **directories)
        return Path(self.output.parent, name)

    def _bundles(self) -> list[tuple[str, str, list[tuple[int, str, list[str]]]]]:
        """(event, the field that tells its probes apart, (number, event, fields that it does not
        have) of each)."""
        bundles: dict[str, list[tuple[int, str, list[str]]]] = {}
        for probe in self.plan.probes:
            if probe.bundle:
                bundles.setdefault(probe.bundle, []).append(
                    (probe.number, probe.event, probe.padding)
                )
        return [(event, NUMBER, probes) for event, probes in bundles.items()]

    def _clocks_disagree(self, whole: Path, graph: Path) -> str:
        """Why function_graph's clock is not that of the rest of ``whole``; empty: it is, or nothing
        tells."""
        assert self.facts.trace_cmd is not None
        ours = [p for p in self.plan.probes if p.in_kernel]
        pairs = [p for p in ours if p.role in ("entry", "return")]
        if not pairs:
            return ""
        function = pairs[0].function
        if any(p.role == "return" for p in pairs):
            ours = [p for p in pairs if p.function == function]
        rows = [(p.event, p.layer, p.function, "", p.role) for p in ours]
        # Who waits does so while the request is in flight.
        spans = native.spans(str(whole), rows)
        at = symbols.kernel_address(Files(Path("/")), function)
        return tracecmd.clocks_disagree(self.facts.trace_cmd, graph, function, at, spans)

    def _session(self) -> Session:
        facts, outcome, options = self.facts, self.outcome, self.options
        return Session(
            version=__version__,
            command=options.command,
            arguments=self.arguments,
            call_graph=options.call_graph,
            stack_bytes=options.stack_bytes,
            detail=options.detail,
            started=self.started.isoformat(timespec="seconds"),
            seconds=round(outcome.seconds, 6),
            exit_status=outcome.exit_status if self.workload else None,
            clock=self.plan.clock,
            host=Host(
                kernel=facts.kernel,
                arch=facts.arch,
                cpus=facts.cpus,
                perf=facts.perf.version if facts.perf else None,
                trace_cmd=facts.trace_cmd.version if facts.trace_cmd else None,
            ),
            workload_pid=self._callers[0] if self._callers else None,
            descendants=self._callers[1:],
            mounts=tuple(_mount(target, self.limits) for target in self.plan.targets),
            probes=tuple(
                RecordedProbe(p.event, p.layer, p.function, p.operation, p.role, p.address)
                for p in self.plan.probes
            ),
            missing=tuple(self.missing),
            misses=self.misses,
            lost=self.lost,
            probe_cost_ns=self.cost,
            pair_cost_ns=self.pair_cost,
            event_cost_ns=self.event_cost,
            took=self.outcome.took,
            stacks=self.stacks,
            warnings=tuple(outcome.warnings),
            throttled=tuple(outcome.throttled),
            peers=self.peers,
            opened=self.opened,
        )

    def _examine(self, recording: Path, left_out: Mapping[str, int]) -> int | None:
        """Reads what was recorded: counts, losses, probes that never fired; returns their cost.

        ``left_out``: samples of an event that are other daemons', and not in it.
        """
        rows = [
            (probe.event, probe.layer, probe.function, probe.operation, probe.role)
            for probe in self.plan.probes
        ]
        fuse = [event.name for event in self.plan.events if event.name.startswith("fuse:")]
        catalogue = native.Catalogue(rows, fuse).inferred([]).rows
        try:
            seen = native.scan(str(recording), catalogue, {})
        except native.CoreError as error:
            self.outcome.warnings.append(": ".join(error.args))
            return None
        samples: Counter[str] = Counter()
        for name, count in seen["events"]:  # an event of two scopes is there twice
            if name != SESSION:
                samples[name] += count
        own = {probe.event for probe in self.plan.probes if probe.function == CALIBRATION}
        wanted = {name: n for name, n in samples.items() if name not in own}
        self.outcome.events = sum(wanted.values())
        self.outcome.requests = seen["requests"]["begun"]
        self.outcome.took = self._took(wanted)
        if seen["lost"]:
            self.lost["perf"] = seen["lost"]
        self.outcome.lost = sum(self.lost.values())
        self.outcome.warnings += seen["warnings"]
        for probe in self.plan.probes:
            if probe.in_kernel:
                continue  # it has a filter, perhaps
            seen_of_it = samples[probe.event] + left_out.get(probe.event, 0)
            missed = self.hits.get(probe.event, 0) - seen_of_it
            if missed > 0:
                self.misses[probe.event] = missed
        if self.window is None:  # a window may hold no more than a request that is not answered
            requests = seen["requests"]
            if requests["begun"] and requests["ended"] and not requests["matched"]:
                self.missing += {NO_UNIQUE} - set(self.missing)
            self._silent(recording, catalogue, samples)
            self._silent_kernel(samples)
        for series in seen["series"]:
            if series["function"] == CALIBRATION and series["count"]:
                return int(series["percentiles"]["50"])
        return None

    def _took(self, samples: Mapping[str, int]) -> Took | None:
        """From what an event and a probe were measured to cost in this recording, and from when
        each stack was begun and done."""
        probes = {probe.event for probe in self.plan.probes if not probe.in_kernel}
        uprobes = sum(n for name, n in samples.items() if name in probes)
        rest = sum(n for name, n in samples.items() if name not in probes and name != CLOCK)
        ns = rest * (self.event_cost or 0) + uprobes * (self.pair_cost or 0) / 2
        known = {CLOCK, *PAIRED} if self.ring else {CLOCK}
        least = any(event.stack and event.name not in known for event in self.plan.events)
        # A probe in the kernel costs more than its event.
        least |= self.graph is not None or any(probe.in_kernel for probe in self.plan.probes)
        least |= rest > 0 and self.event_cost is None
        least |= uprobes > 0 and self.pair_cost is None
        least |= any(samples.get(event) for event in self.plan.dear)
        total = round(ns) + self.stacks_ns
        return Took(total, least, self.outcome.requests) if total else None

    def _silent(
        self,
        recording: Path,
        catalogue: Sequence[native.Probe],
        samples: Counter[str],
    ) -> None:
        """A daemon that had requests and none of whose probes fired runs another file."""
        for target in self.plan.targets:
            pid = target.mount.daemon_pid
            if pid in self.stopped_daemons or started(pid or 0) != self.daemons.get(pid or 0):
                continue  # it did nothing, and that is why
            places = {library.host_path for _, library in target.groups}
            ours = [
                p
                for p in self.plan.probes
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
                    fix = "fusetools record --fs FILE.toml -- …   (docs/probe-sets.md)"
                about = {"part": "daemon", "path": target.mount.path}
                self.missing.append(Reason(code, about, {"probes": len(ours)}, fix, "daemon"))

    def _silent_kernel(self, samples: Counter[str]) -> None:
        """A stage of requests that was never seen though others were. virtiofs's are read by nobody
        here."""
        stages = [
            probe
            for probe in self.plan.probes
            if probe.in_kernel and probe.layer == "request" and probe.role not in NAMING
        ]
        if {target.mount.fstype for target in self.plan.targets} == {VIRTIOFS}:
            stages = [probe for probe in stages if probe.role != "sent"]
        fired = {probe.role for probe in stages if samples[probe.event]}
        places: dict[str, str] = {}
        for probe in stages:
            # Of several for one role the others are for requests by a ring, or virtiofs's.
            places.setdefault(probe.role, probe.place)
        for role, place in places.items():
            if fired and role not in fired:
                subject = {"stage": role, "function": place}
                self.missing.append(Reason(Code.STAGE_SILENT, subject, layer="request"))


def _mount(target: Target, limits: Mapping[int, Mapping[str, int]]) -> TracedMount:
    mount = target.mount
    files = [os.path.basename(library.path) for library in mount.libraries]
    imports = {name for library in mount.libraries for name in library.imports}
    return TracedMount(
        path=mount.path,
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
    )
