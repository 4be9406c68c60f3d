"""Logins over raw connections: a broker with a SASL listener, and each step of PLAIN and SCRAM."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.security.scram_credentials import ScramMechanism, salted_password
from tests.harness.raw_client import RawClient
from tests.harness.scram_client import ScramClient
from tests.harness.served_broker import ServedBroker, serving_broker

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob-secret";'
)
PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": PLAIN_JAAS,
    "connection.failed.authentication.delay.ms": "0",
}
ALICE = b"\0alice\0alice-secret"
SALT = b"a salt of the tests"


@asynccontextmanager
async def sasl_broker(directory: Path, **properties: str) -> AsyncIterator[ServedBroker]:
    """Run a broker with the listeners PLAINTEXT and SASL, and alice and bob as users of PLAIN."""
    async with serving_broker(directory, **{**PROPERTIES, **properties}) as served:
        yield served


async def handshake(
    client: RawClient, mechanism: str = "PLAIN", version: int = 1
) -> SaslHandshakeResponse:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return await client.call(request, version, SaslHandshakeResponse)


async def send_token(client: RawClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return await client.call(request, version, SaslAuthenticateResponse)


async def plain_login(client: RawClient, token: bytes = ALICE) -> SaslAuthenticateResponse:
    """Log in by PLAIN. Returns the broker's last answer."""
    assert (await handshake(client)).error_code == ErrorCode.NONE
    return await send_token(client, token)


async def scram_login(
    client: RawClient,
    user: str,
    password: str,
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
) -> SaslAuthenticateResponse:
    """Log in by SCRAM. Returns the last answer; after a success the broker has proved itself."""
    assert (await handshake(client, mechanism.sasl_name)).error_code == ErrorCode.NONE
    scram = ScramClient(user, password, mechanism.hash_name)
    challenge = await send_token(client, scram.first())
    if challenge.error_code:
        return challenge
    last = await send_token(client, scram.final(copied(challenge.auth_bytes)))
    if not last.error_code:
        assert scram.is_signed(copied(last.auth_bytes))
    return last


def upsertion(
    user: str,
    password: str = "pencil",
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
    iterations: int = 4096,
) -> ScramCredentialUpsertion:
    """Returns the request of a credential, as an admin client derives it."""
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=SALT,
        salted_password=salted_password(mechanism, password, SALT, iterations),
    )


async def set_password(
    served: ServedBroker,
    user: str,
    password: str = "pencil",
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
) -> None:
    """Set a user's SCRAM password, over the listener without SASL."""
    request = AlterUserScramCredentialsRequest(
        deletions=(), upsertions=(upsertion(user, password, mechanism),)
    )
    response = await served.call(request, 0, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in response.results] == [ErrorCode.NONE]
