"""SaslHandshake: begins logins on SASL listeners; elsewhere it answers what Kafka 4.3.1 answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.sasl_login import handshake, plain_login, sasl_broker
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


async def test_an_enabled_mechanism_begins_a_login(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as served:
        response = await handshake(await served.connect("SASL"), "SCRAM-SHA-512")
        assert response.error_code == ErrorCode.NONE
        assert response.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "X" * 30_000])
async def test_another_mechanism_gets_the_list_and_the_connection_ends(
    tmp_path: Path, version: int, mechanism: str
) -> None:
    async with sasl_broker(tmp_path, **{"sasl.enabled.mechanisms": "PLAIN"}) as served:
        client = await served.connect("SASL")
        response = await handshake(client, mechanism, version)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ("PLAIN",)
        assert await client.is_closed()


async def test_an_authenticated_client_whose_session_does_not_end_begins_no_login(
    tmp_path: Path,
) -> None:
    async with sasl_broker(tmp_path) as served:
        client = await served.connect("SASL")
        assert (await plain_login(client)).error_code == ErrorCode.NONE
        response = await handshake(client)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
