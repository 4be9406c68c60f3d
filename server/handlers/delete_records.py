"""DeleteRecords (key 21), v0-v2.

Behaviour: advances the log start offset of each partition to the given offset (-1: the high watermark).
Records below it can no longer be read, and segments that lie wholly below are deleted. An offset below
the log start changes nothing. A topic that is compacted but not deleted must keep its last values, so it
gets POLICY_VIOLATION; one with an empty cleanup.policy allows it (KIP-1161). If a request names a
partition twice, the last offset counts, with one answer. The answer's low watermark is the new log start
offset, which is durable. The timeout has no effect: in Kafka it bounds the wait for followers.
Source: KIP-107; Apache Kafka, Partition.scala `deleteRecordsOnLeader`, ReplicaManager.scala.
"""

from __future__ import annotations

import asyncio

from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.numbers import Offset
from server.request_context import RequestContext
from server.runtime.turns import in_slices
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_on_mirror
from server.topics.topic import INTERNAL_TOPICS
from storage.files.errors import StorageError
from storage.log.log import PartitionLog

HIGH_WATERMARK = -1
NO_WATERMARK = -1
PARTITIONS_AT_ONCE = 2
"""Each partition blocks a thread of the pool while it waits for the disk. The other threads stay free
for other requests."""

Wanted = dict[str, dict[int, DeleteRecordsPartition]]
"""The requested deletions, by topic and partition."""


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Delete records from the partitions, a few partitions at a time."""
    wanted = await _wanted(request, context)
    rest = ((name, asked) for name, partitions in wanted.items() for asked in partitions.values())
    results: dict[tuple[str, int], DeleteRecordsPartitionResult] = {}

    async def delete_rest() -> None:
        context.pace.begin()
        # The workers share one iterator, because some partitions take much longer than others.
        async for name, asked in context.pace.paced(rest):
            deleting = _delete(name, asked, context)
            results[name, asked.partition_index] = await in_slices(deleting, context.pace)

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
        topics=lazy_array(
            lambda topic: DeleteRecordsTopicResult(
                name=topic.name,
                partitions=lazy_array(
                    lambda each: _refused(each.partition_index, error_code), topic.partitions
                ),
            ),
            request.topics,
        )
    )


async def _wanted(request: DeleteRecordsRequest, context: RequestContext) -> Wanted:
    """Returns the requested deletions; for a partition that is named twice, the last one."""
    wanted: Wanted = {}
    async for topic in context.pace.paced(request.topics):
        partitions = wanted.setdefault(topic.name, {})
        async for asked in context.pace.paced(topic.partitions):
            partitions[asked.partition_index] = asked
    return wanted


async def _delete(
    topic_name: str, asked: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    if not context.may(Operation.DELETE, ResourceType.TOPIC, topic_name):
        return _refused(asked.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    log = context.log_of(topic_name, asked.partition_index)
    if isinstance(log, ErrorCode):
        return _refused(asked.partition_index, log)
    if topic_name in INTERNAL_TOPICS:
        return _refused(asked.partition_index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if mirror := refusal_on_mirror(ApiKey.DELETE_RECORDS, topic_name, log.config):
        return _refused(asked.partition_index, mirror.error_code)
    if log.config.is_compacted and not log.config.is_deleted:
        return _refused(asked.partition_index, ErrorCode.POLICY_VIOLATION)
    try:
        error_code = await _move_start(log, asked.offset, context)
    except StorageError as error:
        error_code = context.log_failure(error)
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
    deleted = await context.broker.executors.administration.run(log.delete_records, Offset(offset))
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
