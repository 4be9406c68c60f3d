"""DeleteRecords: the log start moves up to the offset that the answer names."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import NOW_MS, ServedBroker, batch_of, serving_broker

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer
    from kafka import TopicPartition as PyTopicPartition

HIGH_WATERMARK = -1


async def delete(
    served: ServedBroker, name: str, *offsets: tuple[int, int], version: int = 2
) -> list[DeleteRecordsPartitionResult]:
    """Delete from (partition, offset); the answers in that order."""
    partitions = tuple(DeleteRecordsPartition(partition_index=p, offset=o) for p, o in offsets)
    topic = DeleteRecordsTopic(name=name, partitions=partitions)
    request = DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)
    (answer,) = (await served.call(request, version, DeleteRecordsResponse)).topics
    assert answer.name == name
    assert [each.partition_index for each in answer.partitions] == [p for p, _ in offsets]
    return list(answer.partitions)


@pytest.mark.parametrize("version", range(3))
async def test_the_log_start_moves_to_the_offset_or_the_high_watermark(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        for partition in range(2):
            await served.produce("orders", batch_of(5), partition)

        results = await delete(served, "orders", (0, 3), (1, HIGH_WATERMARK), version=version)

        assert [(r.error_code, r.low_watermark) for r in results] == [(0, 3), (0, 5)]
        assert served.log("orders", 0).log_start_offset == 3
        assert (await served.fetch("orders", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await served.fetch("orders", 3)).log_start_offset == 3


async def test_an_offset_below_the_log_start_changes_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 4))
        (result,) = await delete(served, "orders", (0, 2))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)


async def test_what_cannot_be_deleted_gets_its_error_and_the_others_are_deleted(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        for offset in (6, -2):
            (result,) = await delete(served, "orders", (0, offset))
            assert (result.error_code, result.low_watermark) == (1, -1)
        results = await delete(served, "orders", (1, 0), (0, 1))
        assert [(r.error_code, r.low_watermark) for r in results] == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.NONE, 1),
        ]
        (unknown,) = await delete(served, "nowhere", (0, 1))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        pytest.param("compact", ErrorCode.POLICY_VIOLATION, id="last_values_must_stay"),
        pytest.param("compact,delete", ErrorCode.NONE, id="both"),
        pytest.param("delete", ErrorCode.NONE, id="delete"),
        pytest.param("", ErrorCode.NONE, id="what_is_kept_for_ever_may_be_deleted_by_hand"),
    ],
)
async def test_a_topic_that_is_only_compacted_keeps_its_records(
    tmp_path: Path, policy: str, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("table", cleanup_policy=policy)
        await served.produce("table", batch_of(5))
        (result,) = await delete(served, "table", (0, 5))
        assert result.error_code == code
        assert served.log("table").log_start_offset == (0 if code else 5)


async def test_an_internal_topic_keeps_its_records(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("__consumer_offsets", cleanup_policy="compact,delete")
        (result,) = await delete(served, "__consumer_offsets", (0, 0))
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_what_was_deleted_stays_deleted_over_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 2))
    async with serving_broker(tmp_path) as served:
        log = served.log("orders")
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)


# Real clients.


def bootstrap(served: ServedBroker) -> str:
    host, port = served.broker.addresses["PLAINTEXT"]
    return f"{host}:{port}"


async def test_librdkafka_deletes_records_and_is_told_the_low_watermark(tmp_path: Path) -> None:
    def run(servers: str) -> tuple[int, str]:
        admin = AdminClient({"bootstrap.servers": servers})
        wanted = TopicPartition("orders", 0, 3)
        (done,) = admin.delete_records([wanted], request_timeout=10).values()
        (refused,) = admin.delete_records([TopicPartition("table", 0, 1)]).values()
        with pytest.raises(KafkaException) as raised:
            refused.result()
        return done.result().low_watermark, raised.value.args[0].name()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.create("table", cleanup_policy="compact")
        for name in ("orders", "table"):
            await served.produce(name, batch_of(5))
        assert await asyncio.to_thread(run, bootstrap(served)) == (3, "POLICY_VIOLATION")
        assert served.log("orders").log_start_offset == 3


async def test_kafka_python_empties_a_topic(tmp_path: Path) -> None:
    def run(servers: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        try:
            admin.delete_records({PyTopicPartition("orders", 0): HIGH_WATERMARK})
        finally:
            admin.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await asyncio.to_thread(run, bootstrap(served))
        assert served.log("orders").log_start_offset == 5


@pytest.mark.parametrize(
    ("reset", "first"),
    [
        pytest.param("earliest", 4, id="earliest_is_the_first_record_that_is_left"),
        pytest.param("latest", 5, id="latest_is_the_end"),
    ],
)
async def test_a_consumer_whose_position_was_deleted_is_reset_as_it_wishes(
    tmp_path: Path, reset: str, first: int
) -> None:
    def run(servers: str) -> tuple[int, tuple[int, int]]:
        consumer = consumer_at(servers, 0, reset)
        try:
            message = next_message(consumer)
            offset = message.offset()
            assert offset is not None
            return offset, consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10)
        finally:
            consumer.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 4))
        reading = asyncio.create_task(asyncio.to_thread(run, bootstrap(served)))
        if reset == "latest":
            # Only what comes after the reset is read, whenever that is.
            while not reading.done():
                await asyncio.sleep(0.2)
                await served.produce("orders", batch_of(1))
        offset, (low, _high) = await reading
    assert low == 4
    assert offset >= first if reset == "latest" else offset == first


async def test_kafka_python_goes_on_at_the_first_record_that_is_left(tmp_path: Path) -> None:
    def run(servers: str) -> list[int]:
        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        try:
            partition = PyTopicPartition("orders", 0)
            consumer.assign([partition])
            consumer.seek(partition, 1)
            offsets = [next(consumer).offset]
            return [*offsets, *consumer.beginning_offsets([partition]).values()]
        finally:
            consumer.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 4))
        assert await asyncio.to_thread(run, bootstrap(served)) == [4, 4]


async def test_a_consumer_that_retention_overtakes_goes_on_at_the_first_record_that_is_left(
    tmp_path: Path,
) -> None:
    def read_one(consumer: Consumer) -> int:
        return int(next_message(consumer).offset() or 0)

    async with serving_broker(tmp_path) as served:
        await served.create("orders", internal_segment_bytes="1000", retention_ms="60000")
        log = served.log("orders")
        for _ in range(20):
            await served.produce("orders", batch_of(1, value=bytes(400)))
        # It reads ahead no further than one small fetch, so that its position is overtaken.
        consumer = consumer_at(
            bootstrap(served),
            0,
            "earliest",
            **{"max.partition.fetch.bytes": 500, "queued.min.messages": 1},
        )
        try:
            assert await asyncio.to_thread(read_one, consumer) == 0
            assert log.retention_is_due(NOW_MS + 120_000)
            await asyncio.to_thread(log.retain, NOW_MS + 120_000)
            assert log.log_start_offset == 20
            await served.produce("orders", batch_of(1))
            offsets: list[int] = []
            while 20 not in offsets:
                offsets.append(await asyncio.to_thread(read_one, consumer))
        finally:
            await asyncio.to_thread(consumer.close)
    assert offsets == sorted(offsets)
    assert len(offsets) < 20, "most of what was deleted was never sent"


async def test_a_consumer_that_must_not_be_reset_is_told(tmp_path: Path) -> None:
    def run(servers: str) -> str:
        consumer = consumer_at(servers, 0, "error")
        try:
            while (message := consumer.poll(10)) is not None:
                error = message.error()
                if error is not None:
                    return str(error.name())
            return "nothing"
        finally:
            consumer.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 4))
        assert await asyncio.to_thread(run, bootstrap(served)) == "_AUTO_OFFSET_RESET"


async def test_the_earliest_offset_is_the_log_start(tmp_path: Path) -> None:
    def run(servers: str) -> list[int]:
        consumer = consumer_at(servers, 0, "earliest")
        try:
            early, _ = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=10)
            (at_start,) = consumer.offsets_for_times([TopicPartition("orders", 0, 0)], timeout=10)
            return [early, at_start.offset]
        finally:
            consumer.close()

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await delete(served, "orders", (0, 3))
        assert await asyncio.to_thread(run, bootstrap(served)) == [3, 3]


def consumer_at(servers: str, offset: int, reset: str, **settings: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused: partitions are assigned",
            "auto.offset.reset": reset,
            **settings,
        }
    )
    consumer.assign([TopicPartition("orders", 0, offset)])
    return consumer


def next_message(consumer: Consumer) -> Message:
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    return message


async def test_a_partition_that_is_named_often_is_answered_once_by_what_is_said_last(
    tmp_path: Path,
) -> None:
    """As Kafka 4.3.1 answers the same requests."""

    async def answers(*asked: tuple[str, list[tuple[int, int]]]) -> list[tuple[str, list[Any]]]:
        topics = tuple(
            DeleteRecordsTopic(
                name=name,
                partitions=tuple(
                    DeleteRecordsPartition(partition_index=p, offset=o) for p, o in places
                ),
            )
            for name, places in asked
        )
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        response = await served.call(request, 2, DeleteRecordsResponse)
        return [
            (t.name, [(p.partition_index, p.low_watermark, p.error_code) for p in t.partitions])
            for t in response.topics
        ]

    async with serving_broker(tmp_path) as served:
        await served.create("s")
        await served.create("s2", partitions=2)
        assert await answers(("s", [(0, 0), (0, 0), (0, 5)]), ("s", [(0, 0)])) == [
            ("s", [(0, 0, 0)])
        ]
        assert await answers(("s", [(0, 0), (0, 5)])) == [("s", [(0, -1, 1)])]
        assert await answers(
            ("s", [(0, 5), (0, 0)]), ("s2", [(1, 0), (0, 0), (1, 0)]), ("s", [(0, 7)])
        ) == [("s", [(0, -1, 1)]), ("s2", [(1, 0, 0), (0, 0, 0)])]
