"""SaslAuthenticate: nobody authenticates on a PLAINTEXT listener, as Kafka 4.3.1 says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_token_is_refused(tmp_path: Path, version: int) -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    async with serving_broker(tmp_path) as served:
        response = await served.call(request, version, SaslAuthenticateResponse)
    assert response == SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
