"""Builds and encodes large JSON values in slices of the loop.

    {"name": "dr", ..., "partitions": Rows(...)}    -> each row is built, encoded and dropped

A thousand partitions take 20 ms: too long for one turn of the loop. In a thread they would take as long
from the loop, because `json` encodes without giving up the interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from server.runtime.turns import Pace

E = TypeVar("E")
Json = dict[str, Any]


class Rows(Sequence[Json]):
    """The objects of a JSON array, each built when it is read."""

    __slots__ = ("_elements", "_row")

    def __init__(self, row: Callable[[E], Json], elements: Sequence[E]) -> None:
        """
        Args:
            row: returns the object of an element, which is small.
        """
        self._row: Callable[[Any], Json] = row
        self._elements: Sequence[Any] = elements

    def __len__(self) -> int:
        return len(self._elements)

    @overload
    def __getitem__(self, index: int) -> Json: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: int | slice) -> Json | Rows:
        if isinstance(index, slice):
            return Rows(self._row, self._elements[index])
        return self._row(self._elements[index])


async def encode(value: object, pace: Pace) -> str:
    """Returns a value as JSON. Other work runs in between, so nothing in it may change meanwhile."""
    pieces: list[str] = []
    await _add(value, pieces, pace)
    return "".join(pieces)


async def _add(value: object, pieces: list[str], pace: Pace) -> None:
    if pace.is_over:
        await pace.rest()
    if isinstance(value, Mapping):
        pieces.append("{")
        for number, (key, each) in enumerate(value.items()):
            pieces.append(f"{_comma(number)}{json.dumps(key)}: ")
            await _add(each, pieces, pace)
        pieces.append("}")
    elif isinstance(value, Rows):
        pieces.append("[")
        async for number, row in pace.paced(enumerate(value)):
            pieces.append(_comma(number) + json.dumps(row))
        pieces.append("]")
    elif isinstance(value, list | tuple):
        pieces.append("[")
        for number, each in enumerate(value):
            pieces.append(_comma(number))
            await _add(each, pieces, pace)
        pieces.append("]")
    else:
        pieces.append(json.dumps(value))


def _comma(number: int) -> str:
    return ", " if number else ""
