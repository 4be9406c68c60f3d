"""OffsetFetch (key 9), v1-v10.

Behaviour: returns the committed, durable offsets of groups. A partition without a commit, and a group
that does not exist, get offset -1 without an error. A request with null topics gets all topics. If
stable offsets are required, a partition with a pending offset of an open transaction gets
UNSTABLE_OFFSET_COMMIT.
Versions: v2 every topic, error_code · v5 leader epochs (KIP-320) · v7 require_stable (KIP-447) · v8
several groups (KIP-709) · v9 member epochs (KIP-848) · v10 topics by id.
Source: Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.groups.committed_offsets import CommittedOffsets
from server.coordination.groups.offset_checks import Claim
from server.handlers.shared.answers import answers
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType
from server.views.readable_topics import ReadableTopics

NO_OFFSET = -1
SEVERAL_GROUPS_SINCE = 8
BY_ID_SINCE = 10
TOP_LEVEL_ERROR_SINCE = 2


@dataclass(frozen=True, slots=True)
class _Options:
    """How the answer to a request is made."""

    topics: ReadableTopics
    by_id: bool
    stable: bool
    pace: Pace
    context: RequestContext

    def may_describe(self, name: str, *, quiet: bool = False) -> bool:
        """Returns whether the client may describe a topic."""
        return self.context.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=quiet)


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Look up the offsets of every requested group."""
    version, pace = context.header.api_version, context.pace
    by_id, stable = version >= BY_ID_SINCE, request.require_stable
    options = _Options(context.broker.readable_topics, by_id, stable, pace, context)
    asked = await _asked_groups(request, version, pace)
    groups = [await _group(each, context, options) async for each in pace.paced(asked)]
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(groups))
    (group,) = groups
    topics = [await _old_topic(topic, pace) async for topic in pace.paced(group.topics)]
    return _single_group_response(tuple(topics), group.error_code, version)


def refuse(
    request: OffsetFetchRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetFetchResponse:
    version = context.header.api_version
    if version >= SEVERAL_GROUPS_SINCE:
        groups = lazy_array(lambda each: _refused(each, error_code), request.groups)
        return OffsetFetchResponse(groups=groups)
    topics = lazy_array(
        lambda topic: OffsetFetchResponseTopic(
            name=topic.name,
            partitions=lazy_array(
                lambda number: _old_partition(_without_offset(number, error_code)),
                topic.partition_indexes,
            ),
        ),
        request.topics or (),
    )
    return _single_group_response(topics, error_code, version)


async def _asked_groups(
    request: OffsetFetchRequest, version: int, pace: Pace
) -> tuple[OffsetFetchRequestGroup, ...]:
    """Returns the requested groups, converted to the form of v8 and later."""
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
    asked: OffsetFetchRequestGroup, context: RequestContext, options: _Options
) -> OffsetFetchResponseGroup:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _refused(asked, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    claim = Claim(member_id=asked.member_id or "", generation=asked.member_epoch)
    offsets = context.broker.offsets.fetch(asked.group_id, claim)
    if isinstance(offsets, ErrorCode):
        return _refused(asked, offsets)
    if asked.topics is None:
        topics = await _all(offsets, options)
    else:
        paced = options.pace.paced(asked.topics)
        topics = [await _asked_topic(topic, offsets, options) async for topic in paced]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=tuple(topics))


async def _all(offsets: CommittedOffsets, options: _Options) -> list[OffsetFetchResponseTopics]:
    """Returns all topics with committed offsets. By id, topics that no longer exist are left out."""
    found: list[OffsetFetchResponseTopics] = []
    # Copy the topics, because the group may commit between two slices.
    async for name, partitions in options.pace.paced(list(offsets.by_topic().items())):
        topic = options.topics.get(name)
        if (topic is None and options.by_id) or not options.may_describe(name, quiet=True):
            continue
        of_topic = await _partitions(name, tuple(partitions), offsets, options)
        if topic is not None and options.by_id:
            found.append(OffsetFetchResponseTopics(topic_id=topic.id, partitions=of_topic))
        else:
            found.append(OffsetFetchResponseTopics(name=name, partitions=of_topic))
    return found


async def _asked_topic(
    asked: OffsetFetchRequestTopics, offsets: CommittedOffsets, options: _Options
) -> OffsetFetchResponseTopics:
    name = asked.name
    if options.by_id:
        topic = options.topics.by_id(asked.topic_id)
        if topic is None:
            return _refused_topic(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    if not options.may_describe(name):
        return _refused_topic(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=asked.topic_id,
        partitions=await _partitions(name, asked.partition_indexes, offsets, options),
    )


async def _partitions(
    name: str, numbers: tuple[int, ...], offsets: CommittedOffsets, options: _Options
) -> tuple[OffsetFetchResponsePartitions, ...]:
    return await answers(
        options.pace, numbers, lambda number: _partition(name, number, offsets, options)
    )


def _partition(
    name: str, number: int, offsets: CommittedOffsets, options: _Options
) -> OffsetFetchResponsePartitions:
    if options.stable and offsets.is_unstable(name, number):
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
    """Returns the same error for the group and for each requested partition."""
    topics = lazy_array(lambda topic: _refused_topic(topic, error_code), asked.topics or ())
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error_code)


def _refused_topic(
    asked: OffsetFetchRequestTopics, error_code: ErrorCode
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=lazy_array(
            lambda number: _without_offset(number, error_code), asked.partition_indexes
        ),
    )


# Before v8: a single group, whose topics have a different message type.


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


def _single_group_response(
    topics: tuple[OffsetFetchResponseTopic, ...], error_code: int, version: int
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error_code if version >= TOP_LEVEL_ERROR_SINCE else ErrorCode.NONE,
        topics=topics,
    )
