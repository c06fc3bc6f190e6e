"""fusetools show as text."""

from __future__ import annotations

from itertools import zip_longest

from fusetools.figures import duration
from fusetools.printable import printable
from fusetools.render.text.footer import footer
from fusetools.render.text.layout import lines, prose, width, wrapped
from fusetools.render.text.slow import (
    amount,
    names_guessed,
    outcome,
    signalled,
    stages_of,
    what,
)
from fusetools.results.show import Shown


def render(result: Shown) -> str:
    r = result.request
    details = [duration(r.duration_ns), f"mount {printable(r.mount)}" if r.mount else ""]
    details += [f"inode {r.inode}" if r.inode is not None else "", amount(r), outcome(r)]
    details.append(signalled(r))
    output = [f"request {r.unique}: {what(r, None)}", *wrapped(details, "  ")]
    output += [*wrapped(stages_of(r, whole=True), "  "), ""]
    times = [duration(moment.time_ns, "us") for moment in result.moments]
    wide = max(map(len, times), default=0)
    left = (width() - wide - 5) // 2
    caller = f"caller {printable(r.comm)} {r.tid}" if r.tid is not None else "caller not known"
    daemon = f"{printable(r.daemon_comm) or 'daemon'} {r.daemon_tid}"
    daemon += f" ({printable(r.start_function)})" if r.start_function else ""
    output.append(f"{'':{wide}}  {caller:{left}} | {daemon}")
    for when, moment in zip(times, result.moments):
        columns = [
            prose(printable(text), rest="  ", columns=left, broken=True) or [""]
            for text in (moment.caller, moment.daemon)
        ]
        for caller_line, daemon_line in zip_longest(*columns, fillvalue=""):
            output.append(f"{when:>{wide}}  {caller_line:{left}} | {daemon_line}".rstrip())
            when = ""
    return lines([*output, "", *footer(result.facts), *names_guessed(result.guessed, [r])])
