"""AddOffsetsToTxn: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.wire.decode import decode
from protocol.wire.encode import encode

PRODUCER = struct.pack(">qh", 1000, 7)
REQUEST = AddOffsetsToTxnRequest(
    transactional_id="x", producer_id=1000, producer_epoch=7, group_id="g"
)


def test_request() -> None:
    v0, v3 = b"\0\1x" + PRODUCER + b"\0\1g", b"\2x" + PRODUCER + b"\2g\0"
    assert decode(AddOffsetsToTxnRequest, 0, memoryview(v0)) == REQUEST
    assert decode(AddOffsetsToTxnRequest, 3, memoryview(v3)) == REQUEST


def test_response() -> None:
    response = AddOffsetsToTxnResponse(error_code=51)
    assert encode(response, 0) == [b"\0\0\0\0\0\x33"]
    assert encode(response, 3) == [b"\0\0\0\0\0\x33\0"]
