"""SaslAuthenticate (key 36), v0-v2.

Behaviour: there is no SASL listener, so ILLEGAL_SASL_STATE with Kafka's message. The client's token
is neither looked at nor logged.
Source: Apache Kafka, KafkaApis.scala `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from server.dispatch import RequestContext


async def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Say that nobody authenticates here."""
    text = "SaslAuthenticate request received after successful authentication"
    return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, text)


def refuse(
    request: SaslAuthenticateRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error_code, error_message=message, auth_bytes=b"")
