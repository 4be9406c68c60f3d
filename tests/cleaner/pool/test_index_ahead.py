"""While nothing waits for a pass, the pool indexes sealed segments and counts their keys."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.explain.explain import explain
from cleaner.explain.situation import Obstacle, situation_of
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.index_ahead import AheadCounting
from cleaner.pool import key_estimates as counts_module
from cleaner.pool.status import Task
from protocol.wire.numbers import Offset
from storage.files.paths import KEYS
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    SETTINGS,
    House,
    flip_a_byte,
    paused_of,
    running,
    until,
)
from tests.harness.compacted_log import CONFIG

AHEAD = replace(SETTINGS, indexes_ahead=True)
NEVER_ELIGIBLE = replace(CONFIG, min_cleanable_dirty_ratio=1.0)


def sidecars(log: PartitionLog) -> int:
    return sum(Path(each.path(KEYS)).exists() for each in log.segments[:-1])


async def looks(house: House, count: int = 3) -> None:
    """Let the pool look so many times more."""
    before = house.probe.looks
    await until(lambda: house.probe.looks >= before + count)


def halves(house: House, topic: str = "orders", config: LogConfig = NEVER_ELIGIBLE) -> PartitionLog:
    """Returns a log with two sealed segments in which every second record is superseded."""
    log = house.log(topic, config)
    for _ in range(2):
        house.append(log, *((b"%d" % number, b"v" * 50) for number in range(40)))
        log.roll(house.clock.now_ms())
    return log


def hold_back(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let a count wait until it is halted. Returns the event that one has begun."""
    has_begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def waits(_self: AheadCounting, _settings: CleanerSettings, meter: PassMeter) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        while True:
            meter.check()

    monkeypatch.setattr(AheadCounting, "run", waits)
    return has_begun


async def test_a_log_that_waits_for_no_pass_is_indexed_and_its_keys_are_counted(
    house: House,
) -> None:
    log = halves(house)

    async with running(house.pool(AHEAD)) as pool:
        await until(lambda: pool.reclaimable_of(log) is not None)
        found = pool.reclaimable_of(log)
        assert pool.status().reclaimable == {log.topic_partition: found}

    assert found is not None
    assert (found.entries, sidecars(log)) == (80, 2)
    assert found.superseded == pytest.approx(40, abs=4 * found.superseded_error)
    assert house.probe.events == []


async def test_a_segment_that_is_sealed_later_is_counted_too(house: House) -> None:
    log = halves(house)
    async with running(house.pool(AHEAD)) as pool:
        await until(lambda: pool.reclaimable_of(log) is not None)
        house.append(log, (b"0", b"v"))
        log.roll(house.clock.now_ms())
        await until(lambda: (found := pool.reclaimable_of(log)) is not None and found.entries == 81)

    assert sidecars(log) == 3


async def test_the_clean_section_is_counted_after_a_pass(house: House) -> None:
    log = halves(house)
    async with running(house.pool(AHEAD)) as pool:
        await pool.clean_now(log)
        assert pool.reclaimable_of(log) is None
        house.append(log, *((b"%d" % number, b"v" * 50) for number in range(40)))
        log.roll(house.clock.now_ms())
        await until(lambda: pool.reclaimable_of(log) is not None)
        found = pool.reclaimable_of(log)

    assert found is not None
    assert (found.entries, round(found.superseded)) == (80, 40)
    assert found.superseded_error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [SETTINGS, replace(AHEAD, keeps_key_sidecars=False)],
    ids=["index.ahead is off", "key.sidecar is off"],
)
async def test_nothing_is_read_where_it_is_off(house: House, settings: CleanerSettings) -> None:
    log = halves(house)

    async with running(house.pool(settings)) as pool:
        await looks(house)
        assert pool.reclaimable_of(log) is None

    assert sidecars(log) == 0


async def test_it_begins_and_ends_with_its_setting(house: House) -> None:
    log = halves(house)
    async with running(house.pool()) as pool:
        await looks(house)
        pool.configure(AHEAD)
        await until(lambda: pool.reclaimable_of(log) is not None)
        pool.configure(SETTINGS)
        await until(lambda: pool.reclaimable_of(log) is None)


