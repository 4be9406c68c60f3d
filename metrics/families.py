"""Builds prometheus-client's families from a metric of the table and its samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)

from metrics.histogram import Histogram
from metrics.names import Metric

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Each sample: the values of the labels, in the order of `Metric.labels`, and the value."""


def gauge(metric: Metric, samples: Samples) -> Family:
    assert metric.kind == "gauge"
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def counter(metric: Metric, samples: Samples) -> Family:
    assert metric.kind == "counter"
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def histogram(metric: Metric, samples: Iterable[tuple[tuple[str, ...], Histogram]]) -> Family:
    assert metric.kind == "histogram"
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, observed in samples:
        family.add_metric(labels, observed.cumulative(), observed.total)
    return family
