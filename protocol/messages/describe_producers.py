"""DescribeProducers (key 61), v0 (KIP-664).

Source: DescribeProducersRequest.json, DescribeProducersResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class TopicRequest:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@wire_class
class DescribeProducersRequest(Message):
    """The partitions whose producers to describe."""

    api_key = 61
    versions = (0, 0)
    flexible_since = 0

    topics: tuple[TopicRequest, ...] = wire(array(TopicRequest))


@wire_class
class ProducerState:
    """The state that a log keeps for an idempotent producer."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    """Milliseconds since 1970."""
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)
    """-1: it has no open transaction."""


@wire_class
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    active_producers: tuple[ProducerState, ...] = wire(array(ProducerState))


@wire_class
class TopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[PartitionResponse, ...] = wire(array(PartitionResponse))


@wire_class
class DescribeProducersResponse(Message):
    """The producers of each partition."""

    api_key = 61
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TopicResponse, ...] = wire(array(TopicResponse))
