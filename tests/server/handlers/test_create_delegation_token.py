"""CreateDelegationToken: nobody has authenticated on a PLAINTEXT listener, as Kafka 4.3.1 says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_tokens_are_not_for_those_who_have_not_authenticated(
    tmp_path: Path, version: int
) -> None:
    request = CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=-1)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, CreateDelegationTokenResponse)
    requester = ("User", "ANONYMOUS") if version >= 3 else ("", "")
    assert response == CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
