"""OffsetFetch (key 9), v1-v10.

Behaviour: what groups have committed, as far as it is durable. A partition without a commit, and a
group that does not exist, have offset -1 and no error. No topics is all of them.
Where stable offsets are required, a partition that an open transaction has one for is
UNSTABLE_OFFSET_COMMIT.
Versions: v2 every topic, error_code · v5 leader epochs (KIP-320) · v7 require_stable (KIP-447) · v8
several groups (KIP-709) · v9 member epochs (KIP-848) · v10 topics by id.
Source: Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from server.dispatch import RequestContext
from server.groups.committed_offsets import CommittedOffsets
from server.groups.group_checks import Claim
from server.topics import Topics

NO_OFFSET = -1
SEVERAL_GROUPS_SINCE = 8
BY_ID_SINCE = 10
TOP_LEVEL_ERROR_SINCE = 2


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a request wants offsets to be told."""

    topics: Topics
    by_id: bool
    stable: bool


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Look up every group."""
    version = context.header.api_version
    wanted = _Wanted(context.broker.topics, version >= BY_ID_SINCE, request.require_stable)
    return _response([_group(each, context, wanted) for each in _asked(request, version)], version)


def refuse(
    request: OffsetFetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetFetchResponse:
    version = context.header.api_version
    return _response([_refused(each, error_code) for each in _asked(request, version)], version)


def _asked(request: OffsetFetchRequest, version: int) -> tuple[OffsetFetchRequestGroup, ...]:
    """What is asked, as the later versions say it."""
    if version >= SEVERAL_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        )
    return (OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),)


def _group(
    asked: OffsetFetchRequestGroup, context: RequestContext, wanted: _Wanted
) -> OffsetFetchResponseGroup:
    claim = Claim(member_id=asked.member_id or "", generation=asked.member_epoch)
    offsets = context.broker.offsets.fetch(asked.group_id, claim)
    if isinstance(offsets, ErrorCode):
        return _refused(asked, offsets)
    found = (
        _all(offsets, wanted)
        if asked.topics is None
        else (_asked_topic(topic, offsets, wanted) for topic in asked.topics)
    )
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=tuple(found))


def _all(offsets: CommittedOffsets, wanted: _Wanted) -> Iterable[OffsetFetchResponseTopics]:
    """Every topic that the group has committed for; by id only those that exist have a name."""
    for name, partitions in offsets.by_topic().items():
        topic = wanted.topics.get(name)
        if topic is None and wanted.by_id:
            continue
        found = tuple(_partition(name, number, offsets, wanted) for number in partitions)
        if topic is not None and wanted.by_id:
            yield OffsetFetchResponseTopics(topic_id=topic.id, partitions=found)
        else:
            yield OffsetFetchResponseTopics(name=name, partitions=found)


def _asked_topic(
    asked: OffsetFetchRequestTopics, offsets: CommittedOffsets, wanted: _Wanted
) -> OffsetFetchResponseTopics:
    name = asked.name
    if wanted.by_id:
        topic = wanted.topics.by_id(asked.topic_id)
        if topic is None:
            return _refused_topic(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=asked.topic_id,
        partitions=tuple(
            _partition(name, number, offsets, wanted) for number in asked.partition_indexes
        ),
    )


def _partition(
    name: str, number: int, offsets: CommittedOffsets, wanted: _Wanted
) -> OffsetFetchResponsePartitions:
    if wanted.stable and offsets.is_unstable(name, number):
        return _without_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.get(name, number)
    if committed is None:
        return _without_offset(number, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _without_offset(number: int, error_code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number, committed_offset=NO_OFFSET, error_code=error_code
    )


def _refused(asked: OffsetFetchRequestGroup, error_code: ErrorCode) -> OffsetFetchResponseGroup:
    """The same error for the group and for each partition that was named."""
    topics = tuple(_refused_topic(topic, error_code) for topic in asked.topics or ())
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error_code)


def _refused_topic(
    asked: OffsetFetchRequestTopics, error_code: ErrorCode
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=tuple(_without_offset(number, error_code) for number in asked.partition_indexes),
    )


def _response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(groups))
    (group,) = groups
    return OffsetFetchResponse(
        error_code=group.error_code if version >= TOP_LEVEL_ERROR_SINCE else ErrorCode.NONE,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )
