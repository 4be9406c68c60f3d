"""Builds prometheus-client's families from a metric of the table and its samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)

from metrics.histogram import Histogram
from metrics.metric import Metric

T = TypeVar("T")
K = TypeVar("K", str, tuple[str, str])

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


def in_order(counts: Mapping[K, T]) -> list[tuple[K, T]]:
    """Returns the items of a dictionary that another thread may change meanwhile, by key.

    `dict(counts)` copies in one step of the interpreter. Iterating over `items` does not: it makes a
    tuple for each item, which may run the garbage collector, and then the other thread.
    """
    return sorted(dict(counts).items(), key=lambda item: item[0])
