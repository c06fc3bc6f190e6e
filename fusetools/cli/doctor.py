"""fusetools doctor."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from pathlib import Path

import click

from fusetools.errors import Error
from fusetools.host.diagnosis import Advice, Diagnosis, diagnose, traceable
from fusetools.host.facts import HostFacts, Mount
from fusetools.host.probe import read_host, self_test_unique
from fusetools.now import machine
from fusetools.now.stuck import stuck
from fusetools.plan import planner, probeset
from fusetools.plan.request import Request
from fusetools.record import symbols
from fusetools.render.text import WIDTH, printable


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every fact of the host.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what this host can trace, and how to mend what is missing.

    Exit status 0 if a recording works here, else 1.
    """
    facts = with_self_test(read_host())
    diagnosis = diagnose(facts)
    mounts = [describe(facts, mount) for mount in facts.mounts]
    diagnosis = counted(diagnosis, mounts)
    hanging = [mount.path for mount in stuck(machine.read()).mounts if mount.state == "stuck"]
    click.echo((to_json if as_json else to_text)(facts, diagnosis, mounts, hanging))
    ctx.exit(0 if diagnosis.works else 1)


@dataclasses.dataclass(frozen=True)
class Described:
    """A mount and what a recording would probe in its daemon: ``probed`` is one of PROBED."""

    path: str
    kind: str
    answered_by: str
    how: str
    advice: Advice | None = None
    probed: str = "nothing"
    stacks: str = ""


PROBED = ("callbacks", "callbacks' entries", "replies", "nothing")


def counted(diagnosis: Diagnosis, mounts: list[Described]) -> Diagnosis:
    """With the number of mounts whose daemons can be probed, and how well."""
    layers = []
    for layer in diagnosis.layers:
        if layer.name == "daemon" and layer.available and mounts:
            each = [(sum(mount.probed == what for mount in mounts), what) for what in PROBED]
            how = ", ".join(f"{what} of {count}" for count, what in each if count)
            many = "" if len(mounts) == 1 else "s"
            layer = dataclasses.replace(layer, how=f"uprobes, {len(mounts)} mount{many}: {how}")
        layers.append(layer)
    return dataclasses.replace(diagnosis, layers=tuple(layers))


def with_self_test(facts: HostFacts) -> HostFacts:
    """The facts with ``fuse_send_unique``, found out by one statfs on a mount, if it can be."""
    mounts = [mount for mount in facts.mounts if traceable(mount)]
    if (
        facts.uid != 0
        or not facts.perf_can_record
        or "fuse:fuse_request_send" not in facts.tracepoints
        or not mounts
    ):
        return facts
    return dataclasses.replace(facts, fuse_send_unique=self_test_unique(mounts[0], 1.0))


def describe(facts: HostFacts, mount: Mount) -> Described:
    """As `fusetools record` would plan it for this mount alone."""
    kind = mount.fstype.partition(".")[2] or mount.source
    if mount.daemon_pid is None:
        return Described(mount.path, kind, "", mount.why)
    where = "" if mount.seen_by is None else ", in another mount namespace"
    who = f"{mount.comm}, pid {mount.daemon_pid}{where}"
    if not traceable(mount):
        return Described(mount.path, kind, who, mount.why)
    one = dataclasses.replace(facts, mounts=(mount,))
    request = Request(command=("true",), call_graph="auto")
    try:
        targets = planner.targets(one, request, probeset.builtin())
        files = [(file, mount.daemon_pid) for file in targets[0].libraries]
        functions, plain, unreadable = symbols.functions(files)
        plan = planner.plan(one, request, targets, functions, plain, unreadable=unreadable)
    except Error as error:
        broken = Advice(f"{error.what}: {error.why}".rstrip(": "), error.mend, False)
        return Described(mount.path, kind, who, "nothing can be recorded", broken)
    probes = [probe for probe in plan.probes if probe.layer == "daemon"]
    lacks = [why for why in plan.unavailable if why.layer in ("daemon", "names")]
    advice = None
    if lacks:
        mend = lacks[0].mend if probes else lacks[0].mend or "fusetools record --fs FILE.toml -- …"
        advice = Advice(f"{lacks[0].what}: {lacks[0].why}", mend, False)
    if not probes:
        how = "no probe set fits: requests, and what its threads do, are recorded"
        return Described(mount.path, kind, who, how, advice)
    calls = {probe.function for probe in probes if probe.role == "entry"}
    timed = any(probe.role == "return" for probe in probes)
    probed = "replies"
    what = "replies (no names of callbacks)"
    if calls:
        probed = "callbacks" if timed else "callbacks' entries"
        what = f"{len(calls)} callbacks" if timed else f"{len(calls)} callbacks, entries alone"
    places = {
        probe.place.rpartition(":")[0] for probe in probes if probe.role in ("entry", "reply")
    }
    names = ", ".join(
        Path(file.path).name for file in plan.targets[0].libraries if file.host_path in places
    )
    stacks = _stacks(mount, plan.copies)
    return Described(mount.path, kind, who, f"{what} in {names}", advice, probed, stacks)


