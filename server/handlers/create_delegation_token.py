"""CreateDelegationToken (key 38), v1-v3.

Behaviour: delegation tokens are for those who have authenticated, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. Tools that infer the
version of a broker from its APIs look for this one.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from server.dispatch import RequestContext

ANONYMOUS = ("User", "ANONYMOUS")
"""Type and name of everybody on a PLAINTEXT listener, as Kafka has it."""

REQUESTER_SINCE = 3
NEVER_MS = -1


async def handle(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Say that nobody here has authenticated."""
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
