"""DescribeTransactions (key 65), v0.

Behaviour: describes each requested transactional id. For a transaction whose outcome is decided, it
lists the partitions that have no marker yet.
Source: KIP-664; Apache Kafka, TransactionCoordinator.scala `handleDescribeTransactions`.
"""

from __future__ import annotations

from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.transactions.metadata import by_topic
from server.coordination.transactions.transaction_table import TransactionEntry
from server.handlers.shared.answers import answers
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    states = await answers(
        context.pace, request.transactional_ids, lambda each: _describe(each, context)
    )
    return DescribeTransactionsResponse(transaction_states=states)


def refuse(
    request: DescribeTransactionsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=lazy_array(
            lambda each: _failed(each, error_code), request.transactional_ids
        )
    )


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    if not context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return _failed(transactional_id, ErrorCode.INVALID_REQUEST)
    found = context.broker.transactions.describe(transactional_id)
    if not isinstance(found, TransactionEntry):
        return _failed(transactional_id, found or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
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
            TopicData(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions)
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)
        ),
    )


def _failed(transactional_id: str, error_code: ErrorCode) -> TransactionState:
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
