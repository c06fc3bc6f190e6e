"""The probes of a recording: made, counted and removed; without those that the kernel refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusetools.errors import Error
from fusetools.figures import plural
from fusetools.plan.bundles import unbundled
from fusetools.plan.events import Probe
from fusetools.reasons import Code, Reason, Value
from fusetools.record.job import Job
from fusetools.record.tracefs import Tracefs


class Probes:
    """The probes of a job's plan. A refused one leaves the plan: ``refused``."""

    def __init__(self, job: Job) -> None:
        assert job.facts.tracefs is not None
        self.job = job
        self.tracefs = Tracefs(job.facts.tracefs, theirs=job.lock.theirs)
        self.refused: list[Probe] = []
        # By file: reasons about callbacks on which the kernel refused a probe.
        self._callbacks_lost: dict[str, list[Reason]] = {}
        self._before: dict[str, int] | None = None

    def make(self, held: Sequence[str] = ()) -> None:
        """Make all of them, noted before. ``held``: earlier events that could not be removed."""
        job, state = self.job, self.job.state
        assert job.facts.tracefs is not None
        state.tracefs, state.since = job.facts.tracefs, self.tracefs.since
        events = (*held, *(probe.recorded_as for probe in job.plan.probes))
        state.probes = list(dict.fromkeys(events))
        job.lock.write()
        for probe in job.plan.probes:
            if probe not in self.refused:
                try:
                    self.tracefs.add(probe)
                except Error as error:
                    if self._shares(probe):
                        self._unbundle()  # and once more, each by itself
                        return
                    self.refuse(probe, error.why)

    def unplaceable(self) -> list[tuple[Probe, str]]:
        """Return probes in the daemons that the kernel took and does not place, with the reason:
        their first instruction cannot be run apart."""
        self._unbundle()
        entries = [p for p in self.job.plan.probes if not p.in_kernel and p.kind == "p"]
        tried = [(probe, self.tracefs.why_not_on(probe)) for probe in entries]
        return [(probe, why) for probe, why in tried if why]

    def _unbundle(self) -> None:
        """Give each probe an event of its own: the kernel does not report which probe of a shared
        event is at fault."""
        job = self.job
        if not any(map(self._shares, job.plan.probes)):
            return
        held = self.tracefs.remove(job.state.probes)
        job.plan = unbundled(job.plan, job.lock.number)
        self.make(held)

    def _shares(self, probe: Probe) -> bool:
        """Return whether its event has other probes, too."""
        return sum(other.recorded_as == probe.recorded_as for other in self.job.plan.probes) > 1

    def refuse(self, probe: Probe, why: str) -> None:
        """Continue without the probes of a function: the kernel refuses them only when made."""
        job = self.job
        gone = [other for other in job.plan.probes if other.place == probe.place]
        self.refused += gone
        names = {other.recorded_as for other in gone}
        self.tracefs.remove(names)
        job.plan = replace(
            job.plan,
            probes=tuple(other for other in job.plan.probes if other.recorded_as not in names),
            events=tuple(other for other in job.plan.events if other.name not in names),
        )
        if probe.in_kernel:
            subject = {"function": probe.place, "message": why}
            job.lacks(Reason(Code.FUNCTION_REFUSED, subject, layer=probe.layer))
            return
        file = _file(probe)
        lost = self._callbacks_lost.setdefault(file, [])
        if any(_file(other) == file for other in job.plan.probes):
            subject = {"function": probe.function, "message": why}
            lost.append(Reason(Code.CALLBACK_REFUSED, subject, layer=probe.layer))
            job.missing.append(lost[-1])
        else:  # one reason for all of them
            job.missing = [m for m in job.missing if not any(m is one for one in lost)]
            about = {**self._daemons_of(file), "message": why}
            job.lacks(Reason(Code.CALLBACKS_REFUSED, about, layer=probe.layer))

    def _daemons_of(self, file: str) -> dict[str, Value]:
        """Return the daemons that have probes only in ``file``, as a reason's subject."""
        paths = tuple(
            target.mount.path
            for target in self.job.plan.targets
            if any(library.host_path == file for _, library in target.groups)
        )
        return {"part": "daemon", "path": paths, "file": file} if paths else {"file": file}

    def armed(self) -> None:
        """Count hits from here on."""
        self._before = self.tracefs.hits(self.job.plan.probes)

    def report_unplaced(self) -> None:
        """Report the kernel's functions on which a probe is not placed."""
        for place in self.tracefs.unplaced(self.job.plan.probes):
            reason = Reason(Code.FUNCTION_UNPLACED, {"function": place}, layer="kernel")
            self.job.missing.append(reason)

    def hits(self) -> dict[str, int]:
        """Return how often each was hit since armed(), by its event."""
        before = self._before
        now = {} if before is None else self.tracefs.hits(self.job.plan.probes)
        return {name: n - (before or {}).get(name, 0) for name, n in now.items()}

    def misses(self) -> dict[str, int]:
        """Return how many returns of the kernel's functions were missed, by their event."""
        missed = self.tracefs.missed_returns() if self.job.state.probes else {}
        names = {
            p.event: p.recorded_as.partition(":")[2] for p in self.job.plan.probes if p.in_kernel
        }
        return {event: missed[name] for event, name in names.items() if missed.get(name, 0) > 0}

    def remove(self) -> None:
        """Remove them; those that somebody holds stay noted."""
        state = self.job.state
        if state.probes:
            state.probes = self.tracefs.remove(state.probes)
        if state.probes:
            held = f"{plural(len(state.probes), 'event')} of probes"
            why = f"{held} stay, in use by {self.tracefs.users()}: fusetools clean"
            self.job.outcome.warnings.append(why)


def _file(probe: Probe) -> str:
    return probe.place.rpartition(":")[0]
