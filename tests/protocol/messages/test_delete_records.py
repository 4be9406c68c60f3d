"""DeleteRecords: bytes as clients send and expect them."""

from __future__ import annotations

import struct

import pytest

from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

REQUEST = DeleteRecordsRequest(
    topics=(
        DeleteRecordsTopic(
            name="t", partitions=(DeleteRecordsPartition(partition_index=3, offset=-1),)
        ),
    ),
    timeout_ms=1000,
)
RESPONSE = DeleteRecordsResponse(
    topics=(
        DeleteRecordsTopicResult(
            name="t",
            partitions=(
                DeleteRecordsPartitionResult(partition_index=3, low_watermark=42, error_code=1),
            ),
        ),
    )
)


@pytest.mark.parametrize("version", [0, 1])
def test_request_before_v2(version: int) -> None:
    data = struct.pack(">ih1siiqi", 1, 1, b"t", 1, 3, -1, 1000)
    assert decode(DeleteRecordsRequest, version, memoryview(data)) == REQUEST


def test_request_v2_is_flexible() -> None:
    data = b"\2\2t\2" + struct.pack(">iq", 3, -1) + b"\0\0" + struct.pack(">i", 1000) + b"\0"
    assert decode(DeleteRecordsRequest, 2, memoryview(data)) == REQUEST


@pytest.mark.parametrize("version", [0, 1])
def test_response_before_v2(version: int) -> None:
    (part,) = encode(RESPONSE, version)
    assert part == struct.pack(">iih1siiqh", 0, 1, 1, b"t", 1, 3, 42, 1)


def test_response_v2_is_flexible() -> None:
    (part,) = encode(RESPONSE, 2)
    assert part == b"\0\0\0\0\2\2t\2" + struct.pack(">iqh", 3, 42, 1) + b"\0\0\0"
