"""DescribeDelegationToken: bytes as clients send them, and as Kafka 4.3.1 answered."""

from __future__ import annotations

from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v3() -> None:
    data = b"\2\5User\4bob\0" + b"\0"
    request = DescribeDelegationTokenRequest(
        owners=(DescribeDelegationTokenOwner(principal_type="User", principal_name="bob"),)
    )
    assert decode(DescribeDelegationTokenRequest, 3, memoryview(data)) == request


def test_response_v3() -> None:
    response = DescribeDelegationTokenResponse(error_code=64, tokens=())
    (part,) = encode(response, 3)
    assert part == b"\0\x40" + b"\1" + bytes(4) + b"\0"
