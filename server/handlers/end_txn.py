"""EndTxn (key 26), v0-v5.

Behaviour: answered when the decision to commit or abort is durable. The markers are written afterwards;
until they are, a request that begins the next transaction gets CONCURRENT_TRANSACTIONS. A repeated
request gets the same answer.
Versions: v2 PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before) · v5 ending a transaction raises the
producer's epoch (KIP-890).
Source: Apache Kafka, KafkaApis.scala `handleEndTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.transaction import Outcome
from server.handlers.shared.transaction_errors import error_for_version
from server.request_context import RequestContext

FENCED_SINCE = 2
EPOCH_BUMPED_SINCE = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> Awaitable[EndTxnResponse]:
    """Commit or abort the transaction."""
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
        error_code=error_for_version(outcome.error_code, context, fenced_since=FENCED_SINCE),
        producer_id=outcome.producer.id,
        producer_epoch=outcome.producer.epoch,
    )
