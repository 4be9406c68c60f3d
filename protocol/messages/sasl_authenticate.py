"""SaslAuthenticate (key 36) (KIP-152).

Versions: v1 session lifetime (KIP-368) · v2 flexible.
Source: SaslAuthenticateRequest.json, SaslAuthenticateResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BYTES, INT16, INT64, STRING, Message, Payload, wire, wire_class


@wire_class
class SaslAuthenticateRequest(Message):
    """One token of the mechanism's exchange."""

    api_key = 36
    versions = (0, 2)
    flexible_since = 2

    auth_bytes: Payload = wire(BYTES)


@wire_class
class SaslAuthenticateResponse(Message):
    """The broker's token."""

    api_key = 36
    versions = (0, 2)
    flexible_since = 2

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    auth_bytes: Payload = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, since=1, default=0, ignorable=True)
