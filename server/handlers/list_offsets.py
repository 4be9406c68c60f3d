"""ListOffsets (key 2), v1-v11.

Behaviour: timestamp -1 is the end a consumer of this isolation level can read to (high watermark or
last stable offset), -2 the log start, -3 the record with the largest timestamp; any other is the
first record with at least that timestamp. There is no tiered storage, so the local log start (-4) is
the log start, and nothing is tiered (-5) or waits to be (-6). No such record is offset -1 without an
error. Beside an offset stands the leader epoch it was written in; the end's is the current one.
Every partition asked for is answered.
Versions: v2 isolation_level · v4 current_leader_epoch, leader_epoch (KIP-320) · v7 timestamp -3
(KIP-734) · v8 -4 (KIP-405) · v9 -5 (KIP-1005) · v11 -6 (KIP-1023). Other negative timestamps, and those
of later versions, get UNSUPPORTED_VERSION as in Kafka.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from server.dispatch import RequestContext
from storage.errors import StorageError
from storage.log import PartitionLog

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version that each of the timestamps that are none came with."""
LEADER_EPOCH_SINCE = 4

READ_COMMITTED = 1


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer each partition on its own; one that is named twice is an INVALID_REQUEST each time."""
    repeated = await _repeated(request, context)
    topics = []
    async for topic in context.pace.paced(request.topics):
        partitions = [
            _refused(asked.partition_index, ErrorCode.INVALID_REQUEST)
            if (topic.name, asked.partition_index) in repeated
            else await _answer(topic.name, asked, request.isolation_level, context)
            async for asked in context.pace.paced(topic.partitions)
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    await context.pace.empty(repeated)
    return ListOffsetsResponse(topics=tuple(topics))


def refuse(
    request: ListOffsetsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_refused(p.partition_index, error_code) for p in topic.partitions),
            )
            for topic in request.topics
        )
    )


async def _repeated(request: ListOffsetsRequest, context: RequestContext) -> set[tuple[str, int]]:
    """The partitions that the request names more than once."""
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    async for topic in context.pace.paced(request.topics):
        async for asked in context.pace.paced(topic.partitions):
            named = (topic.name, asked.partition_index)
            (repeated if named in seen else seen).add(named)
    await context.pace.empty(seen)
    return repeated


async def _answer(
    topic_name: str, asked: ListOffsetsPartition, isolation_level: int, context: RequestContext
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    log = context.log_of(topic_name, index, asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return _refused(index, log)
    if not _is_served(asked.timestamp, context.header.api_version):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        timestamp, offset = await _find(log, asked.timestamp, isolation_level, context)
        is_told = context.header.api_version >= LEADER_EPOCH_SINCE and offset >= 0
        leader_epoch = _epoch_of(log, asked.timestamp, offset) if is_told else -1
    except StorageError as error:
        return _refused(index, context.code_of(error))
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _is_served(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= SINCE.get(timestamp, version + 1)


def _epoch_of(log: PartitionLog, timestamp: int, offset: int) -> int:
    return log.leader_epoch if timestamp == LATEST else log.leader_epoch_at(offset)


async def _find(
    log: PartitionLog, timestamp: int, isolation_level: int, context: RequestContext
) -> tuple[int, int]:
    """Timestamp and offset that `timestamp` stands for; (-1, -1) if there is none."""
    is_committed_only = isolation_level == READ_COMMITTED
    end_offset = log.last_stable_offset if is_committed_only else log.high_watermark
    if timestamp == LATEST:
        return -1, end_offset
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    # Looking for a timestamp may read through a segment: that is a thread's work. A request has one
    # lookup under way at a time, so many partitions take no more threads than one.
    lookups = context.broker.executors.lookups
    if timestamp == MAX_TIMESTAMP:
        found = await lookups.run(log.offset_of_max_timestamp)
    else:
        found = await lookups.run(log.offset_for_timestamp, timestamp)
    context.pace.begin()
    # What is not readable yet is not there yet.
    if found is None or found.offset >= end_offset:
        return -1, -1
    return found.timestamp, found.offset


def _refused(partition_index: int, error_code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition_index, error_code=error_code)
