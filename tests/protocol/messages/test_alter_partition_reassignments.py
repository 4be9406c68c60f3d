"""AlterPartitionReassignments: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    for data, replicas in ((b"\0", None), (b"\2\0\0\0\1", (1,))):
        partition = ReassignablePartition(partition_index=3, replicas=replicas)
        topic = ReassignableTopic(name="t", partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=1000, allow_replication_factor_change=False, topics=(topic,)
        )
        named = b"\2t" + b"\2" + b"\0\0\0\3" + data + b"\0" + b"\0"
        frame = memoryview(b"\0\0\x03\xe8" + b"\0" + b"\2" + named + b"\0")
        assert decode(AlterPartitionReassignmentsRequest, 1, frame) == request


def test_response_v0() -> None:
    partition = ReassignablePartitionResponse(partition_index=3, error_code=85, error_message=None)
    topic = ReassignableTopicResponse(name="t", partitions=(partition,))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=False, error_code=0, error_message=None, responses=(topic,)
    )
    (part,) = encode(response, 0)
    named = b"\2t" + b"\2" + b"\0\0\0\3" + b"\0\x55" + b"\0" + b"\0" + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0" + b"\0" + b"\2" + named + b"\0"
