"""SaslAuthenticate: bytes as clients send and expect them."""

from __future__ import annotations

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v2() -> None:
    request = SaslAuthenticateRequest(auth_bytes=memoryview(b"\0a\0b"))
    assert decode(SaslAuthenticateRequest, 2, memoryview(b"\5\0a\0b\0")) == request


def test_response_v1() -> None:
    response = SaslAuthenticateResponse(error_code=34, error_message="no", auth_bytes=b"")
    (part,) = encode(response, 1)
    assert part == b"\0\x22" + b"\0\2no" + b"\0\0\0\0" + bytes(8)
