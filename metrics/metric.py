"""One metric: its name, kind, help text and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: `name` is the name in a scrape, without the suffixes of histograms."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    @classmethod
    def counter(cls, name: str, text: str, *labels: str) -> Metric:
        """Declare a counter, whose name ends in `_total`."""
        assert name.endswith("_total")
        return cls(name=name, kind="counter", help=text, labels=labels)

    @classmethod
    def gauge(cls, name: str, text: str, *labels: str) -> Metric:
        """Declare a gauge."""
        return cls(name=name, kind="gauge", help=text, labels=labels)

    @classmethod
    def histogram(cls, name: str, text: str, *labels: str) -> Metric:
        """Declare a histogram."""
        return cls(name=name, kind="histogram", help=text, labels=labels)
