"""DescribeDelegationToken: nobody has authenticated on a PLAINTEXT listener, as Kafka 4.3.1 says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_tokens_are_not_for_those_who_have_not_authenticated(
    tmp_path: Path, version: int
) -> None:
    request = DescribeDelegationTokenRequest(owners=None)
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, DescribeDelegationTokenResponse)
    assert response == DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=()
    )
