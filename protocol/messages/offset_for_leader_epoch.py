"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch.

A consumer sends it after each change of the leader epoch, to find out whether the records that it has
read are still in the log (KIP-320). "No such epoch" is epoch -1 and offset -1, without an error.
Versions: v3 replica_id · v4 flexible.
Source: OffsetForLeaderEpochRequest.json, OffsetForLeaderEpochResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class OffsetForLeaderPartition:
    """The lookup in one partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    """-1: the client does not know it, so the broker does not check it."""
    leader_epoch: int = wire(INT32)
    """The epoch whose end offset to look up."""


@wire_class
class OffsetForLeaderTopic:
    """The lookups in one topic."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(array(OffsetForLeaderPartition))


@wire_class
class OffsetForLeaderEpochRequest(Message):
    """The epochs to look up."""

    api_key = 23
    versions = (2, 4)
    flexible_since = 4

    replica_id: int = wire(INT32, since=3, default=-2, ignorable=True)
    """-1 from consumers, -2 from tools."""
    topics: tuple[OffsetForLeaderTopic, ...] = wire(array(OffsetForLeaderTopic))


@wire_class
class EpochEndOffset:
    """The result for one partition."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    """The largest epoch in the log that is not above the requested one."""
    end_offset: int = wire(INT64, default=-1)
    """The offset after its last record."""


@wire_class
class OffsetForLeaderTopicResult:
    """The results for one topic."""

    topic: str = wire(STRING)
    partitions: tuple[EpochEndOffset, ...] = wire(array(EpochEndOffset))


@wire_class
class OffsetForLeaderEpochResponse(Message):
    """The end offsets of the epochs."""

    api_key = 23
    versions = (2, 4)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(array(OffsetForLeaderTopicResult))
