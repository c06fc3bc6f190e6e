"""Figures for OpenTelemetry; histograms are exponential ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusetools import __version__
from fusetools.results.metrics import SCHEMA, Family, Histogram, Labels

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        ExponentialHistogramDataPoint,
        Metric,
        MetricsData,
    )

UNITS = {"seconds": "s", "bytes": "By", "": ""}


class Exporter:
    """Pushes figures to a collector: headers, certificates and the timeout are those of the SDK's
    environment variables (OTEL_EXPORTER_OTLP_HEADERS …)."""

    def __init__(self, url: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self.url = url
        self._begin = time.time_ns()
        self._said = ""
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        handler = logging.Handler()
        handler.emit = self._hear  # type: ignore[method-assign]
        logger.addHandler(handler)
        self._exporter = OTLPMetricExporter(url)

    def _hear(self, record: logging.LogRecord) -> None:
        self._said = " ".join(record.getMessage().split())[:300]

    def push(self, families: Sequence[Family]) -> str:
        """Push them. Return why that failed, "" if it did not."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._said = ""
        result = self._exporter.export(render(families, self._begin, time.time_ns()))
        return "" if result is MetricExportResult.SUCCESS else self._said or "it was refused"

    def close(self) -> None:
        """End a push that another thread has begun."""
        self._exporter.shutdown()


def render(families: Sequence[Family], begin: int, now: int) -> MetricsData:
    """Return them as the SDK exports them. ``begin``: ns since 1970 when counting began."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [_metric(family, begin, now) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope("fusetools", __version__), metrics, "")
    service = {"service.name": "fusetools", "service.version": __version__}
    return MetricsData([ResourceMetrics(Resource.create(service), [scope], "")])


def _metric(family: Family, begin: int, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        ExponentialHistogram,
        Gauge,
        Metric,
        NumberDataPoint,
        Sum,
    )

    cumulative = AggregationTemporality.CUMULATIVE
    histograms = [
        _histogram(labels, value, begin, now)
        for labels, value in family.samples
        if isinstance(value, Histogram)
    ]
    numbers = [
        NumberDataPoint(labels, begin, now, value)
        for labels, value in family.samples
        if not isinstance(value, Histogram)
    ]
    data: ExponentialHistogram | Gauge | Sum
    if histograms:
        data = ExponentialHistogram(histograms, cumulative)
    elif family.kind == "counter":
        data = Sum(numbers, cumulative, is_monotonic=True)
    else:
        data = Gauge(numbers)
    # The unit is a field of its own there.
    name = family.name.removesuffix(f"_{family.unit}").replace("_", ".", 1)
    return Metric(name, family.help, UNITS[family.unit], data)


def _histogram(
    labels: Labels, value: Histogram, begin: int, now: int
) -> ExponentialHistogramDataPoint:
    from opentelemetry.sdk.metrics.export import Buckets, ExponentialHistogramDataPoint

    first, last = min(value.native, default=1), max(value.native, default=0)
    counts = [value.native.get(number, 0) for number in range(first, last + 1)]
    # Bucket n of OpenTelemetry begins where Prometheus's ends. The least and the greatest are
    # unknown.
    return ExponentialHistogramDataPoint(
        labels, begin, now, value.count, value.seconds, SCHEMA, value.zeros,
        Buckets(first - 1, counts), Buckets(0, []), 0,
        None, None,  # type: ignore[arg-type]
    )  # fmt: skip
