"""AddOffsetsToTxn (key 25): a transaction will commit offsets of a group.

Versions: v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE (KIP-890).
Source: AddOffsetsToTxnRequest.json, AddOffsetsToTxnResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, wire, wire_class


@wire_class
class AddOffsetsToTxnRequest(Message):
    """The group whose offsets will follow."""

    api_key = 25
    versions = (0, 4)
    flexible_since = 3

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@wire_class
class AddOffsetsToTxnResponse(Message):
    """Whether the producer may commit the offsets."""

    api_key = 25
    versions = (0, 4)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
