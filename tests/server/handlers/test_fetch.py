"""Fetch: which records an answer holds, its size limits, and when a fetch waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.produce import ProduceResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.durability import group_commit
from server.runtime.turns import Pace
from storage.log.reader import LogReader
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    produce_request,
    records_in,
    serving_broker,
)

LONG_MS = 30_000


def partitions_request(
    name: str, places: Sequence[tuple[int, int]], **settings: Any
) -> FetchRequest:
    """Fetch (partition, offset) of one topic, in one list."""
    partitions = tuple(
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        for partition, offset in places
    )
    topics = (FetchTopic(topic=name, partitions=partitions),)
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1}
    return FetchRequest(**fields | settings, topics=topics)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def park(
    served: ServedBroker, client: RawClient, request: FetchRequest
) -> asyncio.Task[PartitionData]:
    """Send a fetch that has to wait, and return once it does."""
    waiters = served.broker.fetch_waiters
    before = waiters.parked_count
    correlation_id = client.send(request, 12)

    async def answer() -> PartitionData:
        return only_fetched(await client.receive(FetchResponse, 12, correlation_id))

    task = asyncio.ensure_future(answer())
    await until(lambda: waiters.parked_count == before + 1)
    return task


@pytest.mark.parametrize("version", range(4, 19))
async def test_batches_come_as_they_were_stored_in_every_version(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        await served.produce("orders", batch_of(3))
        await served.produce("orders", batch_of(2))
        request = fetch_request([("orders", 0, 1)], topic_id=topic.id, isolation_level=version % 2)
        data = only_fetched(await served.call(request, version, FetchResponse))
    assert [record.offset for record in records_in(data)] == [0, 1, 2, 3, 4]
    assert (data.high_watermark, data.last_stable_offset) == (5, 5)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert not data.aborted_transactions
    assert data.preferred_read_replica == -1


async def test_the_leader_epoch_is_stamped_and_the_crc_still_right(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1))
        data = await served.fetch("orders", 0)
        epoch = served.log("orders").leader_epoch
    assert isinstance(data.records, memoryview)
    assert int.from_bytes(data.records[12:16], "big") == epoch
    assert len(records_in(data)) == 1


@pytest.mark.parametrize("offset", [-1, 4, 1 << 62])
async def test_an_offset_outside_of_the_log_is_told_at_once(tmp_path: Path, offset: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        data = await served.fetch("orders", offset, max_wait_ms=LONG_MS)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.high_watermark == -1


async def test_an_unknown_partition_is_told_at_once_beside_others(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        wanted = [("orders", 0, 0), ("orders", 1, 0), ("nowhere", 0, 0)]
        response = await served.call(fetch_request(wanted, max_wait_ms=LONG_MS), 12, FetchResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (topic.topic, [(p.partition_index, p.error_code) for p in topic.partitions])
        for topic in response.responses
    ] == [("orders", [(0, ErrorCode.NONE), (1, unknown)]), ("nowhere", [(0, unknown)])]


async def test_a_wrong_leader_epoch_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        epoch = served.log("orders").leader_epoch
        for given, code in (
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch, ErrorCode.NONE),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            data = await served.fetch("orders", 0, current_leader_epoch=given)
            assert data.error_code == code


async def test_the_first_batch_comes_whole_though_it_is_larger_than_every_limit(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for _ in range(3):
            await served.produce("orders", batch_of(1, value=bytes(10_000)))
        data = await served.fetch("orders", 1, partition_max_bytes=1, max_bytes=1)
    assert [record.offset for record in records_in(data)] == [1]


async def test_only_whole_batches_within_the_limits_follow(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for _ in range(5):
            await served.produce("orders", batch_of(1, value=bytes(10_000)))
        by_partition = await served.fetch("orders", 0, partition_max_bytes=25_000)
        by_request = await served.fetch("orders", 0, max_bytes=35_000)
    assert len(records_in(by_partition)) == 2
    assert len(records_in(by_request)) == 3


async def test_only_the_first_partition_with_data_may_exceed_the_limit(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        for name in ("empty", "first", "second"):
            await served.create(name)
        for name in ("first", "second"):
            await served.produce(name, batch_of(1, value=bytes(10_000)))
        wanted = [("empty", 0, 0), ("first", 0, 0), ("second", 0, 0)]
        response = await served.call(fetch_request(wanted, max_bytes=5000), 12, FetchResponse)
    sizes = {topic.topic: len(topic.partitions[0].records or b"") for topic in response.responses}
    assert sizes["empty"] == 0
    assert sizes["first"] > 10_000
    assert sizes["second"] == 0


async def test_a_partition_that_is_named_again_is_answered_once_as_it_is_named_last(
    tmp_path: Path,
) -> None:
    """Kafka 4.3.1 answers so, with and without a session, by names and by ids."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        for _ in range(3):
            await served.produce("orders", batch_of(1))
        request = partitions_request("orders", [(0, 0), (1, 0), (0, 2), (0, 1)])
        (topic,) = (await served.call(request, 12, FetchResponse)).responses
        failing = partitions_request("orders", [(0, 0), (0, 99)])
        failed = only_fetched(await served.call(failing, 12, FetchResponse))
    first, second = topic.partitions
    assert (first.partition_index, second.partition_index) == (0, 1)
    assert [record.offset for record in records_in(first)] == [1, 2]
    assert records_in(second) == []
    assert failed.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_fetch_that_names_a_partition_very_often_reads_it_once_each_time_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = LogReader.read

    def counted(self: LogReader, offset: int, **settings: Any) -> Any:
        reads.append(offset)
        return read(self, Offset(offset), **settings)

    monkeypatch.setattr(LogReader, "read", counted)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        places = [(0, 0)] * 20_000
        request = partitions_request("orders", places, max_wait_ms=LONG_MS, min_bytes=250)
        answer = await park(served, client, request)
        assert len(reads) == 1
        for _ in range(4):
            await served.produce("orders", batch_of(1))
        assert len(records_in(await answer)) == 4
    assert len(reads) == 5


