"""The duties of the log clock: rolls, flushes, checkpoints, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import current_thread, main_thread

import pytest

from metrics.server_probe import ServerProbe
from server.durability.log_clock import Duty, LogClock, retention_duty
from server.runtime.clock import SystemClock
from storage.files.errors import DiskError
from storage.log.commits import LogCommits
from storage.log.log import PartitionLog
from storage.recovery.checkpoint import Checkpoint
from tests.harness import log_builder
from tests.harness.log_home import SMALL, LogHome
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.served_broker import serving_broker


async def test_an_idle_log_rolls_when_its_time_is_over_and_an_empty_one_never(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, log_roll_check_interval_ms="20") as served:
        await served.create("written", segment_ms="100")
        await served.create("empty", segment_ms="100")
        await served.produce("written")
        assert len(served.log("written").segments) == 1

        for _ in range(500):
            await asyncio.sleep(0.02)
            if len(served.log("written").segments) > 1:
                break
        await asyncio.sleep(0.3)

        assert len(served.log("written").segments) == 2, "the new segment is empty and stays"
        assert len(served.log("empty").segments) == 1
        assert served.log("written").log_end_offset == 1


@pytest.mark.parametrize("policy", ["compact", "dedupe"])
async def test_an_idle_compacted_topic_is_compacted_though_its_segment_is_neither_full_nor_old(
    tmp_path: Path, policy: str
) -> None:
    settings = {"log_cleaner_enable": "true", "log_cleaner_idle_roll_ms": "100"}
    async with serving_broker(tmp_path, **settings, log_cleaner_backoff_ms="20") as served:
        await served.create("orders", cleanup_policy=policy)
        for _ in range(2):
            await served.produce("orders")
        async with asyncio.timeout(20):
            while served.log("orders").clean_offset < 2:  # noqa: ASYNC110 - a pass sets no event
                await asyncio.sleep(0.02)

        assert len(served.log("orders").segments) == 2


async def test_a_log_whose_time_is_not_over_does_not_roll(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_roll_check_interval_ms="20") as served:
        await served.create("written")
        await served.produce("written")
        await asyncio.sleep(0.2)

        assert len(served.log("written").segments) == 1


async def test_an_idle_log_loses_what_is_old_and_a_topic_that_keeps_everything_does_not(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, log_retention_check_interval_ms="20") as served:
        await served.create("fleeting", retention_ms="100")
        await served.create("kept", retention_ms="100", cleanup_policy="")
        for name in ("fleeting", "kept"):
            await served.produce(name)
        for _ in range(500):
            await asyncio.sleep(0.02)
            # Counted last, after the retention's thread has finished.
            if served.broker.probe.topics["fleeting"].deleted_segments_by_reason:
                break

        assert served.log("fleeting").log_start_offset == 1
        assert len(served.log("fleeting").segments) == 1
        assert served.log("kept").log_start_offset == 0
        counts = served.broker.probe.topics["fleeting"]
        assert dict(counts.deleted_segments_by_reason) == {"time": 1}


def test_a_wall_clock_that_is_set_wrong_for_a_moment_deletes_nothing() -> None:
    class Clock:
        wall_ms = 1_700_000_000_000
        seconds = 0.0

        def now_ms(self) -> int:
            return self.wall_ms

        def monotonic(self) -> float:
            return self.seconds

    clock = Clock()
    config = replace(SMALL, cleanup_policy=("delete",))
    log = LogHome(MemoryFileSystem(), config=config).create()
    batch = log_builder.batch_of([(b"k", b"v")], timestamps=[clock.wall_ms])
    log.appender.append_as_leader(log_builder.valid(batch), now_ms=clock.wall_ms)
    log.advance_high_watermark(log.sync())
    look = retention_duty(1, clock, ServerProbe()).look
    assert look(log, clock.wall_ms) is None

    clock.wall_ms += 3650 * 24 * 3600 * 1000
    assert look(log, clock.wall_ms) is None, "ten years in no time"

    clock.wall_ms -= 3650 * 24 * 3600 * 1000
    clock.wall_ms += 8 * 24 * 3600 * 1000
    clock.seconds += 8 * 24 * 3600
    assert look(log, clock.wall_ms) is not None, "eight days in eight days"


async def test_a_duty_looks_on_the_loop_and_works_in_a_thread_and_survives_a_failure(
    tmp_path: Path,
) -> None:
    seen: list[tuple[str, bool]] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        seen.append(("work", current_thread() is main_thread()))
        if seen.count(("work", False)) == 1:
            raise DiskError("write", "somewhere", 5, "input/output error")
        loop.call_soon_threadsafe(done.set)

    def look(log: PartitionLog, now_ms: int) -> Callable[[], None]:
        seen.append(("look", current_thread() is main_thread()))
        return work

    async with serving_broker(tmp_path) as served:
        await served.create("any")
        duty = Duty(name="try", interval_ms=1, look=look)

        def logs() -> list[PartitionLog]:
            seen.append(("list", current_thread() is main_thread()))
            return served.broker.topics.logs()

        clock = LogClock(logs, SystemClock(), [duty], upkeep=served.broker.executors.upkeep)
        await done.wait()
        await clock.stop()

    # Work that grows with the number of topics is not done on the loop.
    assert seen[:6] == [("list", False), ("look", True), ("work", False)] * 2


async def test_the_recovery_point_of_a_log_that_has_grown_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[int] = []
    commit = LogCommits.commit_checkpoint

    def watched(segments: LogCommits, taken: Checkpoint) -> None:
        commit(segments, taken)
        committed.append(taken.row.end_offset)

    monkeypatch.setattr(LogCommits, "commit_checkpoint", watched)
    async with serving_broker(tmp_path, log_flush_offset_checkpoint_interval_ms="20") as served:
        await served.create("large", max_message_bytes=str(16 << 20))
        await served.create("small")
        await served.produce("small")
        await served.produce("large", log_builder.batch_of([(None, bytes(9 << 20))]))
        for _ in range(500):
            await asyncio.sleep(0.02)
            if committed:
                break
        await asyncio.sleep(0.1)

        assert committed == [1], "once, and only of the log that has grown"
