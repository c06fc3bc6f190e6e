"""fusetools doctor."""

from __future__ import annotations

import dataclasses
import json
import textwrap

import click

from fusetools.host.diagnosis import Diagnosis, diagnose, traceable
from fusetools.host.facts import HostFacts, Mount
from fusetools.host.probe import read_host, self_test_unique
from fusetools.render.text import printable

WIDTH = 80


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every fact of the host.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what this host can trace, and how to mend what is missing.

    Exit status 0 if a recording works here, else 1.
    """
    facts = with_self_test(read_host())
    diagnosis = diagnose(facts)
    click.echo(to_json(facts, diagnosis) if as_json else to_text(facts, diagnosis))
    ctx.exit(0 if diagnosis.works else 1)


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


def to_json(facts: HostFacts, diagnosis: Diagnosis) -> str:
    return json.dumps(
        {
            "works": diagnosis.works,
            "layers": [dataclasses.asdict(layer) for layer in diagnosis.layers],
            "advice": [dataclasses.asdict(advice) for advice in diagnosis.advice],
            "facts": dataclasses.asdict(facts),
        },
        indent=1,
    )


def to_text(facts: HostFacts, diagnosis: Diagnosis) -> str:
    tools = [f"perf {facts.perf.version}" if facts.perf else "no perf"]
    tools += [f"trace-cmd {facts.trace_cmd.version}" if facts.trace_cmd else "no trace-cmd"]
    user = "root" if facts.uid == 0 else f"uid {facts.uid}"
    lines = [f"This host: Linux {facts.kernel}, {', '.join(tools)}, {user}", ""]
    for layer in diagnosis.layers:
        lines += _row(layer.name, "yes" if layer.available else "no", [layer.how])
    lines += _row("mounts", str(len(facts.mounts)), [_mount(mount) for mount in facts.mounts])
    if facts.ftrace_users:
        lines += ["", "Others trace here now:", *_wrap(facts.ftrace_users, "  ")]
    return "\n".join([*lines, "", *_verdict(diagnosis)])


def _row(name: str, answer: str, what: list[str]) -> list[str]:
    head = f"  {name:<9}  {answer:<4}  "
    lines = _wrap(what, " " * len(head)) or [head]
    return [(head + lines[0][len(head) :]).rstrip(), *lines[1:]]


def _wrap(paragraphs: list[str] | tuple[str, ...], indent: str) -> list[str]:
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


def _mount(mount: Mount) -> str:
    kind = mount.fstype.partition(".")[2] or mount.source
    if mount.daemon_pid is None:
        return f"{mount.path} ({kind}): {mount.why}"
    where = "" if mount.seen_by is None else ", in another mount namespace"
    return f"{mount.path} ({kind}): {mount.comm}, pid {mount.daemon_pid}{where}"


def _verdict(diagnosis: Diagnosis) -> list[str]:
    needed = [advice for advice in diagnosis.advice if advice.needed]
    better = [advice for advice in diagnosis.advice if not advice.needed]
    lines = []
    if diagnosis.works:
        lines.append("Everything that the main job needs is there.")
    else:
        lines.append("Recording does not work here. What is missing:")
    for advice in needed:
        lines += _advice(advice.problem, advice.mend)
    if better:
        number = "One thing" if len(better) == 1 else f"{len(better)} things"
        if diagnosis.works:
            lines[-1] += f" {number} would be better:"
        else:
            lines += ["", f"{number} would be better:"]
    for advice in better:
        lines += _advice(advice.problem, advice.mend)
    return lines


def _advice(problem: str, mend: str) -> list[str]:
    """A command is never wrapped: it is to be copied."""
    return [*_wrap([problem], "  "), f"    mend: {printable(mend)}"]
