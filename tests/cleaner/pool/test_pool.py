"""The pool: what it cleans in the background, and when."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from dataclasses import replace

import pytest

from storage.files.errors import DiskError, NoSpace
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    CLEANED,
    HOUR_MS,
    SETTINGS,
    House,
    Recorder,
    WallClock,
    keys_of,
    running,
    until,
)
from tests.harness.blocked_sidecar import block_sidecar, unblock_sidecar
from tests.harness.compacted_log import CONFIG, records_of


# -------------------------------------------------------------------- what it does by itself
async def test_a_dirty_log_is_cleaned_and_reported_in_one_line(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.dirty_log()

    with caplog.at_level("INFO", logger="cleaner.pool.pool"):
        async with running(house.pool()) as pool:
            await until(lambda: log.clean_offset == 3)
            await until(lambda: bool(pool.status().last_reports))

    assert keys_of(log) == CLEANED
    lines = [record.getMessage() for record in caplog.records if record.name == "cleaner.pool.pool"]
    assert len(lines) == 1
    assert lines[0].startswith("orders-0: cleaned [0, 3), ")
    assert "dropped 1 superseded; kept 2 latest" in lines[0]


async def test_several_workers_clean_all_logs_each_once(house: House) -> None:
    logs = [house.dirty_log(f"topic-{number}") for number in range(8)]

    async with running(house.pool(replace(SETTINGS, threads=2))):
        await until(lambda: all(log.clean_offset == 3 for log in logs))
        await asyncio.sleep(0.1)

    assert all(keys_of(log) == CLEANED for log in logs)
    assert sorted(house.probe.events) == sorted(f"completed topic-{n}" for n in range(8))


async def test_a_log_that_is_not_compacted_is_left_alone(house: House) -> None:
    log = house.dirty_log(config=LogConfig())

    async with running(house.pool()):
        await asyncio.sleep(0.1)

    assert len(keys_of(log)) == 3
    assert house.probe.events == []


async def test_tombstones_are_retired_by_the_clock_alone(house: House) -> None:
    log = house.log()
    house.append(log, (b"a", None))
    house.append(log, (b"b", b"1"))
    log.roll(house.clock.wall_ms)

    async with running(house.pool()):
        await until(lambda: log.clean_offset == 2)
        house.clock.wall_ms += CONFIG.delete_retention_ms
        await until(lambda: keys_of(log) == [(1, b"b")])


async def test_an_idle_pool_does_not_clean_the_same_log_again(house: House) -> None:
    log = house.log()
    house.append(log, (b"b", b"1"))
    house.append(log, (b"a", None))
    log.roll(house.clock.wall_ms)

    async with running(house.pool()):
        await until(lambda: log.clean_offset == 2)
        house.clock.wall_ms += CONFIG.delete_retention_ms
        await until(lambda: len(house.probe.events) == 2)
        await asyncio.sleep(0.2)

    assert house.probe.events == ["completed orders"] * 2


def big_log(house: House, topic: str) -> PartitionLog:
    """Returns a log that is half clean, so that a pass reads much for the bytes it frees."""
    log = house.log(topic)
    for number in range(20):
        house.append(log, (b"%d" % number, b"v" * 100))
    log.roll(house.clock.now_ms())
    for number in range(20):
        house.append(log, (b"%d" % number, b"w" * 100))
    log.roll(house.clock.now_ms())
    return log


@pytest.mark.parametrize(
    ("is_short_of_space", "order"),
    [
        pytest.param(False, ["__internal", "dirtier", "half"], id="by_score"),
        pytest.param(True, ["dirtier", "half", "__internal"], id="short_of_space"),
    ],
)
async def test_logs_are_served_by_their_urgency(
    house: House, is_short_of_space: bool, order: list[str]
) -> None:
    pool = house.pool()
    for topic in ("half", "__internal"):
        log = big_log(house, topic)
        await pool.clean_now(log)
        for number in range(2 if topic == "__internal" else 19):
            house.append(log, (b"%d" % number, b"x" * 100))
        log.roll(house.clock.now_ms())
    house.dirty_log("dirtier")
    house.probe.events.clear()
    pool.short_of_space(
        frozenset({house.logs[0].identity.directory_id} if is_short_of_space else ())
    )

    async with running(pool):
        await until(lambda: len(house.probe.events) == 3)

    assert [event.removeprefix("completed ") for event in house.probe.events] == order


async def test_passes_run_at_low_priority_and_leave_the_loops_thread_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    class Watching(Recorder):
        def bytes_read(self, count: int) -> None:
            niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            seen.append((threading.current_thread().name, niceness))

    house.probe = Watching()
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    pool = house.pool()

    await pool.clean_now(house.dirty_log())
    await pool.stop()

    assert seen
    assert all(name.startswith("cleaner") and niceness == 19 for name, niceness in seen)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


# -------------------------------------------------------------------- what idle logs wait for
NEVER_LOOK_TWICE = replace(SETTINGS, backoff_ms=HOUR_MS)
"""With this back-off, a second look can only be one that the pool has scheduled itself."""


class RunningClock(WallClock):
    """Wall time that advances with monotonic time."""

    def now_ms(self) -> int:
        return self.wall_ms + int(time.monotonic() * 1000)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"max_compaction_lag_ms": 100}, id="deadline"),
        pytest.param(
            {"compaction_idle_roll_ms": 100, "min_cleanable_dirty_ratio": 0.5}, id="idle_roll"
        ),
    ],
)
async def test_an_idle_active_segment_rolls_and_is_cleaned_in_time(
    house: House, changes: dict[str, float]
) -> None:
    """With Kafka's defaults of 1 GiB and 7 days it would never be compacted (KAFKA-20664)."""
    house.clock = RunningClock()
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, compaction_idle_roll_ms=-1)
    log = house.log(config=replace(config, **changes))  # type: ignore[arg-type]
    for value in (b"1", b"2"):
        house.append(log, (b"a", value))

    async with running(house.pool(NEVER_LOOK_TWICE)):
        await until(lambda: log.clean_offset == 2)

    assert keys_of(log) == [(1, b"a")]
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(replace(CONFIG, min_compaction_lag_ms=100), id="minimum_lag"),
        pytest.param(
            replace(CONFIG, max_compaction_lag_ms=100, min_cleanable_dirty_ratio=1.0),
            id="deadline",
        ),
    ],
)
async def test_a_pool_looks_again_when_a_lag_is_over(house: House, config: LogConfig) -> None:
    house.clock = RunningClock()
    log = house.dirty_log(config=config)

    async with running(house.pool(NEVER_LOOK_TWICE)):
        await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED


