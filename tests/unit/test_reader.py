"""Every event and field of the native reader, compared with stock perf and libtraceevent."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import data
import pytest
from variants import variants

DATA = data.FOLDER
RECORDINGS = [
    "cernvmfs-6.1/perf.data.zst",
    *(
        f"kernels/{kernel}/recording/perf.data.zst"
        for kernel in (
            "5.10.0-46-amd64",
            "6.1.0-56-amd64",
            "6.12.117+deb13-amd64",
            "7.2.13+deb14-amd64",
        )
    ),
]
HANDLER = """
def trace_unhandled(name, context, fields, sample=None):
    s = sample["sample"]
    print(s["time"], s["pid"], s["tid"], s["cpu"], sample["ev_name"], sample["raw_buf"].hex())
"""

needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="this host has no perf")


@pytest.fixture(scope="session")
def dump() -> Path:
    """The reader's example program that prints a recording."""
    return data.example("dump")


@pytest.fixture(
    scope="session",
    params=RECORDINGS,
    ids=lambda path: path.split("/")[-3 if "kernels" in path else 0],
)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = DATA / request.param
    if not packed.exists():
        pytest.skip(f"the shared recording {packed} is not here")
    unpacked = tmp_path_factory.mktemp("recording") / "perf.data"
    unpacked.write_bytes(unpack(packed))
    return unpacked


def unpack(path: Path) -> bytes:
    return subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout


def output(*command: str | Path) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return done.stdout.decode(errors="backslashreplace")


@functools.cache
def perf_samples(perf_data: Path) -> list[tuple[int, int, int, int, str, bytes]]:
    """(time, pid, tid, cpu, event, raw data) of every sample, in `perf script`'s order."""
    handler = perf_data.with_name("handler.py")
    handler.write_text(HANDLER)
    found = []
    for line in output("perf", "script", "-G", "-i", perf_data, "-s", handler).splitlines():
        time, pid, tid, cpu, event, raw = (line + " ").split(" ")[:6]
        found.append(
            (int(time), signed(int(pid)), signed(int(tid)), int(cpu), event, bytes.fromhex(raw))
        )
    return found


