"""SaslHandshake (key 17), v0-v1.

Behaviour: there is no SASL listener, so the answer is ILLEGAL_SASL_STATE without mechanisms, as Kafka
answers on a PLAINTEXT listener. The API is advertised because clients infer the version of a broker from
it.
Source: Apache Kafka, KafkaApis.scala `handleSaslHandshakeRequest`.
"""

from __future__ import annotations

from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.wire.error_codes import ErrorCode
from server.dispatch import RequestContext


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Answer that there is no SASL authentication."""
    return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, "")


def refuse(
    request: SaslHandshakeRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code, mechanisms=())
