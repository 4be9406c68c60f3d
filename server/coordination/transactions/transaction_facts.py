"""Metrics of transactions."""

from __future__ import annotations

from collections import Counter

from metrics.facts import TransactionFacts
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.metadata import WRITTEN, TransactionState
from storage.threads import any_thread

OUTCOMES = {TransactionState.PREPARE_COMMIT: "commit", TransactionState.PREPARE_ABORT: "abort"}


@any_thread
def transaction_facts(coordinator: TransactionCoordinator) -> TransactionFacts:
    """Collect the numbers in one pass over all transactional ids. Entries may change between reads, but
    each value read is valid."""
    now_ms = coordinator.table.now_ms()
    states = Counter({state.title: 0 for state in WRITTEN})
    oldest_ms = now_ms
    for entry in coordinator.table.entries():
        metadata = entry.transaction.metadata
        states[metadata.state.title] += 1
        if metadata.state is TransactionState.ONGOING:
            oldest_ms = min(oldest_ms, metadata.start_ms)
    return TransactionFacts(
        ids_by_state=states,
        oldest_open_ms=now_ms - oldest_ms,
        ended_by_outcome={
            name: coordinator.outcomes.ended[state] for state, name in OUTCOMES.items()
        },
        timed_out=coordinator.outcomes.timed_out,
    )
