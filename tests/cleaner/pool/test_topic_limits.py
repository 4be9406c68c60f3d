"""Limits that a topic sets for its own passes: how much I/O, and when they run by themselves."""

from __future__ import annotations

import math
from dataclasses import replace

from cleaner.pacing.throttle import IoRates
from cleaner.pool.topic_limits import TopicBudgets, is_out_of_window
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import SETTINGS, SLOW, House, keys_of, running, until
from tests.harness.compacted_log import CONFIG

HOUR_MS = 3_600_000
SLOWED = replace(CONFIG, compaction_io_max_bytes_per_second=1.0)
NIGHTS = replace(CONFIG, compaction_window="22:00-06:00")


def large(house: House, topic: str, config: LogConfig) -> PartitionLog:
    log = house.log(topic, config)
    for number in range(20):
        house.append(log, (b"%d" % (number % 5), b"v" * 100_000))
    log.roll(house.clock.wall_ms)
    return log


async def test_a_topic_with_a_budget_of_its_own_is_slow_and_the_others_are_not(
    house: House,
) -> None:
    slow, fast = large(house, "slow", SLOWED), large(house, "fast", CONFIG)
    async with running(house.pool(replace(SETTINGS, threads=2))) as pool:
        await until(lambda: fast.clean_offset == 20 and len(pool.status().running) == 1)
        (still,) = pool.status().running
        assert still.topic_partition.topic == "slow"
        assert slow.clean_offset == 0

        slow.update_config(CONFIG)
        await until(lambda: slow.clean_offset == 20)


async def test_passes_over_one_topic_share_its_budget_and_it_is_forgotten_after_them(
    house: House,
) -> None:
    log, other = large(house, "slow", SLOWED), large(house, "others", CONFIG)
    budgets = TopicBudgets(house.clock.monotonic)

    budget = budgets.of(log)
    assert budget is not None
    assert budgets.of(log) is budget
    assert budgets.of(other) is None
    log.update_config(replace(SLOWED, compaction_io_max_bytes_per_second=7.0))
    assert budgets.of(log) is budget
    assert budget.bytes_per_second == 7.0
    budgets.keep([log, other])
    assert budgets.of(log) is budget
    budgets.keep([other])
    assert budgets.of(log) is not budget


async def test_a_pass_stops_at_the_end_of_its_window_and_goes_on_in_the_next_one(
    house: House,
) -> None:
    house.clock.wall_ms = 20_000 * 24 * HOUR_MS + 5 * HOUR_MS
    log = large(house, "orders", NIGHTS)
    pool = house.pool(SLOW)
    async with running(pool):
        await until(lambda: bool(pool.status().running))
        pool._runner.follow_topics()
        assert pool.status().running

        house.clock.wall_ms += HOUR_MS
        pool._runner.follow_topics()
        await until(lambda: not pool.status().running)
        assert "aborted orders" in house.probe.events
        assert await pool.queue() == []

        pool.configure(replace(SETTINGS, io_rates=IoRates(total=math.inf)))
        house.clock.wall_ms += 16 * HOUR_MS
        await until(lambda: log.clean_offset == 20)
    assert len(keys_of(log)) == 5


def test_passes_on_request_and_for_a_deadline_ignore_windows() -> None:
    noon = 20_000 * 24 * HOUR_MS + 12 * HOUR_MS

    assert is_out_of_window("DIRTY", NIGHTS, noon)
    assert not is_out_of_window("DIRTY", NIGHTS, noon + 10 * HOUR_MS)
    for reason in ("REQUESTED", "DEADLINE"):
        assert not is_out_of_window(reason, NIGHTS, noon)
    assert not is_out_of_window("DIRTY", CONFIG, noon)


async def test_the_pool_knows_how_late_its_backlog_is(house: House) -> None:
    first, second = large(house, "first", SLOWED), large(house, "second", SLOWED)
    pool = house.pool(replace(SLOW, backoff_ms=1))
    assert pool.late_ms == 0
    async with running(pool):
        # One pass runs for ever, and the other log waits for it.
        await until(lambda: pool.late_ms >= 300)
        (task,) = pool._runner.tasks
        assert pool.late_ms >= int(task.progress.snapshot().seconds * 1000) - 100
    assert {first.clean_offset, second.clean_offset} == {0}


async def test_a_topic_of_high_priority_is_cleaned_first_and_one_of_low_priority_last(
    house: House,
) -> None:
    for priority in ("low", "normal", "high"):
        house.dirty_log(priority, replace(CONFIG, compaction_priority=priority))
    pool = house.pool()

    async with running(pool):
        await until(lambda: len(house.probe.events) == 3)

    assert house.probe.events == ["completed high", "completed normal", "completed low"]


async def test_the_order_by_benefit_follows_what_the_last_passes_have_freed(house: House) -> None:
    """Of two logs of the same shape the one goes first in which the last pass has found more."""
    pool = house.pool(replace(SETTINGS, is_by_benefit=True))
    for topic, keys in (("gainless", 40), ("gainful", 1)):
        log = house.log(topic)
        for _ in range(2):
            for number in range(40):
                house.append(log, (b"%d" % (number % keys), b"v" * 1000))
            log.roll(house.clock.wall_ms)
            if not log.clean_offset:
                await pool.clean_now(log)

    queue = await pool.queue()

    assert [each.topic_partition.topic for each in queue] == ["gainful", "gainless"]
    await pool.stop()
