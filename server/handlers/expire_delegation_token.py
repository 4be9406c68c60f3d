"""ExpireDelegationToken (key 40), v1-v2.

Behaviour: delegation tokens are for those who have authenticated, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. Tools that infer the
version of a broker from its APIs look for this one.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from server.dispatch import RequestContext

NEVER_MS = -1


async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Say that nobody here has authenticated."""
    return refuse(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def refuse(
    request: ExpireDelegationTokenRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error_code, expiry_timestamp_ms=NEVER_MS)
