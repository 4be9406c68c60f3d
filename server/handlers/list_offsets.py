"""ListOffsets (key 2), v1-v11.

Behaviour: timestamp -1 asks for the end up to which a consumer of this isolation level can read (high
watermark or last stable offset), -2 for the log start offset, -3 for the record with the largest
timestamp; a timestamp from 0 up for the first record with at least that timestamp. There is no tiered
storage, so the local log start (-4) is the log start offset, and no record is tiered (-5) or waits for
it (-6). If there is no such record, the answer is offset -1 without an error. Each offset comes with
the leader epoch in which it was written, the end offset with the current one. Every requested partition
is answered.
Versions: v2 isolation_level · v4 current_leader_epoch, leader_epoch (KIP-320) · v7 timestamp -3
(KIP-734) · v8 -4 (KIP-405) · v9 -5 (KIP-1005) · v11 -6 (KIP-1023). Other negative timestamps, and those
of later versions, get UNSUPPORTED_VERSION as in Kafka.
"""

from __future__ import annotations

from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.numbers import Offset
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from storage.files.errors import StorageError
from storage.log.log import PartitionLog

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
"""The first version that supports each of the special timestamps."""
LEADER_EPOCH_SINCE = 4

READ_COMMITTED = 1


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Look up each partition; one that is named twice gets INVALID_REQUEST each time."""
    repeated = await _repeated(request, context)
    topics = []
    async for topic in context.pace.paced(request.topics):
        may_describe = context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        partitions = [
            _refused(asked.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if not may_describe
            else _refused(asked.partition_index, ErrorCode.INVALID_REQUEST)
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
        topics=lazy_array(
            lambda topic: ListOffsetsTopicResponse(
                name=topic.name,
                partitions=lazy_array(
                    lambda each: _refused(each.partition_index, error_code), topic.partitions
                ),
            ),
            request.topics,
        )
    )


async def _repeated(request: ListOffsetsRequest, context: RequestContext) -> set[tuple[str, int]]:
    """Returns the partitions that the request names more than once."""
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
    log = context.readable_log_of(topic_name, index, asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return _refused(index, log)
    if not _is_served(asked.timestamp, context.header.api_version):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    if context.broker.readable_topics.view(topic_name) is not None:
        isolation_level = READ_COMMITTED  # A view never has what is not stable.
    try:
        timestamp, offset = await _find(log, asked.timestamp, isolation_level, context)
        has_epoch = context.header.api_version >= LEADER_EPOCH_SINCE and offset >= 0
        leader_epoch = _epoch_of(log, asked.timestamp, offset) if has_epoch else -1
    except StorageError as error:
        return _refused(index, context.log_failure(error))
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
    return log.leader_epoch if timestamp == LATEST else log.reader.leader_epoch_at(Offset(offset))


async def _find(
    log: PartitionLog, timestamp: int, isolation_level: int, context: RequestContext
) -> tuple[int, int]:
    """Returns the timestamp and offset for `timestamp`; (-1, -1) if there is no such record."""
    is_committed_only = isolation_level == READ_COMMITTED
    end_offset = log.last_stable_offset if is_committed_only else log.high_watermark
    if timestamp == LATEST:
        return -1, end_offset
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    # A lookup by timestamp may read a whole segment, so it runs in a thread. A request runs one lookup
    # at a time, so it uses one thread of the pool no matter how many partitions it names.
    lookups = context.broker.executors.lookups
    if timestamp == MAX_TIMESTAMP:
        found = await lookups.run(log.reader.offset_of_max_timestamp)
    else:
        found = await lookups.run(log.reader.offset_for_timestamp, timestamp)
    # The client cannot read records from `end_offset` on yet.
    if found is None or found.offset >= end_offset:
        return -1, -1
    return found.timestamp, found.offset


def _refused(partition_index: int, error_code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition_index, error_code=error_code)
