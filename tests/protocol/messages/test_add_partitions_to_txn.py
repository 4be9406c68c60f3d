"""AddPartitionsToTxn: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode

PRODUCER = struct.pack(">qh", 1000, 7)
TOPICS = (AddPartitionsToTxnTopic(name="t", partitions=(2,)),)
OF_ONE = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="x",
    v3_and_below_producer_id=1000,
    v3_and_below_producer_epoch=7,
    v3_and_below_topics=TOPICS,
)
RESULTS = (
    AddPartitionsToTxnTopicResult(
        name="t",
        results_by_partition=(
            AddPartitionsToTxnPartitionResult(partition_index=2, partition_error_code=51),
        ),
    ),
)


def test_request_v0() -> None:
    data = b"\0\1x" + PRODUCER + b"\0\0\0\1\0\1t" + b"\0\0\0\1\0\0\0\2"
    assert decode(AddPartitionsToTxnRequest, 0, memoryview(data)) == OF_ONE


def test_request_v3() -> None:
    data = b"\2x" + PRODUCER + b"\2\2t" + b"\2\0\0\0\2" + b"\0\0"
    assert decode(AddPartitionsToTxnRequest, 3, memoryview(data)) == OF_ONE


def test_request_v4() -> None:
    one = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=1000,
        producer_epoch=7,
        verify_only=True,
        topics=TOPICS,
    )
    data = b"\2" + b"\2x" + PRODUCER + b"\1" + b"\2\2t" + b"\2\0\0\0\2" + b"\0\0\0"
    expected = AddPartitionsToTxnRequest(transactions=(one,))
    assert decode(AddPartitionsToTxnRequest, 4, memoryview(data)) == expected


def test_response() -> None:
    of_one = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=RESULTS)
    assert encode(of_one, 0) == [b"\0" * 4 + b"\0\0\0\1\0\1t" + b"\0\0\0\1\0\0\0\2\0\x33"]
    assert encode(of_one, 3) == [b"\0" * 4 + b"\2\2t" + b"\2\0\0\0\2\0\x33\0" + b"\0\0"]

    of_several = AddPartitionsToTxnResponse(
        results_by_transaction=(
            AddPartitionsToTxnResult(transactional_id="x", topic_results=RESULTS),
        )
    )
    expected = b"\0" * 4 + b"\0\0" + b"\2\2x" + b"\2\2t" + b"\2\0\0\0\2\0\x33\0" + b"\0\0\0"
    assert encode(of_several, 4) == [expected]
