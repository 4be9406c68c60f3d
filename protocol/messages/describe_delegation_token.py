"""DescribeDelegationToken (key 41) (KIP-48).

Versions: v2 flexible · v3 who requested the token (KIP-373).
Source: DescribeDelegationTokenRequest.json, DescribeDelegationTokenResponse.json.
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
class DescribeDelegationTokenOwner:
    """The owners whose tokens to describe."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@wire_class
class DescribeDelegationTokenRequest(Message):
    """The owners; null for all."""

    api_key = 41
    versions = (1, 3)
    flexible_since = 2

    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire(
        array(DescribeDelegationTokenOwner), nullable_since=0
    )


@wire_class
class DescribedDelegationTokenRenewer:
    """A principal that may renew a token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@wire_class
class DescribedDelegationToken:
    """One token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, since=3, default="")
    token_requester_principal_name: str = wire(STRING, since=3, default="")
    issue_timestamp: int = wire(INT64)
    expiry_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: Payload = wire(BYTES)
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire(
        array(DescribedDelegationTokenRenewer)
    )


@wire_class
class DescribeDelegationTokenResponse(Message):
    """The tokens."""

    api_key = 41
    versions = (1, 3)
    flexible_since = 2

    error_code: int = wire(INT16)
    tokens: tuple[DescribedDelegationToken, ...] = wire(array(DescribedDelegationToken))
    throttle_time_ms: int = wire(INT32, default=0)
