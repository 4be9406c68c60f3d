"""InitProducerId (key 22): a producer id for an idempotent or transactional producer.

Versions: v2 flexible · v3 producer_id and producer_epoch, to continue after an error (KIP-360) · v4
PRODUCER_FENCED · v5 TRANSACTION_ABORTABLE (KIP-890).
Source: InitProducerIdRequest.json, InitProducerIdResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, wire, wire_class


@wire_class
class InitProducerIdRequest(Message):
    """The producer that needs a producer id."""

    api_key = 22
    versions = (0, 5)
    flexible_since = 2

    transactional_id: str | None = wire(STRING, nullable_since=0)
    """None if the producer is only idempotent; the other fields then mean nothing."""
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@wire_class
class InitProducerIdResponse(Message):
    """The producer id to use."""

    api_key = 22
    versions = (0, 5)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
