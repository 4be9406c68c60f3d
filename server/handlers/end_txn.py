"""EndTxn (key 26), v0-v5.

Behaviour: answered when the transaction is decided for good; its markers follow, and until they are
written who begins the next one hears CONCURRENT_TRANSACTIONS. The same request again is answered alike.
Versions: v2 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before · v5 the end raises the producer's
epoch (KIP-890).
Source: Apache Kafka, KafkaApis.scala `handleEndTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.error_codes import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from server.dispatch import RequestContext
from server.producer import Producer
from server.transactions.errors import in_terms_of
from server.transactions.transaction import Outcome

FENCED_SINCE = 2
EPOCH_BUMPED_SINCE = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> Awaitable[EndTxnResponse]:
    """Decide the transaction."""
    ended = await context.broker.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        bumps_epoch=context.header.api_version >= EPOCH_BUMPED_SINCE,
    )
    return _answer(ended, context)


def refuse(
    request: EndTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> EndTxnResponse:
    return EndTxnResponse(error_code=error_code)


async def _answer(ended: Awaitable[Outcome], context: RequestContext) -> EndTxnResponse:
    outcome = await ended
    return EndTxnResponse(
        error_code=in_terms_of(outcome.error_code, context, fenced_since=FENCED_SINCE),
        producer_id=outcome.producer.id,
        producer_epoch=outcome.producer.epoch,
    )