def signed(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def dump_samples(
    dump: Path, perf_data: Path
) -> Iterator[tuple[int, int, int, int, str, dict[str, str]]]:
    for line in output(dump, perf_data).splitlines():
        head, _, fields = line.partition(" common_type=")
        time, pid, tid, cpu, event = head.split(" ", 4)
        values = dict(FIELD.findall(" common_type=" + fields)) if fields else {}
        yield int(time), int(pid), int(tid), int(cpu), event, values


class Section(ctypes.Structure):
    """struct tep_format_field of libtraceevent's event-parse.h."""


Section._fields_ = [
    ("next", ctypes.POINTER(Section)),
    ("event", ctypes.c_void_p),
    ("type", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("alias", ctypes.c_char_p),
    ("offset", ctypes.c_int),
    ("size", ctypes.c_int),
    ("arraylen", ctypes.c_uint),
    ("elementsize", ctypes.c_uint),
    ("flags", ctypes.c_ulong),
]
IS_ARRAY, IS_SIGNED, IS_STRING, IS_DYNAMIC, IS_RELATIVE = 1, 4, 8, 16, 256


class TraceEvent:
    """libtraceevent: what perf itself decodes with."""

    def __init__(self, formats: list[tuple[str, bytes]]) -> None:
        try:
            lib = ctypes.CDLL("libtraceevent.so.1")
        except OSError as error:
            pytest.skip(f"no libtraceevent: {error}")
        lib.tep_alloc.restype = ctypes.c_void_p
        lib.tep_parse_event.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_ulong,
            ctypes.c_char_p,
        ]
        lib.tep_find_event_by_name.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
        lib.tep_find_event_by_name.restype = ctypes.c_void_p
        for which in ("tep_event_fields", "tep_event_common_fields"):
            getattr(lib, which).argtypes = [ctypes.c_void_p]
            getattr(lib, which).restype = ctypes.POINTER(ctypes.POINTER(Section))
        lib.tep_read_number_field.argtypes = [
            ctypes.POINTER(Section),
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_ulonglong),
        ]
        lib.tep_set_loglevel(0)
        self.lib = lib
        self.tep = lib.tep_alloc()
        # As perf does: the recording machine had this one's byte order.
        lib.tep_set_long_size(ctypes.c_void_p(self.tep), 8)
        for system, text in formats:
            lib.tep_parse_event(self.tep, text, len(text), system.encode())

    def fields(self, system: str, name: str) -> list[Section]:
        event = self.lib.tep_find_event_by_name(self.tep, system.encode(), name.encode())
        assert event, f"libtraceevent does not know {system}:{name}"
        found = []
        for which in ("tep_event_common_fields", "tep_event_fields"):
            array = getattr(self.lib, which)(event)
            found += [
                field.contents
                for field in itertools.takewhile(bool, (array[i] for i in itertools.count()))
            ]
        return found

    def value(self, field: Section, raw: bytes) -> int | bytes:
        """A number, or an array's bytes, as perf passes them to its scripts."""
        if not field.flags & IS_ARRAY:
            number = ctypes.c_ulonglong()
            assert (
                self.lib.tep_read_number_field(ctypes.byref(field), raw, ctypes.byref(number)) == 0
            )
            if not field.flags & IS_SIGNED:
                return number.value
            return int.from_bytes(
                number.value.to_bytes(8, "little")[: field.size], "little", signed=True
            )
        offset, size = field.offset, field.size
        if field.flags & IS_DYNAMIC:
            place = int.from_bytes(raw[offset : offset + size], "little")
            offset, size = place & 0xFFFF, place >> 16
            if field.flags & IS_RELATIVE:
                offset += field.offset + field.size
        elif size == 0:
            size = len(raw) - offset
        return raw[offset : offset + size]


