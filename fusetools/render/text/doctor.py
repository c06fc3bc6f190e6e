"""fusetools doctor as text."""

from __future__ import annotations

import textwrap

from fusetools.figures import plural
from fusetools.printable import printable
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import width
from fusetools.results.doctor import Doctor


def render(result: Doctor) -> str:
    facts, mounts = result.facts, result.mounts
    tools = [f"perf {facts.perf.version}" if facts.perf else "no perf"]
    tools += [f"trace-cmd {facts.trace_cmd.version}" if facts.trace_cmd else "no trace-cmd"]
    user = "root" if facts.uid == 0 else f"uid {facts.uid}"
    lines = [f"This host: Linux {facts.kernel}, {', '.join(tools)}, {user}", ""]
    for layer in result.layers:
        head = f"  {layer.name:<9}  {'yes' if layer.available else 'no':<4}  "
        how = _wrap([layer.how], " " * len(head))
        lines += [head + how[0].lstrip(), *how[1:]]
    lines += ["", plural(len(mounts), "FUSE mount") + (":" if mounts else "")]
    for mount in mounts:
        answered = f"{mount.answered_by}: {mount.how}" if mount.answered_by else mount.how
        lines += _wrap([f"{mount.path} ({mount.kind})"], "  ") + _wrap([answered], "    ")
        lines += _wrap([mount.stacks], "    ")
    if result.stuck:
        lines += [
            "",
            *_wrap([f"Hanging now: {', '.join(result.stuck)}; fusetools stuck shows why"], ""),
        ]
    if facts.ftrace_users:
        lines += ["", "Others trace here now:", *_wrap(facts.ftrace_users, "  ")]
    return "".join(f"{line}\n" for line in [*lines, "", *_verdict(result)])


def _wrap(paragraphs: list[str] | tuple[str, ...], indent: str) -> list[str]:
    """Lines of at most width(), unless a word is longer."""
    return [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(
            printable(paragraph),
            width(),
            initial_indent=indent,
            subsequent_indent=indent + "  " * (len(paragraphs) > 1),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _verdict(result: Doctor) -> list[str]:
    needed = [each for each in result.advice if each.needed]
    better = [each for each in result.advice if not each.needed]
    lines = []
    if result.works:
        lines.append("Recording works here.")
    else:
        lines.append("Recording does not work here. Missing:")
    for each in needed:
        lines += _advice(each.problem, each.mend)
    if better:
        number = f"{plural(len(better), 'thing')} would be better:"
        if result.works:
            lines[-1] += f" {number}"
        else:
            lines += ["", number]
    for each in better:
        lines += _advice(each.problem, each.mend)
    return lines


def _advice(problem: str, mend: str) -> list[str]:
    """A command is never wrapped: it is to be copied. Nothing may mend it."""
    return [*_wrap([problem], "  "), *ways_out(mend, "    ")]
