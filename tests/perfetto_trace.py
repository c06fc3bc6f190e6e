"""A trace in Perfetto's format, decoded with Perfetto's own messages and replayed by its rules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class Slice:
    track: int
    begin: int
    end: int
    name: str
    category: str
    depth: int
    args: dict[str, Any]
    stack: tuple[str, ...]

    @property
    def ns(self) -> int:
        return self.end - self.begin


@dataclass
class Track:
    name: str
    parent: int
    pid: int
    tid: int
    counter: bool


@dataclass
class Decoded:
    tracks: dict[int, Track] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    # by track: (time, value)
    counters: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    # by flow: slices in the order of time
    flows: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))

    def of(self, *categories: str) -> list[Slice]:
        return [one for one in self.slices if one.category in categories]

    def task(self, one: Slice) -> tuple[int, int]:
        """Return the process and thread of a slice."""
        track = self.tracks[one.track]
        while not track.tid:
            track = self.tracks[track.parent]
        return track.pid, track.tid


def decode(path: Path) -> Decoded:
    """Return a trace's slices, counters and flows. Fail if it breaks a rule of the format."""
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    found = Decoded()
    functions: dict[int, str] = {}
    frames: dict[int, str] = {}
    stacks: dict[int, tuple[str, ...]] = {}
    events = []
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        assert packet.sequence_flags == (3 if number == 0 else 2)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            task = track.thread if track.HasField("thread") else track.process
            name = track.name or task.thread_name if track.HasField("thread") else track.name
            assert track.uuid and track.uuid not in found.tracks
            assert not track.parent_uuid or track.parent_uuid in found.tracks
            found.tracks[track.uuid] = Track(
                name or track.process.process_name,
                track.parent_uuid,
                task.pid,
                track.thread.tid,
                track.HasField("counter"),
            )
        interned = packet.interned_data
        mappings = {mapping.iid for mapping in interned.mappings}
        functions |= {name.iid: name.str.decode() for name in interned.function_names}
        for frame in interned.frames:
            assert frame.mapping_id == 1 and (frames or mappings == {1})
            frames[frame.iid] = functions[frame.function_name_id]
        stacks |= {s.iid: tuple(frames[f] for f in s.frame_ids) for s in interned.callstacks}
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in found.tracks and packet.timestamp
            assert not event.callstack_iid or event.callstack_iid in stacks
            events.append((packet.timestamp, event))
    _replay(found, sorted(events, key=lambda event: event[0]), stacks)
    return found


def _replay(
    found: Decoded, events: list[tuple[int, Any]], stacks: dict[int, tuple[str, ...]]
) -> None:
    """Open and close the slices as trace_processor does: in the order of time, then of the file."""
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    ended: set[int] = set()
    for time, event in events:
        track = found.tracks[event.track_uuid]
        around = open_slices[event.track_uuid]
        assert track.counter == (event.type == TrackEvent.TYPE_COUNTER)
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters[event.track_uuid].append((time, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            around.pop().end = time
        else:
            assert event.type == TrackEvent.TYPE_SLICE_BEGIN and event.name
            assert len(event.categories) == 1
            args = {a.name: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
            one = Slice(
                event.track_uuid,
                time,
                0,
                event.name,
                event.categories[0],
                len(around),
                args,
                stacks.get(event.callstack_iid, ()),
            )
            around.append(one)
            found.slices.append(one)
            assert not ended.intersection(event.flow_ids)
            for flow in (*event.flow_ids, *event.terminating_flow_ids):
                found.flows[flow].append(one)
            ended.update(event.terminating_flow_ids)
    assert not any(open_slices.values())
