"""WriteTxnMarkers (key 27), v1.

Behaviour: writes each marker without asking the coordinator about its producer, so that an operator can
end a hanging transaction (KIP-664). Each partition gets its own error code. The answer is sent when all
markers are durable.
Not implemented: v2, whose field says how strictly to compare epochs (KIP-1228).
Source: Apache Kafka, KafkaApis.scala `handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.producer import Producer
from server.coordination.transactions.markers import Marker
from server.coordination.transactions.metadata import TransactionPartition
from server.request_context import RequestContext
from server.runtime.turns import Pace


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> Awaitable[WriteTxnMarkersResponse]:
    """Write every marker, and answer when all are durable."""
    return _answer(request, context)


def refuse(
    request: WriteTxnMarkersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=lazy_array(lambda marker: _refused(marker, error_code), request.markers)
    )


def _refused(marker: WritableTxnMarker, error_code: ErrorCode) -> WritableTxnMarkerResult:
    """Returns the same error for each partition of a marker."""
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=lazy_array(
            lambda topic: WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=lazy_array(
                    lambda number: WritableTxnMarkerPartitionResult(
                        partition_index=number, error_code=error_code
                    ),
                    topic.partition_indexes,
                ),
            ),
            marker.topics,
        ),
    )


_Codes = Mapping[tuple[Marker, TransactionPartition], ErrorCode]


async def _answer(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Write each marker to each of its partitions, once even if a partition is named repeatedly."""
    pace = context.pace
    writes: dict[tuple[Marker, TransactionPartition], None] = {}
    async for asked in pace.paced(request.markers):
        marker = _marker(asked)
        async for topic in pace.paced(asked.topics):
            async for number in pace.paced(topic.partition_indexes):
                writes[marker, TransactionPartition(topic.name, number)] = None
    written = context.broker.transactions.markers.write_all(writes, pace)
    codes = {write: code async for write, code in written}
    results = [await _result(asked, codes, pace) async for asked in pace.paced(request.markers)]
    return WriteTxnMarkersResponse(markers=tuple(results))


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        producer=Producer(asked.producer_id, asked.producer_epoch),
        is_commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
    )


async def _result(asked: WritableTxnMarker, codes: _Codes, pace: Pace) -> WritableTxnMarkerResult:
    marker = _marker(asked)
    topics = [
        await _topic_result(topic, marker, codes, pace) async for topic in pace.paced(asked.topics)
    ]
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(topics))


async def _topic_result(
    topic: WritableTxnMarkerTopic, marker: Marker, codes: _Codes, pace: Pace
) -> WritableTxnMarkerTopicResult:
    partitions = [
        WritableTxnMarkerPartitionResult(
            partition_index=number,
            error_code=codes[marker, TransactionPartition(topic.name, number)],
        )
        async for number in pace.paced(topic.partition_indexes)
    ]
    return WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(partitions))
