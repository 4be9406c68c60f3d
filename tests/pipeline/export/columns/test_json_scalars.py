"""A column of usual values has what its values have one by one; and text is as Java writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.export.columns import json_scalars
from pipeline.export.columns.json_text import java_double, text
from pipeline.export.columns.shapes import MISFITS
from pipeline.export.columns.spark_types import TIMESTAMP

DAYS = st.from_regex(r"[0-2]?\d{1,3}-[01]?\d-[0-3]?\d", fullmatch=True)
TIMES = st.from_regex(
    r"[0-2]\d{3}-[01]\d-[0-3]\d[T ][0-2]\d:[0-6]\d:[0-6]\d(\.\d{0,9})?(Z|[+-]\d\d:?\d\d)?",
    fullmatch=True,
)
NUMBERS = st.from_regex(r'"?-?\d{1,12}(\.\d{1,5})?(e-?\d)?"?', fullmatch=True) | st.just("null")


def one_by_one(values: Sequence[Any], convert: Callable[[Any], Any], kind: pa.DataType) -> Any:
    """Returns the column, or None if one value does not fit."""
    try:
        return pa.array([convert(value) for value in values], kind)
    except MISFITS:
        return None


def at_once(values: Sequence[Any], usual: Callable[[Any], pa.Array]) -> Any:
    """Returns the column, or None if one value has no usual form."""
    try:
        return usual(values)
    except MISFITS:
        return None


@given(st.lists(TIMES, min_size=1, max_size=2))
def test_usual_timestamps_are_what_they_are_one_by_one(values: list[str]) -> None:
    found = at_once(values, json_scalars.usual_timestamps)
    assert found is None or found == one_by_one(values, json_scalars.timestamp, TIMESTAMP)


@given(st.lists(DAYS, min_size=1, max_size=2))
def test_usual_days_are_what_they_are_one_by_one(values: list[str]) -> None:
    found = at_once(values, json_scalars.usual_days)
    assert found is None or found == one_by_one(values, json_scalars.day, pa.date32())


@given(
    st.lists(NUMBERS, min_size=1, max_size=2),
    st.sampled_from([(10, 2), (12, 0), (3, 3), (38, 0), (38, 5)]),
)
def test_usual_decimals_are_what_they_are_one_by_one(
    values: list[str], digits: tuple[int, int]
) -> None:
    raws = [msgspec.Raw(value.encode()) for value in values if value.count('"') != 1]
    found = at_once(raws, json_scalars.usual_decimals_of(*digits))
    convert = json_scalars.decimal_of(*digits)
    assert found is None or found == one_by_one(raws, convert, pa.decimal128(*digits))


def test_usual_forms_are_taken_at_once() -> None:
    raws = [msgspec.Raw(each) for each in (b"1.5", b'"-2.25"', b"null")]
    assert json_scalars.usual_decimals_of(10, 2)(raws)[1].as_py().as_tuple().digits == (2, 2, 5)
    assert len(json_scalars.usual_timestamps(["2024-01-02T03:04:05.1Z", None])) == 2
    assert len(json_scalars.usual_days(["2024-01-02", None])) == 2


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-123456789012345.0, "-1.23456789012345E14"),
    ],
)
def test_numbers_are_written_as_java_writes_them(number: float, written: str) -> None:
    assert java_double(number) == written


def test_a_number_that_versions_of_java_write_differently_is_refused() -> None:
    # Java 17 writes 5.93E21 as 5.929999999999999E21, and later versions do not.
    for each in (b"2.0123456789012345", b"1e23", b"[1e-300]"):
        with pytest.raises(ValueError, match=r"digits|far from 1"):
            text(msgspec.Raw(each))
