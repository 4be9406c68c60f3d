"""SaslAuthenticate (key 36), v0-v2.

Behaviour: there is no SASL listener, so the answer is ILLEGAL_SASL_STATE with Kafka's message. The
broker neither reads nor logs the client's token.
Source: Apache Kafka, KafkaApis.scala `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext


async def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Answer that there is no SASL authentication."""
    text = "SaslAuthenticate request received after successful authentication"
    return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, text)


def refuse(
    request: SaslAuthenticateRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error_code, error_message=message, auth_bytes=b"")
