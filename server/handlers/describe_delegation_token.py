"""DescribeDelegationToken (key 41), v1-v3.

Behaviour: delegation tokens are for those who have authenticated, and there is no SASL or TLS listener:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka answers on a PLAINTEXT listener. Tools that infer the
version of a broker from its APIs look for this one.
Source: KIP-48; Apache Kafka, KafkaApis.scala `allowTokenRequests`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from server.dispatch import RequestContext


async def handle(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Say that nobody here has authenticated."""
    return refuse(request, context, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "")


def refuse(
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error_code, tokens=())
