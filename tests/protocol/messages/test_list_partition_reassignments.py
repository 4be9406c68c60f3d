"""ListPartitionReassignments: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    topic = ListPartitionReassignmentsTopics(name="t", partition_indexes=(3,))
    for data, topics in ((b"\0", None), (b"\2\2t\2\0\0\0\3\0", (topic,))):
        frame = memoryview(b"\0\0\x03\xe8" + data + b"\0")
        request = ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics)
        assert decode(ListPartitionReassignmentsRequest, 0, frame) == request


def test_response_v0() -> None:
    partition = OngoingPartitionReassignment(
        partition_index=0, replicas=(1,), adding_replicas=(2,), removing_replicas=()
    )
    topic = OngoingTopicReassignment(name="t", partitions=(partition,))
    response = ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=(topic,))
    (part,) = encode(response, 0)
    moving = b"\0\0\0\0" + b"\2\0\0\0\1" + b"\2\0\0\0\2" + b"\1" + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0\0" + b"\2" + b"\2t" + b"\2" + moving + b"\0" + b"\0"
