"""DescribeTransactions: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    expected = DescribeTransactionsRequest(transactional_ids=("x",))
    assert decode(DescribeTransactionsRequest, 0, memoryview(b"\2\2x\0")) == expected


def test_response_v0() -> None:
    state = TransactionState(
        error_code=0,
        transactional_id="x",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=9,
        producer_id=1000,
        producer_epoch=7,
        topics=(TopicData(topic="t", partitions=(2,)),),
    )
    numbers = struct.pack(">iqqh", 60_000, 9, 1000, 7)
    topics = b"\2\2t" + b"\2\0\0\0\2" + b"\0"
    data = b"\0\0\0\0" + b"\2\0\0\2x\x08Ongoing" + numbers + topics + b"\0\0"
    assert encode(DescribeTransactionsResponse(transaction_states=(state,)), 0) == [data]
