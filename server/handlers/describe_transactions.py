"""DescribeTransactions (key 65), v0.

Behaviour: each transactional id is answered. Of a transaction that is decided those partitions are
told that have no marker yet.
Source: KIP-664; Apache Kafka, TransactionCoordinator.scala `handleDescribeTransactions`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from server.answers import answers
from server.dispatch import RequestContext
from server.transactions.metadata import by_topic
from server.transactions.transaction_table import TransactionEntry


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    states = await answers(
        context.pace, request.transactional_ids, lambda each: _described(each, context)
    )
    return DescribeTransactionsResponse(transaction_states=states)


def refuse(
    request: DescribeTransactionsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            _undescribed(each, error_code) for each in request.transactional_ids
        )
    )


def _described(transactional_id: str, context: RequestContext) -> TransactionState:
    if not transactional_id:
        return _undescribed(transactional_id, ErrorCode.INVALID_REQUEST)
    found = context.broker.transactions.describe(transactional_id)
    if not isinstance(found, TransactionEntry):
        return _undescribed(transactional_id, found or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    metadata = found.transaction.metadata
    partitions = found.unmarked if metadata.state.is_prepared else metadata.partitions
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)
        ),
    )


def _undescribed(transactional_id: str, error_code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error_code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )
