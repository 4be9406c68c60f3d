"""AddOffsetsToTxn (key 25), v0-v4.

Behaviour: adds the group's partition of `__consumer_offsets` to the transaction; TxnOffsetCommit then
sends the offsets.
Versions: v2 PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before).
Source: Apache Kafka, KafkaApis.scala `handleAddOffsetsToTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.handlers.shared.joining import join_with_offsets
from server.handlers.shared.transaction_errors import error_for_version
from server.request_context import RequestContext

FENCED_SINCE = 2


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    """Add the group's partition, and answer when that is durable."""
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return _answer(request, context)


def refuse(
    request: AddOffsetsToTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error_code)


async def _answer(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    code = await join_with_offsets(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.group_id,
        context,
        transaction_version=0,
    )
    return AddOffsetsToTxnResponse(
        error_code=error_for_version(code, context, fenced_since=FENCED_SINCE)
    )
