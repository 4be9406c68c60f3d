"""DeleteRecords (key 21): move the start of partitions up to an offset (KIP-107).

Versions: v2 flexible.
Source: DeleteRecordsRequest.json, DeleteRecordsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class DeleteRecordsPartition:
    """A partition, and the offset below which its records are deleted."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)
    """-1: the high watermark, which deletes every readable record."""


@wire_class
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(array(DeleteRecordsPartition))


@wire_class
class DeleteRecordsRequest(Message):
    """Records to delete."""

    api_key = 21
    versions = (0, 2)
    flexible_since = 2

    topics: tuple[DeleteRecordsTopic, ...] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)
    """Time limit for the followers."""


@wire_class
class DeleteRecordsPartitionResult:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    """The first offset that every replica still has; -1 with an error."""
    error_code: int = wire(INT16)


@wire_class
class DeleteRecordsTopicResult:
    """The results for one topic's partitions."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(array(DeleteRecordsPartitionResult))


@wire_class
class DeleteRecordsResponse(Message):
    """The result for each partition."""

    api_key = 21
    versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(array(DeleteRecordsTopicResult))
