"""WriteTxnMarkers (key 27), v1.

Behaviour: writes each marker whatever the coordinator knows of its producer, so that an operator can end
a transaction that hangs (KIP-664). Each partition is answered on its own, when the marker is durable.
Not implemented: v2, whose field tells a broker how strictly to compare epochs (KIP-1228).
Source: Apache Kafka, KafkaApis.scala `handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from protocol.error_codes import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from server.dispatch import RequestContext
from server.producer import Producer
from server.transactions.markers import Marker
from server.transactions.metadata import TransactionPartition


async def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> Awaitable[WriteTxnMarkersResponse]:
    """Write every marker; answer when all are durable."""
    return _answer(request, context)


def refuse(
    request: WriteTxnMarkersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    _topic_result(topic, [error_code] * len(topic.partition_indexes))
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


async def _answer(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    written = [await _written(marker, context) for marker in request.markers]
    return WriteTxnMarkersResponse(markers=tuple(written))


async def _written(asked: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    marker = Marker(
        producer=Producer(asked.producer_id, asked.producer_epoch),
        is_commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
    )
    topics = [await _written_to(topic, marker, context) for topic in asked.topics]
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(topics))


async def _written_to(
    topic: WritableTxnMarkerTopic, marker: Marker, context: RequestContext
) -> WritableTxnMarkerTopicResult:
    markers = context.broker.transactions.markers
    codes = await asyncio.gather(
        *(
            markers.write_one(marker, TransactionPartition(topic.name, partition))
            for partition in topic.partition_indexes
        )
    )
    return _topic_result(topic, codes)


def _topic_result(
    topic: WritableTxnMarkerTopic, codes: list[ErrorCode]
) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=tuple(
            WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
            for partition, code in zip(topic.partition_indexes, codes, strict=True)
        ),
    )
