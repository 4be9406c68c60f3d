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
from server.answers import answers
from server.dispatch import RequestContext
from server.groups.committed_offsets import CommittedOffsets
from server.groups.group_checks import Claim
from server.topics import Topics
from server.turns import Pace

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
    pace: Pace


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Look up every group."""
    version, pace = context.header.api_version, context.pace
    wanted = _Wanted(context.broker.topics, version >= BY_ID_SINCE, request.require_stable, pace)
    asked = await _asked(request, version, pace)
    groups = [await _group(each, context, wanted) async for each in pace.paced(asked)]
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(groups))
    (group,) = groups
    topics = [await _old_topic(topic, pace) async for topic in pace.paced(group.topics)]
    return _of_one_group(topics, group.error_code, version)


def refuse(
    request: OffsetFetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetFetchResponse:
    version = context.header.api_version
    if version >= SEVERAL_GROUPS_SINCE:
        groups = tuple(_refused(each, error_code) for each in request.groups)
        return OffsetFetchResponse(groups=groups)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                _old_partition(_without_offset(number, error_code))
                for number in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    ]
    return _of_one_group(topics, error_code, version)


async def _asked(
    request: OffsetFetchRequest, version: int, pace: Pace
) -> tuple[OffsetFetchRequestGroup, ...]:
    """What is asked, as the later versions say it."""
    if version >= SEVERAL_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            async for topic in pace.paced(request.topics)
        ]
    asked = None if topics is None else tuple(topics)
    return (OffsetFetchRequestGroup(group_id=request.group_id, topics=asked),)


async def _group(
    asked: OffsetFetchRequestGroup, context: RequestContext, wanted: _Wanted
) -> OffsetFetchResponseGroup:
    claim = Claim(member_id=asked.member_id or "", generation=asked.member_epoch)
    offsets = context.broker.offsets.fetch(asked.group_id, claim)
    if isinstance(offsets, ErrorCode):
        return await _refused_by_slices(asked, offsets, wanted.pace)
    if asked.topics is None:
        topics = await _all(offsets, wanted)
    else:
        paced = wanted.pace.paced(asked.topics)
        topics = [await _asked_topic(topic, offsets, wanted) async for topic in paced]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=tuple(topics))


async def _all(offsets: CommittedOffsets, wanted: _Wanted) -> list[OffsetFetchResponseTopics]:
    """Every topic that the group has committed for; by id only those that exist have a name."""
    found: list[OffsetFetchResponseTopics] = []
    # Copies, because the group may commit between two slices.
    async for name, partitions in wanted.pace.paced(list(offsets.by_topic().items())):
        topic = wanted.topics.get(name)
        if topic is None and wanted.by_id:
            continue
        of_topic = await _partitions(name, tuple(partitions), offsets, wanted)
        if topic is not None and wanted.by_id:
            found.append(OffsetFetchResponseTopics(topic_id=topic.id, partitions=of_topic))
        else:
            found.append(OffsetFetchResponseTopics(name=name, partitions=of_topic))
    return found


async def _asked_topic(
    asked: OffsetFetchRequestTopics, offsets: CommittedOffsets, wanted: _Wanted
) -> OffsetFetchResponseTopics:
    name = asked.name
    if wanted.by_id:
        topic = wanted.topics.by_id(asked.topic_id)
        if topic is None:
            return await _refused_topic_by_slices(asked, ErrorCode.UNKNOWN_TOPIC_ID, wanted.pace)
        name = topic.name
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=asked.topic_id,
        partitions=await _partitions(name, asked.partition_indexes, offsets, wanted),
    )


async def _partitions(
    name: str, numbers: tuple[int, ...], offsets: CommittedOffsets, wanted: _Wanted
) -> tuple[OffsetFetchResponsePartitions, ...]:
    return await answers(
        wanted.pace, numbers, lambda number: _partition(name, number, offsets, wanted)
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
    topics = tuple(
        _refused_topic(
            topic, tuple(_without_offset(number, error_code) for number in topic.partition_indexes)
        )
        for topic in asked.topics or ()
    )
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error_code)


async def _refused_by_slices(
    asked: OffsetFetchRequestGroup, error_code: ErrorCode, pace: Pace
) -> OffsetFetchResponseGroup:
    topics = [
        await _refused_topic_by_slices(topic, error_code, pace)
        async for topic in pace.paced(asked.topics or ())
    ]
    return OffsetFetchResponseGroup(
        group_id=asked.group_id, topics=tuple(topics), error_code=error_code
    )


async def _refused_topic_by_slices(
    asked: OffsetFetchRequestTopics, error_code: ErrorCode, pace: Pace
) -> OffsetFetchResponseTopics:
    partitions = await answers(
        pace, asked.partition_indexes, lambda number: _without_offset(number, error_code)
    )
    return _refused_topic(asked, partitions)


def _refused_topic(
    asked: OffsetFetchRequestTopics, partitions: tuple[OffsetFetchResponsePartitions, ...]
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name, topic_id=asked.topic_id, partitions=partitions
    )


# Before v8: one group, whose topics have a type of their own.


async def _old_topic(topic: OffsetFetchResponseTopics, pace: Pace) -> OffsetFetchResponseTopic:
    partitions = [_old_partition(each) async for each in pace.paced(topic.partitions)]
    return OffsetFetchResponseTopic(name=topic.name, partitions=tuple(partitions))


def _old_partition(each: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=each.partition_index,
        committed_offset=each.committed_offset,
        committed_leader_epoch=each.committed_leader_epoch,
        metadata=each.metadata,
        error_code=each.error_code,
    )


def _of_one_group(
    topics: list[OffsetFetchResponseTopic], error_code: int, version: int
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error_code if version >= TOP_LEVEL_ERROR_SINCE else ErrorCode.NONE,
        topics=tuple(topics),
    )
