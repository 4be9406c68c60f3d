"""DeleteRecords (key 21), v0-v2.

Behaviour: the log start of each partition moves up to the offset, -1 standing for the high watermark;
what lies below cannot be read any more, and segments wholly below go. An offset below the log start
changes nothing. A topic that is only compacted has to keep its last values: POLICY_VIOLATION; one whose
cleanup.policy is empty allows it (KIP-1161). A partition that a request has twice is answered once, by
the last offset that is said for it. The answer's low watermark is the log start, durable.
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
    DeleteRecordsTopicResult,
)
from server.dispatch import RequestContext
from server.topic import INTERNAL_TOPICS
from storage.errors import StorageError
from storage.log import PartitionLog

HIGH_WATERMARK = -1
NO_WATERMARK = -1
PARTITIONS_AT_ONCE = 2
"""Each waits for the disk in a thread of the pool; the others are for other requests."""

Wanted = dict[str, dict[int, DeleteRecordsPartition]]
"""What is to be deleted, by topic and partition."""


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Delete from each partition on its own, a few at a time."""
    wanted = await _wanted(request, context)
    rest = ((name, asked) for name, partitions in wanted.items() for asked in partitions.values())
    results: dict[tuple[str, int], DeleteRecordsPartitionResult] = {}

    async def delete_rest() -> None:
        # They share one iterator, because some partitions take much longer than others.
        async for name, asked in context.pace.paced(rest):
            results[name, asked.partition_index] = await _delete(name, asked, context)

    await asyncio.gather(*(delete_rest() for _ in range(PARTITIONS_AT_ONCE)))
    return DeleteRecordsResponse(
        topics=tuple(
            [
                DeleteRecordsTopicResult(
                    name=name, partitions=tuple(results[name, number] for number in partitions)
                )
                async for name, partitions in context.pace.paced(wanted.items())
            ]
        )
    )


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


async def _wanted(request: DeleteRecordsRequest, context: RequestContext) -> Wanted:
    """What the request asks for; of a partition that it has twice, what it says last."""
    wanted: Wanted = {}
    async for topic in context.pace.paced(request.topics):
        partitions = wanted.setdefault(topic.name, {})
        async for asked in context.pace.paced(topic.partitions):
            partitions[asked.partition_index] = asked
    return wanted


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
    deleted = await context.broker.executors.administration.run(log.delete_records, offset)
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
