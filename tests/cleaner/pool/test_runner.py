"""Searches run beside passes: they claim no log, and end with the pool."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

import cleaner.pool.runner
from cleaner.inspect.key_search import KeyHistory, find_key
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import IoRates
from cleaner.pool.pool import CleanerPool
from cleaner.pool.runner import RunningPass
from storage.files.errors import SegmentRemoved
from tests.harness.compacted_log import SETTINGS, CompactedLog


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def pool_over(log: CompactedLog, rates: IoRates | None = None) -> CleanerPool:
    settings = replace(SETTINGS, io_rates=rates or IoRates())
    return CleanerPool(lambda: [log.log], settings, clock=Clock(), probe=SilentProbe())


def two_records() -> CompactedLog:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    return log


async def test_a_search_runs_beside_a_pass_over_the_same_log() -> None:
    log = two_records()
    pool = pool_over(log, IoRates(write=1.0))
    started: list[RunningPass] = []
    cleaning = asyncio.create_task(pool.clean_now(log.log, on_start=started.append))
    while not started:  # noqa: ASYNC110 - it has to get its slot
        await asyncio.sleep(0.005)

    found = await pool.find_key(log.log, b"a")

    assert found.count == 2
    await pool.stop()
    with pytest.raises(CleaningAborted):
        await cleaning


async def test_a_search_begins_anew_when_a_pass_has_swapped_a_segment_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = two_records()
    pool = pool_over(log)
    tries: list[bool] = []

    def swapped_at_first(*given: object, **named: object) -> KeyHistory:
        tries.append(True)
        if len(tries) < 3:
            raise SegmentRemoved("0.log")
        return find_key(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner.pool.runner, "find_key", swapped_at_first)

    assert (await pool.find_key(log.log, b"a")).count == 2
    assert len(tries) == 3
    await pool.stop()


async def test_a_stop_ends_a_search() -> None:
    log = two_records()
    pool = pool_over(log, IoRates(read=1.0))
    started: list[RunningPass] = []
    search = asyncio.create_task(pool.find_key(log.log, b"a", on_start=started.append))
    while not started:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.005)

    await pool.stop()

    with pytest.raises(CleaningAborted):
        await search
    with pytest.raises(CleaningAborted):
        await pool.find_key(log.log, b"a")
