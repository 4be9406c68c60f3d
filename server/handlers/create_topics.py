"""CreateTopics (key 19), v2-v7.

Behaviour: each topic succeeds or fails on its own; a name that a request has twice fails. -1
partitions or replicas stand for the broker's defaults. There is one broker, so a replication factor
above 1 gets Kafka's INVALID_REPLICATION_FACTOR, and an assignment may name this broker only. A
topic is durable and can be used once it is answered; the timeout is not needed.
Versions: v4 defaults (KIP-464) · v5 configurations in the answer (KIP-525) · v7 topic_id.
"""

from __future__ import annotations

from collections import Counter

from protocol.error_codes import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.primitives import ZERO_UUID
from server.config_rows import topic_rows
from server.dispatch import RequestContext
from server.replica_assignment import fault_of_replicas
from server.topic import DEFAULT, Topic, TopicRefused


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the topics one by one."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            text = "Duplicate topic name."
            results.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, text))
        else:
            results.append(await _create(topic, request, context))
    return CreateTopicsResponse(topics=tuple(results))


def refuse(
    request: CreateTopicsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=tuple(_refused(topic.name, error_code, message) for topic in request.topics)
    )


async def _create(
    asked: CreatableTopic, request: CreateTopicsRequest, context: RequestContext
) -> CreatableTopicResult:
    refusal = _refuse_assignments(asked, context.broker.node.node_id) or _refuse_nulls(asked)
    if refusal is not None:
        return _refused(asked.name, refusal.error_code, refusal.message)
    topic = await context.broker.topics.create(
        asked.name,
        partitions_count=len(asked.assignments) or asked.num_partitions,
        replication_factor=asked.replication_factor,
        overrides={config.name: config.value or "" for config in asked.configs},
        validate_only=request.validate_only,
    )
    if isinstance(topic, TopicRefused):
        return _refused(asked.name, topic.error_code, topic.message)
    return _created(topic, request, context)


def _refuse_assignments(asked: CreatableTopic, node_id: int) -> TopicRefused | None:
    """Assignments must put partitions 0 to n-1 on this broker. Messages as Kafka's."""
    if not asked.assignments:
        return None
    for given, what in (
        (asked.replication_factor, "replication factor"),
        (asked.num_partitions, "numPartitions"),
    ):
        if given != DEFAULT:
            text = f"A manual partition assignment was specified, but {what} was not set to -1."
            return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    seen: set[int] = set()
    for assignment in asked.assignments:
        fault = fault_of_replicas(assignment.broker_ids, node_id)
        if fault is not None:
            return fault
        if assignment.partition_index in seen:
            number = assignment.partition_index
            text = f"Found multiple manual partition assignments for partition {number}"
            return TopicRefused(error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, message=text)
        seen.add(assignment.partition_index)
    if seen != set(range(len(seen))):
        text = "partitions should be a consecutive 0-based integer sequence"
        return TopicRefused(error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, message=text)
    return None


def _refuse_nulls(asked: CreatableTopic) -> TopicRefused | None:
    null = next((config.name for config in asked.configs if config.value is None), None)
    if null is None:
        return None
    text = f"Null value not supported for topic configs: {null}"
    return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)


def _created(
    topic: Topic, request: CreateTopicsRequest, context: RequestContext
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        # A topic that was only checked has no id yet.
        topic_id=ZERO_UUID if request.validate_only else topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.source,
                is_sensitive=row.is_sensitive,
            )
            for row in topic_rows(topic.config, topic.overrides, context.broker.configs)
        ),
    )


def _refused(name: str, error_code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error_code, error_message=message, configs=())
