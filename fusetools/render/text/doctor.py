"""fusetools doctor as text."""

from __future__ import annotations

from fusetools.figures import number, plural
from fusetools.printable import printable
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import lines as joined
from fusetools.render.text.layout import prose, table
from fusetools.render.text.stuck import client
from fusetools.results.doctor import Doctor


def render(result: Doctor) -> str:
    facts, mounts = result.facts, result.mounts
    tools = [f"perf {facts.perf.version}" if facts.perf else "no perf"]
    tools += [f"trace-cmd {facts.trace_cmd.version}" if facts.trace_cmd else "no trace-cmd"]
    user = "root" if facts.uid == 0 else f"uid {facts.uid}"
    lines = [f"This host: Linux {facts.kernel}, {', '.join(tools)}, {user}", ""]
    for layer in result.layers:
        head = f"  {layer.name:<9}  {'yes' if layer.available else 'no':<4}  "
        lines += _prose(layer.how, head, " " * len(head))
    lines += ["", plural(len(mounts), "FUSE mount") + (":" if mounts else "")]
    for mount in mounts:
        answered = f"{mount.answered_by}: {mount.how}" if mount.answered_by else mount.how
        lines += _prose(f"{mount.path} ({mount.kind})", "  ") + _prose(answered, "    ")
        lines += _prose(mount.stacks, "    ")
        for line in client(mount.client):
            lines += _prose(line, "    client: ", " " * 12)
        rows = [
            (limit.name, number(limit.value), printable(limit.change)) for limit in mount.limits
        ]
        lines += table(rows, "<><", "    ")  # a command is not wrapped
    if result.stuck:
        hanging = ", ".join(result.stuck)
        lines += ["", *_prose(f"Hanging now: {hanging}; fusetools stuck shows why", "")]
    if result.dead:
        dead = ", ".join(result.dead)
        text = f"Dead now: {dead} (each call on it fails); fusetools stuck"
        lines += ["", *_prose(f"{text} shows more", "")]
    if result.unknown:
        unknown = ", ".join(result.unknown)
        text = f"Not known whether these hang now: {unknown}; fusetools stuck shows why"
        lines += ["", *_prose(text, "")]
    if facts.ftrace_users:
        lines += ["", "Others trace here now:"]
        for user in facts.ftrace_users:
            lines += _prose(user, "  ", "    ")
    return joined([*lines, "", *_verdict(result)])


def _prose(text: str, first: str, rest: str = "") -> list[str]:
    return prose(printable(text), first, rest or first)


def _verdict(result: Doctor) -> list[str]:
    needed = [each for each in result.advice if each.needed]
    better = [each for each in result.advice if not each.needed]
    lines = []
    if result.works:
        lines.append("Recording works here.")
    else:
        lines.append("Recording does not work here. Missing:")
    for each in needed:
        lines += _advice(each.problem, each.fix)
    if better:
        number = f"{plural(len(better), 'recommendation')}:"
        if result.works:
            lines[-1] += f" {number}"
        else:
            lines += ["", number]
    for each in better:
        lines += _advice(each.problem, each.fix)
    return lines


def _advice(problem: str, fix: str) -> list[str]:
    """Return a problem and its fix. Commands are not wrapped; ``fix`` may be empty."""
    return [*_prose(problem, "  "), *ways_out(fix, "    ")]
