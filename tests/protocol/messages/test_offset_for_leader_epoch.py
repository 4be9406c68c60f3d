"""OffsetForLeaderEpoch: bytes as clients send and expect them."""

from __future__ import annotations

import struct

import pytest

from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def request(replica_id: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=3, current_leader_epoch=6, leader_epoch=5)
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=(OffsetForLeaderTopic(topic="t", partitions=(partition,)),)
    )


def response() -> OffsetForLeaderEpochResponse:
    partition = EpochEndOffset(error_code=0, partition=3, leader_epoch=5, end_offset=42)
    return OffsetForLeaderEpochResponse(
        topics=(OffsetForLeaderTopicResult(topic="t", partitions=(partition,)),)
    )


def test_request_v2_has_no_replica_id() -> None:
    data = struct.pack(">ih1siiii", 1, 1, b"t", 1, 3, 6, 5)
    assert decode(OffsetForLeaderEpochRequest, 2, memoryview(data)) == request(-2)


def test_request_v3() -> None:
    data = struct.pack(">iih1siiii", -1, 1, 1, b"t", 1, 3, 6, 5)
    assert decode(OffsetForLeaderEpochRequest, 3, memoryview(data)) == request(-1)


def test_request_v4_is_flexible() -> None:
    data = struct.pack(">i", -1) + b"\2\2t\2" + struct.pack(">iii", 3, 6, 5) + b"\0\0\0"
    assert decode(OffsetForLeaderEpochRequest, 4, memoryview(data)) == request(-1)


@pytest.mark.parametrize("version", [2, 3])
def test_response_before_v4(version: int) -> None:
    (part,) = encode(response(), version)
    assert part == struct.pack(">iih1sihiiq", 0, 1, 1, b"t", 1, 0, 3, 5, 42)


def test_response_v4_is_flexible() -> None:
    (part,) = encode(response(), 4)
    assert part == b"\0\0\0\0\2\2t\2" + struct.pack(">hiiq", 0, 3, 5, 42) + b"\0\0\0"
