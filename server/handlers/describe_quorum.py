"""DescribeQuorum (key 55), v0-v2.

Behaviour: the metadata quorum has one voter, this broker, which leads it and is always caught up. Its
log end offset is the number of changes that the metadata store has made durable. Only a request for
exactly `__cluster_metadata`-0, once, is answered so; any other request gets UNKNOWN_TOPIC_OR_PARTITION
for every partition that it names, as in Kafka.
Versions: v1 when each replica fetched (KIP-836) · v2 messages, directories, nodes (KIP-853).
Source: KIP-595; Apache Kafka, KafkaRaftClient.java `handleDescribeQuorumRequest`.
"""

from __future__ import annotations

from protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.primitives import ZERO_UUID
from server.metadata.store import METADATA_TOPIC
from server.request_context import RequestContext
from server.topics.names import parse_id

NODES_SINCE = 2
METADATA = (AskedTopic(topic_name=METADATA_TOPIC, partitions=(AskedPartition(partition_index=0),)),)
NOT_HOSTED = "This server does not host this topic-partition."
"""Kafka's message."""


async def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the metadata quorum."""
    if not request.topics:
        return _response((), ())
    if request.topics == METADATA:
        topic = TopicData(topic_name=METADATA_TOPIC, partitions=(_quorum(context),))
        return _response((topic,), _nodes(context))
    topics = [
        await _not_hosted(asked, context) async for asked in context.pace.paced(request.topics)
    ]
    return _response(tuple(topics), ())


def refuse(
    request: DescribeQuorumRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error_code, error_message=message, topics=())


def _response(topics: tuple[TopicData, ...], nodes: tuple[Node, ...]) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics, nodes=nodes)


def _quorum(context: RequestContext) -> PartitionData:
    broker = context.broker
    path, now_ms = broker.config.metadata_directory, broker.clock.now_ms()
    (directory,) = [each for each in broker.directories if each.path == path]
    end_offset = broker.metadata_revision
    names_nodes = context.header.api_version >= NODES_SINCE
    itself = ReplicaState(
        replica_id=broker.node.node_id,
        replica_directory_id=parse_id(directory.directory_id) if names_nodes else ZERO_UUID,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=broker.node.controller_id,
        leader_epoch=directory.leader_epoch,
        high_watermark=end_offset,
        current_voters=(itself,),
        observers=(),
    )


def _nodes(context: RequestContext) -> tuple[Node, ...]:
    """Returns this broker, at the address that the client's listener advertises."""
    if context.header.api_version < NODES_SINCE:
        return ()
    endpoint = context.connection.endpoint
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    return (Node(node_id=context.broker.node.node_id, listeners=(listener,)),)


async def _not_hosted(asked: AskedTopic, context: RequestContext) -> TopicData:
    partitions = [
        PartitionData(
            partition_index=partition.partition_index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=NOT_HOSTED,
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=(),
            observers=(),
        )
        async for partition in context.pace.paced(asked.partitions)
    ]
    return TopicData(topic_name=asked.topic_name, partitions=tuple(partitions))
