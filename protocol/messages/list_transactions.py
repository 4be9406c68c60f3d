"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Versions: v1 filter by duration (KIP-994).
Not declared: v2, filter by a pattern of the id (KIP-1152).
Source: ListTransactionsRequest.json, ListTransactionsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class ListTransactionsRequest(Message):
    """The transactional ids to list; an empty filter lists all."""

    api_key = 66
    versions = (0, 1)
    flexible_since = 0

    state_filters: tuple[str, ...] = wire(array(STRING))
    producer_id_filters: tuple[int, ...] = wire(array(INT64))
    duration_filter: int = wire(INT64, since=1, default=-1)
    """Only transactions that have been open for longer than this, in ms; all if it is negative."""


@wire_class
class TransactionState:
    """A transactional id."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@wire_class
class ListTransactionsResponse(Message):
    """The matching transactional ids."""

    api_key = 66
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    unknown_state_filters: tuple[str, ...] = wire(array(STRING))
    """State filters in the request that are unknown."""
    transaction_states: tuple[TransactionState, ...] = wire(array(TransactionState))
