"""DescribeLogDirs: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    topic = DescribableLogDirTopic(topic="t", partitions=(1,))
    for data, topics in (
        (b"\xff\xff\xff\xff", None),
        (b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1\0\0\0\1", (topic,)),
    ):
        request = DescribeLogDirsRequest(topics=topics)
        assert decode(DescribeLogDirsRequest, 1, memoryview(data)) == request


def test_response_v1_drops_what_only_later_versions_say() -> None:
    partition = DescribeLogDirsPartition(
        partition_index=1, partition_size=9, offset_lag=0, is_future_key=False
    )
    result = DescribeLogDirsResult(
        error_code=0,
        log_dir="d",
        topics=(DescribeLogDirsTopic(name="t", partitions=(partition,)),),
        total_bytes=2,
        usable_bytes=1,
    )
    response = DescribeLogDirsResponse(error_code=0, results=(result,))
    logs = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">iiqq?", 1, 1, 9, 0, False)
    assert encode(response, 1) == [b"\0\0\0\0" + b"\0\0\0\1" + b"\0\0" + b"\0\1d" + logs]
    (part,) = encode(response, 5)
    assert isinstance(part, bytearray)
    assert part.endswith(struct.pack(">qq?", 2, 1, False) + b"\0" + b"\0")
