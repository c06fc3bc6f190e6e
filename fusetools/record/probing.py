"""The probes of a recording: made, and gone on without those that the kernel refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusetools.errors import Error
from fusetools.plan.bundles import unbundled
from fusetools.plan.events import Probe
from fusetools.reasons import Code, Reason, Value
from fusetools.record.things import Things
from fusetools.record.tracefs import Tracefs


class Probing(Things):
    def _cannot_be_placed(self) -> list[tuple[Probe, str]]:
        """Probes in the daemons that the kernel took and does not place: their first instruction
        is one that it cannot run apart."""
        assert self.tracefs is not None
        self._unbundle()
        entries = [p for p in self.plan.probes if not p.in_kernel and p.kind == "p"]
        tried = [(probe, self.tracefs.why_not_on(probe)) for probe in entries]
        return [(probe, why) for probe, why in tried if why]

    def _make_probes(self, held: Sequence[str] = ()) -> None:
        """``held``: events of before that could not be removed."""
        assert self.facts.tracefs is not None
        self.tracefs = Tracefs(self.facts.tracefs, theirs=self.lock.theirs)
        self.state.tracefs, self.state.since = self.facts.tracefs, self.tracefs.since
        events = (*held, *(probe.recorded_as for probe in self.plan.probes))
        self.state.probes = list(dict.fromkeys(events))
        self.lock.write()
        for probe in self.plan.probes:
            if probe not in self.refused:
                try:
                    self.tracefs.add(probe)
                except Error as error:
                    if self._shares(probe):
                        self._unbundle()  # and once more, each by itself
                        return
                    self._refuse(probe, error.why)

    def _unbundle(self) -> None:
        """Gives each probe an event of its own: of one that shares an event the kernel does not
        say what is wrong with it."""
        assert self.tracefs is not None
        if not any(map(self._shares, self.plan.probes)):
            return
        held = self.tracefs.remove(self.state.probes)
        self.plan = unbundled(self.plan, self.lock.number)
        self._make_probes(held)

    def _shares(self, probe: Probe) -> bool:
        """Whether its event is of others, too."""
        return sum(other.recorded_as == probe.recorded_as for other in self.plan.probes) > 1

    def _refuse(self, probe: Probe, why: str) -> None:
        """Goes on without the probes of a function: what the kernel refuses shows only then."""
        assert self.tracefs is not None
        gone = [other for other in self.plan.probes if other.place == probe.place]
        self.refused += gone
        names = {other.recorded_as for other in gone}
        self.tracefs.remove(names)
        self.plan = replace(
            self.plan,
            probes=tuple(other for other in self.plan.probes if other.recorded_as not in names),
            events=tuple(other for other in self.plan.events if other.name not in names),
        )
        if probe.in_kernel:
            subject = {"function": probe.place, "message": why}
            self._lacks(Reason(Code.FUNCTION_REFUSED, subject, layer=probe.layer))
            return
        file = _file(probe)
        lost = self.callbacks_lost.setdefault(file, [])
        if any(_file(other) == file for other in self.plan.probes):
            subject = {"function": probe.function, "message": why}
            lost.append(Reason(Code.CALLBACK_REFUSED, subject, layer=probe.layer))
            self.missing.append(lost[-1])
        else:  # one line says it of all
            self.missing = [m for m in self.missing if not any(m is one for one in lost)]
            about = {**self._whose(file), "message": why}
            self._lacks(Reason(Code.CALLBACKS_REFUSED, about, layer=probe.layer))

    def _lacks(self, missing: Reason) -> None:
        if missing not in self.missing:
            self.missing.append(missing)

    def _whose(self, file: str) -> dict[str, Value]:
        """The daemons that have no probe but in ``file``."""
        paths = tuple(
            target.mount.path
            for target in self.plan.targets
            if any(library.host_path == file for _, library in target.groups)
        )
        return {"part": "daemon", "path": paths, "file": file} if paths else {"file": file}


def _file(probe: Probe) -> str:
    return probe.place.rpartition(":")[0]
