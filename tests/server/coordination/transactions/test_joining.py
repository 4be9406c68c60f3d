"""In the new protocol what is produced to joins the transaction by itself, and never a later one."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from tests.harness.served_broker import NOW_MS, ServedBroker, serving_broker
from tests.harness.transaction_requests import TX, described, end, init, until_state

NONE = ErrorCode.NONE


async def produce(
    served: ServedBroker,
    producer: Producer,
    *partitions: int,
    sequence: int = 0,
    version: int = 12,
    topic: str = "t",
) -> list[ErrorCode]:
    """A transactional batch for each partition."""
    batch = build_batch(
        [Record(offset=0, timestamp=NOW_MS, key=b"k", value=b"v")],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = tuple(
        PartitionProduceData(index=partition, records=memoryview(bytes(batch)))
        for partition in partitions
    )
    request = ProduceRequest(
        transactional_id=TX,
        acks=-1,
        timeout_ms=1_000,
        topic_data=(TopicProduceData(name=topic, partition_data=data),),
    )
    answer = await served.call(request, version, ProduceResponse)
    return [
        ErrorCode(each.error_code)
        for each_topic in answer.responses
        for each in each_topic.partition_responses
    ]


async def commit_offsets(
    served: ServedBroker, producer: Producer, *, version: int = 5
) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id=TX,
        group_id="g",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    answer = await served.call(request, version, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def test_what_is_produced_to_is_in_the_transaction(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 3)
        producer = await init(served)
        assert await produce(served, producer, 0, 2) == [NONE, NONE]
        assert await produce(served, producer, 0, sequence=1) == [NONE]
        assert [topic.partitions for topic in (await described(served)).topics] == [(0, 2)]
        assert served.log("t").last_stable_offset == 0


async def test_before_v12_it_has_to_be_added_first(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        assert await produce(served, producer, 0, version=10) == [ErrorCode.INVALID_TXN_STATE]
        assert await produce(served, producer, 0, version=11) == [ErrorCode.TRANSACTION_ABORTABLE]
        assert (await described(served)).transaction_state == "Empty"


async def test_a_groups_offsets_are_in_the_transaction(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        aborted = await commit_offsets(served, producer, version=4)
        assert aborted is ErrorCode.TRANSACTION_ABORTABLE
        assert await commit_offsets(served, producer) is NONE
        (topic,) = (await described(served)).topics
        assert topic.topic == "__consumer_offsets"

        await end(served, producer, version=5)
        await until_state(served, "CompleteCommit")
        offsets = served.broker.offsets.fetch("g")
        assert not isinstance(offsets, ErrorCode)
        committed = offsets.get("t", 0)
        assert committed is not None
        assert committed.offset == 5


async def test_a_batch_that_comes_late_joins_no_later_transaction(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        old = await init(served)
        assert await produce(served, old, 0) == [NONE]
        answer = await end(served, old, is_commit=False, version=5)
        new = Producer(answer.producer_id, answer.producer_epoch)
        assert await produce(served, new, 0) == [NONE]

        late = await produce(served, old, 0, sequence=1)
        assert late == [ErrorCode.INVALID_PRODUCER_EPOCH]
        await end(served, new, version=5)
        await until_state(served, "CompleteCommit")
        # Two batches, each with its marker.
        assert served.log("t").last_stable_offset == 4


async def test_the_next_transaction_waits_for_the_markers_of_the_one_before(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        for _ in range(20):
            assert await produce(served, producer, 0) == [NONE]
            answer = await end(served, producer, version=5)
            assert answer.error_code == NONE
            producer = Producer(answer.producer_id, answer.producer_epoch)
        await until_state(served, "CompleteCommit")
        assert served.log("t").last_stable_offset == 40


async def test_what_cannot_be_produced_to_joins_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await produce(served, producer, 7) == [unknown]
        await served.broker.groups.topic.ensure()
        internal = await produce(served, producer, 0, topic="__consumer_offsets")
        assert internal == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert (await described(served)).transaction_state == "Empty"
        stranger = await produce(served, Producer(producer.id + 1, 0), 0)
        assert stranger == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


async def test_producers_wait_only_for_a_while(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        await produce(served, producer, 0)
        entry = served.broker.transactions.describe(TX)
        assert not isinstance(entry, ErrorCode | None)
        outcome = entry.transaction.time_out(1 << 60)
        # It is being written, for ever.
        entry.transaction.begin_write(outcome)
        busy = await produce(served, producer, 0, sequence=1)
        assert busy == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert entry.waiting == []
        entry.transaction.fail_write()
