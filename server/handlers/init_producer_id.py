"""InitProducerId (key 22), v0-v5.

Behaviour: without a transactional id the answer is always a new producer id with epoch 0, whatever
producer id and timeout the client sent: those fields are for transactions, and clients fill them
with anything (0, -1, 2147483647). With one, whoever had it before is fenced; if that left a transaction
open, it is aborted first, and the client hears CONCURRENT_TRANSACTIONS and asks again.
Versions: v3 producer_id, producer_epoch (KIP-360) · v4 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH
before.
Source: Apache Kafka, KafkaApis.scala `handleInitProducerIdRequest`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from server.dispatch import RequestContext
from server.producer import Producer
from server.transactions.errors import in_terms_of

FENCED_SINCE = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Allocate a producer id, or give a transactional id to who asks."""
    if request.transactional_id is not None:
        return await _init(request, request.transactional_id, context)
    producer_id = await context.broker.producer_ids.next_id()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def refuse(
    request: InitProducerIdRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


async def _init(
    request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse:
    if (request.producer_id < 0) is not (request.producer_epoch < 0):
        return refuse(request, context, ErrorCode.INVALID_REQUEST, "")
    expected = None
    if request.producer_id >= 0:
        expected = Producer(request.producer_id, request.producer_epoch)
    outcome = await context.broker.transactions.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected
    )
    return InitProducerIdResponse(
        error_code=in_terms_of(outcome.error_code, context, fenced_since=FENCED_SINCE),
        producer_id=outcome.producer.id,
        producer_epoch=outcome.producer.epoch,
    )
