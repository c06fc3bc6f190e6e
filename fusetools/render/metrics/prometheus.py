"""Figures for Prometheus: as text and OpenMetrics by its client library; and as its protobuf, which
alone carries native histograms to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fusetools.results.metrics import SCHEMA, Family, Histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

PROTOBUF = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{PROTOBUF}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
TYPES = {"counter": 0, "gauge": 1, "histogram": 4}
# Messages of io/prometheus/client/metrics.proto, as far as they are used: fields by number; "*" is
# a repeated one.
MESSAGES = {
    "LabelPair": {1: "name string", 2: "value string"},
    "Number": {1: "value double"},
    "BucketSpan": {1: "offset sint32", 2: "length uint32"},
    "Bucket": {1: "cumulative_count uint64", 2: "upper_bound double"},
    "Histogram": {
        1: "sample_count uint64",
        2: "sample_sum double",
        3: "bucket *Bucket",
        5: "schema sint32",
        6: "zero_threshold double",
        7: "zero_count uint64",
        12: "positive_span *BucketSpan",
        13: "positive_delta *sint64",
    },
    "Metric": {
        1: "label *LabelPair",
        2: "gauge Number",
        3: "counter Number",
        7: "histogram Histogram",
    },
    "MetricFamily": {1: "name string", 2: "help string", 3: "type int32", 4: "metric *Metric"},
}


def application(source: Callable[[], Sequence[Family]]) -> App:
    """Return a WSGI application that serves at /metrics what ``source`` returns."""
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(Collector(source))
    text = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        accepted = environ.get("HTTP_ACCEPT", "").replace(" ", "")
        if environ["PATH_INFO"] == "/":
            start("200 OK", [("Content-Type", "text/html")])
            return [b'<a href="/metrics">Metrics of FUSE mounts</a>\n']
        if environ["PATH_INFO"] != "/metrics":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"404 Not Found\n"]
        # Prometheus asks for what it likes most first.
        if environ["REQUEST_METHOD"] == "GET" and accepted.startswith(f"{PROTOBUF};"):
            start("200 OK", [("Content-Type", CONTENT_TYPE)])
            return [protobuf(source())]
        answer: Iterable[bytes] = text(environ, start)
        return answer

    return app


def render(families: Sequence[Family]) -> bytes:
    """Return them as text, which node_exporter reads."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Collector(lambda: families))
    return generate_latest(registry)


class Collector:
    """Yields what ``source`` returns, whenever it is asked."""

    def __init__(self, source: Callable[[], Sequence[Family]]) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        yield from map(_metric, self._source())


def _metric(family: Family) -> Metric:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.utils import floatToGoString

    metric = Metric(family.name, family.help, family.kind)
    for labels, value in family.samples:
        if not isinstance(value, Histogram):
            name = family.name + ("_total" if family.kind == "counter" else "")
            metric.add_sample(name, labels, value)
            continue
        for bound, below in value.below():
            le = {"le": floatToGoString(bound)}
            metric.add_sample(f"{family.name}_bucket", {**labels, **le}, below)
        metric.add_sample(f"{family.name}_count", labels, value.count)
        metric.add_sample(f"{family.name}_sum", labels, value.seconds)
    return metric


def protobuf(families: Sequence[Family]) -> bytes:
    """Return them with native and classic histograms, each message after its length."""
    family_class = _messages()["MetricFamily"]
    parts = []
    for family in families:
        name = family.name + ("_total" if family.kind == "counter" else "")
        message = family_class(name=name, help=family.help, type=TYPES[family.kind])
        for labels, value in family.samples:
            metric = message.metric.add()
            for key, text in labels.items():
                metric.label.add(name=key, value=text)
            if isinstance(value, Histogram):
                _native(metric.histogram, value)
            else:
                getattr(metric, family.kind).value = value
        data = message.SerializeToString()
        parts += [_varint(len(data)), data]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _native(to: Any, value: Histogram) -> None:
    to.sample_count, to.sample_sum, to.schema = value.count, value.seconds, SCHEMA
    to.zero_threshold, to.zero_count = 0.0, value.zeros
    for bound, below in value.below():
        to.bucket.add(cumulative_count=below, upper_bound=bound)
    end, before = 0, 0
    for first, counts in value.spans():
        to.positive_span.add(offset=first - end, length=len(counts))
        end = first + len(counts)
        for count in counts:
            to.positive_delta.append(count - before)
            before = count
    if not value.native:  # otherwise it would count as a classic one alone
        to.positive_span.add(offset=0, length=0)


@cache
def _messages() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    package = "fusetools.prometheus"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in fields.items():
            field_name, _, kind = text.partition(" ")
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindFileByName(file.name)
    types = descriptor.message_types_by_name
    return {name: message_factory.GetMessageClass(types[name]) for name in MESSAGES}
