"""What is in a snapshot that is made while clients write: exactly what was there at one moment."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.structs import OffsetAndMetadata

from protocol.internal_topics.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from server.snapshots.making import Making, Wanted
from storage.log.appender import LogAppender
from storage.log.log import PartitionLog
from storage.snapshots.descriptor import SnapshotDescriptor
from tests.harness.compacted_log import records_of
from tests.harness.connection_server import until
from tests.harness.log_transactions import committed_offsets
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.snapshot_on_disk import (
    Logs,
    close,
    committed_values,
    opened_snapshot,
    values_in,
)

LEFT, RIGHT, ORDERED = "left", "right", "ordered"
PAIRS = [(LEFT, 0), (LEFT, 1), (RIGHT, 0), (RIGHT, 1)]
PARTITIONS = 4
IN_ORDER = [(ORDERED, each) for each in range(PARTITIONS)]
SNAPSHOTS = 6
SECONDS_MAX = 60
GROWTH = 6
"""Three transactions with their markers, of which one at most is aborted."""


async def write_transactions(served: ServedBroker, stop: asyncio.Event, name: str) -> None:
    """Write each number to all partitions of two topics, in one transaction; every fifth is aborted."""
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap(served), transactional_id=name, linger_ms=0
    ) as producer:
        number = 0
        while not stop.is_set():
            number += 1
            await producer.begin_transaction()
            for topic, partition in PAIRS:
                value = f"{name} {number}".encode()
                await producer.send_and_wait(topic, value, key=value, partition=partition)
            await (
                producer.abort_transaction() if number % 5 == 0 else producer.commit_transaction()
            )


async def write_in_order(served: ServedBroker, stop: asyncio.Event) -> None:
    """Write numbers to several partitions, one after the other, and commit an offset after each."""
    bootstrapped = bootstrap(served)
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrapped, acks="all", linger_ms=0) as producer,
        AIOKafkaConsumer(
            bootstrap_servers=bootstrapped, group_id="readers", enable_auto_commit=False
        ) as consumer,
    ):
        consumer.assign([AioTopicPartition(ORDERED, each) for each in range(PARTITIONS)])
        number = 0
        while not stop.is_set():
            partition = number % PARTITIONS
            sent = await producer.send_and_wait(
                ORDERED, b"%d" % number, key=b"%d" % number, partition=partition
            )
            number += 1
            where = AioTopicPartition(ORDERED, partition)
            await consumer.commit({where: OffsetAndMetadata(sent.offset + 1, "")})


def bootstrap(served: ServedBroker) -> str:
    host, port = served.broker.addresses["PLAINTEXT"]
    return f"{host}:{port}"


async def roll_and_retain(served: ServedBroker, stop: asyncio.Event) -> None:
    """Roll logs all the time, as their clocks would."""
    while not stop.is_set():
        for topic, partition in PAIRS:
            served.log(topic, partition).roll(served.broker.clock.now_ms())
            await asyncio.sleep(0.005)


async def create_and_delete(served: ServedBroker, stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        topic = await served.create(f"passing-{number}", 3)
        await served.produce(topic.name)
        assert await served.broker.topics.delete(topic) is None
        await asyncio.sleep(0.01)


@asynccontextmanager
async def loaded_broker(folder: Path) -> AsyncIterator[ServedBroker]:
    async with serving_broker(
        folder,
        transaction_state_log_num_partitions="2",
        offsets_topic_num_partitions="2",
        group_initial_rebalance_delay_ms="0",
    ) as served:
        await served.create(LEFT, 2, cleanup_policy="compact")
        await served.create(RIGHT, 2, cleanup_policy="compact")
        await served.create(ORDERED, PARTITIONS, cleanup_policy="compact")
        yield served


async def snapshots_under(
    served: ServedBroker,
    *works: Callable[[ServedBroker, asyncio.Event], Coroutine[object, object, None]],
    written: Sequence[tuple[str, int]],
) -> list[SnapshotDescriptor]:
    """Make snapshots meanwhile. Returns those that were made.

    Args:
        written: the logs that have to grow before each of them.
    """
    stop, made = asyncio.Event(), list[SnapshotDescriptor]()
    assert served.broker.snapshots is not None
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(work(served, stop))
        try:
            for _ in range(SNAPSHOTS):
                await until_grown([served.log(*each) for each in written])
                snapshot = await served.broker.snapshots.create(Wanted())
                assert snapshot.descriptor is not None
                made.append(snapshot.descriptor)
        finally:
            stop.set()
    return made


async def until_grown(logs: Sequence[PartitionLog]) -> None:
    """Wait until each log has some more records that are stable."""
    least = [log.last_stable_offset + GROWTH for log in logs]
    await until(
        lambda: all(log.last_stable_offset >= each for log, each in zip(logs, least, strict=True))
    )


def check_transactions(logs: Logs) -> int:
    """Check that each transaction is in all partitions or in none. Returns how many are committed.

    At the moment a coordinator may have decided, and may have written only some of the markers: it
    writes the others after a start, if their records are there.
    """
    committed = [set(committed_values(logs[pair])) for pair in PAIRS]
    there = [set(values_in(logs[pair])) for pair in PAIRS]
    for value in set.union(*committed):
        assert value is not None
        assert int(value.split()[1]) % 5, f"{value!r} was aborted"
        for pair, its in zip(PAIRS, there, strict=True):
            assert value in its, f"{value!r} is committed, and {pair} does not have it"
        for pair, its in zip(PAIRS, committed, strict=True):
            assert value in its or is_open(logs[pair], value), f"{value!r} was lost in {pair}"
    return len(set.union(*committed))


def is_open(log: PartitionLog, value: bytes) -> bool:
    """Returns whether a record is of an undecided transaction."""
    (offset,) = [each.offset for each in records_of(log) if each.value == value]
    return offset >= log.last_stable_offset


def check_prefix(logs: Logs) -> int:
    """Check that the numbers are those up to some number, without a gap. Returns how many."""
    found = [values_in(logs[ORDERED, each]) for each in range(PARTITIONS)]
    numbers = sorted(int(value or b"") for each in found for value in each)
    assert numbers == list(range(len(numbers)))
    return len(numbers)


def check_prefixes(made: Iterable[SnapshotDescriptor]) -> None:
    for descriptor in made:
        logs = opened_snapshot(descriptor)
        try:
            check_prefix(logs)
        finally:
            close(logs)


def check_offsets(logs: Logs) -> int:
    """Check that no committed offset is beyond a log's end. Returns how many there are."""
    last: dict[tuple[str, int], int] = defaultdict(int)
    for (topic, _), log in logs.items():
        if topic == "__consumer_offsets":
            committed = set(committed_offsets(log))
            for each in records_of(log):
                if each.offset in committed and each.key is not None:
                    record = read_record(each.key, each.value)
                    if isinstance(record.key, OffsetCommitKey):
                        assert isinstance(record.value, OffsetCommitValue)
                        last[record.key.topic, record.key.partition] = record.value.offset
    for partition, offset in last.items():
        assert offset <= logs[partition].log_end_offset
    return len(last)


