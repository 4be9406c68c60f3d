"""FindCoordinator (key 10), v0-v6.

Behaviour: this broker is the coordinator of every group and of every transactional id.
v0 is served because librdkafka before 2.11.1 compresses with LZ4 only if FindCoordinator v0 exists.
Versions: v1 key_type, error_message · v4 several keys (KIP-699).
Not implemented: share groups.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.dispatch import RequestContext

BATCHED_SINCE = 4


class KeyType(enum.IntEnum):
    """What a key names. On the wire: values never change."""

    GROUP = 0
    TRANSACTION = 1


KINDS = frozenset(KeyType)

NO_COORDINATOR = Coordinator(key="", node_id=-1, host="", port=-1, error_code=ErrorCode.NONE)


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Answer every requested key with this broker."""
    if request.key_type not in KINDS:
        text = f"There are no coordinators of type {request.key_type}."
        found = replace(NO_COORDINATOR, error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    else:
        endpoint = context.connection.endpoint
        found = Coordinator(
            key="",
            node_id=context.broker.node.node_id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
            error_message=None,
        )
    if context.header.api_version < BATCHED_SINCE:
        return _single_response(found)
    pace = context.pace
    answers = [replace(found, key=key) async for key in pace.paced(request.coordinator_keys)]
    return FindCoordinatorResponse(coordinators=tuple(answers))


def refuse(
    request: FindCoordinatorRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    found = replace(NO_COORDINATOR, error_code=error_code, error_message=message)
    if context.header.api_version < BATCHED_SINCE:
        return _single_response(found)
    return FindCoordinatorResponse(
        coordinators=lazy_array(lambda key: replace(found, key=key), request.coordinator_keys)
    )


def _single_response(found: Coordinator) -> FindCoordinatorResponse:
    """Returns the response for v0 to v3, which has a single coordinator."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
