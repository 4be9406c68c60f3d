"""DescribeProducers: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    topic = TopicRequest(name="t", partition_indexes=(0, 1))
    data = b"\2" + b"\2t" + b"\3\0\0\0\0\0\0\0\1" + b"\0" + b"\0"
    request = DescribeProducersRequest(topics=(topic,))
    assert decode(DescribeProducersRequest, 0, memoryview(data)) == request


def test_response_v0() -> None:
    producer = ProducerState(
        producer_id=7, producer_epoch=1, last_sequence=9, last_timestamp=5, coordinator_epoch=-1
    )
    partition = PartitionResponse(partition_index=0, error_code=0, active_producers=(producer,))
    response = DescribeProducersResponse(topics=(TopicResponse(name="t", partitions=(partition,)),))
    (part,) = encode(response, 0)
    described = struct.pack(">qiiqiq", 7, 1, 9, 5, -1, -1) + b"\0"
    head = b"\0\0\0\0" + b"\2" + b"\2t" + b"\2" + b"\0\0\0\0" + b"\0\0" + b"\0"
    assert part == head + b"\2" + described + b"\0" + b"\0" + b"\0"
