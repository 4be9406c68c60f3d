"""The coordinator's writes to `__consumer_offsets`: created once, a batch a step, durable in order."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from server.coordination.coordinator_topic import (
    OFFSETS_TOPIC,
    RecordsTooLarge,
    java_abs,
    java_hash,
)
from storage.files.errors import LogOffline, StorageError
from storage.log import opening
from storage.log.new_logs import NewLogs
from tests.harness.offsets_world import commit, offsets_topic, records_of
from tests.harness.topics_world import opened


@pytest.mark.parametrize(
    ("group_id", "hash_code"),
    [("", 0), ("a", 97), ("console-consumer-1", 35782224), ("µ€𝄞", 15202369)],
)  # fmt: skip
def test_a_groups_partition_comes_from_javas_hash(group_id: str, hash_code: int) -> None:
    assert java_hash(group_id) == hash_code


def test_the_number_without_a_positive_counterpart_counts_as_zero() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_abs(-(1 << 31)) == 0
    assert java_abs(-5) == 5


async def test_the_topic_is_made_once_with_kafkas_settings(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, world):
        assert topic.partitions_count == 0

        await asyncio.gather(topic.ensure(), topic.ensure())

        made = world.topics.get(OFFSETS_TOPIC)
        assert made is not None
        assert made.is_internal
        assert made.overrides == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(1 << 20),
        }
        assert topic.partitions_count == 4
        assert topic.partition_of("b") == 98 % 4


async def test_a_topic_that_is_there_keeps_its_number_of_partitions(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.create(OFFSETS_TOPIC, 2)

    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        assert topic.partitions_count == 2


async def test_records_are_in_the_log_at_once_and_durable_later(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        first = topic.append(1, [commit(0), commit(1)])
        second = topic.append(1, [commit(0, 9)])
        log = topic.log_of(1)

        assert (log.log_end_offset, log.high_watermark) == (3, 0)
        assert [await first, await second] == [0, 2]
        assert log.high_watermark == 3
        assert records_of(log) == [commit(0), commit(1)]


async def test_a_name_that_no_record_can_carry_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        waiting = topic.append(0, [commit(0, metadata="x" * 40_000)])
        with pytest.raises(RecordsTooLarge):
            await waiting
        assert topic.log_of(0).log_end_offset == 0


async def test_a_batch_that_is_too_large_is_refused_and_not_written(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        with pytest.raises(RecordsTooLarge, match="35 records"):
            await topic.append(0, [commit(n, metadata="x" * 30_000) for n in range(40)])
        assert topic.log_of(0).log_end_offset == 0


async def test_a_partition_that_is_not_served_is_an_error(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, world):
        with pytest.raises(LogOffline, match="does not exist"):
            await topic.append(0, [commit()])
        await topic.ensure()
        waiting = topic.append(0, [commit()])
        world.directories[0].go_offline("broken")
        with pytest.raises(StorageError, match="broken"):
            await waiting
        with pytest.raises(LogOffline):
            topic.log_of(0)


async def test_reading_waits_for_what_is_not_durable_yet(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        waiting = topic.append(0, [commit()])
        log = await topic.settle(0)

        assert log.high_watermark == log.log_end_offset == 1
        assert await waiting == 0


async def test_the_files_of_all_partitions_are_created_in_a_thread_with_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No append creates them on the loop or waits for a thread, so appends keep their order."""
    threads: list[int] = []
    create = opening._create_files

    def noted(*args: Any) -> None:
        threads.append(threading.get_ident())
        create(*args)

    monkeypatch.setattr(opening, "_create_files", noted)
    # The broker has not yet created the files in the background.
    monkeypatch.setattr(NewLogs, "make_files", lambda *_: None)
    monkeypatch.setattr(NewLogs, "make_safe", lambda *_: None)
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        await topic.append(topic.partition_of("b"), [commit(0, group="b")])

        assert all(topic.log_of(each).new_files.are_made for each in range(4))
    assert len(threads) == 4
    assert threading.get_ident() not in threads
