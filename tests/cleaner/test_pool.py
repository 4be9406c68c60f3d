"""The pool: what it cleans by itself, how it survives, and how it stops."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import cleaner.verify_pass
from cleaner.look import Look
from cleaner.meter import CleaningAborted
from cleaner.paused import NOTHING_PAUSED, CleaningPaused, Paused
from cleaner.pool import CleanerPool
from cleaner.pool_status import Task
from cleaner.probe import SilentProbe
from cleaner.progress import Phase
from cleaner.quarantine import Quarantined
from cleaner.report import PassReport
from cleaner.running import RunningPass
from cleaner.settings import CleanerSettings
from cleaner.step import SegmentSummary
from cleaner.throttle import IoRates
from protocol.errors import CorruptBatch
from protocol.record_batch import Codec
from storage.errors import NoSpace
from storage.local_files import LocalFileSystem
from storage.log import Appended, PartitionLog
from storage.log_config import LogConfig
from storage.log_opening import create_log
from storage.manifest import SegmentRow
from storage.paths import KEYS, LOG
from tests.harness.compacted_log import CONFIG, START_MS, identity, opening, records_of
from tests.harness.key_blocks import index
from tests.harness.log_builder import KeyValue, batch_of, valid
from tests.harness.sidecar_lies import another_size, tell_somewhere

SETTINGS = CleanerSettings(
    backoff_ms=10, dedupe_buffer_size=24 * 10_000, retry_backoff_ms=50, retry_backoff_max_ms=50
)
PATIENCE_SECONDS = 20.0


class WallClock:
    """Wall time that a test sets, monotonic time that runs."""

    def __init__(self) -> None:
        self.wall_ms = START_MS

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return time.monotonic()


class Recorder(SilentProbe):
    """A probe that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.looks = 0

    def picked(self, look: Look) -> None:
        self.looks += 1

    def pass_completed(self, report: PassReport) -> None:
        self.events.append(f"completed {report.topic}")

    def pass_aborted(self, topic: str, partition: int, reason: str) -> None:
        self.events.append(f"aborted {topic}")

    def pass_failed(self, topic: str, partition: int, reason: str) -> None:
        self.events.append(f"failed {topic}")

    def quarantined(self, entry: Quarantined) -> None:
        self.events.append(f"quarantined {entry.topic_partition.topic} {entry.kind}")

    def released(self, topic: str, partition: int) -> None:
        self.events.append(f"released {topic}")

    def worker_failed(self, reason: str) -> None:
        self.events.append(f"worker failed {reason}")


