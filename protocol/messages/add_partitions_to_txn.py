"""AddPartitionsToTxn (key 24): which partitions a transaction will write to.

Versions: v2 PRODUCER_FENCED · v3 flexible · v4 several transactions at once, and queries whether
partitions are in one, which brokers send (KIP-890) · v5 TRANSACTION_ABORTABLE.
Source: AddPartitionsToTxnRequest.json, AddPartitionsToTxnResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class AddPartitionsToTxnTransaction:
    """One transaction and its partitions."""

    transactional_id: str = wire(STRING, since=4)
    producer_id: int = wire(INT64, since=4)
    producer_epoch: int = wire(INT16, since=4)
    verify_only: bool = wire(BOOL, since=4, default=False)
    """True: add nothing, only report whether the partitions are in it."""
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(array(AddPartitionsToTxnTopic), since=4)


@wire_class
class AddPartitionsToTxnRequest(Message):
    """Partitions to add; of one transaction up to v3, of several since v4."""

    api_key = 24
    versions = (0, 5)
    flexible_since = 3

    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(
        array(AddPartitionsToTxnTransaction), since=4, default=()
    )
    v3_and_below_transactional_id: str = wire(STRING, until=3, default="")
    v3_and_below_producer_id: int = wire(INT64, until=3, default=0)
    v3_and_below_producer_epoch: int = wire(INT16, until=3, default=0)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(
        array(AddPartitionsToTxnTopic), until=3, default=()
    )


@wire_class
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@wire_class
class AddPartitionsToTxnTopicResult:
    """The results for one topic's partitions."""

    name: str = wire(STRING)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(
        array(AddPartitionsToTxnPartitionResult)
    )


@wire_class
class AddPartitionsToTxnResult:
    """The results for one transaction's partitions."""

    transactional_id: str = wire(STRING, since=4)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        array(AddPartitionsToTxnTopicResult), since=4
    )


@wire_class
class AddPartitionsToTxnResponse(Message):
    """The result for each partition."""

    api_key = 24
    versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=4, default=0, ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(
        array(AddPartitionsToTxnResult), since=4, default=()
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        array(AddPartitionsToTxnTopicResult), until=3, default=()
    )
