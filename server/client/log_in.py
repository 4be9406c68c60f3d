"""Logs a command's client in by SASL, before its first other request.

    client                               broker
    SaslHandshake(mechanism)      ->     the mechanism is enabled
    SaslAuthenticate(token)       ->     token         (once for PLAIN and OAUTHBEARER, twice for SCRAM)

kafka-python makes and checks the tokens. Source: KIP-43, KIP-152.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message, copied
from server.client.access import Access
from server.client.errors import ClientFailed

M = TypeVar("M", bound=Message)


class Caller(Protocol):
    """A client that sends one request at a time."""

    async def call(self, request: Message, response_type: type[M]) -> M: ...


async def log_in(client: Caller, access: Access) -> None:
    """Log in as the user of `access`, which must have a login.

    Raises:
        ClientFailed: the broker does not enable the mechanism, refuses the user, the password or
            the token, or cannot prove that it knows the password (SCRAM).
    """
    # kafka-python takes long to import.
    from kafka.net.sasl import get_sasl_mechanism

    assert access.login is not None
    name = access.login.mechanism
    await _shake_hands(client, name)
    settings = access.kafka_python_settings()
    mechanism = get_sasl_mechanism(name)(**settings)
    while not mechanism.is_done():
        request = SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes())
        answer = await client.call(request, SaslAuthenticateResponse)
        if answer.error_code:
            text = answer.error_message or ErrorCode.from_wire(answer.error_code).message
            raise ClientFailed(f"{access.login}: {text}")
        try:
            mechanism.receive(copied(answer.auth_bytes))
        except (ValueError, KeyError) as error:
            raise ClientFailed(f"the broker's answer to {name}: {error}") from error


async def _shake_hands(client: Caller, mechanism: str) -> None:
    answer = await client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ClientFailed("this listener has no SASL: connect without a login")
    if answer.error_code:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise ClientFailed(f"the broker does not enable {mechanism} here; it enables: {enabled}")
