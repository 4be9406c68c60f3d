"""FindCoordinator (key 10), v0-v6.

Behaviour: there are no consumer groups and no transactions yet, so every key is answered with
UNSUPPORTED_VERSION and a sentence. It is the error that no client retries: subscribe() fails at
once instead of searching for a coordinator for ever, while assign() never asks. The API is there
because librdkafka before 2.11.1 compresses with LZ4 only where FindCoordinator 0 exists.
Versions: v1 key_type · v4 several keys (KIP-699).
Not implemented: coordinators.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from server.dispatch import RequestContext

BATCHED_SINCE = 4

NO_GROUPS = "Consumer groups are not served yet: use assign() instead of subscribe()."
NO_TRANSACTIONS = "Transactions are not served yet."
NO_SUCH_TYPE = "There are no coordinators of this type."
TEXT_BY_TYPE = {0: NO_GROUPS, 1: NO_TRANSACTIONS}


async def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Refuse every key that was asked for."""
    text = TEXT_BY_TYPE.get(request.key_type, NO_SUCH_TYPE)
    return refuse(request, context, ErrorCode.UNSUPPORTED_VERSION, text)


def refuse(
    request: FindCoordinatorRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    if context.header.api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=error_code, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=message
            )
            for key in request.coordinator_keys
        )
    )
