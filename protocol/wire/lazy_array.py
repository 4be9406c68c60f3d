"""An array of a message whose elements are made while it is encoded, and dropped at once.

An answer that refuses a request has one element for each requested one. Making a hundred thousand of
them before the first is encoded would hold the loop, and take the memory for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

E = TypeVar("E")
A = TypeVar("A")

EAGER_ELEMENTS_MAX = 256
"""Up to this number, the elements are made at once as a plain tuple."""


def lazy_array(make: Callable[[E], A], elements: Sequence[E]) -> tuple[A, ...]:
    """Returns an array of `make(element)` for each element, for a field of a message.

    Use the message only for encoding: a long array is not a tuple, although the field's type says so.
    It has a length and can be iterated over, and calls `make` for each element each time.
    """
    if len(elements) <= EAGER_ELEMENTS_MAX:
        return tuple(map(make, elements))
    return cast("tuple[A, ...]", _LazyArray(make, elements))


class _LazyArray(Generic[E, A]):
    __slots__ = ("_elements", "_make")

    def __init__(self, make: Callable[[E], A], elements: Sequence[E]) -> None:
        self._make = make
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[A]:
        return map(self._make, self._elements)
