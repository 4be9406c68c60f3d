"""ListPartitionReassignments (key 46), v0.

Behaviour: no partition ever moves on a single broker, so none is listed, whichever are asked for;
Kafka leaves out what is not moving, and what does not exist, too.
Source: KIP-455; Apache Kafka, ReplicationControlManager.java `listPartitionReassignments`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from server.dispatch import RequestContext


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List none."""
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
