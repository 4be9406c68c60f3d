"""CreateTopics (key 19), v2-v7.

Behaviour: each topic succeeds or fails on its own; a name that a request has twice fails every time.
-1 partitions or replicas stand for the broker's defaults. There is one broker, so a replication
factor above 1 gets Kafka's INVALID_REPLICATION_FACTOR, and an assignment may name this broker only.
A topic is durable and can be used once it is answered; the timeout is not needed.
Versions: v4 defaults (KIP-464) · v5 configurations in the answer (KIP-525) · v7 topic_id.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from protocol.error_codes import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.primitives import ZERO_UUID
from server.dispatch import RequestContext
from server.handlers.describe_configs import topic_rows
from server.topic_names import colliding_name, fault_of_name
from storage.config_property import ConfigError
from storage.log_config import LogConfig

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a topic is not created."""

    error_code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a topic will be."""

    partition_count: int
    overrides: dict[str, str]
    config: LogConfig


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the topics one by one."""
    asked = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if asked[topic.name] > 1:
            twice = "The request has this topic more than once."
            results.append(_refused(topic.name, _Refusal(ErrorCode.INVALID_REQUEST, twice)))
        else:
            results.append(await _create(topic, request.validate_only, context))
    return CreateTopicsResponse(topics=tuple(results))


def refuse(
    request: CreateTopicsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateTopicsResponse:
    refusal = _Refusal(error_code, message)
    return CreateTopicsResponse(topics=tuple(_refused(t.name, refusal) for t in request.topics))


async def _create(
    topic: CreatableTopic, validate_only: bool, context: RequestContext
) -> CreatableTopicResult:
    plan = _plan(topic, context)
    if isinstance(plan, _Refusal):
        return _refused(topic.name, plan)
    if validate_only:
        return _created(topic.name, plan, context)
    created = await context.broker.topics.create(
        topic.name, partition_count=plan.partition_count, overrides=plan.overrides
    )
    if isinstance(created, ErrorCode):
        return _refused(topic.name, _Refusal(created, created.message))
    return _created(topic.name, plan, context, created.id)


def _plan(topic: CreatableTopic, context: RequestContext) -> _Plan | _Refusal:
    """Decide whether the topic can be created, and as what. Pure but for looking up topics."""
    refusal = _check_name(topic.name, context) or _check_counts(topic, context)
    if refusal is not None:
        return refusal
    if topic.assignments:
        refusal = _check_assignments(topic, context)
        count = len(topic.assignments)
    else:
        count = topic.num_partitions
    if refusal is not None:
        return refusal
    null = next((config.name for config in topic.configs if config.value is None), None)
    if null is not None:
        return _Refusal(ErrorCode.INVALID_CONFIG, f"{null}: null is not a value")
    overrides = {config.name: config.value or "" for config in topic.configs}
    config = context.broker.config
    try:
        effective = LogConfig.from_overrides(overrides, config.log_defaults)
    except ConfigError as error:
        return _Refusal(ErrorCode.INVALID_CONFIG, str(error))
    count = config.num_partitions if count == BROKER_DEFAULT else count
    return _Plan(count, overrides, effective)


def _check_name(name: str, context: RequestContext) -> _Refusal | None:
    fault = fault_of_name(name)
    if fault is not None:
        return _Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    topics = context.broker.topics
    if topics.get(name) is not None:
        return _Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = colliding_name(name, (topic.name for topic in topics.all()))
    if other is None:
        return None
    return _Refusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
    )


def _check_counts(topic: CreatableTopic, context: RequestContext) -> _Refusal | None:
    """Refuse numbers of partitions and replicas that cannot be. Messages as Kafka's."""
    count, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if count != BROKER_DEFAULT or factor != BROKER_DEFAULT:
            both = "A manual partition assignment was specified, but numPartitions or"
            both += " replicationFactor was not set to -1."
            return _Refusal(ErrorCode.INVALID_REQUEST, both)
        count = len(topic.assignments)
    if count != BROKER_DEFAULT and count <= 0:
        text = "Number of partitions was set to an invalid non-positive value."
        return _Refusal(ErrorCode.INVALID_PARTITIONS, text)
    most = context.broker.config.partitions_max
    if count > most:
        text = f"Number of partitions was set to {count}, max.topic.partitions allows {most}."
        return _Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if factor != BROKER_DEFAULT and factor <= 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        return _Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if factor > 1:
        text = f"Unable to replicate the partition {factor} time(s): The target replication"
        text += f" factor of {factor} cannot be reached because only 1 broker(s) are registered."
        return _Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    return None


def _check_assignments(topic: CreatableTopic, context: RequestContext) -> _Refusal | None:
    """Refuse assignments that do not put partitions 0 to n-1 on this broker."""
    node_id = context.broker.node.node_id
    if sorted(a.partition_index for a in topic.assignments) != list(range(len(topic.assignments))):
        text = "partitions should be a consecutive 0-based integer sequence"
        return _Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    for assignment in topic.assignments:
        if assignment.broker_ids != (node_id,):
            text = f"The manual partition assignment of partition {assignment.partition_index} is"
            text += f" {list(assignment.broker_ids)}, but the only broker is {node_id}."
            return _Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return None


def _created(
    name: str, plan: _Plan, context: RequestContext, topic_id: UUID = ZERO_UUID
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=plan.partition_count,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=row.name,
                value=row.value,
                read_only=row.read_only,
                config_source=row.source,
                is_sensitive=row.is_sensitive,
            )
            for row in topic_rows(plan.config, plan.overrides, context.broker.config)
        ),
    )


def _refused(name: str, refusal: _Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=refusal.error_code, error_message=refusal.message, configs=()
    )