@pytest.mark.parametrize("at", range(1, 10))
async def test_what_changes_while_a_long_fetch_is_read_and_parked_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Each rest lets another request in: here an append, in the `at`-th rest.

    The fetch rests three times while it collects what it is asked for, three while it reads, and
    three while it begins to wait.
    """
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=3)
        rests = 0

        async def rest(self: Pace) -> None:
            nonlocal rests
            rests += 1
            if rests == at:
                await served.produce("orders", batch_of(1))

        monkeypatch.setattr("server.handlers.fetch.PARTITIONS_PER_TURN", 1)
        monkeypatch.setattr("server.handlers.shared.partition_reads.PARTITIONS_PER_TURN", 1)
        monkeypatch.setattr(Pace, "is_over", property(lambda self: True))
        monkeypatch.setattr(Pace, "rest", rest)
        client = await served.connect()
        places = [(0, 0), (1, 0), (2, 0)]
        request = partitions_request("orders", places, max_wait_ms=LONG_MS)
        (topic,) = (await client.call(request, 12, FetchResponse)).responses
    assert rests >= 9
    assert [len(records_in(data)) for data in topic.partitions] == [1, 0, 0]


async def test_a_fetch_at_the_end_waits_for_the_next_batch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        answer = await park(served, client, fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS))
        await asyncio.sleep(0.02)
        assert not answer.done()

        start = time.monotonic()
        await served.produce("orders", batch_of(2))

        assert len(records_in(await answer)) == 2
        assert time.monotonic() - start < LONG_MS / 2000
        assert served.broker.fetch_waiters.parked_count == 0


async def test_a_fetch_that_gets_too_little_is_answered_when_its_time_is_over(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1))
        start = time.monotonic()
        data = await served.fetch("orders", 0, max_wait_ms=150, min_bytes=1 << 20)
        assert 0.14 <= time.monotonic() - start < LONG_MS / 2000
    assert len(records_in(data)) == 1


async def test_a_fetch_waits_until_all_its_partitions_together_have_min_bytes(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        client = await served.connect()
        request = fetch_request(
            [("orders", 0, 0), ("orders", 1, 0)], max_wait_ms=LONG_MS, min_bytes=15_000
        )
        correlation_id = client.send(request, 12)
        received = asyncio.ensure_future(client.receive(FetchResponse, 12, correlation_id))
        await until(lambda: served.broker.fetch_waiters.parked_count == 1)

        await served.produce("orders", batch_of(1, value=bytes(10_000)), partition=0)
        await asyncio.sleep(0.02)
        assert not received.done()
        await served.produce("orders", batch_of(1, value=bytes(10_000)), partition=1)

        (topic,) = (await received).responses
        assert [len(records_in(data)) for data in topic.partitions] == [1, 1]


async def test_a_fetch_on_a_topic_that_is_deleted_is_told(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        answer = await park(served, client, fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS))

        await served.call(
            DeleteTopicsRequest(topic_names=("orders",), timeout_ms=1000), 5, DeleteTopicsResponse
        )

        assert (await answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_that_parks_does_not_wait_for_appends_to_linger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "LINGER_SECONDS", 3600)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        produce = produce_request("orders", batch_of(1), acks=1)
        await served.call(produce, 9, ProduceResponse)
        request = fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS)
        answer = only_fetched(await served.call(request, 12, FetchResponse))
        assert len(records_in(answer)) == 1


async def test_a_parked_fetch_ends_when_its_client_leaves(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1, value=bytes(200_000)))
        client = await served.connect()
        request = fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS, min_bytes=1 << 20)
        answer = await park(served, client, request)
        (segment,) = served.log("orders").segments
        assert segment.files._pins == 1

        client.abort()

        await until(lambda: served.broker.fetch_waiters.parked_count == 0)
        await until(lambda: segment.files._pins == 0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer


async def test_a_small_answer_holds_no_descriptor_while_it_waits(tmp_path: Path) -> None:
    """An answer from hundreds of partitions would hold hundreds."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1))
        client = await served.connect()
        request = fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS, min_bytes=1000)
        answer = await park(served, client, request)
        (segment,) = served.log("orders").segments
        assert segment.files._pins == 0

        await served.produce("orders", batch_of(1, value=bytes(1000)))

        assert len(records_in(await answer)) == 2


