"""OffsetForLeaderEpoch (key 23): where a leader epoch ended.

A consumer asks after each change of the leader epoch, to find out whether what it has read is still
the log's (KIP-320). "No such epoch" is epoch -1 and offset -1, without an error.
Versions: v3 replica_id · v4 flexible.
Source: OffsetForLeaderEpochRequest.json, OffsetForLeaderEpochResponse.json.
"""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class OffsetForLeaderPartition:
    """The question for one partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    """-1: the client does not know it, so it is not checked."""
    leader_epoch: int = wire(INT32)
    """The epoch whose end is asked for."""


@wire_class
class OffsetForLeaderTopic:
    """The questions for one topic."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(array(OffsetForLeaderPartition))


@wire_class
class OffsetForLeaderEpochRequest(Message):
    """Which epochs to look up."""

    api_key = 23
    versions = (2, 4)
    flexible_since = 4

    replica_id: int = wire(INT32, since=3, default=-2, ignorable=True)
    """-1 from consumers, -2 from tools."""
    topics: tuple[OffsetForLeaderTopic, ...] = wire(array(OffsetForLeaderTopic))


@wire_class
class EpochEndOffset:
    """The answer for one partition."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    """The largest epoch up to the one asked for that the log knows."""
    end_offset: int = wire(INT64, default=-1)
    """The offset after its last record."""


@wire_class
class OffsetForLeaderTopicResult:
    """The answers for one topic."""

    topic: str = wire(STRING)
    partitions: tuple[EpochEndOffset, ...] = wire(array(EpochEndOffset))


@wire_class
class OffsetForLeaderEpochResponse(Message):
    """Where the epochs end."""

    api_key = 23
    versions = (2, 4)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(array(OffsetForLeaderTopicResult))
