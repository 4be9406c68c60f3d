"""AddOffsetsToTxn (key 25), v0-v4.

Behaviour: adds the partition of `__consumer_offsets` that the group is in; the offsets come with
TxnOffsetCommit.
Versions: v2 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before.
Source: Apache Kafka, KafkaApis.scala `handleAddOffsetsToTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.error_codes import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from server.dispatch import RequestContext
from server.producer import Producer
from server.transactions.errors import in_terms_of
from server.transactions.joining import join_with_offsets

FENCED_SINCE = 2


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    """Add the group's partition; answer when that is durable."""
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
    return AddOffsetsToTxnResponse(error_code=in_terms_of(code, context, fenced_since=FENCED_SINCE))
