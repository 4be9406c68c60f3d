"""SaslHandshake (key 17).

Versions: v1 SaslAuthenticate follows (KIP-152).
Source: SaslHandshakeRequest.json, SaslHandshakeResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, NEVER, STRING, Message, array, wire, wire_class


@wire_class
class SaslHandshakeRequest(Message):
    """The mechanism that the client wants to use."""

    api_key = 17
    versions = (0, 1)
    flexible_since = NEVER

    mechanism: str = wire(STRING)


@wire_class
class SaslHandshakeResponse(Message):
    """Whether the broker accepts the mechanism, and which ones it supports."""

    api_key = 17
    versions = (0, 1)
    flexible_since = NEVER

    error_code: int = wire(INT16)
    mechanisms: tuple[str, ...] = wire(array(STRING))
