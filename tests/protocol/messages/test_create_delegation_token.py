"""CreateDelegationToken: bytes as clients send them, and as Kafka 4.3.1 answered."""

from __future__ import annotations

from protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.wire.decode import decode
from protocol.wire.encode import encode


def test_request_v3() -> None:
    data = b"\0\0" + b"\2\5User\4bob\0" + b"\xff" * 8 + b"\0"
    request = CreateDelegationTokenRequest(
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=(CreatableRenewers(principal_type="User", principal_name="bob"),),
        max_lifetime_ms=-1,
    )
    assert decode(CreateDelegationTokenRequest, 3, memoryview(data)) == request


def test_response_v3() -> None:
    response = CreateDelegationTokenResponse(
        error_code=64,
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User",
        token_requester_principal_name="ANONYMOUS",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
    (part,) = encode(response, 3)
    assert (
        part == b"\0\x40" + b"\5User\x0aANONYMOUS" * 2 + b"\xff" * 24 + b"\1\1" + bytes(4) + b"\0"
    )
