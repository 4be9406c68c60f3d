"""CreatePartitions: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    for data, assignments in (
        (b"\xff\xff\xff\xff", None),
        (
            b"\0\0\0\1" + b"\0\0\0\1" + b"\0\0\0\7",
            (CreatePartitionsAssignment(broker_ids=(7,)),),
        ),
    ):
        frame = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\3" + data + b"\0\0\x03\xe8" + b"\1"
        topic = CreatePartitionsTopic(name="t", count=3, assignments=assignments)
        assert decode(CreatePartitionsRequest, 0, memoryview(frame)) == CreatePartitionsRequest(
            topics=(topic,), timeout_ms=1000, validate_only=True
        )


def test_response_v2() -> None:
    result = CreatePartitionsTopicResult(name="t", error_code=37, error_message="no")
    (part,) = encode(CreatePartitionsResponse(results=(result,)), 2)
    assert part == b"\0\0\0\0" + b"\2" + b"\2t" + b"\0\x25" + b"\3no" + b"\0" + b"\0"