class House:
    """Logs on the real disk, and what the pool is made of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: WallClock = WallClock()
        self.probe = Recorder()
        self.logs: list[PartitionLog] = []

    def log(self, topic: str = "orders", config: LogConfig = CONFIG) -> PartitionLog:
        log = create_log(
            LocalFileSystem(),
            replace(
                identity(topic, str(self.path / topic / "0")),
                topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic),
            ),
            config,
            opening(now_ms=self.clock.now_ms()),
        )
        self.logs.append(log)
        return log

    def append(self, log: PartitionLog, *pairs: KeyValue) -> None:
        appended = log.append_as_leader(valid(batch_of(pairs)), now_ms=self.clock.now_ms())
        assert isinstance(appended, Appended)
        log.advance_high_watermark(log.sync())

    def dirty_log(self, topic: str = "orders", config: LogConfig = CONFIG) -> PartitionLog:
        """A log with a sealed segment in which one of three records is dead."""
        log = self.log(topic, config)
        self.append(log, (b"a", b"1"))
        self.append(log, (b"b", b"1"))
        self.append(log, (b"a", b"2"))
        log.roll(self.clock.now_ms())
        return log

    def pool(
        self,
        settings: CleanerSettings = SETTINGS,
        logs: Callable[[], Iterable[PartitionLog]] | None = None,
    ) -> CleanerPool:
        return CleanerPool(
            logs or (lambda: self.logs), settings, clock=self.clock, probe=self.probe
        )


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@asynccontextmanager
async def running(pool: CleanerPool) -> AsyncIterator[CleanerPool]:
    pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - files and threads set no event
            await asyncio.sleep(0.005)


def staged_files(log: PartitionLog) -> list[str]:
    return [path.name for path in Path(log.directory).iterdir() if path.suffix == ".cleaned"]


def keys_of(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in records_of(log)]


CLEANED = [(1, b"b"), (2, b"a")]


# -------------------------------------------------------------------- what it does by itself


async def test_a_dirty_log_is_cleaned_and_reported_in_one_line(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.dirty_log()

    with caplog.at_level("INFO", logger="cleaner.pool"):
        async with running(house.pool()) as pool:
            await until(lambda: log.clean_offset == 3)
            await until(lambda: bool(pool.status().last_reports))

    assert keys_of(log) == CLEANED
    lines = [record.getMessage() for record in caplog.records if record.name == "cleaner.pool"]
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


# -------------------------------------------------------------------- what idle logs wait for

HOUR_MS = 3_600_000
NEVER_LOOK_TWICE = replace(SETTINGS, backoff_ms=HOUR_MS)
"""With this, a second look is one that the pool has timed itself."""


class RunningClock(WallClock):
    """Wall time that runs with the monotonic one."""

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
    """With Kafka's 1 GiB and 7 days nothing of it would ever be compacted (KAFKA-20664)."""
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
    flip_a_byte(log := house.dirty_log())
    pool = house.pool(NEVER_LOOK_TWICE)
    with pytest.raises(CorruptBatch):
        await pool.clean_now(log)
    flip_a_byte(log)

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


# -------------------------------------------------------------------- what goes wrong


def flip_a_byte(log: PartitionLog) -> None:
    """Damage the first sealed segment; a second flip repairs it."""
    path = Path(log.segments[0].path(LOG))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 0xFF]) + data[65:])


async def test_a_damaged_log_rests_with_its_reason_while_others_are_cleaned(house: House) -> None:
    bad, good = house.dirty_log("bad"), house.dirty_log("good")
    flip_a_byte(bad)

    async with running(house.pool(replace(SETTINGS, retry_backoff_ms=3_600_000))) as pool:
        await until(lambda: good.clean_offset == 3 and bool(pool.status().quarantined))
        (entry,) = pool.status().quarantined

    assert str(entry.topic_partition) == "bad-0"
    assert "CRC" in entry.reason
    assert len(keys_of(good)) == 2
    assert house.probe.events.count("failed bad") == 1
    assert "quarantined bad corrupt_batch" in house.probe.events


async def test_a_decompression_bomb_lets_its_log_rest_with_its_place_and_the_remedy(
    house: House,
) -> None:
    bomb, good = house.log("bomb"), house.dirty_log("good")
    for _ in range(2):
        batch = valid(batch_of([(b"a", bytes(3 << 20))], codec=Codec.ZSTD))
        bomb.append_as_leader(batch, now_ms=house.clock.wall_ms)
    bomb.advance_high_watermark(bomb.sync())
    bomb.roll(house.clock.wall_ms)
    settings = replace(SETTINGS, decompressed_bytes_max=1 << 20)

    async with running(house.pool(settings)) as pool:
        await until(lambda: good.clean_offset == 3 and bool(pool.status().quarantined))
        (entry,) = pool.status().quarantined
        assert "more than 1048576 bytes" in entry.reason
        assert "position 0, base offset 0" in entry.reason
        assert "log.cleaner.decompressed.batch.bytes.max" in entry.reason
        assert len(keys_of(bomb)) == 2

        pool.configure(replace(settings, decompressed_bytes_max=4 << 20))
        await until(lambda: not pool.status().quarantined)

    assert bomb.clean_offset == 2
    assert len(keys_of(bomb)) == 1


