"""EndTxn (key 26): commit or abort a transaction.

Versions: v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 the producer's epoch rises
with each transaction, and the response has it (KIP-890).
Source: EndTxnRequest.json, EndTxnResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, wire, wire_class


@wire_class
class EndTxnRequest(Message):
    """The end of a transaction: commit or abort."""

    api_key = 26
    versions = (0, 5)
    flexible_since = 3

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)
    """False: abort it."""


@wire_class
class EndTxnResponse(Message):
    """The result."""

    api_key = 26
    versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, since=5, default=-1, ignorable=True)
    """The producer id with which the producer continues."""
    producer_epoch: int = wire(INT16, since=5, default=-1, ignorable=True)
