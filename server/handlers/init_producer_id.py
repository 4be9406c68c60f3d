"""InitProducerId (key 22), v0-v5.

Behaviour: without a transactional id the answer is always a new producer id with epoch 0, no matter
which producer id and timeout the client sent: those fields are for transactions, and clients fill them
with various values (0, -1, 2147483647). With a transactional id, its previous producer is fenced. If
that producer left a transaction open, it is aborted first; the client gets CONCURRENT_TRANSACTIONS and
retries.
Versions: v3 producer_id, producer_epoch (KIP-360) · v4 PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before).
Source: Apache Kafka, KafkaApis.scala `handleInitProducerIdRequest`.
"""

from __future__ import annotations

from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.handlers.shared.transaction_errors import error_for_version
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.security.api_rules import REFUSALS

FENCED_SINCE = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Allocate a producer id, or initialize the producer of a transactional id."""
    if request.transactional_id is not None:
        return await _init(request, request.transactional_id, context)
    if not _may_produce(context):
        return refuse(request, context, *REFUSALS[ResourceType.CLUSTER])
    producer_id = await context.broker.producer_ids.next_id()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def refuse(
    request: InitProducerIdRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


def _may_produce(context: RequestContext) -> bool:
    """Returns whether the client may be an idempotent producer: if it may write to any topic, too."""
    by_cluster = context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, quiet=True)
    return by_cluster or context.may_on_any(Operation.WRITE, ResourceType.TOPIC)


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
        error_code=error_for_version(outcome.error_code, context, fenced_since=FENCED_SINCE),
        producer_id=outcome.producer.id,
        producer_epoch=outcome.producer.epoch,
    )