def tracing_formats(perf_data: Path) -> list[tuple[str, bytes]]:
    """Return (system, format text) from the file's tracing data, parsed here independently."""
    data = perf_data.read_bytes()
    start, size = struct.unpack_from("<QQ", data, 40)
    (features,) = struct.unpack_from("<Q", data, 72)
    assert features >> 1 & 1 and not features & 1, "tracing data is the first feature"
    (at, _) = struct.unpack_from("<QQ", data, start + size)

    def number(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        return int(value)

    def text(size: int | None = None) -> bytes:
        nonlocal at
        end = at + size if size is not None else data.index(b"\0", at)
        value, at = data[at:end], end + (size is None)
        return value

    assert text(10) == b"\x17\x08Dtracing"
    text()
    assert number("B") == 0
    number("B"), number("I")
    for _ in range(2):
        text()
        text(number("Q"))
    formats = [("ftrace", text(number("Q"))) for _ in range(number("I"))]
    for _ in range(number("I")):
        system = text().decode()
        formats += [(system, text(number("Q"))) for _ in range(number("I"))]
    return formats


def test_formats_equal_libtraceevent(dump: Path, recording: Path) -> None:
    formats = tracing_formats(recording)
    library = TraceEvent(formats)
    ours: dict[str, list[dict[str, str]]] = {}
    for line in output(dump, "--formats", recording).splitlines():
        line, _, kind = line.partition(" type=")
        event, number, name, *rest = line.split(" ")
        ours.setdefault(f"{event} {number}", []).append(
            {"name": name, "type": kind, **dict(x.split("=") for x in rest)}
        )
    events = 0
    for system, text in formats:
        name, number = (
            re.findall(rf"^{key}: (\S+)", text.decode(), re.M)[0] for key in ("name", "ID")
        )
        mine = ours[f"{system}:{name} {number}"]
        theirs = library.fields(system, name)
        assert [f["name"] for f in mine] == [f.name.decode() for f in theirs]
        for m, t in zip(mine, theirs):
            where = f"{system}:{name} {m['name']}"
            assert (int(m["offset"]), int(m["size"])) == (t.offset, t.size), where
            assert (m["signed"] == "true") == bool(t.flags & IS_SIGNED), where
            assert (m["shape"] != "Number") == bool(t.flags & IS_ARRAY), where
            assert (m["shape"] in ("DataLoc", "RelLoc")) == bool(t.flags & IS_DYNAMIC), where
            assert (m["shape"] == "RelLoc") == bool(t.flags & IS_RELATIVE), where
            assert (m["string"] == "true") == bool(t.flags & IS_STRING), where
        events += 1
    assert events == len(ours) > 0


@needs_perf
def test_every_event_and_field_equals_perf_script(dump: Path, recording: Path) -> None:
    library = TraceEvent(tracing_formats(recording))
    known: dict[str, list[Section]] = {}
    theirs = perf_samples(recording)
    ours = list(dump_samples(dump, recording))
    assert len(ours) == len(theirs) > 0
    fields = 0
    for mine, (*head, raw) in zip(ours, theirs):
        assert list(mine[:5]) == head
        event, values = mine[4:]
        known.setdefault(event, library.fields(*event.split(":")))
        assert list(values) == [field.name.decode() for field in known[event]], event
        for field in known[event]:
            shown = values[field.name.decode()]
            value = library.value(field, raw)
            if isinstance(value, int):
                assert int(shown) == value, (event, field.name)
            elif field.flags & IS_STRING:
                assert shown == '"' + escaped(value.split(b"\0")[0]) + '"', (event, field.name)
            else:
                assert shown == value.hex(), (event, field.name)
            fields += 1
    assert fields > 5 * len(ours)


def escaped(text: bytes) -> str:
    """As Rust's escape_ascii."""
    special = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}
    return "".join(special.get(c) or (chr(c) if 0x20 <= c < 0x7F else f"\\x{c:02x}") for c in text)


TEXT = re.compile(r"^(.{16}|\S.*?) +(-?\d+) \[(\d+)\] +(\d+)\.(\d{9}): +(\S+):(.*)$")
# How the print formats of probes and tracepoints write numbers.
PRINTED = re.compile(r"\b(\w+)=(0x[0-9a-f]+|-?\d+)(?=[ ,)]|$)")


def test_events_as_printed_when_recorded(
    dump: Path, recording: Path, request: pytest.FixtureRequest
) -> None:
    """The output of perf script on the recording's own host."""
    name = request.node.callspec.params["recording"]
    printed = (DATA / name).with_name("perf-script.txt.zst")
    if not printed.exists():
        pytest.skip("what perf printed of it on its own host was not kept")
    theirs = []
    for line in unpack(printed).decode().splitlines():
        match = TEXT.match(line)
        if match:
            theirs.append(match.groups()[1:])
    ours = list(dump_samples(dump, recording))
    assert len(ours) == len(theirs) > 0
    compared = 0
    for (when, _, tid, cpu, event, values), (their_tid, their_cpu, s, ns, their_event, text) in zip(
        ours, theirs
    ):
        assert (tid, cpu, when, event) == (int(their_tid), int(their_cpu), int(s + ns), their_event)
        for name, number in PRINTED.findall(text):
            if name in values and re.fullmatch(r"-?\d+", values[name]):
                mask = (1 << 64) - 1
                assert (
                    int(values[name]) & mask == int(number, 16 if "x" in number else 10) & mask
                ), (event, name)
                compared += 1
    assert compared > len(ours)


