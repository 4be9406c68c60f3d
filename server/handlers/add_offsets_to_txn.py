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
from server.coordinator_topic import OFFSETS_TOPIC
from server.dispatch import RequestContext
from server.producer import Producer
from server.transactions.errors import in_terms_of
from server.transactions.metadata import TransactionPartition
from server.transactions.transaction import Outcome
from storage.errors import StorageError

FENCED_SINCE = 2


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    """Add the group's partition; answer when that is durable."""
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    topic = context.broker.groups.topic
    try:
        await topic.ensure()
    except StorageError as error:
        context.code_of(error)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = TransactionPartition(OFFSETS_TOPIC, topic.partition_of(request.group_id))
    added = context.broker.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        frozenset({partition}),
    )
    return _answer(added, context)


def refuse(
    request: AddOffsetsToTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error_code)


async def _answer(added: Awaitable[Outcome], context: RequestContext) -> AddOffsetsToTxnResponse:
    code = in_terms_of((await added).error_code, context, fenced_since=FENCED_SINCE)
    return AddOffsetsToTxnResponse(error_code=code)
