"""FindCoordinator (key 10), v0-v6.

Behaviour: this broker is the coordinator of every group and of every transactional id, which is all
there is to say on a single node.
librdkafka before 2.11.1 compresses with LZ4 only where FindCoordinator 0 exists.
Versions: v1 key_type, error_message · v4 several keys (KIP-699).
Not implemented: share groups.
"""

from __future__ import annotations

import enum

from protocol.error_codes import ErrorCode
from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from server.dispatch import RequestContext

BATCHED_SINCE = 4


class KeyType(enum.IntEnum):
    """What a key names. On the wire: values never change."""

    GROUP = 0
    TRANSACTION = 1


KINDS = frozenset(KeyType)


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Answer every key that was asked for."""
    if request.key_type not in KINDS:
        text = f"There are no coordinators of type {request.key_type}."
        return refuse(request, context, ErrorCode.INVALID_REQUEST, text)
    node, endpoint = context.broker.node, context.connection.endpoint
    return _answer(request, context, node.node_id, endpoint.host, endpoint.port)


def refuse(
    request: FindCoordinatorRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    return _answer(request, context, -1, "", -1, error_code, message)


def _answer(
    request: FindCoordinatorRequest,
    context: RequestContext,
    node_id: int,
    host: str,
    port: int,
    error_code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> FindCoordinatorResponse:
    """The same answer for every key."""
    if context.header.api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=error_code, error_message=message, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=error_code,
                error_message=message,
            )
            for key in request.coordinator_keys
        )
    )
