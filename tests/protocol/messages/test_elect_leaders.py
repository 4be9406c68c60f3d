"""ElectLeaders: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v2() -> None:
    topic = TopicPartitions(topic="t", partitions=(3,))
    for data, topics in ((b"\0", None), (b"\2\2t\2\0\0\0\3\0", (topic,))):
        frame = memoryview(b"\1" + data + b"\0\0\x03\xe8" + b"\0")
        request = ElectLeadersRequest(election_type=1, topic_partitions=topics, timeout_ms=1000)
        assert decode(ElectLeadersRequest, 2, frame) == request


def test_response_v0_and_v2() -> None:
    partition = PartitionResult(partition_id=3, error_code=84, error_message=None)
    topic = ReplicaElectionResult(topic="t", partition_result=(partition,))
    response = ElectLeadersResponse(replica_election_results=(topic,))
    (part,) = encode(response, 0)
    named = b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\3" + b"\0\x54" + b"\xff\xff"
    assert part == b"\0\0\0\0" + b"\0\0\0\1" + named
    (part,) = encode(response, 2)
    named = b"\2t" + b"\2" + b"\0\0\0\3" + b"\0\x54" + b"\0" + b"\0" + b"\0"
    assert part == b"\0\0\0\0" + b"\0\0" + b"\2" + named + b"\0"
