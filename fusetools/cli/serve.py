"""fusetools serve."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import mounts_option
from fusetools.errors import Error

if TYPE_CHECKING:
    from fusetools.output import Output
    from fusetools.results.metrics import Family

LISTEN = "127.0.0.1:9752"
PERIOD = 15.0  # seconds between two files, and two pushes


@click.command()
@mounts_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve /metrics to Prometheus there; :PORT is every address of this host. "
    f"[default: {LISTEN}, without --textfile and --otlp]",
)
@click.option(
    "--web-config",
    metavar="FILE",
    help="Serve with the TLS certificate and the passwords of this web configuration file, as "
    "exporters of Prometheus do.",
)
@click.option(
    "--textfile",
    metavar="FILE.prom",
    help=f"Write FILE.prom every {PERIOD:g} s, for node_exporter's textfile collector.",
)
@click.option(
    "--otlp",
    metavar="URL",
    help=f"Push to this OpenTelemetry collector (http://HOST:4318) every {PERIOD:g} s.",
)
def command(
    mounts: tuple[str, ...],
    listen: str | None,
    web_config: str | None,
    textfile: str | None,
    otlp: str | None,
) -> None:
    """Serve the activity on mounts to Prometheus and OpenTelemetry.

    Latency histograms of requests by operation and mount, their parts in the queue and in the
    daemon, errors, requests in flight and the age of the oldest one, lost events and its own cost.
    Runs until Ctrl-C, and follows mounts that come and go.
    """
    from fusetools.cli.record import warn
    from fusetools.extras import SERVE, need
    from fusetools.host.files import absolute
    from fusetools.live.metrics import measure
    from fusetools.plan.options import stream as options_of

    if listen is None and not textfile and not otlp:
        listen = LISTEN
    if web_config and not listen:
        why = "it says how --listen serves"
        raise Error("--web-config needs --listen", why, f"fusetools serve --listen {LISTEN} …")
    need("prometheus_client", "it writes the metrics", SERVE)
    latest = Latest()
    with contextlib.ExitStack() as stack:
        where = [
            stack.enter_context(way)
            for way in (
                _web(listen, web_config, latest) if listen else None,
                _file(textfile, latest) if textfile else None,
                _pushing(otlp, latest) if otlp else None,
            )
            if way is not None
        ]

        def began(paths: Sequence[str]) -> None:
            warn(f"measuring {', '.join(paths)}: {', '.join(where)}")

        measure(options_of(tuple(map(absolute, mounts))), sys.argv[1:], began, latest.set, warn)


class Latest:
    """The figures of the last second, and files to write them to."""

    def __init__(self) -> None:
        self._families: Sequence[Family] = ()
        self.file: Output | None = None
        self._written = 0.0

    def set(self, families: Sequence[Family]) -> None:
        self._families = families
        if self.file is not None and time.monotonic() - self._written >= PERIOD:
            from fusetools.render.metrics.prometheus import render

            self._written = time.monotonic()
            self.file.write(render(families))

    def get(self) -> Sequence[Family]:
        return self._families


@contextlib.contextmanager
def _web(listen: str, web_config: str | None, latest: Latest) -> Iterator[str]:
    from fusetools.render.metrics.prometheus import application
    from fusetools.web import Config, read_config, serving

    config = read_config(web_config) if web_config else Config()
    with serving(listen, application(latest.get), config) as url:
        yield f"{url}/metrics"


@contextlib.contextmanager
def _file(path: str, latest: Latest) -> Iterator[str]:
    """Remove the file at the end: node_exporter would report it for ever."""
    from fusetools.output import Output

    if not path.endswith(".prom"):
        why = "node_exporter reads files whose names end in .prom"
        raise Error(f"cannot write {path}", why, f"--textfile {path}.prom")
    with Output(path) as latest.file:
        try:
            yield path
        finally:
            latest.file.remove()


@contextlib.contextmanager
def _pushing(url: str, latest: Latest) -> Iterator[str]:
    from fusetools.cli.record import warn
    from fusetools.extras import SERVE, need
    from fusetools.render.metrics.otlp import Exporter
    from fusetools.web import in_background

    need("opentelemetry", "it pushes to OpenTelemetry", SERVE)
    if not (parts := re.fullmatch(r"(https?://[^/\s]+)(/\S*)?", url)):
        raise Error(f"{url} is no URL of a collector", "", "--otlp http://HOST:4318")
    path = parts[2] if parts[2] and parts[2] != "/" else "/v1/metrics"
    exporter, end = Exporter(parts[1] + path), threading.Event()
    failed = ""

    def push() -> None:
        nonlocal failed
        ending = False
        while not ending:
            ending = end.wait(PERIOD)
            if ending and failed:
                return
            why = exporter.push(latest.get())
            if why and not failed:
                warn(f"cannot push to {url}: {why}; trying every {PERIOD:g} s")
            elif failed and not why:
                warn(f"pushes to {url} again")
            failed = why

    thread = in_background(push)
    try:
        yield f"to {url}"
    finally:
        end.set()
        thread.join(PERIOD)
        exporter.close()
