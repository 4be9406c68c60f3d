"""SaslHandshake: nobody authenticates on a PLAINTEXT listener, as Kafka 4.3.1 says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", ""])
async def test_no_mechanism_is_offered_and_the_connection_goes_on(
    tmp_path: Path, version: int, mechanism: str
) -> None:
    request = SaslHandshakeRequest(mechanism=mechanism)
    async with serving_broker(tmp_path) as served:
        client = await served.connect()
        for _ in range(2):
            response = await client.call(request, version, SaslHandshakeResponse)
            assert response == SaslHandshakeResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=()
            )
