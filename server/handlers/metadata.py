"""Metadata (key 3), v0-v13.

Behaviour: lists this broker, at the address that the client's listener advertises, and the requested
topics: all for null (v0: for an empty list), none for an empty list. A topic that does not exist is
created if both `auto.create.topics.enable` and the client allow it. A partition whose log is offline has
no leader. The view of a topic's last values is described like a topic (`server/views/`). It is listed
only if `view.list` says so, and no topic with the name of a view is created automatically.
Versions: v1 null · v4 allow_auto_topic_creation · v5 offline_replicas · v7 leader_epoch · v8
authorized operations (KIP-430), of the cluster until v10 · v10 topic ids (KIP-516) · v12 topics by
id · v13 an error code for the whole answer (never set here).
"""

from __future__ import annotations

from uuid import UUID

from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.primitives import ZERO_UUID
from server.handlers.shared.topic_creators import may_create
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.names import fault_of_name
from server.topics.topic import TopicRefused
from server.views.readable_topics import Readable
from storage.log.log import PartitionLog

IDS_ASKED_SINCE = 12
NO_LEADER = -1


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the broker and the requested topics."""
    topics = request.topics
    if topics is None or (not topics and context.header.api_version == 0):
        return _response(await _describe_all(request, context), request, context)
    unique = {(asked.name, asked.topic_id): None async for asked in context.pace.paced(topics)}
    described = [
        await _find(name, topic_id, request, context)
        async for name, topic_id in context.pace.paced(unique)
    ]
    await context.pace.empty(unique)
    return _response(tuple(described), request, context)


def refuse(
    request: MetadataRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> MetadataResponse:
    return _response(
        lazy_array(
            lambda asked: _refused(error_code, asked.name or "", asked.topic_id),
            request.topics or (),
        ),
        request,
        context,
    )


async def _describe_all(
    request: MetadataRequest, context: RequestContext
) -> tuple[MetadataResponseTopic, ...]:
    """Describe every topic that exists now."""
    topics = context.broker.readable_topics.listed()
    return tuple(
        [
            await _describe(topic, request, context)
            async for topic in context.pace.paced(topics)
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, quiet=True)
        ]
    )


async def _find(
    name: str | None, topic_id: UUID, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    """Describe one topic by name or id; create it if it is missing and that is allowed."""
    if topic_id != ZERO_UUID or name is None:
        return await _find_by_id(name, topic_id, request, context)
    if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    readable = context.broker.readable_topics
    topic = readable.get(name)
    if topic is not None:
        return await _describe(topic, request, context)
    creates = (
        request.allow_auto_topic_creation
        and _creates_topics(context)
        and not readable.is_reserved(name)
    )
    if creates and not may_create(name, context):
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if fault_of_name(name) is not None:
        return _refused(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if not creates:
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    created = await context.broker.topics.create_if_absent(name)
    if isinstance(created, TopicRefused):
        return _refused(created.error_code, name)
    return await _describe(created, request, context)


def _creates_topics(context: RequestContext) -> bool:
    broker = context.broker
    return broker.config.auto_create_topics_enable and broker.fence is None


async def _find_by_id(
    name: str | None, topic_id: UUID, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    if context.header.api_version < IDS_ASKED_SINCE or name is not None or topic_id == ZERO_UUID:
        return _refused(ErrorCode.INVALID_REQUEST, name or "", topic_id)
    topic = context.broker.readable_topics.by_id(topic_id)
    if topic is None:
        return _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        # The client knows the id already; the name stays hidden.
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return await _describe(topic, request, context)


def _response(
    topics: tuple[MetadataResponseTopic, ...], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    node, endpoint = context.broker.node, context.connection.endpoint
    return MetadataResponse(
        brokers=(
            MetadataResponseBroker(node_id=node.node_id, host=endpoint.host, port=endpoint.port),
        ),
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        topics=topics,
        cluster_authorized_operations=context.operations_on_cluster(
            is_asked=request.include_cluster_authorized_operations
        ),
    )


async def _describe(
    topic: Readable, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    node_id = context.broker.node.node_id
    topic = await context.broker.readable_topics.opened(topic)
    partitions = [
        describe_partition(number, topic.partition(number), node_id)
        async for number in context.pace.paced(range(len(topic.partitions)))
    ]
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=context.operations_on(
            ResourceType.TOPIC, topic.name, is_asked=request.include_topic_authorized_operations
        ),
    )


def describe_partition(
    number: int, log: PartitionLog | ErrorCode, node_id: int
) -> MetadataResponsePartition:
    """Describe a partition: this broker leads it, unless its log is offline."""
    if isinstance(log, ErrorCode) or log.offline_reason is not None:
        return MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=NO_LEADER,
            replica_nodes=(node_id,),
            isr_nodes=(),
            offline_replicas=(node_id,),
        )
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=number,
        leader_id=node_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=(node_id,),
        isr_nodes=(node_id,),
    )


def _refused(
    error_code: ErrorCode, name: str | None, topic_id: UUID = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error_code, name=name, topic_id=topic_id, partitions=())
