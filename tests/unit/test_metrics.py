"""The figures of `fusetools serve`, in the forms of monitoring systems; a real Prometheus reads
them."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import random
import re
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus import program, scraping
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from fusetools import web
from fusetools.core import native
from fusetools.errors import Error
from fusetools.live.metrics import MOST_ERRORS, MOST_MOUNTS, Totals
from fusetools.render.metrics import otlp, prometheus
from fusetools.results.metrics import Family, Histogram

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yml"
DASHBOARD = RULES.with_name("dashboard.json")


def distribution(durations: Sequence[int]) -> native.Distribution:
    """Return what the core makes of durations in ns, counted another way."""
    classic: dict[int, int] = {}
    fine: dict[int, int] = {}
    for ns in durations:
        number = next((n for n in range(27) if ns <= 1000 << n), 27)
        classic[number] = classic.get(number, 0) + 1
        number = next(n for n in range(-300, 300) if ns / 1e9 <= 2 ** (n / 8))
        fine[number] = fine.get(number, 0) + 1
    return {
        "count": len(durations), "sum": sum(durations), "classic": classic, "native": fine,
        "zeros": 0,
    }  # fmt: skip


def metrics(
    durations: Sequence[int],
    operation: str = "read",
    connection: int = 45,
    errors: dict[int, int] | None = None,
) -> native.Metrics:
    nothing = distribution([])
    return {
        "measured": (
            {
                "connection": connection, "operation": operation, "whole": distribution(durations),
                "queue": distribution([ns // 4 for ns in durations]), "daemon": nothing,
                "bytes": 4096, "errors": errors or {},
            },
        ),
        "in_flight": ({"connection": 45, "requests": 3, "queued": 2, "oldest": 1_500_000_000},),
        "left_out": 0,
    }  # fmt: skip


def some_durations() -> list[int]:
    """Return durations of two kinds, far apart: cached and not."""
    chance = random.Random(7)
    fast = [int(chance.lognormvariate(math.log(20_000), 0.5)) for _ in range(1500)]
    return fast + [int(chance.lognormvariate(math.log(5e6), 1.0)) for _ in range(500)]


def families(durations: Sequence[int]) -> tuple[Family, ...]:
    totals = Totals()
    half = len(durations) // 2
    for part in (durations[:half], durations[half:]):
        totals.add(metrics(part, errors={2: 3}), {45: "/mnt/a"})
    totals.cost(5, 0.5, 0.25, 2700)
    return totals.families()


def samples(found: Iterable[Family]) -> dict[str, list[tuple[dict[str, str], Any]]]:
    return {family.name: list(family.samples) for family in found}


def quantile(durations: Sequence[int], share: float) -> float:
    """Return a percentile by nearest rank in seconds."""
    return sorted(durations)[math.ceil(len(durations) * share) - 1] / 1e9


def test_intervals_add_up() -> None:
    durations = some_durations()
    found = samples(families(durations))
    labels = {"operation": "read", "mount": "/mnt/a"}
    ((its, whole),) = found["fusetools_request_duration_seconds"]
    assert its == labels
    assert isinstance(whole, Histogram)
    assert whole.count == 2000
    assert whole.seconds == pytest.approx(sum(durations) / 1e9)
    for bound, below in whole.below():
        assert below == sum(ns / 1e9 <= bound * (1 + 1e-12) for ns in durations)
    # Only stages that were seen.
    stages = found["fusetools_request_stage_duration_seconds"]
    assert [its for its, _ in stages] == [{**labels, "stage": "queue"}]
    assert found["fusetools_request_errors"] == [({**labels, "error": "ENOENT"}, 6)]
    assert found["fusetools_transferred_bytes"] == [(labels, 8192)]
    of_mount = {"mount": "/mnt/a"}
    assert found["fusetools_requests_in_flight"] == [(of_mount, 3)]
    assert found["fusetools_requests_queued"] == [(of_mount, 2)]
    assert found["fusetools_oldest_request_age_seconds"] == [(of_mount, 1.5)]
    assert found["fusetools_lost_events"] == [({}, 5)]
    assert found["fusetools_cpu_seconds"] == [
        ({"process": "perf"}, 0.5),
        ({"process": "fusetools"}, 0.25),
    ]


def test_a_state_that_is_over_is_shown_no_longer() -> None:
    totals = Totals()
    totals.add(metrics([1000]), {45: "/mnt/a"})
    totals.add({"measured": (), "in_flight": (), "left_out": 7}, {46: "/mnt/b"})
    found = samples(totals.families())
    assert found["fusetools_requests_in_flight"] == [({"mount": "/mnt/b"}, 0)]
    assert found["fusetools_requests_queued"] == []
    assert found["fusetools_uncounted_requests"] == [({}, 7)]
    # Counts stay.
    assert len(found["fusetools_request_duration_seconds"]) == 1


def test_labels_are_bounded() -> None:
    """However often users mount something new, and whatever their daemons answer."""
    totals = Totals()
    mounts = MOST_MOUNTS + 10
    for number in range(mounts):
        totals.add(metrics([1000], connection=number), {number: f"/mnt/{number}"})
    for number in range(1, MOST_ERRORS + 10):
        totals.add(metrics([1000], connection=0, errors={number: 1}), {0: "/mnt/0"})
    found = samples(totals.families())
    counts = {its["mount"]: one.count for its, one in found["fusetools_request_duration_seconds"]}
    assert len(counts) == MOST_MOUNTS + 1
    assert counts["other"] == 10
    assert {its["mount"] for its, _ in found["fusetools_requests_in_flight"]} == {
        "/mnt/0",
        "other",  # of a connection that is not known
    }
    # The kernel's counts come before fusetools' own, and those of one label are added up.
    paths: dict[int | None, str] = {number: f"/mnt/{number}" for number in range(45, 80)}
    totals.add(metrics([1000]), paths, {45: 7, MOST_MOUNTS + 1: 1, MOST_MOUNTS + 2: 2, 79: 4})
    found = samples(totals.families())
    in_flight = {its["mount"]: count for its, count in found["fusetools_requests_in_flight"]}
    assert (in_flight["/mnt/45"], in_flight["/mnt/46"], in_flight["other"]) == (7, 0, 7)
    errors = {its["error"]: count for its, count in found["fusetools_request_errors"]}
    assert len(errors) == MOST_ERRORS + 1
    assert sum(errors.values()) == MOST_ERRORS + 9


def test_names_of_mounts_are_escaped() -> None:
    totals = Totals()
    totals.add(metrics([1000]), {45: 'a"\n\udcff\x1b[2J'})
    text = prometheus.render(totals.families()).decode()
    assert r'mount="a\"\\n\\udcff\\x1b[2J"' in text


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[list[int], str]]:
    """Provide durations, and the address at which their figures are served."""
    durations = some_durations()
    found = families(durations)
    app = prometheus.application(lambda: found)
    with web.serving("127.0.0.1:0", app, web.Config()) as url:
        yield durations, url.partition("://")[2]


def test_the_text_is_openmetrics(served: tuple[list[int], str]) -> None:
    """The client library's strict parser reads it."""
    registry = CollectorRegistry()
    found = families(served[0])
    registry.register(prometheus.Collector(lambda: found))
    text = generate_latest(registry).decode()
    read = {family.name: family for family in text_string_to_metric_families(text)}
    assert read.keys() == {family.name for family in found}
    counts = {
        sample.labels["le"]: sample.value
        for sample in read["fusetools_request_duration_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert len(counts) == 28
    assert counts["+Inf"] == len(served[0])
    assert counts["0.000128"] == sum(ns <= 128_000 for ns in served[0])


def dashboard() -> list[str]:
    """Return the expressions of the dashboard, as Grafana sends them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(found) >= len(panels) >= 10
    return [re.sub(r"\$__\w+", "5m", text).replace("$", "") for text in found]


def test_rules_and_dashboard_use_what_is_served() -> None:
    names = set()
    for family in families([1000]):
        kinds = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}
        names |= {family.name + end for end in kinds.get(family.kind, ("",))}
    text = "\n".join([*dashboard(), RULES.read_text()])
    used = set(re.findall(r"\bfusetools_\w+", text))
    assert len(used) >= 8
    assert used <= names


@pytest.mark.parametrize("kind", ["classic", "native"])
def test_prometheus_finds_the_percentiles(
    served: tuple[list[int], str], tmp_path: Path, kind: str
) -> None:
    durations, address = served
    name = "fusetools_request_duration_seconds"
    options = ["--enable-feature=native-histograms"] if kind == "native" else []
    series = name if kind == "native" else f"{name}_bucket"
    width = 2 ** (1 / 8) if kind == "native" else 2.0
    with scraping(address, tmp_path / kind, *options) as it:
        for share in (0.1, 0.5, 0.9, 0.99):
            found = it.query(f"histogram_quantile({share}, {series})")["read"]
            true = quantile(durations, share)
            assert true / width * 0.999 <= found <= true * width * 1.001
        count = f"histogram_count({name})" if kind == "native" else f"{name}_count"
        total = f"histogram_sum({name})" if kind == "native" else f"{name}_sum"
        assert it.query(count) == {"read": len(durations)}
        assert it.query(total)["read"] == pytest.approx(sum(durations) / 1e9)
        errors = it.query('fusetools_request_errors_total{error="ENOENT"}')
        assert errors == {"read": 6}
        assert it.query("fusetools_oldest_request_age_seconds") == {"": 1.5}
        for expression in dashboard():
            it.query(expression)  # Prometheus refuses what is wrong


def test_opentelemetry_gets_the_same() -> None:
    """A push to a server; the buckets are examined by the protocol's own definition: bucket n has
    what is above base^n, and at most base^(n + 1)."""
    got: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    durations = some_durations()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        exporter = otlp.Exporter(f"http://127.0.0.1:{server.server_port}/v1/metrics")
        assert exporter.push(families(durations)) == ""
        exporter.close()
        thread.join(30)
    (resource,) = got[0].resource_metrics
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert names["service.name"] == "fusetools"
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    metric = found["fusetools.request_duration"]
    assert metric.unit == "s"
    (point,) = metric.exponential_histogram.data_points
    assert {one.key: one.value.string_value for one in point.attributes} == {
        "operation": "read",
        "mount": "/mnt/a",
    }
    assert point.count == 2000
    assert point.sum == pytest.approx(sum(durations) / 1e9)
    assert not point.HasField("max")
    base = 2 ** (2**-point.scale)
    assert sum(point.positive.bucket_counts) == 2000
    for number, count in enumerate(point.positive.bucket_counts, point.positive.offset):
        low, high = base**number, base ** (number + 1)
        assert count == sum(low < ns / 1e9 <= high for ns in durations)
    lost = found["fusetools.lost_events"].sum
    assert (lost.is_monotonic, lost.data_points[0].as_int) == (True, 5)
    assert found["fusetools.cpu"].unit == "s"


def test_a_collector_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        exporter = otlp.Exporter(f"http://127.0.0.1:{port}/v1/metrics")
        assert exporter.push(families([1000]))
        exporter.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for 127.0.0.1 that vouches for itself."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2",
            "-subj", "/CN=fusetools", "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def written(folder: Path, name: str, content: object) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_password_is_needed(certificate: Path) -> None:
    """The files' paths are relative to the configuration's folder."""
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    content = {
        "tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem"},
        "basic_auth_users": {"prometheus": hashed},
    }
    config = web.read_config(written(certificate, "web.yml", content))
    trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))

    def status(credentials: bytes) -> int:
        request = urllib.request.Request(f"{url}/metrics")
        if credentials:
            encoded = base64.b64encode(credentials).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        try:
            with urllib.request.urlopen(request, context=trusted, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with contextlib.ExitStack() as stack:
        app = prometheus.application(lambda: ())
        url = stack.enter_context(web.serving("127.0.0.1:0", app, config))
        # A silent client holds up nobody.
        stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
        for wrong in (b"", b":", b"prometheus:wrong", b"other:secret", b"prometheus:se\0ret"):
            assert status(wrong) == 401
        # From memory the second time, which lets in nobody else.
        right = b"prometheus:secret"
        assert [status(right), status(right), status(right + b"s")] == [200, 200, 401]


def test_a_client_needs_its_certificate(certificate: Path) -> None:
    content = {
        "tls_server_config": {
            "cert_file": "cert.pem", "key_file": "key.pem", "client_ca_file": "cert.pem",
            "client_auth_type": "RequireAndVerifyClientCert", "min_version": "TLS13",
        }
    }  # fmt: skip
    config = web.read_config(written(certificate, "client.yml", content))
    trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with web.serving("127.0.0.1:0", prometheus.application(lambda: ()), config) as url:
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"{url}/metrics", context=trusted, timeout=60)
        trusted.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        with urllib.request.urlopen(f"{url}/metrics", context=trusted, timeout=60) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"tls_sever_config": {}}, "tls_sever_config"),
        ({"http_server_config": {"http2": False}}, "http_server_config"),
        ({"tls_server_config": {"cert_file": "cert.pem"}}, "key_file"),
        ({"tls_server_config": {"cert_file": "no", "key_file": "no"}}, "No such file"),
        ({"tls_server_config": {"cipher_suites": ["x"]}}, "cipher_suites"),
        (
            {"tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem",
             "client_auth_type": "RequireAndVerifyClientCert"}},
            "client_ca_file",
        ),
        ({"basic_auth_users": ["me"]}, "basic_auth_users"),
        (["x"], "no mapping"),
        ("\0", "no YAML"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_understood_is_an_error(
    certificate: Path, content: object, why: str
) -> None:
    path = written(certificate, "bad.yml", content)
    if isinstance(content, str):
        Path(path).write_text("a: [\n")
    with pytest.raises(Error) as refused:
        web.read_config(path)
    assert why in refused.value.why


def test_a_port_in_use_is_an_error(served: tuple[list[int], str]) -> None:
    app = prometheus.application(lambda: ())
    wrong = pytest.raises(Error, match="cannot listen")
    with wrong, web.serving("127.0.0.1:99999999", app, web.Config()):
        pass
    with pytest.raises(Error, match="cannot listen"), web.serving(served[1], app, web.Config()):
        pass


def test_other_paths_are_not_found(served: tuple[list[int], str]) -> None:
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"http://{served[1]}/etc/passwd", timeout=60)
    assert missing.value.code == 404


def test_alerts_fire_when_they_should() -> None:
    done = subprocess.run(
        [program("promtool"), "test", "rules", RULES.with_name("alerts_test.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
