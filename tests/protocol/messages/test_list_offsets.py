"""ListOffsets: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def request(isolation_level: int, leader_epoch: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(
        partition_index=3, current_leader_epoch=leader_epoch, timestamp=-2
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=(ListOffsetsTopic(name="t", partitions=(partition,)),),
    )


def response() -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(
        partition_index=3, error_code=0, timestamp=-1, offset=42
    )
    return ListOffsetsResponse(
        topics=(ListOffsetsTopicResponse(name="t", partitions=(partition,)),)
    )


def test_request_v1() -> None:
    data = struct.pack(">iih1siiq", -1, 1, 1, b"t", 1, 3, -2)
    assert decode(ListOffsetsRequest, 1, memoryview(data)) == request(0, -1)


def test_request_v7() -> None:
    data = struct.pack(">ib", -1, 1) + b"\2\2t\2" + struct.pack(">iiq", 3, 5, -2) + b"\0\0\0"
    assert decode(ListOffsetsRequest, 7, memoryview(data)) == request(1, 5)


def test_response_v1() -> None:
    (part,) = encode(response(), 1)
    assert part == struct.pack(">ih1siihqq", 1, 1, b"t", 1, 3, 0, -1, 42)


def test_response_v7() -> None:
    (part,) = encode(response(), 7)
    partition = struct.pack(">ihqqi", 3, 0, -1, 42, -1)
    assert part == b"\0\0\0\0" + b"\2\2t\2" + partition + b"\0\0\0"