async def test_snapshot_has_whole_transactions_prefixes_and_offsets_that_exist(
    tmp_path: Path,
) -> None:
    async with loaded_broker(tmp_path) as served:
        made = await snapshots_under(
            served,
            lambda s, stop: write_transactions(s, stop, "one"),
            lambda s, stop: write_transactions(s, stop, "two"),
            write_in_order,
            roll_and_retain,
            written=[*PAIRS, *IN_ORDER],
        )
        committed, numbers, offsets = [], [], []
        for descriptor in made:
            logs = opened_snapshot(descriptor)
            committed.append(check_transactions(logs))
            numbers.append(check_prefix(logs))
            offsets.append(check_offsets(logs))
            close(logs)
    assert committed == sorted(committed)
    assert numbers == sorted(numbers)
    assert committed[-1] > committed[0] > 0
    assert numbers[-1] > numbers[0] > PARTITIONS
    assert offsets[-1] == PARTITIONS


async def test_topics_that_come_and_go_do_not_spoil_a_snapshot(tmp_path: Path) -> None:
    async with loaded_broker(tmp_path) as served:
        made = await snapshots_under(served, write_in_order, create_and_delete, written=IN_ORDER)
        for descriptor in made:
            logs = opened_snapshot(descriptor)
            assert check_prefix(logs) > 0
            names = {topic.name for topic in descriptor.topics}
            assert {f"/topics/{name}" for name in names} == {
                key for key in descriptor.cluster if key.startswith("/topics/")
            }
            for topic in descriptor.topics:
                assert topic.partitions or topic.name.startswith("passing-")
            close(logs)


async def test_fault_that_takes_moments_late_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log has its own moment: when the snapshot gets to it."""
    take = LogAppender.take_moment

    def from_the_snapshot_only(self: LogAppender, now_ms: int) -> None:
        if self in taken_by_snapshot:
            take(self, now_ms)

    taken_by_snapshot: set[LogAppender] = set()

    def take_late(self: PartitionLog, now_ms: int) -> None:
        taken_by_snapshot.add(self.appender)
        take(self.appender, now_ms)
        taken_by_snapshot.discard(self.appender)

    link = Making._link_all

    async def slowly(self: Making, *args: object) -> object:
        ordered = self._sources.topics.get(ORDERED)
        assert ordered is not None
        await until_grown(ordered.logs())
        return await link(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LogAppender, "take_moment", from_the_snapshot_only)
    monkeypatch.setattr(PartitionLog, "take_moment", take_late)
    monkeypatch.setattr("server.snapshots.making.LOGS_AT_A_TIME", 1)
    monkeypatch.setattr(Making, "_link_all", slowly)
    async with loaded_broker(tmp_path) as served:
        made = await snapshots_under(served, write_in_order, written=IN_ORDER)
        with pytest.raises(AssertionError):
            check_prefixes(made)
