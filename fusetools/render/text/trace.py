"""Requests as they end, for a terminal."""

from __future__ import annotations

import time

from fusetools.figures import duration
from fusetools.printable import printable
from fusetools.results.trace import Ended

HEAD = f"{'ended at':15}  {'time':>9}  {'operation':11}  {'caller':22}  path\n"


def line(one: Ended) -> str:
    second = time.strftime("%H:%M:%S", time.localtime(one.ended))
    at = f"{second}.{int(one.ended % 1 * 1e6):06d}"
    caller = f"{printable(one.comm) or '?'} ({one.pid})" if one.pid is not None else "-"
    path = printable(one.path or f"{one.mount} (path not known)")
    size = f"  {one.bytes:,} bytes" if one.bytes is not None else ""
    at_offset = f" at {one.offset:,}" if one.offset is not None and size else ""
    what = one.error or ("no such file" if one.negative else "")
    error = f"  {what}" if what else ""
    took = duration(one.duration_ns)
    return f"{at}  {took:>9}  {one.operation:11}  {caller:22}  {path}{size}{at_offset}{error}\n"
