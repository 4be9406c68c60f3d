"""ListTransactions (key 66), v0-v1.

Behaviour: an error while some transactional ids are still being read after a start, so that a list is
never taken for whole that is not. Filters that name no state are told. A duration lets only those
through that have a transaction which is not over.
Versions: v1 filter by duration (KIP-994).
Not implemented: v2, a pattern of the transactional id (KIP-1152).
Source: Apache Kafka, TransactionStateManager.scala `listTransactionStates`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from server.dispatch import RequestContext
from server.transactions.metadata import TransactionMetadata
from server.transactions.metadata import TransactionState as State

TITLES = {state.title: state for state in State}


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that fit."""
    entries = context.broker.transactions.transactions()
    if isinstance(entries, ErrorCode):
        return refuse(request, context, entries, "")
    now_ms = context.broker.transactions.table.now_ms()
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=tuple(
            title for title in request.state_filters if title not in TITLES
        ),
        transaction_states=tuple(
            TransactionState(
                transactional_id=entry.transaction.transactional_id,
                producer_id=entry.transaction.metadata.producer_id,
                transaction_state=entry.transaction.metadata.state.title,
            )
            for entry in entries
            if _fits(entry.transaction.metadata, request, now_ms)
        ),
    )


def refuse(
    request: ListTransactionsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error_code, unknown_state_filters=(), transaction_states=()
    )


def _fits(metadata: TransactionMetadata, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and metadata.state.title not in request.state_filters:
        return False
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    is_open = metadata.state is State.ONGOING or metadata.state.is_prepared
    return is_open and now_ms - metadata.start_ms > request.duration_filter
