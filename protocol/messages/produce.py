"""Produce (key 0): append record batches to partitions.

Versions: v2 log_append_time_ms · v3 transactional_id, record batch v2 · v5 log_start_offset ·
v8 record_errors, error_message (KIP-467) · v9 flexible · v10 current_leader, node_endpoints (KIP-951) ·
v12 partitions join the transaction as they are produced to (KIP-890) · v13 topic ids (KIP-516).
Source: ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    array,
    struct,
    wire,
    wire_class,
)

IDS_SINCE = 13
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


@wire_class
class PartitionProduceData:
    """The batches for one partition."""

    index: int = wire(INT32)
    records: memoryview | None = wire(RECORDS, nullable_since=0)
    """A slice of the request's frame: as writable as the frame is."""


@wire_class
class TopicProduceData:
    """The batches for one topic."""

    name: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(array(PartitionProduceData))


@wire_class
class ProduceRequest(Message):
    """Batches to append, and how durably."""

    api_key = 0
    versions = (3, 13)
    flexible_since = 9

    transactional_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    """None if the producer is not transactional."""
    acks: int = wire(INT16)
    """0: send no response, 1: answer after the leader's write, -1: answer when it is durable."""
    timeout_ms: int = wire(INT32)
    topic_data: tuple[TopicProduceData, ...] = wire(array(TopicProduceData))


@wire_class
class BatchIndexAndErrorMessage:
    """The reason why one record caused its batch to be refused."""

    batch_index: int = wire(INT32, since=8)
    """The record's index in its batch."""
    batch_index_error_message: str | None = wire(STRING, since=8, nullable_since=8, default=None)


@wire_class
class LeaderIdAndEpoch:
    """The partition's leader, for a client that sent the request to another broker."""

    leader_id: int = wire(INT32, since=10, default=-1)
    leader_epoch: int = wire(INT32, since=10, default=-1)


@wire_class
class PartitionProduceResponse:
    """The result for one partition's batches."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    """Offset of the first record, -1 after an error."""
    log_append_time_ms: int = wire(INT64, since=2, default=-1, ignorable=True)
    """-1 if the topic keeps the producer's timestamps."""
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        array(BatchIndexAndErrorMessage), since=8, default=(), ignorable=True
    )
    error_message: str | None = wire(
        STRING, since=8, nullable_since=8, default=None, ignorable=True
    )
    current_leader: LeaderIdAndEpoch = wire(
        struct(LeaderIdAndEpoch), since=10, default=LeaderIdAndEpoch(), tag=0
    )


@wire_class
class TopicProduceResponse:
    """The results for one topic's batches."""

    name: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(
        array(PartitionProduceResponse)
    )


@wire_class
class NodeEndpoint:
    """The address of a leader."""

    node_id: int = wire(INT32, since=10)
    host: str = wire(STRING, since=10)
    port: int = wire(INT32, since=10)
    rack: str | None = wire(STRING, since=10, nullable_since=10, default=None)


@wire_class
class ProduceResponse(Message):
    """The result for each partition's batches."""

    api_key = 0
    versions = (3, 13)
    flexible_since = 9

    responses: tuple[TopicProduceResponse, ...] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        array(NodeEndpoint), since=10, default=(), tag=0
    )
