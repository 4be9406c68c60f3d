"""OffsetForLeaderEpoch (key 23), v2-v4.

Behaviour: the largest epoch of the log up to the one asked for, and the offset where it ended; for
the current epoch that is the log's end. An epoch that the log cannot know is answered with -1, -1
and no error, as in Kafka. Every partition asked for is answered.
Versions: v3 replica_id, which makes no difference here.
Source: KIP-320; Apache Kafka, Partition.scala `lastOffsetForLeaderEpoch`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from server.dispatch import RequestContext
from storage.errors import StorageError


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer each partition on its own."""
    topics = []
    async for topic in context.pace.paced(request.topics):
        partitions = [
            _answer(topic.topic, asked, context)
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
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_refused(p.partition, error_code) for p in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _answer(
    topic_name: str, asked: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    log = context.log_of(topic_name, asked.partition, asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return _refused(asked.partition, log)
    try:
        epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except StorageError as error:
        return _refused(asked.partition, context.code_of(error))
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def _refused(partition: int, error_code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=error_code, partition=partition)
