"""Produce: acks, refusals, idempotence, and what is durable when it is answered."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch_scan import scan_batches
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.records.record_walk import UNFIT_MAX
from protocol.wire.error_codes import ErrorCode
from server.coordination.transactions.coordinator import TransactionCoordinator
from storage.log.new_logs import NewLogs
from tests.harness.examples import not_quick
from tests.harness.served_broker import (
    NOW_MS,
    ServedBroker,
    batch_of,
    only_produced,
    produce_request,
    records_in,
    serving_broker,
)
from tests.harness.served_transactions import ServedTransactions


async def refused(
    served: ServedBroker, batch: bytes | bytearray | None, version: int = 9, acks: int = -1
) -> tuple[ErrorCode, str | None]:
    """Produce to `orders` and expect a refusal that leaves the log as it was."""
    end = served.log("orders").log_end_offset
    response = await served.call(
        produce_request("orders", batch, acks=acks), version, ProduceResponse
    )
    answer = only_produced(response)
    assert answer.base_offset == -1
    assert served.log("orders").log_end_offset == end
    return ErrorCode(answer.error_code), answer.error_message


KAFKA_ON_A_PARTITION_NAMED_TWICE = {
    "good, good": ([(0, 0)], 2),
    "good, bad": ([(2, -1)], 0),
    "bad, good": ([(0, 0)], 2),
}
"""Kafka 4.3.1's answers (error code, base offset) and the log's end after them. The first batch has one
record, the second has two; a bad one has a wrong CRC. It answers the same for a topic named twice, with
acks 1 and -1, in versions 3, 8, 9, 12 and 13: the batch that is named first is dropped."""


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("is_topic_twice", [False, True], ids=["partition twice", "topic twice"])
@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("batches", KAFKA_ON_A_PARTITION_NAMED_TWICE)
async def test_every_batch_for_a_partition_that_is_named_twice_is_appended_and_answered(
    tmp_path: Path, batches: str, version: int, is_topic_twice: bool, acks: int
) -> None:
    """Kafka answers NONE for a batch that it drops; here every record under a NONE is in the log."""
    _, kafka_end = KAFKA_ON_A_PARTITION_NAMED_TWICE[batches]
    wanted: list[tuple[int, int]] = []
    end = 0
    data = []
    for count, word in enumerate(batches.split(", "), start=1):
        batch = batch_of(count)
        if word == "bad":
            batch[-1] ^= 1
        wanted.append((0, end) if word == "good" else (2, -1))
        end += count if word == "good" else 0
        data.append(PartitionProduceData(index=0, records=memoryview(batch)))
    async with serving_broker(tmp_path) as served:
        topic_id = (await served.create("orders")).id
        parts = [(each,) for each in data] if is_topic_twice else [tuple(data)]
        topics = tuple(
            TopicProduceData(name="orders", topic_id=topic_id, partition_data=part)
            for part in parts
        )
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
        response = await served.call(request, version, ProduceResponse)
        answers = [
            (part.error_code, part.base_offset)
            for topic in response.responses
            for part in topic.partition_responses
        ]
        assert answers == wanted
        assert served.log("orders").log_end_offset == end >= kafka_end


async def test_the_first_write_creates_the_files_of_a_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait until the broker has created them in the background."""
    monkeypatch.setattr(NewLogs, "make_files", lambda *_: None)
    monkeypatch.setattr(NewLogs, "make_safe", lambda *_: None)
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        assert files_of_orders(tmp_path) == set()
        request = produce_request("orders", batch_of(2))
        answer = only_produced(await served.call(request, 9, ProduceResponse))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert served.log("orders").new_files.are_made
        assert {"manifest", f"{0:020}.v1.log"} <= files_of_orders(tmp_path)


