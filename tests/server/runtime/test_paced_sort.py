"""Sorting in slices gives the result of `sorted`, each element once."""

from __future__ import annotations

import random

from server.runtime.paced_sort import RUN_LENGTH, paced_sort
from server.runtime.turns import Pace, Turns


async def test_elements_come_in_order_and_each_once_over_many_runs() -> None:
    rng = random.Random(1)
    names = [f"t{rng.randrange(5 * RUN_LENGTH)}" for _ in range(5 * RUN_LENGTH)]
    found = [name async for name in paced_sort(iter(names), Pace(Turns()))]
    assert found == sorted(set(names))


async def test_nothing_is_in_order() -> None:
    nothing: list[int] = []
    assert [each async for each in paced_sort(nothing, Pace(Turns()))] == []
