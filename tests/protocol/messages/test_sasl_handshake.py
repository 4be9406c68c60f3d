"""SaslHandshake: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v1() -> None:
    request = SaslHandshakeRequest(mechanism="PLAIN")
    assert decode(SaslHandshakeRequest, 1, memoryview(b"\0\5PLAIN")) == request


def test_response_v1() -> None:
    (part,) = encode(SaslHandshakeResponse(error_code=34, mechanisms=("PLAIN",)), 1)
    assert part == b"\0\x22" + b"\0\0\0\1" + b"\0\5PLAIN"
