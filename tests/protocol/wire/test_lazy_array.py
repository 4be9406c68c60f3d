"""Arrays whose elements are made while they are encoded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from protocol.wire.dismantle import dismantle
from protocol.wire.encode import encode, encode_in_steps
from protocol.wire.lazy_array import EAGER_ELEMENTS_MAX, lazy_array
from protocol.wire.schema import Part


def joined(parts: list[Part]) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def result(group_id: str) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=15)


@pytest.mark.parametrize("count", [0, 1, EAGER_ELEMENTS_MAX, EAGER_ELEMENTS_MAX + 1, 5_000])
@pytest.mark.parametrize("version", [0, 2])
def test_it_encodes_as_a_tuple_does(count: int, version: int) -> None:
    names = [f"group-{number}" for number in range(count)]
    eager = DeleteGroupsResponse(results=tuple(map(result, names)))
    lazy = replace(eager, results=lazy_array(result, names))

    expected = joined(encode(eager, version))
    assert joined(encode(lazy, version)) == expected

    steps, parts = encode_in_steps(lazy, version, bytearray()), None
    while parts is None:
        try:
            next(steps)
        except StopIteration as ended:
            parts = ended.value
    assert joined(parts) == expected


def test_elements_of_a_long_one_are_made_when_they_are_asked_for() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    array = lazy_array(make, range(1_000))
    assert len(array) == 1_000
    assert made == []
    elements = iter(array)
    next(elements)
    next(elements)
    assert made == [0, 1]


def test_freeing_one_makes_no_element() -> None:
    made: list[int] = []

    def make(number: int) -> DeletableGroupResult:
        made.append(number)
        return result("")

    for _ in dismantle(DeleteGroupsResponse(results=lazy_array(make, range(1_000)))):
        pass
    assert made == []
