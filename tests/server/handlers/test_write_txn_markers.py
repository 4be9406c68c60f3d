"""WriteTxnMarkers: a transaction that hangs is ended, partition by partition."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from storage.batches.validate import ValidBatch
from tests.harness.served_broker import ServedBroker, serving_broker


async def write_marker(
    served: ServedBroker, producer: Producer, topics: dict[str, tuple[int, ...]]
) -> list[int]:
    """Abort; the codes in their order."""
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ),
        coordinator_epoch=0,
    )
    answer = await served.call(
        WriteTxnMarkersRequest(markers=(marker,)), 1, WriteTxnMarkersResponse
    )
    (result,) = answer.markers
    assert result.producer_id == producer.id
    return [each.error_code for topic in result.topics for each in topic.partitions]


async def test_a_hanging_transaction_is_ended_in_each_partition_named(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 2)
        producer = Producer(7, 3)
        batch = build_batch(
            [Record(offset=0, timestamp=0, key=b"k", value=b"v")],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log = served.log("t")
        log.appender.append_as_leader(ValidBatch(read_header(batch), memoryview(batch)), now_ms=0)
        assert log.last_stable_offset == 0

        codes = await write_marker(served, producer, {"t": (0, 5), "nowhere": (0,)})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [ErrorCode.NONE, unknown, unknown]
        assert log.last_stable_offset == log.high_watermark == 2


async def test_a_marker_of_an_older_epoch_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        assert await write_marker(served, Producer(7, 3), {"t": (0,)}) == [ErrorCode.NONE]
        older = await write_marker(served, Producer(7, 2), {"t": (0,)})
    assert older == [ErrorCode.INVALID_PRODUCER_EPOCH]
