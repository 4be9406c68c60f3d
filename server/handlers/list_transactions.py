"""ListTransactions (key 66), v0-v1.

Behaviour: returns an error while transactional ids are still being loaded after a start, so that clients
never take an incomplete list for a complete one. The answer names the state filters that are no state. A
duration filter only matches transactional ids with a transaction that is not completed.
Versions: v1 filter by duration (KIP-994).
Not implemented: v2, a pattern of the transactional id (KIP-1152).
Source: Apache Kafka, TransactionStateManager.scala `listTransactionStates`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.transactions.metadata import TransactionMetadata
from server.coordination.transactions.metadata import TransactionState as State
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType

TITLES = {state.title: state for state in State}


@dataclass(frozen=True, slots=True)
class _Filter:
    """The filters of a request; an empty set matches everything."""

    states: set[str]
    producer_ids: set[int]
    duration_ms: int
    """Matches transactions that have been open for longer; negative matches everything."""

    def matches(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        if self.states and metadata.state.title not in self.states:
            return False
        if self.producer_ids and metadata.producer_id not in self.producer_ids:
            return False
        if self.duration_ms < 0:
            return True
        is_open = metadata.state is State.ONGOING or metadata.state.is_prepared
        return is_open and now_ms - metadata.start_ms > self.duration_ms


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that match the filters."""
    entries = context.broker.transactions.transactions()
    if isinstance(entries, ErrorCode):
        return refuse(request, context, entries, "")
    now_ms, pace = context.broker.transactions.table.now_ms(), context.pace
    wanted = _Filter(
        {each async for each in pace.paced(request.state_filters)},
        {each async for each in pace.paced(request.producer_id_filters)},
        request.duration_filter,
    )
    unknown = [each async for each in pace.paced(request.state_filters) if each not in TITLES]
    listed = [
        TransactionState(
            transactional_id=entry.transaction.transactional_id,
            producer_id=entry.transaction.metadata.producer_id,
            transaction_state=entry.transaction.metadata.state.title,
        )
        async for entry in pace.paced(entries)
        if wanted.matches(entry.transaction.metadata, now_ms)
        and context.may(
            Operation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            entry.transaction.transactional_id,
            quiet=True,
        )
    ]
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=tuple(unknown),
        transaction_states=tuple(listed),
    )


def refuse(
    request: ListTransactionsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=error_code, unknown_state_filters=(), transaction_states=()
    )
