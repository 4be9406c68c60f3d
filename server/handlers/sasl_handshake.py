"""SaslHandshake (key 17), v0-v1.

Behaviour: begins a login by a mechanism, on a SASL listener. A mechanism that is not enabled gets
UNSUPPORTED_SASL_MECHANISM with the enabled ones, and the connection is closed. An authenticated client
begins its next login with it if its session ends (KIP-368); otherwise, and on other listeners, the
answer is ILLEGAL_SASL_STATE. All listeners advertise the API because clients infer a broker's version
from it.
Versions: v0 raw tokens follow · v1 SaslAuthenticate requests follow (KIP-152).
Source: Apache Kafka, SaslServerAuthenticator.java, KafkaApis.scala `handleSaslHandshakeRequest`.
"""

from __future__ import annotations

from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from server.handlers.shared.sasl_login import refuse_login
from server.request_context import RequestContext

RAW_VERSION = 0


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin a login."""
    session, logins = context.connection.sasl, context.broker.logins
    if session is None or not logins.may_begin(session):
        return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, "")
    is_raw = context.header.api_version == RAW_VERSION
    mechanisms = session.listener.mechanisms
    if logins.begin(session, request.mechanism, is_raw=is_raw):
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms)
    session.fail()
    await refuse_login(context, "the mechanism is not enabled", detail=request.mechanism)
    return SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
    )


def refuse(
    request: SaslHandshakeRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code, mechanisms=())