async def test_a_log_that_is_sound_again_is_cleaned_and_released(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)

    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        flip_a_byte(log)
        await until(lambda: not pool.status().quarantined)

    assert keys_of(log) == CLEANED
    assert house.probe.events[-2:] == ["released orders", "completed orders"]


async def test_a_failed_verification_lets_its_log_rest_with_its_sentence_and_is_tried_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = house.dirty_log()
    check, failures = cleaner.verify_pass.check_row, 2

    def say_wrong_rows(row: SegmentRow, found: SegmentSummary) -> None:
        nonlocal failures
        failures -= 1
        check(replace(row, size=row.size + (1 if failures >= 0 else 0)), found)

    monkeypatch.setattr(cleaner.verify_pass, "check_row", say_wrong_rows)
    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        (entry,) = pool.status().quarantined
        assert len(keys_of(log)) == 3
        await until(lambda: not pool.status().quarantined)

    assert entry.topic_partition == log.topic_partition
    assert re.search(r"cleaned segment 0{20}\.v\d+: its row says \d+ bytes, its file", entry.reason)
    assert house.probe.events.count("failed orders") == 2
    assert house.probe.events[-2:] == ["released orders", "completed orders"]
    assert keys_of(log) == CLEANED
    assert staged_files(log) == []


async def test_a_quarantined_log_that_is_deleted_is_forgotten(house: House) -> None:
    flip_a_byte(house.dirty_log())

    async with running(house.pool(replace(SETTINGS, retry_backoff_ms=3_600_000))) as pool:
        await until(lambda: bool(pool.status().quarantined))
        house.logs.clear()
        await until(lambda: not pool.status().quarantined)

    assert house.probe.events[-1] == "released orders"


