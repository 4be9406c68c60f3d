"""Commits an offset of a group without members, and reads it, each on a new connection."""

from __future__ import annotations

from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker


async def commit(
    served: ServedBroker, group: str, topic: str, offset: int, partition: int = 0
) -> None:
    """Commit an offset; it must be accepted."""
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(part,)),)
    answer = await served.call(
        OffsetCommitRequest(group_id=group, topics=topics), 8, OffsetCommitResponse
    )
    codes = [each.error_code for found in answer.topics for each in found.partitions]
    assert codes == [ErrorCode.NONE]


async def committed(served: ServedBroker, group: str, topic: str, partition: int = 0) -> int:
    """Returns a committed offset; -1 if there is none."""
    answer = await served.call(
        OffsetFetchRequest(group_id=group, topics=None), 7, OffsetFetchResponse
    )
    found = {
        (each.name, part.partition_index): part.committed_offset
        for each in answer.topics
        for part in each.partitions
    }
    return found.get((topic, partition), -1)
