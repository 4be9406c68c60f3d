"""DescribeProducers (key 61), v0.

Behaviour: returns the state that each log keeps of its idempotent producers; a log drops producers that
were silent for producer.id.expiration.ms. Every requested partition is answered. `last_timestamp` is the
wall time of the producer's last append.
Source: KIP-664; Apache Kafka, KafkaApis.scala `handleDescribeProducersRequest`.
"""

from __future__ import annotations

from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.runtime.paced_sort import paced_sort
from server.security.acls import Operation, ResourceType
from server.security.api_rules import REFUSALS
from server.topics.names import fault_of_name
from storage.state import producer_state

NO_SEQUENCE = -1


async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the producers of each partition; one that is named repeatedly is looked up once."""
    described: dict[tuple[str, int], PartitionResponse] = {}
    topics = []
    async for asked in context.pace.paced(request.topics):
        partitions = []
        async for number in context.pace.paced(asked.partition_indexes):
            key = (asked.name, number)
            if key not in described:
                described[key] = await _describe(asked.name, number, context)
            partitions.append(described[key])
        topics.append(TopicResponse(name=asked.name, partitions=tuple(partitions)))
    await context.pace.empty(described)
    return DescribeProducersResponse(topics=tuple(topics))


def refuse(
    request: DescribeProducersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=lazy_array(
            lambda topic: TopicResponse(
                name=topic.name,
                partitions=lazy_array(
                    lambda number: _refused(number, error_code, message), topic.partition_indexes
                ),
            ),
            request.topics,
        )
    )


async def _describe(name: str, number: int, context: RequestContext) -> PartitionResponse:
    fault = fault_of_name(name)
    if fault is not None:
        return _refused(number, ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if not context.may(Operation.READ, ResourceType.TOPIC, name):
        return _refused(number, *REFUSALS[ResourceType.TOPIC])
    log = context.log_of(name, number)
    if isinstance(log, ErrorCode):
        return _refused(number, log, log.message)
    producers = log.producers
    active = [
        _producer(producer_id, state)
        async for producer_id in paced_sort(producers.ids(), context.pace)
        if (state := producers.get(producer_id)) is not None
    ]
    return PartitionResponse(
        partition_index=number, error_code=ErrorCode.NONE, active_producers=tuple(active)
    )


def _producer(producer_id: int, state: producer_state.ProducerState) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.current_txn_first_offset,
    )


def _refused(number: int, error_code: ErrorCode, message: str) -> PartitionResponse:
    return PartitionResponse(
        partition_index=number, error_code=error_code, error_message=message, active_producers=()
    )
