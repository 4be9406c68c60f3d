"""InitProducerId (key 22), v0-v4.

Behaviour: without a transactional id the answer is always a new producer id with epoch 0, whatever
producer id and timeout the client sent: those fields are for transactions, and clients fill them
with anything (0, -1, 2147483647).
Versions: v3 producer_id, producer_epoch (KIP-360).
Not implemented: transactions. A transactional id gets UNSUPPORTED_VERSION, which clients report as
fatal; an authorization error would send people looking for an ACL.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from server.dispatch import RequestContext


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Allocate a producer id."""
    if request.transactional_id is not None:
        return refuse(request, context, ErrorCode.UNSUPPORTED_VERSION, "")
    producer_id = await context.broker.producer_ids.next_id()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def refuse(
    request: InitProducerIdRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)
