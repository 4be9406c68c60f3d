"""Garbage collections stay short, and memory freed after a peak returns to the system."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from server.runtime import memory_upkeep
from server.runtime.executors import Executor
from server.runtime.memory_upkeep import MemoryUpkeep, collect, is_trim_due, resident_bytes
from tests.harness.connection_server import until

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_nobody_holds_is_worth_a_trim() -> None:
    assert is_trim_due(1000 * MIB, 100 * MIB, 0)
    assert not is_trim_due(1000 * MIB, 100 * MIB, 899 * MIB)
    assert not is_trim_due(110 * MIB, 100 * MIB, 0)


def test_what_survives_a_long_collection_is_not_looked_at_again() -> None:
    times = iter([0.0, 1.0])
    before = gc.get_freeze_count()

    collect(lambda: next(times))

    assert gc.get_freeze_count() > before


def test_a_short_collection_freezes_nothing_and_finds_cycles() -> None:
    class Node:
        """An object that refers to itself."""

        def __init__(self) -> None:
            self.itself = self

    gc.collect()
    Node()
    before = gc.get_freeze_count()

    collect(lambda: 0.0)

    assert gc.get_freeze_count() == before
    assert not [each for each in gc.get_objects() if isinstance(each, Node)]


async def test_memory_in_small_pieces_goes_back_to_the_system_after_a_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_upkeep, "TICK_SECONDS", 0.05)
    executor = Executor("upkeep", threads=1)
    upkeep = MemoryUpkeep(lambda: 0, executor)
    # The allocator reuses memory that other tests have freed, which would not show as growth.
    upkeep._resident_bytes = 0
    pieces = [bytes(60_000) for _ in range(8_000)]
    kept = pieces[:: len(pieces) // 10]
    peak = resident_bytes()
    del pieces

    await until(lambda: resident_bytes() < peak - 300 * MIB)

    assert len(kept) == 10
    await upkeep.stop()
    executor.close()


async def test_stopping_gives_the_collector_its_thresholds_back() -> None:
    before = gc.get_threshold()
    executor = Executor("upkeep", threads=1)
    upkeep = MemoryUpkeep(lambda: 0, executor)
    assert gc.get_threshold() != before

    await upkeep.stop()
    executor.close()

    assert gc.get_threshold() == before
