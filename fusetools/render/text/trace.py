"""fusetools trace as text: one line per request that has ended."""

from __future__ import annotations

import sys
import time

from fusetools.figures import duration
from fusetools.printable import printable
from fusetools.render.text.layout import limit, lines
from fusetools.render.text.words import data_amount
from fusetools.results.trace import Ended

HEAD = f"{'ended at':15}  {'time':>9}  {'operation':11}  {'caller':22}  path"


def line(request: Ended) -> str:
    """Return a request's line; HEAD is the heading."""
    second = time.strftime("%H:%M:%S", time.localtime(request.ended_seconds))
    at = f"{second}.{int(request.ended_seconds % 1 * 1e6):06d}"
    caller = f"{printable(request.comm) or '?'} ({request.pid})" if request.pid is not None else "-"
    path = printable(request.path or f"{request.mount} (path not known)")
    amount = data_amount(
        request.operation,
        request.answered_bytes,
        request.bytes,
        request.offset_bytes,
        bool(request.error),
    )
    size = f"  {amount}" if amount else ""
    failed = request.error or ("no such file" if request.negative else "")
    error = f"  {failed}" if failed else ""
    took = duration(request.duration_ns)
    about = f"{at}  {took:>9}  {request.operation:11}  {caller:22}"
    what = f"{path}{size}{error}"
    if len(about) + 2 + len(what) <= (limit() or sys.maxsize):
        return f"{about}  {what}\n"
    return lines([about.rstrip(), f"  {what}"])
