"""A recording as a shell script, for a host without Python.

The script is a rendering of a plan: the same probes, and the same command lines of perf. It finds
itself what only its host knows: the mount's connection, the daemon's process, the workload's
threads. record.sh is the part that is the same in every script.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fusetools import __version__
from fusetools.errors import Error
from fusetools.host.facts import HostFacts, Library, Mount, Tool
from fusetools.host.files import open_regular
from fusetools.plan.events import Event
from fusetools.plan.filters import Filter, OfConnection, OfDaemons, OfWorkload, Open
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.printable import printable
from fusetools.record import tracecmd
from fusetools.record.perf import Sizes, Threads, command_line, per_task_line

FORMAT = 1  # of the plan that a script carries
DATA, TASKS, GRAPH = "perf.data", "perf.tasks", "trace.dat"
BODY = Path(__file__).with_name("record.sh")
_MARK = "\0"  # around shell code in a text that is quoted otherwise
_END = "END_OF_THE_PLAN"
Anywhere = Callable[[str], str]


def _code(text: str) -> str:
    """Mark a text as shell code, which stands in double quotes."""
    return f"{_MARK}{text}{_MARK}"


def _quoted(text: str) -> str:
    """Quote a text as one word of a shell, except for the code in it."""
    words = text.split(_MARK)
    pieces = [f'"{word}"' if i % 2 else shlex.quote(word) for i, word in enumerate(words) if word]
    return "".join(pieces) or "''"


@dataclass(frozen=True)
class _Later(Threads):
    """Threads and connections that the script knows. ``numbers``: mounts by connection."""

    numbers: Mapping[int, int] | None = None

    def filled(self, only: Filter) -> str:
        return only.filled(self._place)

    def _place(self, place: Open) -> str:
        if isinstance(place, OfConnection):
            assert self.numbers is not None
            return f"connection=={_code(f'$connection_{self.numbers[place.number]}')}"
        name = {OfWorkload: "ours", OfDaemons: "threads"}[type(place)]
        return _code(f"$({name} {place.field})")


def script(
    options: Options, arguments: Sequence[str], facts: HostFacts, plan: ProbePlan, here: bool
) -> str:
    """Return the script that records by a plan.

    ``here``: the facts are of this host, and the script may be run here, too. Raise Error if a
    script cannot record that.
    """
    assert facts.perf is not None
    mounts = [target.mount for target in plan.targets]
    roots = {
        f"/proc/{mount.daemon_pid}/root/": _code(f"/proc/$pid_{number}/root/")
        for number, mount in enumerate(mounts, 1)
        if mount.daemon_pid is not None
    }

    def anywhere(path: str) -> str:
        """Replace the daemon's number in a path by the one on the script's host."""
        for root, code in roots.items():
            path = path.replace(root, code)
        return path

    made_for = f"Linux {facts.kernel} {facts.arch}"
    remake = shlex.join(["fusetools", *arguments])
    tools = "perf, trace-cmd" if plan.graph else "perf"
    head = [
        "#!/bin/sh",
        "# Record FUSE file systems without fusetools: sh record.sh [-o FILE.tar] [WORKLOAD...]",
        f"# Needs root, a POSIX shell, {tools}, tar, mktemp, stat, sha256sum.",
        "# Then, where fusetools is: fusetools open FILE.tar",
        "#",
        f"# Made by fusetools {__version__} for {printable(made_for)}: {printable(remake)}",
        *(
            f"# Records {printable(mount.path)} ({printable(mount.comm or '?')})"
            for mount in mounts
        ),
        *(f"# Missing: {printable(reason.text)}" for reason in plan.missing),
        "# The workload runs as the user who runs the script.",
        "# shellcheck disable=SC2016,SC2034,SC2317  # of what only some scripts use",
        "",
        f"made_by={_quoted(f'make the script again on such a host: {remake}')}",
        f"kernel={_quoted(facts.kernel)}",
        f"arch={_quoted(facts.arch)}",
        f"mounts={_quoted(', '.join(mount.path for mount in mounts))}",
        f"perf={_quoted(facts.perf.path)}",
        f"trace_cmd={_quoted(facts.trace_cmd.path) if facts.trace_cmd else ''}",
        f"without_graph={_quoted(f'make a script without it: {remake} --backend kprobe')}",
        f"duration={'' if options.duration is None else math.ceil(options.duration)}",
        f"max_size={options.max_size >> 10} # KiB",
        *(f"connection_{number}='' pid_{number}=''" for number in range(1, 1 + len(mounts))),
    ]
    lines = [
        *head,
        *_function("find_mounts", _find_mounts(mounts, options, here)),
        *_function("check_host", _checks(plan, anywhere)),
        *_function("make_probes", _probes(plan, anywhere)),
        *_function("graph_events", _graph(plan, facts.trace_cmd)),
        *_function("perf_events", _perf(plan, facts.perf, mounts)),
        *_function("task_events", _tasks(plan, options, facts.perf, mounts)),
        "",
        "plan() {",
        f"  cat <<'{_END}'",
        json.dumps(stored(options, arguments, facts, plan)),
        _END,
        "}",
        "",
    ]
    return "\n".join(lines) + BODY.read_text()


def _function(name: str, lines: Iterable[str]) -> list[str]:
    return ["", f"{name}() {{", *(f"  {line}" for line in [*lines] or [":"]), "}"]


def _find_mounts(mounts: Sequence[Mount], options: Options, here: bool) -> Iterable[str]:
    for number, mount in enumerate(mounts, 1):
        if mount.daemon_pid is None:
            raise Error(f"the daemon of {mount.path} is not known", mount.why, "--pid PID")
        pid = str(mount.daemon_pid) if here and options.pid is not None else ""
        program = os.path.basename(mount.program)
        words = (str(number), _escaped(mount.path), mount.comm or "", program, pid)
        yield " ".join(["find_mount", *map(_quoted, words)])


def _escaped(path: str) -> str:
    """Return a path as /proc/PID/mountinfo shows it."""
    return re.sub(r"[\t\n \\]", lambda match: f"\\{ord(match[0]):03o}", path)


def _checks(plan: ProbePlan, anywhere: Anywhere) -> Iterable[str]:
    made = {probe.recorded_as for probe in plan.probes}
    names = {event.name for event in plan.events} - made
    for name in sorted(name for name in names if ":" in name):
        yield f"need_event {_quoted(name)}"
    for name in sorted({probe.place for probe in plan.probes if probe.in_kernel}):
        yield f"need_function {_quoted(re.escape(name))}"
    probed = {probe.place.rpartition(":")[0] for probe in plan.probes if not probe.in_kernel}
    files: dict[Library, int] = {}
    for number, target in enumerate(plan.targets, 1):
        for library in target.libraries:
            if library.host_path in probed:
                files.setdefault(library, number)
    for library, number in files.items():
        words = map(_quoted, (_sha256(library.host_path), anywhere(library.host_path)))
        yield " ".join(["need_file", *words, f'"$pid_{number}"'])


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path), "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _probes(plan: ProbePlan, anywhere: Anywhere) -> Iterable[str]:
    for probe in plan.probes:
        file = "kprobe_events" if probe.in_kernel else "uprobe_events"
        name = probe.recorded_as.replace(":", "/", 1)
        yield " ".join(["probe", file, _quoted(name), _quoted(anywhere(probe.definition()))])


def _graph(plan: ProbePlan, trace_cmd: Tool | None) -> Iterable[str]:
    if not plan.graph:
        return
    assert trace_cmd is not None
    argv = tracecmd.command_line(trace_cmd, GRAPH, plan.graph, plan.clock, 1 << 20)
    yield from _started("start_graph", argv, {"-b": "$graph_buffer"})


def _perf(plan: ProbePlan, perf: Tool, mounts: Sequence[Mount]) -> Iterable[str]:
    argv = command_line(plan, perf, DATA, None, _ROOM, threads=_later(mounts))
    yield from _started("start_perf", argv, _SIZES)


def _tasks(plan: ProbePlan, options: Options, perf: Tool, mounts: Sequence[Mount]) -> Iterable[str]:
    """Start the second perf, for events of single tasks."""
    if not any(event.per_task for event in plan.events):
        return
    argv = per_task_line(plan, perf, TASKS, None, _ROOM, [], threads=_later(mounts))
    workload = "${workload:+,$workload}" if options.call_graph == "dwarf" else ""
    pids = ",".join(f"$pid_{number}" for number in range(1, len(mounts) + 1))
    argv[argv.index("-p") + 1] = _code(pids + workload)
    yield from _started("start_perf", argv, _SIZES)


_ROOM = Sizes(1 << 20, 1 << 20)  # replaced by what the script finds:
_SIZES = {"-m": "${buffer}K", "--max-size": "${limit}K"}


def _started(start: str, argv: list[str], sizes: Mapping[str, str]) -> Iterable[str]:
    """Yield the lines that start a recorder, an option on each. ``sizes``: the shell code for the
    value of an option."""
    for option, code in sizes.items():
        if option in argv:
            argv[argv.index(option) + 1] = _code(code)
    lines: list[list[str]] = []
    for word in argv[2:]:  # without the tool's path, and "record"
        if word in ("-e", "--filter", "-p", "-m", "-l") or not lines:
            lines.append([])
        lines[-1].append(_quoted(word))
    joined = [" ".join(words) for words in lines]
    yield from [f"{start} {joined[0]} \\", *(f"  {line} \\" for line in joined[1:-1])]
    yield f"  {joined[-1]}"


def _later(mounts: Sequence[Mount]) -> Threads:
    return _Later(numbers={mount.connection: n for n, mount in enumerate(mounts, 1)})


def stored(
    options: Options, arguments: Sequence[str], facts: HostFacts, plan: ProbePlan
) -> dict[str, object]:
    """Return what `fusetools open` needs of a plan, as JSON."""
    own = HostFacts(
        kernel=facts.kernel,
        arch=facts.arch,
        cpus=facts.cpus,
        uid=0,
        pid_max=facts.pid_max,
        perf=facts.perf,
        trace_cmd=facts.trace_cmd if plan.graph else None,
        mounts=tuple(replace(target.mount, streams=()) for target in plan.targets),
    )
    return {
        "format": FORMAT,
        "fusetools": __version__,
        "arguments": list(arguments),
        "detail": options.detail,
        "call_graph": options.call_graph,
        "stack_bytes": options.stack_bytes,
        "facts": asdict(own),
        "sets": [target.probe_set.name if target.probe_set else None for target in plan.targets],
        "files": [[library.host_path for _, library in target.groups] for target in plan.targets],
        "probes": [asdict(replace(probe, arguments=())) for probe in plan.probes],
        "events": [asdict(Event(e.name, stack=e.stack, per_task=e.per_task)) for e in plan.events],
        "graph": list(plan.graph),
        "expensive": sorted(plan.expensive),
        "by_pid": plan.by_pid,
        "clock": plan.clock,
        "missing": [dict(vars(reason)) for reason in plan.missing],
    }
