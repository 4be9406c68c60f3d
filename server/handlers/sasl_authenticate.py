"""SaslAuthenticate (key 36), v0-v2.

Behaviour: takes one token of a login that SaslHandshake has begun, and answers with the broker's. A
refused login gets SASL_AUTHENTICATION_FAILED with Kafka's message after
`connection.failed.authentication.delay.ms`; then the connection is closed. No token is ever logged.
Outside of a login the answer is ILLEGAL_SASL_STATE.
Versions: v1 session_lifetime_ms (KIP-368) · v2 flexible.
Source: Apache Kafka, SaslServerAuthenticator.java, KafkaApis.scala `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.handlers.shared.sasl_login import take_token
from server.request_context import RequestContext
from server.security.sasl.exchange import Failure


async def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Take the client's next token."""
    session = context.connection.sasl
    if session is None or session.exchange is None:
        text = "SaslAuthenticate request received after successful authentication"
        return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, text)
    answer = await take_token(session, copied(request.auth_bytes), context)
    if isinstance(answer, Failure):
        text = answer.message or ""
        return refuse(request, context, ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    token, login = answer
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message="",  # As in Kafka, it is not null.
        auth_bytes=token,
        session_lifetime_ms=0 if login is None else login.session_ms,
    )


def refuse(
    request: SaslAuthenticateRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error_code, error_message=message, auth_bytes=b"")
