"""`fusetools serve` on this host: a real Prometheus scrapes it, beside a recording."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mounts import HANGS, wait_until
from prometheus import scraping
from recording import COMMAND, run
from sample import Mounter, SampleMount

pytestmark = pytest.mark.live


@contextmanager
def serving(mount: SampleMount, *options: str) -> Iterator[str]:
    """Provide the address, once it measures. It must end well at SIGTERM."""
    serve = subprocess.Popen(
        [*COMMAND, "serve", "--mount", str(mount.path), "--listen", "127.0.0.1:0", *options],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serve.stderr is not None
        line = serve.stderr.readline()
        address = re.search(r"http://(\S+)/metrics", line)
        assert address, line + serve.stderr.read()
        yield address[1]
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(HANGS) == 0
        assert serve.stderr.read() == ""
    finally:
        serve.kill()
        serve.communicate()


def queried(address: str, name: str) -> dict[str, float]:
    """Return a metric's values by the labels after `mount`, as they are served."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=HANGS) as answer:
        lines = answer.read().decode().splitlines()
    found = [re.fullmatch(rf"{name}({{.*}})? (\S+)", line) for line in lines]
    return {it[1] or "": float(it[2]) for it in found if it}


def test_prometheus_finds_what_hist_finds(sample_mount: Mounter, tmp_path: Path) -> None:
    """Counts are equal; percentiles are in the same or the next bucket, as requests of the same
    two times may be on both sides of a bound."""
    mount = sample_mount(delay=("lookup=300us", "getattr=2ms:10%"), error=("open=EIO:20%",))
    data = tmp_path / "perf.data"
    name, buckets = (f"fusetools_request_duration_seconds_{its}" for its in ("count", "bucket"))
    textfile = tmp_path / "fuse.prom"
    with serving(mount, "--textfile", str(textfile)) as address:
        assert textfile.exists()
        loop = f"for i in 1 2 3; do find {mount.path} -type f | head -300 | xargs cat; done"
        run(
            "record", "--detail", "latency", "--mount", mount.path, "-o", data, "--",
            "sh", "-c", f"{{ {loop}; }} > /dev/null 2>&1 || true",
        )  # fmt: skip
        hist = json.loads(run("hist", "--json", "-i", data).stdout)
        errors = json.loads(run("errors", "--json", "-i", data).stdout)
        true = {
            row["operation"]: row
            for row in hist["histograms"]
            if row["layer"] == "request" and row["count"] >= 100
        }
        assert true.keys() >= {"lookup", "getattr", "open"}
        with scraping(address, tmp_path / "it") as it:
            wait_until(
                lambda: all(
                    it.query(name).get(operation) == row["count"] for operation, row in true.items()
                ),
                "the counts of hist",
            )
            for percent in (50, 90, 99):
                found = it.query(f"histogram_quantile({percent / 100}, {buckets})")
                for operation, row in true.items():
                    exact = row["percentiles_ns"][str(percent)] / 1e9
                    assert exact / 2 <= found[operation] <= exact * 2
            failed = it.query('fusetools_request_errors_total{error="EIO"}')
            assert failed == {
                row["operation"]: answered["times"]
                for row in errors["operations"]
                for answered in row["errors"]
                if answered["name"] == "EIO"
            }
            assert failed["open"] >= 10
            assert it.query("fusetools_lost_events_total") == {"": 0}
            cost = it.query("sum(fusetools_cpu_seconds_total)")
            assert 0 < cost[""] < 60
    assert not textfile.exists()


def test_a_hanging_mount_shows(sample_mount: Mounter) -> None:
    mount = sample_mount(delay=("open=60s",))
    labels = f'{{mount="{mount.path}"}}'
    age = "fusetools_oldest_request_age_seconds"
    with serving(mount) as address:
        assert queried(address, age) == {labels: 0}
        file = next(path for path in mount.path.rglob("*") if path.is_file())
        readers = [subprocess.Popen(["cat", file], stdout=subprocess.DEVNULL) for _ in range(3)]
        try:
            in_flight = "fusetools_requests_in_flight"
            wait_until(lambda: queried(address, in_flight) == {labels: 3}, "three requests")
            wait_until(lambda: queried(address, age)[labels] > 2, "an old request")
        finally:
            for reader in readers:
                reader.kill()
            mount.process.kill()
            for reader in readers:
                reader.wait()
