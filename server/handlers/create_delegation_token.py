"""CreateDelegationToken (key 38), v1-v3.

Behaviour: only authenticated clients may use delegation tokens, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. The API is advertised
because tools infer the version of a broker from it.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext

ANONYMOUS = ("User", "ANONYMOUS")
"""The principal type and name of every client on a PLAINTEXT listener, as in Kafka."""

REQUESTER_SINCE = 3
NEVER_MS = -1


async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Answer that an unauthenticated client may not use delegation tokens."""
    return refuse(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def refuse(
    request: CreateDelegationTokenRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> CreateDelegationTokenResponse:
    requester = ANONYMOUS if context.header.api_version >= REQUESTER_SINCE else ("", "")
    return CreateDelegationTokenResponse(
        error_code=error_code,
        principal_type=ANONYMOUS[0],
        principal_name=ANONYMOUS[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=NEVER_MS,
        expiry_timestamp_ms=NEVER_MS,
        max_timestamp_ms=NEVER_MS,
        token_id="",
        hmac=b"",
    )
