"""DescribeProducers: what logs remember of idempotent producers."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker


async def ask(served: ServedBroker, *asked: tuple[str, list[int]]) -> list[PartitionResponse]:
    request = DescribeProducersRequest(
        topics=tuple(TopicRequest(name=name, partition_indexes=tuple(n)) for name, n in asked)
    )
    response = await served.call(request, 0, DescribeProducersResponse)
    assert [topic.name for topic in response.topics] == [name for name, _ in asked]
    return [partition for topic in response.topics for partition in topic.partitions]


async def test_each_producer_is_described_with_its_last_sequence(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for sequence in (0, 3):
            batch = batch_of(3, producer_id=7, producer_epoch=1, base_sequence=sequence)
            await served.produce("orders", batch)
        await served.produce(
            "orders", batch_of(1, producer_id=4, producer_epoch=0, base_sequence=0)
        )
        before_ms = served.broker.clock.now_ms()
        (partition,) = await ask(served, ("orders", [0]))

    assert partition.error_code == ErrorCode.NONE
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in partition.active_producers
    ] == [(4, 0, 0, -1), (7, 1, 5, -1)]
    assert all(0 < p.last_timestamp <= before_ms for p in partition.active_producers)


async def test_a_producer_without_an_id_is_not_there(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        (partition,) = await ask(served, ("orders", [0]))
    assert partition.active_producers == ()


async def test_every_partition_asked_for_is_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        served.log("orders", 1).go_offline("the disk failed")
        answers = await ask(
            served, ("orders", [0, 1, 2, -1]), ("nowhere", [0]), ("a b", [5]), ("orders", [])
        )
    assert [(each.partition_index, each.error_code) for each in answers] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.KAFKA_STORAGE_ERROR),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (5, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert all(each.error_message for each in answers if each.error_code)
