"""FindCoordinator (key 10), v0-v6.

Behaviour: this broker is the coordinator of every group and of every transactional id.
v0 is served because librdkafka before 2.11.1 compresses with LZ4 only if FindCoordinator v0 exists.
Versions: v1 key_type, error_message · v4 several keys (KIP-699).
Not implemented: share groups.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace

from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.security.api_rules import REFUSALS

BATCHED_SINCE = 4


class KeyType(enum.IntEnum):
    """What a key names. On the wire: values never change."""

    GROUP = 0
    TRANSACTION = 1


KINDS = frozenset(KeyType)

RESOURCES: Mapping[int, ResourceType] = {
    KeyType.GROUP: ResourceType.GROUP,
    KeyType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}

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
        return _single_response(_checked(found, request.key, request.key_type, context))
    answers = [
        replace(_checked(found, key, request.key_type, context), key=key)
        async for key in context.pace.paced(request.coordinator_keys)
    ]
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


def _checked(found: Coordinator, key: str, key_type: int, context: RequestContext) -> Coordinator:
    """Returns the coordinator of a key, or the error if the client may not know it."""
    kind = RESOURCES.get(key_type)
    if kind is None or context.may(Operation.DESCRIBE, kind, key):
        return found
    code, text = REFUSALS[kind]
    return replace(NO_COORDINATOR, error_code=code, error_message=text)


def _single_response(found: Coordinator) -> FindCoordinatorResponse:
    """Returns the response for v0 to v3, which has a single coordinator."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
