"""Fetch: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def response(aborted: tuple[AbortedTransaction, ...] | None) -> FetchResponse:
    partition = PartitionData(
        partition_index=3,
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=2,
        aborted_transactions=aborted,
        records=b"batch",
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(partition,)),))


def test_request_v4() -> None:
    data = (
        struct.pack(">iiiib", -1, 500, 1, 1000, 1)
        + struct.pack(">ih1s", 1, 1, b"t")
        + struct.pack(">iiqi", 1, 3, 42, 100)
    )
    partition = FetchPartition(partition=3, fetch_offset=42, partition_max_bytes=100)
    assert decode(FetchRequest, 4, memoryview(data)) == FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=1,
        topics=(FetchTopic(topic="t", partitions=(partition,)),),
    )


def test_request_v12() -> None:
    data = (
        struct.pack(">iiiibii", -1, 500, 1, 1000, 0, 6, 7)
        + b"\2\2t\2"
        + struct.pack(">iiqiqi", 3, 5, 42, 4, -1, 100)
        + b"\0\0"
        + b"\2\2u\2\0\0\0\1\0"  # forgotten_topics_data
        + b"\2r"  # rack_id
        + b"\1\0\2\2c"  # cluster_id, a tagged field
    )
    partition = FetchPartition(
        partition=3,
        current_leader_epoch=5,
        fetch_offset=42,
        last_fetched_epoch=4,
        partition_max_bytes=100,
    )
    assert decode(FetchRequest, 12, memoryview(data)) == FetchRequest(
        cluster_id="c",
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        session_id=6,
        session_epoch=7,
        topics=(FetchTopic(topic="t", partitions=(partition,)),),
        forgotten_topics_data=(ForgottenTopic(topic="u", partitions=(1,)),),
        rack_id="r",
    )


def test_response_v4_has_no_session_and_no_log_start() -> None:
    (part,) = encode(response(None), 4)
    assert part == struct.pack(">iih1siihqqii5s", 0, 1, 1, b"t", 1, 3, 0, 9, 8, -1, 5, b"batch")


def test_response_v12() -> None:
    (part,) = encode(response((AbortedTransaction(producer_id=1000, first_offset=4),)), 12)
    assert part == (
        struct.pack(">ihi", 0, 0, 0)
        + b"\2\2t\2"
        + struct.pack(">ihqqq", 3, 0, 9, 8, 2)
        + b"\2"
        + struct.pack(">qq", 1000, 4)
        + b"\0"
        + struct.pack(">i", -1)
        + b"\6batch\0\0\0"
    )
