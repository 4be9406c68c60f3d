"""RenewDelegationToken (key 39) (KIP-48).

Versions: v2 flexible.
Source: RenewDelegationTokenRequest.json, RenewDelegationTokenResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BYTES, INT16, INT32, INT64, Message, Payload, wire, wire_class


@wire_class
class RenewDelegationTokenRequest(Message):
    """The token to renew, and for how long."""

    api_key = 39
    versions = (1, 2)
    flexible_since = 2

    hmac: Payload = wire(BYTES)
    renew_period_ms: int = wire(INT64)


@wire_class
class RenewDelegationTokenResponse(Message):
    """The time at which it expires."""

    api_key = 39
    versions = (1, 2)
    flexible_since = 2

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32, default=0)
