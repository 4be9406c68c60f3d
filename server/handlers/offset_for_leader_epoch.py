"""OffsetForLeaderEpoch (key 23), v2-v4.

Behaviour: returns the largest epoch in the log that is not above the requested one, and its end offset;
for the current epoch that is the log end offset. An epoch that the log does not know gets -1, -1 without
an error, as in Kafka. Every requested partition is answered.
Versions: v3 replica_id (ignored).
Source: KIP-320; Apache Kafka, Partition.scala `lastOffsetForLeaderEpoch`.
"""

from __future__ import annotations

from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.numbers import Epoch
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from storage.files.errors import StorageError


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Look up the end offset for each partition."""
    topics = []
    is_broker = context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, quiet=True)
    async for topic in context.pace.paced(request.topics):
        may = is_broker or context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        partitions = [
            _answer(topic.topic, asked, context)
            if may
            else _refused(asked.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            async for asked in context.pace.paced(topic.partitions)
        ]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions)))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def refuse(
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=lazy_array(
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=lazy_array(
                    lambda each: _refused(each.partition, error_code), topic.partitions
                ),
            ),
            request.topics,
        )
    )


def _answer(
    topic_name: str, asked: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    log = context.readable_log_of(topic_name, asked.partition, asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return _refused(asked.partition, log)
    try:
        epoch, end_offset = log.reader.end_offset_for_epoch(Epoch(asked.leader_epoch))
    except StorageError as error:
        return _refused(asked.partition, context.log_failure(error))
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def _refused(partition: int, error_code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=error_code, partition=partition)
