"""ExpireDelegationToken (key 40) (KIP-48).

Versions: v2 flexible.
Source: ExpireDelegationTokenRequest.json, ExpireDelegationTokenResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BYTES, INT16, INT32, INT64, Message, Payload, wire, wire_class


@wire_class
class ExpireDelegationTokenRequest(Message):
    """The token to expire, and when."""

    api_key = 40
    versions = (1, 2)
    flexible_since = 2

    hmac: Payload = wire(BYTES)
    expiry_time_period_ms: int = wire(INT64)


@wire_class
class ExpireDelegationTokenResponse(Message):
    """The time at which it expires."""

    api_key = 40
    versions = (1, 2)
    flexible_since = 2

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32, default=0)
