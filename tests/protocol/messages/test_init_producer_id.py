"""InitProducerId: bytes as clients send and expect them."""

from __future__ import annotations

import struct

from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v0() -> None:
    data = b"\xff\xff" + struct.pack(">i", 0x7FFFFFFF)
    assert decode(InitProducerIdRequest, 0, memoryview(data)) == InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0x7FFFFFFF
    )


def test_request_v4() -> None:
    data = b"\2x" + struct.pack(">iqhx", 60_000, 1000, 7)
    assert decode(InitProducerIdRequest, 4, memoryview(data)) == InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000, producer_id=1000, producer_epoch=7
    )


def test_response() -> None:
    response = InitProducerIdResponse(error_code=0, producer_id=1000, producer_epoch=0)
    assert encode(response, 0) == [struct.pack(">ihqh", 0, 0, 1000, 0)]
    assert encode(response, 4) == [struct.pack(">ihqhx", 0, 0, 1000, 0)]
