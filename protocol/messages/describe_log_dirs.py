"""DescribeLogDirs (key 35).

Versions: v2 flexible · v3 error_code of the whole answer · v4 total_bytes, usable_bytes (KIP-827) ·
v5 is_cordoned (KIP-1066).
Source: DescribeLogDirsRequest.json, DescribeLogDirsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class DescribeLogDirsRequest(Message):
    """The partitions whose log directories to describe; null for all."""

    api_key = 35
    versions = (1, 5)
    flexible_since = 2

    topics: tuple[DescribableLogDirTopic, ...] | None = wire(
        array(DescribableLogDirTopic), nullable_since=0
    )


@wire_class
class DescribeLogDirsPartition:
    """One log."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    """Bytes of its segments."""
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)
    """Whether it will replace the log once it is completely copied to this directory."""


@wire_class
class DescribeLogDirsTopic:
    """The logs of one topic in one directory."""

    name: str = wire(STRING)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(array(DescribeLogDirsPartition))


@wire_class
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    """Its absolute path."""
    topics: tuple[DescribeLogDirsTopic, ...] = wire(array(DescribeLogDirsTopic))
    total_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    """Size of its volume."""
    usable_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = wire(BOOL, since=5, default=False, ignorable=True)
    """Whether the broker places no new logs there."""


@wire_class
class DescribeLogDirsResponse(Message):
    """Each log directory."""

    api_key = 35
    versions = (1, 5)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=3, default=0, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(array(DescribeLogDirsResult))
