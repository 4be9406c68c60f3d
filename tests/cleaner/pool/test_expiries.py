"""The pool sweeps logs whose values expire: when something is due, beside its passes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.pacing.settings import CleanerSettings
from cleaner.pool import expiries as expiries_module
from cleaner.pool.pool import CleanerPool
from cleaner.rules.due_ranges import PAUSE_MS_MIN, Ranges, due_ms
from cleaner.rules.expiry import NEVER
from cleaner.rules.expiry_report import ExpiryReport
from protocol.wire.numbers import Offset
from storage.batches.validate import ValidBatch
from storage.files.errors import NoSpace
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    SETTINGS,
    House,
    Recorder,
    WallClock,
    flip_a_byte,
    paused_of,
    running,
    until,
)
from tests.harness.compacted_log import CONFIG, START_MS, records_of
from tests.harness.log_builder import batch_of, valid

HOUR_MS = 3_600_000
EXPIRING = replace(CONFIG, compaction_ttl_ms=HOUR_MS, min_cleanable_dirty_ratio=1.0)


class SteppedClock(WallClock):
    """Both clocks stand still until the test moves them."""

    def monotonic(self) -> float:
        return (self.wall_ms - START_MS) / 1000


class ExpiryRecorder(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.sweeps: list[ExpiryReport] = []

    def swept(self, report: ExpiryReport) -> None:
        self.sweeps.append(report)
        self.events.append(f"swept {report.topic}")


class ExpiryHouse(House):
    """Logs whose values expire."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.clock = SteppedClock()
        self.probe = self.recorder = ExpiryRecorder()
        self.is_full = False

    def put(self, log: PartitionLog, key: bytes, *, age_ms: int = 0) -> None:
        batch = batch_of([(key, b"v")], timestamps=[self.clock.now_ms() - age_ms])
        log.appender.append_as_leader(valid(batch), now_ms=self.clock.now_ms())
        log.advance_high_watermark(log.sync())

    def append_tombstones(self, log: PartitionLog, batch: ValidBatch) -> Appended:
        if self.is_full:
            raise NoSpace("write", log.directory, errno.ENOSPC, "no space is left")
        appended = log.appender.append_as_leader(batch, now_ms=self.clock.now_ms())
        assert isinstance(appended, Appended)
        log.advance_high_watermark(log.sync())
        return appended

    def sweeping_pool(self, settings: CleanerSettings = SETTINGS) -> CleanerPool:
        return CleanerPool(
            lambda: self.logs,
            settings,
            clock=self.clock,
            probe=self.probe,
            append=self.append_tombstones,
        )

    def expiring_log(self, topic: str = "orders", config: LogConfig = EXPIRING) -> PartitionLog:
        return self.log(topic, config)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ExpiryHouse]:
    house = ExpiryHouse(tmp_path)
    yield house
    for log in house.logs:
        log.close()


def tombstones_of(log: PartitionLog) -> list[bytes | None]:
    return [record.key for record in records_of(log) if record.value is None]


async def test_values_expire_by_the_clock_alone(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"soon", age_ms=HOUR_MS - 2 * PAUSE_MS_MIN)
    house.put(log, b"later")

    async with running(house.sweeping_pool()) as pool:
        await until(lambda: len(house.recorder.sweeps) == 1)
        facts = pool.expiry_of(log)
        assert facts is not None
        assert facts.due_ms == START_MS + 2 * PAUSE_MS_MIN
        assert tombstones_of(log) == []

        house.clock.wall_ms += 2 * PAUSE_MS_MIN
        await until(lambda: len(house.recorder.sweeps) >= 2)

    assert tombstones_of(log) == [b"soon"]
    assert house.recorder.sweeps[1].tombstones == 1


