"""Sorts any number of elements without holding the loop.

Short runs are sorted, each well within a slice, and then merged element by element.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

from server.runtime.turns import Pace

T = TypeVar("T", bound=str | int)

RUN_LENGTH = 2_000
"""Sorting this many names takes about half a millisecond."""


async def paced_sort(elements: Iterable[T], pace: Pace) -> AsyncIterator[T]:
    """Yields the distinct elements in ascending order, and rests whenever a slice is over."""
    remaining = iter(elements)
    runs = []
    while run := sorted(islice(remaining, RUN_LENGTH)):
        runs.append(run)
        if pace.is_over:
            await pace.rest()
    before: T | None = None
    async for element in pace.paced(heapq.merge(*runs)):
        if element != before:
            yield element
        before = element
