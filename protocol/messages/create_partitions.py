"""CreatePartitions (key 37).

Versions: v2 flexible.
Source: CreatePartitionsRequest.json, CreatePartitionsResponse.json.
"""

from __future__ import annotations

from protocol.schema import (
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
    """The brokers that shall have one new partition, the preferred leader first."""

    broker_ids: tuple[int, ...] = wire(array(INT32))


@wire_class
class CreatePartitionsTopic:
    """A topic that shall have more partitions."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    """How many it shall have, with those that it has."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        array(CreatePartitionsAssignment), nullable_since=0
    )
    """One for each new partition; null leaves it to the broker."""


@wire_class
class CreatePartitionsRequest(Message):
    """Topics that shall have more partitions."""

    api_key = 37
    versions = (0, 3)
    flexible_since = 2

    topics: tuple[CreatePartitionsTopic, ...] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)
    """True: say what would happen, and create nothing."""


@wire_class
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@wire_class
class CreatePartitionsResponse(Message):
    """What became of each topic."""

    api_key = 37
    versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(array(CreatePartitionsTopicResult))
