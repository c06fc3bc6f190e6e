"""A real Prometheus that scrapes what a test serves."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mounts import end_with_the_test, wait_until


def program(name: str) -> str:
    """Return the path of prometheus or promtool, which tools/install.sh installs."""
    found = shutil.which(name)
    assert found, f"{name} is missing: tools/install.sh tests"
    return found


class Prometheus:
    """``url``: of its API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression by the label `operation`, or "" without it."""
        found = self._get("query", query=expression)["result"]
        return {row["metric"].get("operation", ""): float(row["value"][1]) for row in found}

    def has_scraped(self) -> bool:
        """Return whether the target was scraped. A failed scrape is an error."""
        try:
            targets = self._get("targets")["activeTargets"]
        except (urllib.error.URLError, ConnectionError):
            targets = []
        if any(target["health"] == "up" for target in targets):
            return True
        errors = [target["lastError"] for target in targets if target["lastError"]]
        assert not errors, errors
        time.sleep(0.1)
        return False

    def _get(self, what: str, **arguments: str) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it begins
                raise urllib.error.URLError("not ready") from error
            raise


@contextlib.contextmanager
def scraping(target: str, folder: Path, *options: str, config: str = "") -> Iterator[Prometheus]:
    """Run it until it has scraped HOST:PORT once. ``config``: further lines of the job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    (folder / "prometheus.yml").write_text(
        "scrape_configs:\n- job_name: fusetools\n  scrape_interval: 1s\n"
        f"  static_configs:\n  - targets: ['{target}']\n{config}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"), f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
                *options,
            ],
            stdout=log, stderr=log, preexec_fn=end_with_the_test,
        )  # fmt: skip
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{port}")

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return prometheus.has_scraped()

        wait_until(ready, "a scrape")
        yield prometheus
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