@needs_perf
def test_counts_equal_perf(dump: Path, recording: Path) -> None:
    theirs = Counter(sample[4] for sample in perf_samples(recording))
    lines = output(dump, "--scan", recording).splitlines()
    ours: Counter[str] = Counter()
    for line in lines:
        match = re.fullmatch(r"(\d+) (\S+)", line)
        if match:
            ours[match[2]] += int(match[1])
    assert +ours == theirs
    assert f"events={sum(theirs.values())} " in "\n".join(lines)
    assert " disorder=0" in "\n".join(lines)
    assert not any(line.startswith("warning") for line in lines)


MODES = {
    "plain": [],
    "compressed": ["-z"],
    "pipe": ["-o", "-"],
    "compressed pipe": ["-z", "-o", "-"],
}
EVENTS = [
    "-e",
    "sched:sched_switch",
    "-g",
    "-e",
    "raw_syscalls:sys_enter",
    "-e",
    "raw_syscalls:sys_exit",
]


@pytest.mark.live
@needs_perf
@pytest.mark.parametrize("mode", ["plain", "compressed pipe", *variants("compressed", "pipe")])
def test_own_recordings_equal_perf_script(dump: Path, tmp_path: Path, mode: str) -> None:
    """Recordings of this host's perf in all its modes: samples with stacks, switches, rounds."""
    recording = record(tmp_path, MODES[mode], ["find", "/usr/share", "-maxdepth", "3"])
    theirs = perf_samples(recording)
    ours = list(dump_samples(dump, recording))
    assert len(theirs) > 100
    assert [sample[:5] for sample in ours] == [sample[:5] for sample in theirs]
    for mine, raw in zip(ours, (sample[5] for sample in theirs)):
        if mine[4].startswith("raw_syscalls"):
            assert int(mine[5]["id"]) == int.from_bytes(raw[8:16], "little", signed=True)


@pytest.mark.live
@needs_perf
@pytest.mark.parametrize("mode", ["plain", "compressed"])
def test_a_killed_recorder_leaves_what_it_wrote(dump: Path, tmp_path: Path, mode: str) -> None:
    recording = record(tmp_path, MODES[mode], ["sleep", "30"], kill=True)
    lines = output(dump, "--scan", recording).splitlines()
    assert any("never finished" in line for line in lines)
    assert any("have no name" in line for line in lines)
    assert sum(int(m[1]) for m in map(re.compile(r"(\d+) tracepoint").match, lines) if m) > 0


def record(directory: Path, options: list[str], workload: list[str], kill: bool = False) -> Path:
    recording = directory / "perf.data"
    where = options if "-o" in options else [*options, "-o", str(recording)]
    # A killed recorder cannot write its buffers: record the busy host, not a sleep.
    which = ["-a", "--switch-events"] if kill else ["--switch-events"]
    command = ["perf", "record", "-q", "-m", "256", "-k", "CLOCK_MONOTONIC", *which, *EVENTS]
    with (recording if "-o" in options else Path(os.devnull)).open("wb") as out:
        process = subprocess.Popen(
            [*command, *where, "--", *workload],
            stdout=out if "-o" in options else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        if kill:
            end = time.monotonic() + 120  # timeout to detect a hang on a busy machine
            before = None  # bytes that only describe processes from before the workload
            while before is None or recording.stat().st_size < before + (1 << 16):
                assert time.monotonic() < end
                if process.poll() is not None:
                    pytest.skip(f"perf may not record here: {process.stderr.read().decode()}")
                task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                children = task.read_text().split()
                names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in children]
                if before is None and workload[0] in names:
                    before = recording.stat().st_size
                subprocess.run(["ls", "-lR", "/etc"], stdout=subprocess.DEVNULL, check=False)
            process.kill()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
        error = process.stderr.read().decode()
        process.wait()
    if not kill and process.returncode != 0:
        pytest.skip(f"perf may not record here: {error.strip().splitlines()[-1:]}")
    if kill and not recording.exists():
        pytest.skip(f"perf may not record here: {error.strip().splitlines()[-1:]}")
    return recording
