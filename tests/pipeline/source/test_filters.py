"""Predicates as ranges, against the rows that they choose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from pipeline.source.filters import RowFilter

COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    spark.EqualTo: lambda a, b: a == b,
    spark.EqualNullSafe: lambda a, b: a == b,
    spark.GreaterThan: lambda a, b: a > b,
    spark.GreaterThanOrEqual: lambda a, b: a >= b,
    spark.LessThan: lambda a, b: a < b,
    spark.LessThanOrEqual: lambda a, b: a <= b,
    spark.In: lambda a, b: a in b,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)


def as_given(kind: Any, column: str, numbers: list[int]) -> Any:
    """A filter as Spark would give it; times count microseconds."""
    make = microseconds if column == "timestamp" else int
    values = [make(number) for number in numbers]
    return kind((column,), tuple(values) if kind is spark.In else values[0])


FILTERS = st.lists(
    st.tuples(
        st.sampled_from(list(COMPARISONS)),
        st.sampled_from(("partition", "offset", "timestamp")),
        st.lists(st.integers(-3000, 9000), min_size=1, max_size=3),
    ),
    max_size=3,
)


@given(FILTERS, st.integers(-4, 10))
def test_a_row_that_spark_wants_is_read_and_what_is_taken_over_is_exact(
    filters: list[tuple[Any, str, list[int]]], number: int
) -> None:
    """A row whose offset, partition and milliseconds are all the same number."""
    given_filters = [as_given(*each) for each in filters]
    row_filter = RowFilter()

    left = row_filter.take(given_filters)

    row = {"partition": number, "offset": number, "timestamp": microseconds(1000 * number)}
    holds = {
        id(each): COMPARISONS[type(each)](row[each.attribute[0]], each.value)
        for each in given_filters
    }
    is_read = (
        row_filter.wants("t", number)
        and row_filter.offset.has(number)
        and row_filter.milliseconds.has(number)
    )
    assert is_read >= all(holds.values())
    assert not is_read or all(holds[id(each)] for each in given_filters if each not in left)


@pytest.mark.parametrize(
    "unknown",
    [
        spark.EqualTo(("key",), b"x"),
        spark.IsNull(("offset",)),
        spark.Not(spark.EqualTo(("partition",), 1)),
        spark.StringStartsWith(("topic",), "o"),
        spark.EqualTo(("headers", "key"), "x"),
    ],
)
def test_what_is_not_a_range_is_left_to_spark(unknown: Any) -> None:
    row_filter = RowFilter()

    assert row_filter.take([unknown]) == [unknown]
    assert row_filter == RowFilter()


def test_topics_are_those_of_all_predicates() -> None:
    row_filter = RowFilter()

    assert not row_filter.take(
        [
            spark.In(("topic",), ("a", "b")),
            spark.EqualTo(("topic",), "b"),
            spark.IsNotNull(("topic",)),
        ]
    )
    assert [row_filter.wants(topic, 0) for topic in "abc"] == [False, True, False]
