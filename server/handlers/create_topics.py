"""CreateTopics (key 19), v2-v7.

Behaviour: each topic succeeds or fails independently; one that a request names twice fails. -1
partitions or replicas mean the broker's defaults. There is one broker, so a replication factor above 1
gets Kafka's INVALID_REPLICATION_FACTOR, and an assignment may only name this broker. A request for more
than 10,000 partitions is refused as a whole, even with validate_only. A topic is durable and usable when
the answer is sent. `timeout_ms` bounds the wait for other changes of the same topics; a change that has
started is finished, as in Kafka.
Source: Apache Kafka, ControllerApis.scala `createTopics`, ReplicationControlManager.java.
Versions: v4 defaults (KIP-464) · v5 configurations in the answer (KIP-525) · v6 a client beyond its
controller_mutation_rate is refused (KIP-599) · v7 topic_id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.primitives import ZERO_UUID
from server.config.rows import topic_rows
from server.handlers.shared.topic_creators import may_create
from server.handlers.shared.unkeyed_topic import refusal_of_unkeyed_topic
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_of_creation
from server.topics.replica_assignment import fault_of_replicas
from server.topics.topic import DEFAULT, Topic, TopicRefused
from server.topics.validation import NewTopic, fault_of_request

STRICT_SINCE = 6
"""Clients of earlier versions do not know THROTTLING_QUOTA_EXCEEDED and pause instead."""

DUPLICATE = TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")


UNAUTHORIZED = TopicRefused(
    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message="Authorization failed."
)

Configs = tuple[CreatableTopicConfigs, ...]


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create all valid topics together."""
    new_topics: dict[str, NewTopic] = {}
    refused: dict[str, TopicRefused] = {}
    times = Counter(topic.name for topic in request.topics)
    refused |= await _unauthorized(request, times, context)
    once = [
        topic for topic in request.topics if times[topic.name] == 1 and topic.name not in refused
    ]
    too_many = fault_of_request(_counts(once, context))
    async for asked in context.pace.paced(request.topics):
        if asked.name in refused:
            continue
        refusal = too_many or (DUPLICATE if times[asked.name] > 1 else _fault_of(asked, context))
        if refusal is None:
            new_topics[asked.name] = _new_topic(asked)
        else:
            refused[asked.name] = refusal
    created = await context.broker.topics.create_all(
        list(new_topics.values()),
        validate_only=request.validate_only,
        pace=context.pace,
        until_s=context.deadline_s(request.timeout_ms),
        admit=partial(
            context.admit_mutations, is_strict=context.header.api_version >= STRICT_SINCE
        ),
    )
    answers = refused | dict(zip(new_topics, created, strict=True))
    return CreateTopicsResponse(topics=await _results(answers, times, request, context))


def refuse(
    request: CreateTopicsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=lazy_array(lambda topic: _refused(topic.name, error_code, message), request.topics)
    )


async def _unauthorized(
    request: CreateTopicsRequest, times: Mapping[str, int], context: RequestContext
) -> dict[str, TopicRefused]:
    """Returns the refusals of the topics that the client may not create, of those named once."""
    return {
        asked.name: UNAUTHORIZED
        async for asked in context.pace.paced(request.topics)
        if times[asked.name] == 1 and not may_create(asked.name, context)
    }


def _counts(topics: Sequence[CreatableTopic], context: RequestContext) -> Iterator[int]:
    """Yields the number of partitions that each topic asks for, as Kafka counts them."""
    default = context.broker.config.num_partitions
    for topic in topics:
        count = len(topic.assignments) or topic.num_partitions
        yield default if count == DEFAULT else count


def _fault_of(asked: CreatableTopic, context: RequestContext) -> TopicRefused | None:
    return (
        context.broker.readable_topics.refusal(asked.name)
        or _refuse_assignments(asked, context.broker.node.node_id)
        or _refuse_nulls(asked)
        or refusal_of_creation(asked.name, {config.name: "" for config in asked.configs})
        or refusal_of_unkeyed_topic(
            asked.name, {}, {config.name: config.value or "" for config in asked.configs}, context
        )
    )


def _new_topic(asked: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=asked.name,
        partitions_count=len(asked.assignments) or asked.num_partitions,
        replication_factor=asked.replication_factor,
        overrides={config.name: config.value or "" for config in asked.configs},
    )


async def _results(
    answers: Mapping[str, Topic | TopicRefused],
    names: Iterable[str],
    request: CreateTopicsRequest,
    context: RequestContext,
) -> tuple[CreatableTopicResult, ...]:
    """Returns the results of the topics, in the order of the names."""
    # Topics with equal overrides share their rows: a request may create thousands of them.
    configs: dict[frozenset[tuple[str, str]], Configs] = {}
    results = []
    async for name in context.pace.paced(names):
        answer = answers[name]
        if isinstance(answer, TopicRefused):
            results.append(_refused(name, answer.error_code, answer.message or None))
            continue
        if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, quiet=True):
            results.append(_created_unseen(answer, request))
            continue
        key = frozenset(answer.overrides.items())
        if key not in configs:
            configs[key] = _configs(answer, context)
        results.append(_created(answer, configs[key], request))
    return tuple(results)


def _refuse_assignments(asked: CreatableTopic, node_id: int) -> TopicRefused | None:
    """Refuse assignments other than partitions 0 to n-1 on this broker, in Kafka's words."""
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


def _created(topic: Topic, configs: Configs, request: CreateTopicsRequest) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        # With validate_only the topic was not created and has no id.
        topic_id=ZERO_UUID if request.validate_only else topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=1,
        configs=configs,
    )


def _created_unseen(topic: Topic, request: CreateTopicsRequest) -> CreatableTopicResult:
    """Returns the result for a client that may not see the topic's configuration."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if request.validate_only else topic.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        configs=(),
    )


def _configs(topic: Topic, context: RequestContext) -> Configs:
    return tuple(
        CreatableTopicConfigs(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
            is_sensitive=row.is_sensitive,
        )
        for row in topic_rows(topic.config, topic.overrides, context.broker.configs)
    )


def _refused(name: str, error_code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error_code, error_message=message, configs=())
