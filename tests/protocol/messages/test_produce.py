"""Produce: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=(
        TopicProduceData(
            name="t",
            partition_data=(PartitionProduceData(index=3, records=memoryview(b"batch")),),
        ),
    ),
)


def refused() -> ProduceResponse:
    partition = PartitionProduceResponse(
        index=3,
        error_code=87,
        base_offset=-1,
        log_start_offset=5,
        record_errors=(
            BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
        ),
        error_message="refused",
    )
    return ProduceResponse(
        responses=(TopicProduceResponse(name="t", partition_responses=(partition,)),)
    )


def test_request_v3() -> None:
    data = (
        b"\xff\xff"  # transactional_id
        + struct.pack(">hi", -1, 30_000)
        + struct.pack(">ih1s", 1, 1, b"t")
        + struct.pack(">iii5s", 1, 3, 5, b"batch")
    )
    assert decode(ProduceRequest, 3, memoryview(data)) == REQUEST
    assert decode(ProduceRequest, 8, memoryview(data)) == REQUEST


def test_request_v9_is_compact() -> None:
    data = b"\0" + struct.pack(">hi", -1, 30_000) + b"\2\2t\2\0\0\0\3\6batch\0\0\0"
    assert decode(ProduceRequest, 9, memoryview(data)) == REQUEST


def test_response_before_v8_drops_what_only_later_versions_say() -> None:
    (part,) = encode(refused(), 3)
    expected = struct.pack(">ih1siihqqi", 1, 1, b"t", 1, 3, 87, -1, -1, 0)
    assert part == expected


def test_response_v9_says_which_record_was_refused_and_why() -> None:
    (part,) = encode(refused(), 9)
    partition = struct.pack(">ihqqq", 3, 87, -1, -1, 5)
    errors = b"\2\0\0\0\1\7no key\0" + b"\x08refused" + b"\0"
    assert part == b"\2\2t\2" + partition + errors + b"\0" + b"\0\0\0\0" + b"\0"
