"""`__consumer_offsets` on a real disk, with rounds of syncs; and records for it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from protocol.internal_topics.group_records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from protocol.records.record_batch import read_records
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from server.broker import Broker
from server.coordination.coordinator_topic import OFFSETS_TOPIC, CoordinatorTopic
from server.coordination.groups.committed_offsets import tombstone_batches
from server.coordination.producer import Producer
from server.durability.fetch_waiters import FetchWaiters
from server.durability.group_commit import GroupCommit
from server.runtime.executors import Executor
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.sync_rounds import SyncRounds
from storage.segment.reader import Isolation
from tests.harness.served_broker import NOW_MS, ServedBroker
from tests.harness.topics_world import FixedClock, World, opened

LOADING = Executor("loading", threads=1)


def commit(
    partition: int = 0, offset: int = 1, *, group: str = "g", topic: str = "t", **fields: Any
) -> GroupRecord:
    """Returns a commit; `fields` are those of `OffsetCommitValue`."""
    value: dict[str, Any] = {"offset": offset, "metadata": "", "commit_timestamp": 7}
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return GroupRecord(key, OffsetCommitValue(**value | fields))


def tombstones(group: str, keys: Iterable[tuple[str, int]]) -> tuple[GroupRecord, ...]:
    """Returns the tombstones for a group's offsets, as one batch."""
    return tuple(itertools.chain.from_iterable(tombstone_batches(group, keys)))


async def committed(served: ServedBroker, group: str = "g") -> dict[tuple[str, int], int]:
    """Returns a group's offsets by topic and partition, once groups are loaded."""
    await served.broker.groups.table.loads.loaded()
    offsets = served.broker.offsets.fetch(group)
    assert not isinstance(offsets, ErrorCode)
    return {
        (topic, partition): found.offset
        for topic, partitions in offsets.by_topic().items()
        for partition, found in partitions.items()
    }


async def until_appended(served: ServedBroker, group: str = "g") -> None:
    """Wait until a commit of a group is appended. It is not durable before the loop's next turn."""
    entries = served.broker.groups.table.entries
    while not any(each.commits for each in entries() if each.group.group_id == group):  # noqa: ASYNC110
        await asyncio.sleep(0)


@asynccontextmanager
async def offsets_topic(path: Path) -> AsyncIterator[tuple[CoordinatorTopic, World]]:
    async with opened(path) as world:
        sync_rounds = SyncRounds()
        group_commit = GroupCommit(sync_rounds, FetchWaiters(), flush_on_acks_all=True)
        yield (
            CoordinatorTopic(
                OFFSETS_TOPIC,
                world.topics,
                group_commit,
                FixedClock(),
                partitions_count=4,
                segment_bytes=1 << 20,
                loading=LOADING,
            ),
            world,
        )
        await group_commit.stop()
        sync_rounds.close()


def records_of(log: PartitionLog) -> list[GroupRecord]:
    """Returns the records of the log's first batch."""
    found = log.reader.read(
        Offset(0), max_bytes=1 << 20, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert not isinstance(found, int)
    data = b"".join(region.read_bytes() for region in found.regions)
    found.release()
    return [
        read_record(record.key or b"", record.value)
        for record in read_records(data, decompressed_bytes_max=1 << 20)
    ]


async def end_transaction(
    broker: Broker, group: str, producer: Producer, *, is_commit: bool
) -> None:
    """Write a marker into the group's partition and end its pending offsets, like a coordinator."""
    topic = broker.groups.topic
    partition = topic.partition_of(group)
    await write_marker(topic.log_of(partition), broker.group_commit, producer, is_commit=is_commit)
    await broker.offsets.transaction_ended(partition, producer.id, is_commit=is_commit)


async def write_marker(
    log: PartitionLog, group_commit: GroupCommit, producer: Producer, *, is_commit: bool
) -> None:
    """Append a marker, and wait until it is durable."""
    appended = log.appender.append_marker(
        ProducerId(producer.id),
        Epoch(producer.epoch),
        is_commit=is_commit,
        coordinator_epoch=Epoch(0),
        now_ms=NOW_MS,
    )
    assert isinstance(appended, Appended)
    group_commit.appended(log)
    assert await group_commit.durable(log, appended.next_offset)
