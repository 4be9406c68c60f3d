"""TxnOffsetCommit (key 28): commit the offsets of a group as part of a transaction.

Versions: v2 committed_leader_epoch · v3 flexible; member, instance and generation (KIP-447) · v4
TRANSACTION_ABORTABLE · v5 the group's partition joins the transaction automatically (KIP-890).
Source: TxnOffsetCommitRequest.json, TxnOffsetCommitResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class TxnOffsetCommitRequestPartition:
    """The offset to commit for one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable_since=0)


@wire_class
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(
        array(TxnOffsetCommitRequestPartition)
    )


@wire_class
class TxnOffsetCommitRequest(Message):
    """The offsets to commit for a group in a producer's transaction."""

    api_key = 28
    versions = (0, 5)
    flexible_since = 3

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    """-1: the client that commits is not a member."""
    member_id: str = wire(STRING, since=3, default="")
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(array(TxnOffsetCommitRequestTopic))


@wire_class
class TxnOffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@wire_class
class TxnOffsetCommitResponseTopic:
    """The results for one topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(
        array(TxnOffsetCommitResponsePartition)
    )


@wire_class
class TxnOffsetCommitResponse(Message):
    """The result for each offset; offsets take effect if the transaction commits."""

    api_key = 28
    versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(array(TxnOffsetCommitResponseTopic))