def files_of_orders(path: Path) -> set[str]:
    """Returns the names of the files of partition 0."""
    return {found.name for found in path.glob("orders.*/0/*")}


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
async def test_batches_get_the_next_offsets(tmp_path: Path, version: int, acks: int) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders")
        client = await served.connect()
        for count, offset in ((3, 0), (1, 3), (2, 4)):
            request = produce_request("orders", batch_of(count), topic_id=topic.id, acks=acks)
            answer = only_produced(await client.call(request, version, ProduceResponse))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
            assert answer.log_append_time_ms == -1
            assert answer.log_start_offset == (0 if version >= 5 else -1)


async def test_the_brokers_own_topics_take_nothing_from_clients(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("__consumer_offsets", cleanup_policy="compact")
        request = produce_request("__consumer_offsets", batch_of(1))
        answer = only_produced(await served.call(request, 9, ProduceResponse))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert served.log("__consumer_offsets").log_end_offset == 0


async def test_acks_all_is_answered_when_it_can_be_read(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        assert served.log("orders").high_watermark == 3


async def test_every_codec_is_stored_as_it_came(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        for codec in Codec:
            await served.produce("orders", batch_of(10, value=bytes(500), codec=codec))
        data = await served.fetch("orders", 0)
    records = records_in(data)
    assert [record.offset for record in records] == list(range(10 * len(Codec)))
    assert {record.value for record in records} == {bytes(500)}


@pytest.mark.parametrize("compression_type", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_compression_type_stores_every_producers_batches_with_that_codec(
    tmp_path: Path, compression_type: str
) -> None:
    stored = Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]
    async with serving_broker(tmp_path) as served:
        await served.create("orders", compression_type=compression_type)
        for number, codec in enumerate(Codec):
            answer = await served.produce("orders", batch_of(10, value=bytes(500), codec=codec))
            assert answer.base_offset == 10 * number
        data = await served.fetch("orders", 0)
    records = records_in(data)
    assert [record.offset for record in records] == list(range(10 * len(Codec)))
    assert {record.value for record in records} == {bytes(500)}
    assert isinstance(data.records, memoryview)
    assert [batch.attributes & 7 for batch in scan_batches(data.records).batches] == [stored] * 5


async def test_the_level_of_the_codec_has_its_effect(tmp_path: Path) -> None:
    value = b"".join(b"%d " % (number * number) for number in range(20_000))
    sizes = {}
    async with serving_broker(tmp_path) as served:
        for codec, level in (("gzip", 1), ("gzip", 9), ("lz4", 9), ("lz4", 12),
                             ("zstd", 1), ("zstd", 19)):  # fmt: skip
            name = f"{codec}-{level}"
            configs = {"compression.type": codec, f"compression.{codec}.level": str(level)}
            await served.create(name, 1, **configs)
            await served.produce(name, batch_of(1, value=value))
            sizes[name] = served.log(name).size_bytes
    for loose, close in (("gzip-1", "gzip-9"), ("lz4-9", "lz4-12"), ("zstd-1", "zstd-19")):
        assert sizes[close] < sizes[loose]


async def test_recompression_follows_a_live_change_of_the_config(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        log = served.log("orders")
        for compression_type in ("producer", "zstd", "uncompressed"):
            log.update_config(dataclasses.replace(log.config, compression_type=compression_type))
            await served.produce("orders", batch_of(10, value=bytes(500), codec=Codec.GZIP))
        data = await served.fetch("orders", 0)
    assert isinstance(data.records, memoryview)
    codecs = [batch.attributes & 7 for batch in scan_batches(data.records).batches]
    assert codecs == [Codec.GZIP, Codec.ZSTD, Codec.NONE]


async def test_acks_0_is_not_answered_and_what_follows_is(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        for _ in range(3):
            client.send(produce_request("orders", batch_of(1), acks=0), 9)
        request = produce_request("orders", batch_of(1))
        answer = only_produced(await client.call(request, 9, ProduceResponse))
        assert answer.base_offset == 3


async def test_acks_0_that_fails_closes_the_connection(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        client.send(produce_request("nowhere", batch_of(1), acks=0), 9)
        assert await client.is_closed()


async def test_acks_0_is_carried_out_though_the_producer_leaves_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        for _ in range(10):
            client.send(produce_request("orders", batch_of(1), acks=0), 9)
        client.close()
        async with asyncio.timeout(30):
            while served.log("orders").log_end_offset < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_other_acks_are_refused(tmp_path: Path, acks: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        code, message = await refused(served, batch_of(1), acks=acks)
    assert code == ErrorCode.INVALID_REQUIRED_ACKS
    assert str(acks) in (message or "")


def batch_with_a_flipped_bit() -> bytearray:
    batch = batch_of(3)
    batch[-1] ^= 1
    return batch


def batch_of_magic(magic: int) -> bytearray:
    batch = batch_of(3)
    batch[16] = magic
    return batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(batch_with_a_flipped_bit(), ErrorCode.CORRUPT_MESSAGE, id="flipped_bit"),
        pytest.param(batch_of(3)[:-1], ErrorCode.CORRUPT_MESSAGE, id="truncated"),
        pytest.param(batch_of(1) + batch_of(1), ErrorCode.INVALID_RECORD, id="two_batches"),
        pytest.param(batch_of_magic(1), ErrorCode.INVALID_RECORD, id="magic_1"),
        pytest.param(batch_of_magic(0), ErrorCode.INVALID_RECORD, id="magic_0"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="no_records"),
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null_records"),
        pytest.param(batch_of(1, value=bytes(1 << 20)), ErrorCode.MESSAGE_TOO_LARGE, id="large"),
        pytest.param(batch_of(1, key=None), ErrorCode.INVALID_RECORD, id="no_key"),
        pytest.param(
            batch_of(1, is_control=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.INVALID_RECORD,
            id="control",
        ),
    ],
)
async def test_a_bad_batch_is_refused_and_changes_nothing(
    tmp_path: Path, batch: bytes | None, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        refusal, message = await refused(served, batch)
        assert refusal == code
        assert message
        await served.produce("orders", batch_of(1))


@pytest.mark.parametrize("filler", [b"", bytes(200_000)], ids=["on_the_loop", "in_a_thread"])
async def test_one_record_without_a_key_refuses_its_batch_on_a_compacted_topic(
    tmp_path: Path, filler: bytes
) -> None:
    records = [
        Record(offset=i, timestamp=NOW_MS, key=None if i == 2 else b"k", value=filler)
        for i in range(4)
    ]
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        await served.create("events", cleanup_policy="delete")
        request = produce_request("orders", build_batch(records))
        answer = only_produced(await served.call(request, 9, ProduceResponse))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [2]
        assert "key" in (answer.error_message or "")
        counts = served.broker.probe.topics["orders"]
        assert counts.refused_by_reason == {"INVALID_RECORD": 4}
        assert (await served.produce("events", build_batch(records))).base_offset == 0


@not_quick
@pytest.mark.parametrize("acks", [1, -1])
async def test_an_answer_with_many_record_errors_does_not_hold_the_loop(
    tmp_path: Path, acks: int
) -> None:
    """A request of 1 MB may name 200,000 bad records; the fixture of the loop measures its turns."""
    keyless = batch_of(2000, key=None, value=b"", codec=Codec.ZSTD)
    data = tuple(PartitionProduceData(index=0, records=memoryview(keyless)) for _ in range(200))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name="orders", partition_data=data),),
    )
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        answer = await served.call(request, 9, ProduceResponse)
    (topic,) = answer.responses
    assert [len(each.record_errors) for each in topic.partition_responses] == [UNFIT_MAX] * 200


async def test_every_partition_is_answered_on_its_own(tmp_path: Path) -> None:
    def data(index: int, batch: bytearray) -> PartitionProduceData:
        return PartitionProduceData(index=index, records=memoryview(batch))

    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        orders = (
            data(0, batch_of(2)), data(7, batch_of(1)), data(1, batch_with_a_flipped_bit()),
        )  # fmt: skip
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=(
                TopicProduceData(name="orders", partition_data=orders),
                TopicProduceData(name="nowhere", partition_data=(data(0, batch_of(1)),)),
            ),
        )
        response = await served.call(request, 9, ProduceResponse)
    assert [
        (topic.name, [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses])
        for topic in response.responses
    ] == [
        (
            "orders",
            [
                (0, ErrorCode.NONE, 0),
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
                (1, ErrorCode.CORRUPT_MESSAGE, -1),
            ],
        ),
        ("nowhere", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]),
    ]


@asynccontextmanager
async def transacting(tmp_path: Path) -> AsyncIterator[tuple[ServedBroker, ServedTransactions]]:
    """A broker, and a producer whose transaction with `orders` has begun."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        transactions = ServedTransactions(served, "tx", "orders")
        await transactions.begin()
        yield served, transactions


async def test_a_transactions_batches_are_taken_and_pin_the_last_stable_offset(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"k", b"1"))
        await transactions.send((b"k", b"2"))
        log = served.log("orders")
        assert (log.last_stable_offset, log.high_watermark) == (0, 2)


async def test_a_batch_of_no_open_transaction_is_refused(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.end(is_commit=True)
        end_offset = served.log("orders").log_end_offset
        batch = transactions.batch((b"k", b"v"))
        assert await transactions.produce(batch) is ErrorCode.INVALID_TXN_STATE
        error = await transactions.produce(batch, "other")
        assert error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        error = await transactions.produce(batch, None)
        assert error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert served.log("orders").log_end_offset == end_offset


async def test_a_fenced_producer_may_still_abort(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await served.broker.transactions.init_producer_id("tx", 60_000)
        error = await transactions.produce(transactions.batch((b"k", b"v")))
        assert error is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
async def test_what_nobody_can_say_now_is_asked_again_by_every_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    async with transacting(tmp_path) as (_, transactions):
        monkeypatch.setattr(TransactionCoordinator, "may_write", lambda *_: error)
        told = await transactions.produce(transactions.batch((b"k", b"v")))
        assert told is ErrorCode.NOT_ENOUGH_REPLICAS
        assert told.retriable


async def test_acks_all_is_refused_where_two_replicas_are_wanted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", min_insync_replicas="2")
        assert (await refused(served, batch_of(1)))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        request = produce_request("orders", batch_of(1), acks=1)
        answer = only_produced(await served.call(request, 9, ProduceResponse))
        assert answer.error_code == ErrorCode.NONE


async def test_log_append_time_is_the_brokers_and_is_told(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", message_timestamp_type="LogAppendTime")
        before_ms = time.time_ns() // 1_000_000
        answer = await served.produce("orders", batch_of(2))
        after_ms = time.time_ns() // 1_000_000
        records = records_in(await served.fetch("orders", 0))
    assert before_ms <= answer.log_append_time_ms <= after_ms
    assert {record.timestamp for record in records} == {answer.log_append_time_ms}


async def test_a_batch_sent_again_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    def batch(sequence: int) -> bytearray:
        return batch_of(2, producer_id=5, producer_epoch=0, base_sequence=sequence)

    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        offsets = [(await served.produce("orders", batch(s))).base_offset for s in (0, 2, 0, 2, 4)]
        assert offsets == [0, 2, 0, 2, 4]
        assert served.log("orders").log_end_offset == 6
        code, _ = await refused(served, batch(100))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_pipelined_produces_share_syncs_and_are_answered_in_order(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        client = await served.connect()
        ids = [client.send(produce_request("orders", batch_of(1)), 9) for _ in range(50)]
        answers = [only_produced(await client.receive(ProduceResponse, 9, each)) for each in ids]
        assert [answer.base_offset for answer in answers] == list(range(50))
        # Group commit: far fewer syncs than batches would need one by one.
        assert served.log("orders").high_watermark == 50


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3, value=b"kept"))
    async with serving_broker(tmp_path) as served:
        data = await served.fetch("orders", 0)
    assert [record.value for record in records_in(data)] == [b"kept"] * 3