async def test_a_pool_looks_again_when_a_delete_horizon_has_passed(house: House) -> None:
    house.clock = RunningClock()
    log = house.log(config=replace(CONFIG, delete_retention_ms=100))
    house.append(log, (b"a", None))
    house.append(log, (b"b", b"1"))
    log.roll(house.clock.now_ms())

    async with running(house.pool(NEVER_LOOK_TWICE)):
        await until(lambda: keys_of(log) == [(1, b"b")])


async def test_a_pool_looks_again_when_a_quarantined_log_may_be_tried(house: House) -> None:
    block_sidecar(log := house.dirty_log())
    pool = house.pool(NEVER_LOOK_TWICE)
    with pytest.raises(DiskError):
        await pool.clean_now(log)
    unblock_sidecar(log)

    async with running(pool):
        await until(lambda: log.clean_offset == 3)


async def test_a_pool_looks_again_when_its_settings_change(house: House) -> None:
    async with running(house.pool(NEVER_LOOK_TWICE)) as pool:
        await until(lambda: house.probe.looks > 0)
        log = house.dirty_log()
        await asyncio.sleep(0.05)
        pool.configure(NEVER_LOOK_TWICE)
        await until(lambda: log.clean_offset == 3)


async def test_an_idle_log_rolls_once_and_is_cleaned_once(house: House) -> None:
    log = house.log(config=replace(CONFIG, compaction_idle_roll_ms=1000))
    house.append(log, (b"a", b"1"))
    house.append(log, (b"a", b"2"))

    async with running(house.pool()):
        await asyncio.sleep(0.05)
        assert len(log.segments) == 1
        house.clock.wall_ms += 1000
        await until(lambda: log.clean_offset == 2)
        for _ in range(10):
            house.clock.wall_ms += 1000
            await asyncio.sleep(0.02)

    assert len(log.segments) == 2
    assert house.probe.events == ["completed orders"]


async def test_a_log_on_a_disk_that_takes_no_new_file_does_not_hold_up_the_others(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = house.log("stuck", replace(CONFIG, compaction_idle_roll_ms=0))
    house.append(stuck, (b"a", b"1"))
    good = house.dirty_log("good")

    def no_space(_now_ms: int) -> None:
        raise NoSpace("open", stuck.directory, errno.ENOSPC, "No space left on device")

    roll = PartitionLog.roll
    monkeypatch.setattr(
        PartitionLog, "roll", lambda log, now: no_space(now) if log is stuck else roll(log, now)
    )
    async with running(house.pool()):
        await until(lambda: good.clean_offset == 3)

    assert len(stuck.segments) == 1


async def test_a_worker_that_has_ended_is_told(house: House) -> None:
    async with running(house.pool()) as pool:
        await until(lambda: house.probe.looks > 0)
        assert pool.dead_workers == 0
        (worker,) = [task for task in asyncio.all_tasks() if task.get_name() == "cleaner-0"]
        worker.cancel()
        await until(lambda: pool.dead_workers == 1)


# -------------------------------------------------------------------- beside traffic
async def test_appends_and_reads_go_on_while_workers_clean(house: House) -> None:
    logs = [house.log(f"topic-{n}", replace(CONFIG, segment_bytes=2000)) for n in range(2)]
    latest: list[dict[bytes, bytes]] = [{}, {}]
    rounds = 0

    async with running(house.pool(replace(SETTINGS, threads=2, backoff_ms=1))) as pool:
        while rounds < 100 or (len(house.probe.events) < 20 and rounds < 5000):
            rounds += 1
            for log, values in zip(logs, latest, strict=True):
                pairs = [(b"key-%d" % ((rounds + n) % 40), b"%d" % rounds * 20) for n in range(5)]
                house.append(log, *pairs)
                values.update(pairs)
            if rounds % 10 == 0:
                check_readers(logs, latest)
            await asyncio.sleep(0.002)
        for log in logs:
            await pool.clean_now(log)

    check_readers(logs, latest)
    for log, values in zip(logs, latest, strict=True):
        assert len(records_of(log)) == len(values)
        assert log.log_end_offset == rounds * 5
    assert set(house.probe.events) == {"completed topic-0", "completed topic-1"}
    assert len(house.probe.events) >= 20


def check_readers(logs: list[PartitionLog], latest: list[dict[bytes, bytes]]) -> None:
    """Check that readers that read the log to its end, at any moment, get the last value of each key."""
    for log, values in zip(logs, latest, strict=True):
        records = records_of(log)
        assert {record.key: record.value for record in records} == values
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
