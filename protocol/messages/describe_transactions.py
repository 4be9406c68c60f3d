"""DescribeTransactions (key 65): the state of transactions (KIP-664).

Source: DescribeTransactionsRequest.json, DescribeTransactionsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class DescribeTransactionsRequest(Message):
    """The transactional ids to describe."""

    api_key = 65
    versions = (0, 0)
    flexible_since = 0

    transactional_ids: tuple[str, ...] = wire(array(STRING))


@wire_class
class TopicData:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class TransactionState:
    """A transactional id."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    """-1: no transaction was begun."""
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: tuple[TopicData, ...] = wire(array(TopicData))
    """The partitions of the open transaction; of a decided one, those that have no marker yet."""


@wire_class
class DescribeTransactionsResponse(Message):
    """Each transactional id."""

    api_key = 65
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    transaction_states: tuple[TransactionState, ...] = wire(array(TransactionState))
