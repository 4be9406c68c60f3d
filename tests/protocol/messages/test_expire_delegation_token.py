"""ExpireDelegationToken: bytes as clients send them, and as Kafka 4.3.1 answered."""

from __future__ import annotations

from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    data = b"\0\0\0\3abc" + bytes(7) + b"\5"
    request = ExpireDelegationTokenRequest(hmac=memoryview(b"abc"), expiry_time_period_ms=5)
    assert decode(ExpireDelegationTokenRequest, 1, memoryview(data)) == request


def test_response_v1() -> None:
    response = ExpireDelegationTokenResponse(error_code=64, expiry_timestamp_ms=-1)
    (part,) = encode(response, 1)
    assert part == b"\0\x40" + b"\xff" * 8 + bytes(4)