async def test_a_worker_survives_what_is_nobodys_fault(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.dirty_log()
    failures = 2

    def logs() -> list[PartitionLog]:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("the list of logs is broken")
        return house.logs

    async with running(house.pool(logs=logs)):
        await until(lambda: log.clean_offset == 3)

    assert [event for event in house.probe.events if event.startswith("worker failed")] == [
        "worker failed RuntimeError('the list of logs is broken')"
    ] * 2
    assert any(record.exc_info for record in caplog.records)


async def test_a_full_disk_is_a_reason_to_rest_not_to_die(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = house.dirty_log()
    pwritev = os.pwritev

    def no_space(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", no_space)
    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        assert "No space left" in pool.status().quarantined[0].reason
        monkeypatch.setattr(os, "pwritev", pwritev)
        await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED


async def test_a_sidecar_that_lies_is_a_reason_to_rest_once_and_is_gone_then(house: House) -> None:
    log = house.dirty_log()
    (segment,) = log.cleaning_view().segments
    index(segment, log.identity.hash_key)
    sidecar = segment.segment.path(KEYS)
    tell_somewhere(segment.segment.fs, sidecar, Random(0), another_size)

    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        assert "its key sidecar is made anew" in pool.status().quarantined[0].reason
        await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED


# -------------------------------------------------------------------- requests


async def test_clean_now_rolls_and_ignores_the_dirty_ratio(house: House) -> None:
    log = house.log(config=replace(CONFIG, min_cleanable_dirty_ratio=1.0))
    house.append(log, (b"a", b"1"))
    house.append(log, (b"a", b"2"))
    pool = house.pool()

    report = await pool.clean_now(log)
    again = await pool.clean_now(log)
    await pool.stop()

    assert (report.start_offset, report.end_offset, report.reason) == (0, 2, "REQUESTED")
    assert keys_of(log) == [(1, b"a")]
    assert (again.start_offset, again.end_offset, again.groups) == (2, 2, 0)


async def test_a_request_that_comes_while_a_worker_picks_waits_for_its_pass(
    house: House,
) -> None:
    log = house.dirty_log()
    requests: list[asyncio.Task[PassReport]] = []

    def logs() -> list[PartitionLog]:
        if not requests:
            requests.append(asyncio.get_running_loop().create_task(pool.clean_now(log)))
        return house.logs

    pool = house.pool(logs=logs)
    async with running(pool):
        await until(lambda: bool(requests))
        report = await requests[0]

    assert report.groups == 0
    assert house.probe.events == ["completed orders"] * 2


async def test_clean_now_refuses_a_log_that_is_not_compacted(house: House) -> None:
    pool = house.pool()

    with pytest.raises(ValueError, match="not compacted"):
        await pool.clean_now(house.log(config=LogConfig()))
    await pool.stop()


async def test_clean_now_tells_what_is_wrong(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()

    with pytest.raises(CorruptBatch):
        await pool.clean_now(log)
    await pool.stop()

    assert len(pool.status().quarantined) == 1


async def test_requests_for_one_log_run_one_after_the_other(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, threads=2))

    reports = await asyncio.gather(*[pool.clean_now(log) for _ in range(5)])
    await pool.stop()

    assert sorted(report.groups for report in reports) == [0, 0, 0, 0, 1]
    assert keys_of(log) == CLEANED


# -------------------------------------------------------------------- stopping, threads, rate


async def test_a_stop_ends_a_throttled_pass_at_once_and_nothing_is_lost(house: House) -> None:
    log = house.log()
    for number in range(50):
        house.append(log, (b"%d" % (number % 5), b"v" * 100_000))
    log.roll(house.clock.wall_ms)
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(total=1000.0)))
    pool.start()
    await until(lambda: bool(pool.status().running))

    started = time.monotonic()
    await pool.stop()

    assert time.monotonic() - started < 2
    assert house.probe.events == ["aborted orders"]
    assert len(keys_of(log)) == 50
    assert staged_files(log) == []


async def test_a_stopped_pool_starts_no_pass(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.start()
    await pool.stop()

    with pytest.raises((CleaningAborted, RuntimeError)):
        await pool.clean_now(log)


async def test_a_rate_set_while_a_pass_sleeps_lets_it_go_on(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(total=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        pool.configure(replace(SETTINGS, io_rates=IoRates(total=1e9)))
        await until(lambda: log.clean_offset == 3)


def workers() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name for name in names if name.startswith("cleaner-"))


async def test_more_threads_run_more_passes_at_once_and_fewer_stop_none(house: House) -> None:
    logs = [house.dirty_log(topic) for topic in ("a", "b", "c", "d")]

    async with running(house.pool(SLOW)) as pool:
        await until(lambda: len(pool.status().running) == 1)
        pool.configure(replace(SLOW, threads=3))
        await until(lambda: len(pool.status().running) == 3)
        assert (pool.status().threads, len(workers())) == (3, 3)

        pool.configure(replace(SLOW, threads=1))
        assert len(pool.status().running) == 3
        pool.configure(SETTINGS)
        await until(lambda: all(log.clean_offset == 3 for log in logs))
        await until(lambda: workers() == ["cleaner-0"])
        assert pool.dead_workers == 0

        pool.configure(replace(SETTINGS, threads=2))
        await until(lambda: workers() == ["cleaner-0", "cleaner-1"])
    assert sorted(house.probe.events) == [f"completed {topic}" for topic in "abcd"]


async def test_a_thread_that_is_too_many_takes_no_further_log(house: House) -> None:
    first, *_ = (house.dirty_log(topic) for topic in ("a", "b", "c"))

    async with running(house.pool(replace(SLOW, threads=2))) as pool:
        await until(lambda: len(pool.status().running) == 2)
        pool.configure(replace(SLOW, threads=1))
        pool.pause(paused_of(first))
        await until(lambda: len(pool.status().running) == 1)
        await asyncio.sleep(0.05)
        assert len(pool.status().running) == 1


async def test_a_disk_that_gets_full_lifts_the_budgets_of_a_sleeping_pass(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(write=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        pool.short_of_space(frozenset({log.identity.directory_id}))
        await until(lambda: log.clean_offset == 3)


async def test_a_throttled_pass_notices_at_once_that_its_log_has_changed(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(read=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        log.update_config(replace(log.config, cleanup_policy=("delete",)))
        await until(lambda: house.probe.events == ["aborted orders"])


# What others do to a log whose pass has just read something; no test waits for a rate.


def truncate(log: PartitionLog) -> None:
    log.truncate_to(1)


def stop_compacting(log: PartitionLog) -> None:
    log.update_config(replace(log.config, cleanup_policy=("delete",)))


def rename_the_policy(log: PartitionLog) -> None:
    log.update_config(replace(log.config, cleanup_policy=("dedupe",)))


class Halting(Recorder):
    """A probe that holds a pass where it has read its first chunk, and counts on."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks_read = 0
        self.has_read = threading.Event()
        self.may_go_on = threading.Event()

    def bytes_read(self, count: int) -> None:
        self.chunks_read += 1
        self.has_read.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(truncate, id="truncation"),
        pytest.param(PartitionLog.retire, id="deletion"),
        pytest.param(stop_compacting, id="policy_change"),
    ],
)
async def test_a_change_of_its_log_ends_a_pass_within_a_chunk(
    house: House, change: Callable[[PartitionLog], None]
) -> None:
    """LogManagerTest, testTopicConfigChangeStopCleaningIfCompactIsRemoved; LogCleanerManagerTest,
    testConcurrentLogCleanupAnd{LogTruncation,TopicDeletion}; LogCleanerTest,
    testCleanSegmentsWithAbort."""
    house.probe = halting = Halting()
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, backoff_ms=HOUR_MS))

    async with running(pool):
        await until(halting.has_read.is_set)
        change(log)
        halting.may_go_on.set()
        await until(lambda: bool(house.probe.events))

    assert house.probe.events == ["aborted orders"]
    assert halting.chunks_read == 1
    assert staged_files(log) == []
    assert not pool.status().quarantined


async def test_a_stop_ends_a_pass_within_a_chunk(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()
    pool = house.pool()
    pool.start()
    await until(halting.has_read.is_set)

    stopping = asyncio.create_task(pool.stop())
    await asyncio.sleep(0)
    halting.may_go_on.set()
    await stopping

    assert house.probe.events == ["aborted orders"]
    assert halting.chunks_read == 1
    assert len(keys_of(log)) == 3


async def test_a_log_that_was_truncated_under_its_pass_is_cleaned_by_the_next(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()

    async with running(house.pool()):
        await until(halting.has_read.is_set)
        truncate(log)
        house.append(log, (b"a", b"3"))
        log.roll(house.clock.now_ms())
        halting.may_go_on.set()
        await until(lambda: log.clean_offset == 2)

    assert keys_of(log) == [(1, b"a")]


async def test_another_name_of_the_same_policy_does_not_end_a_pass(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()

    async with running(house.pool()):
        await until(halting.has_read.is_set)
        rename_the_policy(log)
        halting.may_go_on.set()
        await until(lambda: log.clean_offset == 3)

    assert house.probe.events == ["completed orders"]


# LogCleanerManagerTest, testGrabFilthiestCompactedLog*: which logs a worker takes, in which order.


def big_log(house: House, topic: str) -> PartitionLog:
    """A log that is half clean, so that a pass reads much for what it frees."""
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
    """Whoever reads a log to its end, at any moment, holds the last value of each key."""
    for log, values in zip(logs, latest, strict=True):
        records = records_of(log)
        assert {record.key: record.value for record in records} == values
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))


# -------------------------------------------------------------------- what operators steer


SLOW = replace(SETTINGS, io_rates=IoRates(total=1.0))
"""The first chunk of a pass takes minutes."""


def paused_of(log: PartitionLog) -> Paused:
    return Paused(partitions=frozenset({(log.topic_id, log.topic_partition.partition)}))


async def test_a_paused_log_is_not_cleaned_until_it_is_resumed(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.pause(paused_of(log))

    async with running(pool):
        await asyncio.sleep(0.1)
        assert log.clean_offset == 0
        pool.pause(NOTHING_PAUSED)
        await until(lambda: log.clean_offset == 3)


async def test_a_pause_stops_a_running_pass_and_not_others_and_is_told_as_the_reason(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="cleaner.pool")
    log, _ = house.dirty_log(), house.dirty_log("other")
    async with running(house.pool(replace(SLOW, threads=2))) as pool:
        await until(lambda: len(pool.status().running) == 2)
        pool.pause(paused_of(log))
        await until(lambda: "aborted orders" in house.probe.events)

        assert [str(each.topic_partition) for each in pool.status().running] == ["other-0"]
    assert "orders-0: cleaning stopped: cleaning was paused" in caplog.messages
    assert staged_files(log) == []
    assert log.clean_offset == 0


async def test_a_pass_on_request_refuses_a_paused_log_unless_forced(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.pause(Paused(everything=True))

    with pytest.raises(CleaningPaused, match="orders-0 is paused"):
        await pool.clean_now(log)
    report = await pool.clean_now(log, despite_pause=True)

    assert report.end_offset == 3
    await pool.stop()


async def test_a_running_pass_says_how_far_it_is(house: House) -> None:
    log = house.dirty_log()
    async with running(house.pool(SLOW)) as pool:
        await until(lambda: bool(pool.status().running))
        await until(lambda: pool.status().running[0].progress.bytes_done > 0)
        (status,) = pool.status().running

        assert status.progress.phase is Phase.INDEX
        assert status.progress.bytes_planned == 2 * log.segments[0].size
        assert status.progress.eta_seconds is not None


async def test_a_rehearsal_changes_nothing_and_keeps_passes_off_the_log(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(SLOW)
    started: list[RunningPass] = []
    rehearsal = asyncio.create_task(pool.dry_run(log, on_start=started.append))
    await until(lambda: bool(started))

    async with running(pool):
        await asyncio.sleep(0.1)
        assert [each.task for each in pool.status().running] == [Task.DRY_RUN]
        pool.configure(SETTINGS)
        found = await rehearsal
        await until(lambda: log.clean_offset == 3)

    assert found.report.records_by_verdict["dropped_superseded"] == 1
    assert house.probe.events == ["completed orders"]


async def test_a_rehearsal_can_be_stopped(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(SLOW)

    with pytest.raises(CleaningAborted):
        await pool.dry_run(log, on_start=lambda pass_: pass_.halt("nobody waits for it"))
    await pool.stop()


async def test_a_rehearsal_of_a_damaged_log_says_so_and_no_more(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()

    with pytest.raises(CorruptBatch):
        await pool.dry_run(log)

    assert pool.status().quarantined == ()
    assert house.probe.events == []
    await pool.stop()


async def test_requests_wait_for_a_thread_and_plan_when_they_have_one(house: House) -> None:
    first, second = house.dirty_log("first"), house.dirty_log("second")
    pool = house.pool(SLOW)
    started: list[RunningPass] = []
    requests = [
        asyncio.create_task(pool.clean_now(log, on_start=started.append)) for log in (first, second)
    ]
    await until(lambda: bool(started))
    await asyncio.sleep(0.05)
    assert len(started) == 1
    house.append(second, (b"a", b"3"))
    pool.configure(SETTINGS)

    reports = await asyncio.gather(*requests)

    assert [report.end_offset for report in reports] == [3, 4]
    await pool.stop()


async def test_a_request_that_waits_when_the_pool_stops_is_told(house: House) -> None:
    first, second = house.dirty_log("first"), house.dirty_log("second")
    pool = house.pool(SLOW)
    started: list[RunningPass] = []
    requests = [
        asyncio.create_task(pool.clean_now(log, on_start=started.append)) for log in (first, second)
    ]
    await until(lambda: bool(started))
    await pool.stop()

    ends = await asyncio.gather(*requests, return_exceptions=True)

    assert [type(end) for end in ends] == [CleaningAborted, CleaningAborted]
