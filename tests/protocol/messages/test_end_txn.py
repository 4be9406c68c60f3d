"""EndTxn: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.wire.decode import decode
from protocol.wire.encode import encode

PRODUCER = struct.pack(">qh", 1000, 7)
REQUEST = EndTxnRequest(
    transactional_id="x", producer_id=1000, producer_epoch=7, committed=True
)  # fmt: skip


def test_request() -> None:
    v0, v5 = b"\0\1x" + PRODUCER + b"\1", b"\2x" + PRODUCER + b"\1\0"
    assert decode(EndTxnRequest, 0, memoryview(v0)) == REQUEST
    assert decode(EndTxnRequest, 5, memoryview(v5)) == REQUEST


def test_response() -> None:
    response = EndTxnResponse(error_code=0, producer_id=1000, producer_epoch=8)
    assert encode(response, 0) == [b"\0" * 6]
    assert encode(response, 3) == [b"\0" * 6 + b"\0"]
    assert encode(response, 5) == [b"\0" * 6 + struct.pack(">qh", 1000, 8) + b"\0"]
