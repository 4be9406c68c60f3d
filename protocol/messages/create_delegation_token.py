"""CreateDelegationToken (key 38) (KIP-48).

Versions: v2 flexible · v3 a token for another owner (KIP-373).
Source: CreateDelegationTokenRequest.json, CreateDelegationTokenResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Payload,
    array,
    wire,
    wire_class,
)


@wire_class
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@wire_class
class CreateDelegationTokenRequest(Message):
    """The owner of the new token; null: the client's own principal."""

    api_key = 38
    versions = (1, 3)
    flexible_since = 2

    owner_principal_type: str | None = wire(STRING, since=3, nullable_since=3, default="")
    owner_principal_name: str | None = wire(STRING, since=3, nullable_since=3, default="")
    renewers: tuple[CreatableRenewers, ...] = wire(array(CreatableRenewers))
    max_lifetime_ms: int = wire(INT64)


@wire_class
class CreateDelegationTokenResponse(Message):
    """The token."""

    api_key = 38
    versions = (1, 3)
    flexible_since = 2

    error_code: int = wire(INT16)
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, since=3, default="")
    token_requester_principal_name: str = wire(STRING, since=3, default="")
    issue_timestamp_ms: int = wire(INT64)
    expiry_timestamp_ms: int = wire(INT64)
    max_timestamp_ms: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: Payload = wire(BYTES)
    throttle_time_ms: int = wire(INT32, default=0)
