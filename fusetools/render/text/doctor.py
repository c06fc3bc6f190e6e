"""fusetools doctor as text."""

from __future__ import annotations

import textwrap

from fusetools.host.facts import HostFacts
from fusetools.plan.capabilities import Advice, Diagnosis
from fusetools.printable import printable
from fusetools.render.text.layout import WIDTH
from fusetools.results.doctor import Described


def render(
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
