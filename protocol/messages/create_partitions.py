"""CreatePartitions (key 37).

Versions: v2 flexible.
Source: CreatePartitionsRequest.json, CreatePartitionsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class CreatePartitionsAssignment:
    """The brokers for one new partition, the preferred leader first."""

    broker_ids: tuple[int, ...] = wire(array(INT32))


@wire_class
class CreatePartitionsTopic:
    """A topic that gets more partitions."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    """The new total number of partitions."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        array(CreatePartitionsAssignment), nullable_since=0
    )
    """One for each new partition; null: the broker decides."""


@wire_class
class CreatePartitionsRequest(Message):
    """Topics that get more partitions."""

    api_key = 37
    versions = (0, 3)
    flexible_since = 2

    topics: tuple[CreatePartitionsTopic, ...] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)
    """True: report what would happen, and create nothing."""


@wire_class
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@wire_class
class CreatePartitionsResponse(Message):
    """The result for each topic."""

    api_key = 37
    versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(array(CreatePartitionsTopicResult))
