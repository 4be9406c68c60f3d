"""Computes the answers to a request that may name the same thing many times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from server.runtime.turns import Pace

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def answers(pace: Pace, named: Iterable[K], answer: Callable[[K], V]) -> tuple[V, ...]:
    """Returns the answer for each element of `named`, in order, in slices.

    `answer` is called once for each distinct element.
    """
    known: dict[K, V] = {}
    in_order: list[V] = []
    async for each in pace.paced(named):
        if each not in known:
            known[each] = answer(each)
        in_order.append(known[each])
    return tuple(in_order)