def _stacks(mount: Mount, copied: bool) -> str:
    """How the user's part of a recording's stacks of the daemon will be."""
    without = planner.without_frame_pointers(mount)
    if not without:
        return "stacks of the daemon: whole"
    names = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
    keep = "keeps" if len(without) == 1 else "keep"
    how = "--call-graph auto copies its waits" if copied else "its stacks are cut there"
    return f"stacks of the daemon: {names} {keep} no frame pointers: {how}"


def to_json(
    facts: HostFacts, diagnosis: Diagnosis, mounts: list[Described], hanging: list[str]
) -> str:
    advice = [*diagnosis.advice, *(mount.advice for mount in mounts if mount.advice)]
    return json.dumps(
        {
            "works": diagnosis.works,
            "layers": [dataclasses.asdict(layer) for layer in diagnosis.layers],
            "mounts": [
                {
                    "path": mount.path,
                    "kind": mount.kind,
                    "by": mount.answered_by,
                    "how": mount.how,
                    "probed": mount.probed,
                    "stacks": mount.stacks,
                }
                for mount in mounts
            ],
            "stuck": hanging,
            "advice": [dataclasses.asdict(each) for each in advice],
            "facts": dataclasses.asdict(facts),
        },
        indent=1,
    )


def to_text(
    facts: HostFacts, diagnosis: Diagnosis, mounts: list[Described], hanging: list[str]
) -> str:
    tools = [f"perf {facts.perf.version}" if facts.perf else "no perf"]
    tools += [f"trace-cmd {facts.trace_cmd.version}" if facts.trace_cmd else "no trace-cmd"]
    user = "root" if facts.uid == 0 else f"uid {facts.uid}"
    lines = [f"This host: Linux {facts.kernel}, {', '.join(tools)}, {user}", ""]
    for layer in diagnosis.layers:
        head = f"  {layer.name:<9}  {'yes' if layer.available else 'no':<4}  "
        how = _wrap([layer.how], " " * len(head))
        lines += [head + how[0].lstrip(), *how[1:]]
    many = "" if len(mounts) == 1 else "s"
    lines += ["", f"{len(mounts)} FUSE mount{many}" + (":" if mounts else "")]
    for mount in mounts:
        answered = f"{mount.answered_by}: {mount.how}" if mount.answered_by else mount.how
        lines += _wrap([f"{mount.path} ({mount.kind})"], "  ") + _wrap([answered], "    ")
        lines += _wrap([mount.stacks], "    ")
    if hanging:
        lines += ["", *_wrap([f"Hanging now: {', '.join(hanging)}; fusetools stuck shows why"], "")]
    if facts.ftrace_users:
        lines += ["", "Others trace here now:", *_wrap(facts.ftrace_users, "  ")]
    advice = [*diagnosis.advice, *(mount.advice for mount in mounts if mount.advice)]
    return "\n".join([*lines, "", *_verdict(diagnosis.works, advice)])


def _wrap(paragraphs: list[str] | tuple[str, ...], indent: str) -> list[str]:
    """Lines of at most WIDTH, unless a word is longer."""
    return [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(
            printable(paragraph),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "  " * (len(paragraphs) > 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _verdict(works: bool, advice: list[Advice]) -> list[str]:
    needed = [each for each in advice if each.needed]
    better = [each for each in advice if not each.needed]
    lines = []
    if works:
        lines.append("Everything that the main job needs is there.")
    else:
        lines.append("Recording does not work here. What is missing:")
    for each in needed:
        lines += _advice(each)
    if better:
        number = "One thing" if len(better) == 1 else f"{len(better)} things"
        if works:
            lines[-1] += f" {number} would be better:"
        else:
            lines += ["", f"{number} would be better:"]
    for each in better:
        lines += _advice(each)
    return lines


def _advice(advice: Advice) -> list[str]:
    """A command is never wrapped: it is to be copied. Nothing may mend it."""
    ways = [
        f"    {'  or' if number else 'mend'}: {printable(way)}"
        for number, way in enumerate(advice.mend.splitlines())
    ]
    return [*_wrap([advice.problem], "  "), *ways]
