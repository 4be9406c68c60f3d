"""DeleteRecords (key 21), v0-v2.

Behaviour: the log start of each partition moves up to the offset, -1 standing for the high watermark;
what lies below cannot be read any more, and segments wholly below go. An offset below the log start
changes nothing. A topic that is only compacted has to keep its last values: POLICY_VIOLATION; one whose
cleanup.policy is empty allows it (KIP-1161). The answer's low watermark is the log start, durable.
The timeout is for followers, so it is not needed.
Source: KIP-107; Apache Kafka, Partition.scala `deleteRecordsOnLeader`, ReplicaManager.scala.
"""

from __future__ import annotations

import asyncio

from protocol.error_codes import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from server.dispatch import RequestContext
from server.topic import INTERNAL_TOPICS
from storage.errors import StorageError
from storage.log import PartitionLog

HIGH_WATERMARK = -1
NO_WATERMARK = -1
PARTITIONS_AT_ONCE = 4
"""Each waits for the disk in a worker thread; the others are for those who read and write."""


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Delete from each partition on its own, a few at a time."""
    gate = asyncio.Semaphore(PARTITIONS_AT_ONCE)
    topics = await asyncio.gather(
        *(_delete_from_topic(topic, context, gate) for topic in request.topics)
    )
    return DeleteRecordsResponse(topics=tuple(topics))


def refuse(
    request: DeleteRecordsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_refused(p.partition_index, error_code) for p in topic.partitions),
            )
            for topic in request.topics
        )
    )


async def _delete_from_topic(
    asked: DeleteRecordsTopic, context: RequestContext, gate: asyncio.Semaphore
) -> DeleteRecordsTopicResult:
    async def delete(partition: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        async with gate:
            return await _delete(asked.name, partition, context)

    results = await asyncio.gather(*(delete(partition) for partition in asked.partitions))
    return DeleteRecordsTopicResult(name=asked.name, partitions=tuple(results))


async def _delete(
    topic_name: str, asked: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    log = context.log_of(topic_name, asked.partition_index)
    if isinstance(log, ErrorCode):
        return _refused(asked.partition_index, log)
    if topic_name in INTERNAL_TOPICS:
        return _refused(asked.partition_index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if log.config.is_compacted and not log.config.is_deleted:
        return _refused(asked.partition_index, ErrorCode.POLICY_VIOLATION)
    try:
        error_code = await _move_start(log, asked.offset, context)
    except StorageError as error:
        error_code = context.code_of(error)
    if error_code != ErrorCode.NONE:
        return _refused(asked.partition_index, error_code)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=log.log_start_offset,
        error_code=ErrorCode.NONE,
    )


async def _move_start(log: PartitionLog, offset: int, context: RequestContext) -> ErrorCode:
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    deleted = await asyncio.to_thread(log.delete_records, offset)
    if isinstance(deleted, ErrorCode):
        return deleted
    for each in deleted:
        context.broker.probe.segment_deleted(
            log.topic_partition.topic, each.reason.value, each.size
        )
    return ErrorCode.NONE


def _refused(partition: int, error_code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=NO_WATERMARK, error_code=error_code
    )
