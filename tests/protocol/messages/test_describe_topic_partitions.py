"""DescribeTopicPartitions: bytes as clients send and expect them."""

from __future__ import annotations

import struct
import uuid

from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_a_cursor_has_a_byte_before_it_that_says_whether_it_is_there() -> None:
    for data, cursor in (
        (b"\xff", None),
        (b"\1" + b"\2t" + b"\0\0\0\5" + b"\0", Cursor(topic_name="t", partition_index=5)),
    ):
        frame = memoryview(b"\2\2t\0" + b"\0\0\0\x0a" + data + b"\0")
        assert decode(DescribeTopicPartitionsRequest, 0, frame) == DescribeTopicPartitionsRequest(
            topics=(TopicRequest(name="t"),), response_partition_limit=10, cursor=cursor
        )


def test_response_v0() -> None:
    partition = DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=4,
        replica_nodes=(1,),
        isr_nodes=(1,),
        eligible_leader_replicas=(),
        last_known_elr=None,
        offline_replicas=(),
    )
    topic = DescribeTopicPartitionsResponseTopic(
        error_code=0, name="t", topic_id=TOPIC_ID, partitions=(partition,)
    )
    response = DescribeTopicPartitionsResponse(
        topics=(topic,), next_cursor=Cursor(topic_name="t", partition_index=1)
    )
    (part,) = encode(response, 0)
    one = b"\2\0\0\0\1"
    described = struct.pack(">hiii", 0, 0, 1, 4) + one + one + b"\1" + b"\0" + b"\1" + b"\0"
    head = b"\0\0\0\0" + b"\2" + b"\0\0" + b"\2t" + TOPIC_ID.bytes + b"\0"
    cursor = b"\1" + b"\2t" + b"\0\0\0\1" + b"\0"
    assert part == head + b"\2" + described + b"\x80\0\0\0" + b"\0" + cursor + b"\0"
