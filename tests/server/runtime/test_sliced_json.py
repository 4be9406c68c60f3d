"""JSON that is built and encoded in slices of the loop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.runtime.sliced_json import Rows, encode
from server.runtime.turns import SLICE_SECONDS, Pace, Turns

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.lists(each).map(tuple),
)


class Time:
    """A clock of which each row takes a part of a slice."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rows_in_turn, self.most_rows = 0, 0

    def row(self, number: int) -> dict[str, Any]:
        self.now_s += SLICE_SECONDS / 4
        self.rows_in_turn += 1
        self.most_rows = max(self.most_rows, self.rows_in_turn)
        return {"partition": number}


class CountedTurns(Turns):
    """Notes the beginning of each slice."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time

    async def next(self, *, is_new: bool) -> None:
        await super().next(is_new=is_new)
        self._time.rows_in_turn = 0


@given(value=VALUES)
async def test_it_is_what_json_makes_of_the_value(value: object) -> None:
    assert await encode(value, Pace(Turns())) == json.dumps(value)


@pytest.mark.parametrize("count", [0, 1, 1000])
async def test_rows_are_an_array_and_no_turn_has_more_than_a_slice_of_them(count: int) -> None:
    time = Time()
    rows = Rows(time.row, range(count))
    pace = Pace(CountedTurns(time), clock=lambda: time.now_s)
    text = await encode({"links": [{"name": "dr", "partitions": rows}]}, pace)
    expected = [{"partition": number} for number in range(count)]
    assert json.loads(text) == {"links": [{"name": "dr", "partitions": expected}]}
    assert time.most_rows == min(count, 4)


def test_a_row_is_built_when_it_is_read() -> None:
    built = list[int]()

    def row(number: int) -> dict[str, Any]:
        built.append(number)
        return {"number": number}

    rows = Rows(row, range(5))
    assert len(rows) == 5
    assert built == []
    assert rows[3] == {"number": 3}
    assert list(rows[1:3]) == [{"number": 1}, {"number": 2}]
    assert built == [3, 1, 2]
