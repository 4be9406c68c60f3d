"""Spark's predicates as ranges of partitions, offsets and times (pure).

A plain comparison of one of these columns is applied exactly, and Spark does not evaluate it again; of
`offset IN (...)` only the range is used, and Spark selects the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

LEAST, BEYOND = -(1 << 63), (1 << 63) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Range:
    """The whole numbers in [first, end)."""

    first: int = LEAST
    end: int = BEYOND

    def narrow(self, first: int, end: int) -> None:
        self.first, self.end = max(self.first, first), min(self.end, end)

    def has(self, number: int) -> bool:
        return self.first <= number < self.end


@dataclass(slots=True)
class RowFilter:
    """A condition on rows to read. It never leaves out a row that Spark wants."""

    partition: Range = field(default_factory=Range)
    offset: Range = field(default_factory=Range)
    milliseconds: Range = field(default_factory=Range)
    topics: frozenset[str] | None = None

    def take(self, filters: Iterable[Any]) -> list[Any]:
        """Apply the filters that it can. Returns those that Spark must still apply."""
        return [each for each in filters if not self._take_one(each)]

    def wants(self, topic: str, partition: int) -> bool:
        """Returns whether a partition may have rows."""
        return self.partition.has(partition) and (self.topics is None or topic in self.topics)

    def _take_one(self, given: Any) -> bool:
        """Apply one filter. Returns whether that is exact."""
        column = given.attribute[0] if len(getattr(given, "attribute", ())) == 1 else ""
        take = _TAKERS.get(column)
        return take is not None and take(self, given)

    def _take_topic(self, given: Any) -> bool:
        if isinstance(given, spark.EqualTo | spark.EqualNullSafe):
            names = frozenset({given.value})
        elif isinstance(given, spark.In):
            names = frozenset(given.value)
        else:
            return isinstance(given, spark.IsNotNull)
        self.topics = names if self.topics is None else self.topics & names
        return True


def _narrow(found: Range, given: Any, floor: Callable[[Any], int], step: int) -> bool:
    """Narrow a column's range by a comparison. Returns whether the range expresses it exactly.

    Args:
        floor: a value of the column as a whole number, rounded down.
        step: 0 if the value lies between two whole numbers.
    """
    match given:
        case spark.GreaterThan():
            found.narrow(floor(given.value) + 1, BEYOND)
        case spark.GreaterThanOrEqual():
            found.narrow(floor(given.value) + 1 - step, BEYOND)
        case spark.LessThan():
            found.narrow(LEAST, floor(given.value) + 1 - step)
        case spark.LessThanOrEqual():
            found.narrow(LEAST, floor(given.value) + 1)
        case spark.EqualTo() | spark.EqualNullSafe():
            found.narrow(floor(given.value) + 1 - step, floor(given.value) + 1)
        case _:
            return isinstance(given, spark.IsNotNull)
    return True


def _take_number(found: Range, given: Any) -> bool:
    if isinstance(given, spark.In):
        found.narrow(min(given.value), max(given.value) + 1)
        return False
    return _narrow(found, given, int, 1)


def _take_time(row_filter: RowFilter, given: Any) -> bool:
    """Apply a filter on time: filters have microseconds, records milliseconds."""
    if isinstance(given, spark.In):
        times = [_milliseconds(value) for value in given.value]
        row_filter.milliseconds.narrow(min(times), max(times) + 1)
        return False
    value = getattr(given, "value", EPOCH)
    is_whole = not (value - EPOCH) % timedelta(milliseconds=1)
    return _narrow(row_filter.milliseconds, given, _milliseconds, int(is_whole))


def _milliseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


_TAKERS: dict[str, Callable[[RowFilter, Any], bool]] = {
    "topic": RowFilter._take_topic,
    "partition": lambda found, given: _take_number(found.partition, given),
    "offset": lambda found, given: _take_number(found.offset, given),
    "timestamp": _take_time,
}
