"""ExpireDelegationToken (key 40), v1-v2.

Behaviour: only authenticated clients may use delegation tokens, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. The API is advertised
because tools infer the version of a broker from it.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext

NEVER_MS = -1


async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Answer that an unauthenticated client may not use delegation tokens."""
    return refuse(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def refuse(
    request: ExpireDelegationTokenRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error_code, expiry_timestamp_ms=NEVER_MS)
