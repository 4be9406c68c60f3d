"""ListPartitionReassignments (key 46), v0.

Behaviour: no partition ever moves on a single broker, so the list is always empty. Kafka also leaves
out partitions that do not move or do not exist.
Source: KIP-455; Apache Kafka, ReplicationControlManager.java `listPartitionReassignments`.
"""

from __future__ import annotations

from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return an empty list."""
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=()
    )


def refuse(
    request: ListPartitionReassignmentsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=error_code, error_message=message, topics=()
    )
