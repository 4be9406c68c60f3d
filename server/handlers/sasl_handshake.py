"""SaslHandshake (key 17), v0-v1.

Behaviour: there is no SASL listener, so ILLEGAL_SASL_STATE and no mechanism, as Kafka answers on a
PLAINTEXT listener. Clients that infer the version of a broker from its APIs look for this one.
Source: Apache Kafka, KafkaApis.scala `handleSaslHandshakeRequest`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from server.dispatch import RequestContext


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Say that nobody authenticates here."""
    return refuse(request, context, ErrorCode.ILLEGAL_SASL_STATE, "")


def refuse(
    request: SaslHandshakeRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code, mechanisms=())
