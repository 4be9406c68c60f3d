"""DescribeDelegationToken (key 41), v1-v3.

Behaviour: only authenticated clients may use delegation tokens, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. The API is advertised
because tools infer the version of a broker from it.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext


async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Answer that an unauthenticated client may not use delegation tokens."""
    return refuse(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def refuse(
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error_code, tokens=())