async def test_between_two_sweeps_lies_a_minute(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a", age_ms=HOUR_MS)

    async with running(house.sweeping_pool()):
        await until(lambda: tombstones_of(log) == [b"a"])
        house.put(log, b"b", age_ms=HOUR_MS)
        looks = house.probe.looks
        await until(lambda: house.probe.looks > looks + 3)
        assert tombstones_of(log) == [b"a"]

        house.clock.wall_ms += PAUSE_MS_MIN
        await until(lambda: tombstones_of(log) == [b"a", b"b"])


async def test_a_wall_clock_that_jumps_ahead_expires_nothing(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a")
    pool = house.sweeping_pool()
    pool.assess(log)  # It takes its first look at the clocks.
    jumped = house.clock.wall_ms + 10 * HOUR_MS
    house.clock.now_ms = lambda: jumped  # type: ignore[method-assign]

    async with running(pool):
        await until(lambda: len(house.recorder.sweeps) == 1)

    assert house.recorder.sweeps[0].expired == 0
    assert tombstones_of(log) == []


async def test_a_log_whose_cleaning_is_paused_is_not_swept(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a", age_ms=HOUR_MS)
    pool = house.sweeping_pool()
    pool.pause(paused_of(log))

    async with running(pool):
        await until(lambda: house.probe.looks > 3)
        assert house.recorder.sweeps == []


async def test_outside_of_its_window_a_log_is_not_swept(house: ExpiryHouse) -> None:
    # START_MS is on a Tuesday evening, UTC.
    log = house.expiring_log(config=replace(EXPIRING, compaction_window="Sun 00:00-01:00"))
    house.put(log, b"a", age_ms=HOUR_MS)

    async with running(house.sweeping_pool()):
        await until(lambda: house.probe.looks > 3)
        assert house.recorder.sweeps == []


async def test_without_a_time_to_live_no_log_is_swept(house: ExpiryHouse) -> None:
    for topic, config in (
        ("plain", CONFIG),
        ("mirror", replace(EXPIRING, mirror_link="link", mirror_compaction="on")),
    ):
        house.put(house.expiring_log(topic, config), b"a", age_ms=HOUR_MS)

    async with running(house.sweeping_pool()) as pool:
        await until(lambda: house.probe.looks > 3)
        assert all(pool.expiry_of(log) is None for log in house.logs)

    assert house.recorder.sweeps == []


async def test_sweeps_and_passes_take_turns(house: ExpiryHouse) -> None:
    for number in range(3):
        house.put(house.expiring_log(f"expiring-{number}"), b"a", age_ms=HOUR_MS)
        house.dirty_log(f"dirty-{number}")
    pool = house.sweeping_pool()

    async with running(pool):
        await until(lambda: len(house.probe.events) >= 6)

    kinds = [event.split()[0] for event in house.probe.events[:6]]
    assert kinds == ["swept", "completed"] * 3


async def test_damage_lets_nothing_expire_and_keeps_no_pass_away(
    house: ExpiryHouse, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.expiring_log(config=replace(EXPIRING, segment_bytes=1))
    house.put(log, b"a", age_ms=HOUR_MS)
    house.put(log, b"b", age_ms=HOUR_MS)
    flip_a_byte(log)

    async with running(house.sweeping_pool()) as pool:
        await until(lambda: "none expires for now" in caplog.text)
        assert pool.status().quarantined == ()
        await pool.clean_now(log)
        (fence,) = pool.assess(log).known_fences
        house.clock.wall_ms += HOUR_MS
        looks = house.probe.looks
        await until(lambda: house.probe.looks > looks + 2)

    assert "CRC differs" in fence.reason
    assert house.recorder.sweeps == []
    assert caplog.text.count("none expires for now") == 1


async def test_on_a_full_disk_values_expire_later_and_passes_go_on(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a", age_ms=HOUR_MS)
    house.is_full = True

    async with running(house.sweeping_pool()) as pool:
        looks = house.probe.looks
        await until(lambda: house.probe.looks > looks + 3)
        assert pool.status().quarantined == ()
        house.is_full = False
        house.clock.wall_ms += PAUSE_MS_MIN
        await until(lambda: tombstones_of(log) == [b"a"])


async def test_a_sweep_stops_with_the_pool(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a", age_ms=HOUR_MS)
    stopped = asyncio.Event()
    pool = house.sweeping_pool()
    append = house.append_tombstones

    def stop_and_append(its: PartitionLog, batch: ValidBatch) -> Appended:
        pool._runner.request_stop()
        stopped.set()
        return append(its, batch)

    pool._append = stop_and_append
    async with running(pool):
        await stopped.wait()

    assert pool.status().running == ()


async def test_a_restart_reads_the_whole_log_once_more(house: ExpiryHouse) -> None:
    log = house.expiring_log()
    house.put(log, b"a")
    async with running(house.sweeping_pool()) as pool:
        await until(lambda: len(house.recorder.sweeps) == 1)
        before = pool.expiry_of(log)

    unknown = house.sweeping_pool().expiry_of(log)

    assert before is not None
    assert before.due_ms == START_MS + HOUR_MS
    assert unknown is not None
    assert (unknown.due_ms, unknown.totals.last) == (0, None)
    log.update_config(replace(log.config, compaction_ttl_ms=-1, compaction_ttl_header="ttl"))
    async with running(house.sweeping_pool()) as pool:
        await until(lambda: len(house.recorder.sweeps) == 2)
        after = pool.expiry_of(log)
    assert after is not None
    assert after.due_ms == NEVER


async def test_the_ranges_of_a_log_are_looked_through_once_until_they_or_the_log_start_change(
    house: ExpiryHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = due_ms

    def counted(ranges: Ranges, *, start: int, end: int) -> int:
        looks.append(start)
        return look(ranges, start=start, end=end)

    log = house.expiring_log()
    house.put(log, b"first")
    house.put(log, b"second")
    async with running(house.sweeping_pool()) as pool:
        await until(lambda: len(house.recorder.sweeps) == 1)
        before = pool.expiry_of(log)
        assert before is not None
        monkeypatch.setattr(expiries_module, "due_ms", counted)
        assert pool.expiry_of(log) == pool.expiry_of(log) == before
        assert looks == []
        log.delete_records(Offset(1))
        pool.status()
        pool.status()
        assert looks == [1]
        house.put(log, b"third")
        found = pool.expiry_of(log)

    assert found is not None
    assert found.due_ms == 0, "the new value is unread"