async def test_switching_it_off_ends_a_count(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        pool.configure(SETTINGS)
        await until(lambda: not pool.status().running)
        await looks(house)
        assert not pool.status().running


async def test_where_older_values_stay_or_cleaning_is_paused_nothing_is_indexed(
    house: House,
) -> None:
    several = halves(house, "several", replace(NEVER_ELIGIBLE, compaction_versions=2))
    paused = halves(house, "paused")
    closed = halves(house, "closed", replace(NEVER_ELIGIBLE, compaction_window="Mon 00:00-00:01"))
    pool = house.pool(AHEAD)
    pool.pause(paused_of(paused))

    async with running(pool):
        await looks(house)

    assert [sidecars(log) for log in (several, paused, closed)] == [0, 0, 0]


async def test_a_request_ends_a_count_at_once_also_one_of_the_same_log(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = halves(house), halves(house, "other")
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        (task,) = pool.status().running
        assert (task.task, task.reason) == (Task.INDEX, "INDEX_AHEAD")
        await pool.clean_now(log)
        await pool.dry_run(other)
        await pool.clean_now(other)

    assert house.probe.events == ["completed orders", "completed other"]


async def test_a_log_that_becomes_eligible_ends_the_count_of_any_log(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)):
        await has_begun.wait()
        house.dirty_log("dirty")
        await until(lambda: "completed dirty" in house.probe.events)


async def test_a_lease_waits_for_no_count_and_keeps_none_from_other_logs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        await pool.make_way()
        _, lease = pool.lease(log)
        has_begun.clear()
        other = halves(house, "other")
        await has_begun.wait()
        busy = {each.topic_partition.topic: each.task for each in pool.status().running}
        assert busy == {"orders": Task.LEASE, "other": Task.INDEX}
        pool.end_lease(lease)

    assert (sidecars(log), sidecars(other)) == (0, 0)


async def test_a_pause_ends_a_count(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    log = halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        pool.pause(paused_of(log))
        await until(lambda: not pool.status().running)
        await looks(house)
        assert not pool.status().running


async def test_a_change_of_its_log_ends_a_count_and_so_does_the_end_of_the_pool(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        has_begun.clear()
        log.truncate_to(Offset(60))
        log.roll(house.clock.now_ms())
        # The next look finds the log as it is now.
        await has_begun.wait()
        assert [each.task for each in pool.status().running] == [Task.INDEX]

    assert not pool.status().running
    assert sidecars(log) == 0


async def test_explain_says_nothing_of_a_task_that_gives_way(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = halves(house)
    has_begun = hold_back(monkeypatch)

    async with running(house.pool(AHEAD)) as pool:
        await has_begun.wait()
        status = pool.status()
        situation = situation_of(
            log,
            pool.assess(log),
            status,
            (),
            now_ms=house.clock.now_ms(),
            monotonic=house.clock.monotonic(),
        )
        explained = explain(situation)

    assert [each.task for each in status.running] == [Task.INDEX]
    assert (status.busy, status.running_over(log.topic_partition)) == ((), None)
    assert not explained.is_running
    assert [each.obstacle for each in explained.findings] == [Obstacle.RATIO]


async def test_damage_is_met_once_and_left_to_the_pass(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = halves(house)
    flip_a_byte(log)
    tries, run = 0, AheadCounting.run

    def counted(self: AheadCounting, settings: CleanerSettings, meter: PassMeter) -> None:
        nonlocal tries
        tries += 1
        run(self, settings, meter)

    monkeypatch.setattr(AheadCounting, "run", counted)
    async with running(house.pool(AHEAD)) as pool:
        await until(lambda: tries == 1)
        await looks(house)
        assert (tries, sidecars(log)) == (1, 0)
        report = await pool.clean_now(log)
        await looks(house)
        assert pool.reclaimable_of(log) is None

    assert len(report.fences) == 1
    assert tries == 1


@pytest.mark.parametrize("error", [OSError(5, "no answer"), RuntimeError("a bug")])
async def test_a_count_that_fails_rests_and_other_logs_are_counted(
    house: House, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing, log = halves(house, "failing"), halves(house, "sound")
    tries, run = 0, AheadCounting.run

    def fails(self: AheadCounting, settings: CleanerSettings, meter: PassMeter) -> None:
        nonlocal tries
        if self._plan.view.topic_partition == failing.topic_partition:
            tries += 1
            raise error
        run(self, settings, meter)

    monkeypatch.setattr(AheadCounting, "run", fails)
    async with running(house.pool(AHEAD)) as pool:
        await until(lambda: pool.reclaimable_of(log) is not None)
        await looks(house)

    assert tries == 1


async def test_the_number_of_counted_logs_is_bounded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts_module, "LOGS_MAX", 2)
    logs = [halves(house, f"topic-{number}") for number in range(3)]

    async with running(house.pool(AHEAD)) as pool:
        await until(lambda: len(pool.status().reclaimable) == 2)
        await looks(house)
        assert len(pool.status().reclaimable) == 2
        await pool.clean_now(next(log for log in logs if pool.reclaimable_of(log)))
        await until(lambda: len(pool.status().reclaimable) == 2)


async def test_the_order_by_benefit_follows_what_was_measured(house: House) -> None:
    """Both logs are dirty alike, and no pass over them has run."""
    few = house.log("few", NEVER_ELIGIBLE)
    many = house.log("many", NEVER_ELIGIBLE)
    for log, keys in ((many, 40), (few, 2)):
        house.append(log, *((b"%d" % (number % keys), b"v" * 50) for number in range(40)))
        log.roll(house.clock.now_ms())
    pool = house.pool(replace(AHEAD, is_by_benefit=True))
    async with running(pool):
        await until(lambda: len(pool.status().reclaimable) == 2)
        pool.pause(paused_of(few))
        pool.pause(paused_of(many))
    gains = {}
    for log in (few, many):
        log.update_config(replace(log.config, min_cleanable_dirty_ratio=0.0))
        candidate = pool._lookout.candidate(log)
        assert candidate is not None
        assert candidate.reclaimable is not None
        gains[log.topic_partition.topic] = candidate.gain

    assert gains["few"] == pytest.approx(0.95, abs=0.05)
    assert gains["many"] == pytest.approx(0.0, abs=0.1)
