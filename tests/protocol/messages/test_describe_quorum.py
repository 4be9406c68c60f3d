"""DescribeQuorum: bytes as clients send and expect them."""

from __future__ import annotations

import uuid

from protocol.messages.describe_quorum import (
    AskedPartition,
    AskedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v2() -> None:
    topic = AskedTopic(topic_name="t", partitions=(AskedPartition(partition_index=0),))
    data = b"\2" + b"\2t" + b"\2" + b"\0\0\0\0\0" + b"\0" + b"\0"
    request = DescribeQuorumRequest(topics=(topic,))
    assert decode(DescribeQuorumRequest, 2, memoryview(data)) == request


def test_response_v2_has_a_port_of_16_bits_without_sign() -> None:
    voter = ReplicaState(
        replica_id=1,
        replica_directory_id=uuid.UUID(int=2),
        log_end_offset=3,
        last_fetch_timestamp=4,
        last_caught_up_timestamp=5,
    )
    partition = PartitionData(
        partition_index=0,
        error_code=0,
        leader_id=1,
        leader_epoch=6,
        high_watermark=3,
        current_voters=(voter,),
        observers=(),
    )
    node = Node(node_id=1, listeners=(Listener(name="P", host="h", port=40_000),))
    response = DescribeQuorumResponse(
        error_code=0,
        topics=(TopicData(topic_name="t", partitions=(partition,)),),
        nodes=(node,),
    )
    (part,) = encode(response, 2)
    described = b"\0\0\0\1" + bytes(15) + b"\2" + bytes(7) + b"\3" + bytes(7) + b"\4"
    described += bytes(7) + b"\5" + b"\0"
    quorum = b"\0\0\0\0" + b"\0\0" + b"\1" + b"\0\0\0\1" + b"\0\0\0\6" + bytes(7) + b"\3"
    quorum += b"\2" + described + b"\1" + b"\0"
    listener = b"\2P" + b"\2h" + b"\x9c\x40" + b"\0"
    nodes = b"\2" + b"\0\0\0\1" + b"\2" + listener + b"\0"
    assert part == b"\0\0" + b"\1" + b"\2" + b"\2t" + b"\2" + quorum + b"\0" + nodes + b"\0"