async def test_stopping_the_broker_answers_a_parked_fetch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        request = fetch_request([("orders", 0, 0)], max_wait_ms=LONG_MS)
        answer = await park(served, client, request)
        start = time.monotonic()

        await served.broker.stop()

        assert records_in(await answer) == []
        assert time.monotonic() - start < LONG_MS / 2000


async def test_a_fetch_of_nothing_is_answered_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        request = fetch_request([], max_wait_ms=LONG_MS)
        assert (await served.call(request, 12, FetchResponse)).responses == ()


async def test_a_slow_reader_gets_every_byte_and_the_pins_are_released(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for _ in range(20):
            await served.produce("orders", batch_of(1, value=bytes(1_000_000)))
        client = await served.connect(limit=1 << 16)
        request = fetch_request([("orders", 0, 0)], partition_max_bytes=1 << 25)
        correlation_id = client.send(request, 12)
        (segment,) = served.log("orders").segments
        await until(lambda: segment.files._pins == 1)

        data = only_fetched(await client.receive(FetchResponse, 12, correlation_id))

        assert len(records_in(data)) == 20
        await until(lambda: segment.files._pins == 0)


@pytest.mark.parametrize(
    ("epoch", "offset", "diverging"),
    [
        pytest.param(0, 3, None, id="read_to_the_end_of_an_earlier_epoch"),
        pytest.param(0, 4, (0, 3), id="read_past_the_end_of_an_earlier_epoch"),
        pytest.param(1, 3, (0, 3), id="an_epoch_in_which_nothing_was_written"),
        pytest.param(2, 5, None, id="at_the_end_in_the_current_epoch"),
        pytest.param(2, 6, (2, 5), id="past_the_end_in_the_current_epoch"),
    ],
)
async def test_a_reader_whose_log_has_left_ours_is_told_where_at_once_and_gets_no_records(
    tmp_path: Path, epoch: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    """KIP-595. Epochs count from the first one here."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        first = served.log("orders").leader_epoch
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        await served.produce("orders", batch_of(2))
        wait_ms = LONG_MS if diverging else 0
        data = await served.fetch(
            "orders", offset, last_fetched_epoch=first + epoch, max_wait_ms=wait_ms
        )
    assert data.error_code == ErrorCode.NONE
    assert data.high_watermark == 5
    if diverging is None:
        assert data.diverging_epoch == EpochEndOffset()
        assert len(records_in(data)) == 5 - offset
    else:
        told = EpochEndOffset(epoch=first + diverging[0], end_offset=diverging[1])
        assert data.diverging_epoch == told
        assert not data.records


async def test_a_reader_of_an_epoch_that_nobody_knows_is_out_of_range(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        future = served.log("orders").leader_epoch + 1
        data = await served.fetch("orders", 1, last_fetched_epoch=future)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def flip_in_segment(directory: Path, position: int) -> None:
    """Flip a bit in the only segment of `orders`, as a disk may."""
    (segment,) = directory.glob("orders*/0/*.log")
    with segment.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x40]))


async def test_a_damaged_body_is_served_as_it_is(tmp_path: Path) -> None:
    """A fetch reads headers only, as Kafka does; consumers check the CRC."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        batch = batch_of(3)
        await served.produce("orders", batch)
        flip_in_segment(tmp_path, len(batch) - 1)
        answer = await served.fetch("orders", 0)
    assert answer.error_code == ErrorCode.NONE
    assert isinstance(answer.records, bytes | memoryview)
    assert bytes(answer.records)[-1] == batch[-1] ^ 0x40


async def test_a_batch_whose_length_is_damaged_is_an_error(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        flip_in_segment(tmp_path, 8)
        answer = await served.fetch("orders", 0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_copies_count_as_answers_and_nothing_is_copied_where_memory_is_short(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders")
        answers = served.broker.answers
        whole = await served.fetch("orders", 0)
        assert answers.held_bytes == 0

        answers.hold(1 << 30)
        pinned = await served.fetch("orders", 0)
        answers.give_back(1 << 30)

    assert records_in(pinned) == records_in(whole)
    assert answers.held_bytes == 0
