"""DescribeProducers (key 61), v0.

Behaviour: what each log remembers of the idempotent producers that have written to it: those that were
silent for producer.id.expiration.ms are forgotten. Every partition asked for is answered.
`last_timestamp` is the wall time of the producer's last append.
Source: KIP-664; Apache Kafka, KafkaApis.scala `handleDescribeProducersRequest`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from server.dispatch import RequestContext
from server.topic_names import fault_of_name
from storage import producer_state
from storage.log import PartitionLog

NO_SEQUENCE = -1


async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the producers of each partition on its own."""
    return DescribeProducersResponse(
        topics=tuple(_describe_topic(asked, context) for asked in request.topics)
    )


def refuse(
    request: DescribeProducersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _refused(number, error_code, message) for number in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
    )


def _describe_topic(asked: TopicRequest, context: RequestContext) -> TopicResponse:
    fault = fault_of_name(asked.name)
    return TopicResponse(
        name=asked.name,
        partitions=tuple(
            _describe(number, context.log_of(asked.name, number))
            if fault is None
            else _refused(number, ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
            for number in asked.partition_indexes
        ),
    )


def _describe(number: int, log: PartitionLog | ErrorCode) -> PartitionResponse:
    if isinstance(log, ErrorCode):
        return _refused(number, log, log.message)
    return PartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        active_producers=tuple(_producer(*item) for item in log.producers.items()),
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
