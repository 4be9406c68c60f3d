"""One answer for each thing that a request names: computed once, given as often as it is named."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from server.turns import Pace

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def answers(pace: Pace, named: Iterable[K], answer: Callable[[K], V]) -> tuple[V, ...]:
    """The answers to everything named, in that order; the loop is given up between slices."""
    known: dict[K, V] = {}
    given: list[V] = []
    async for each in pace.paced(named):
        if each not in known:
            known[each] = answer(each)
        given.append(known[each])
    return tuple(given)
