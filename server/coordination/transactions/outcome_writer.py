"""Carries out the outcomes of a transaction's steps: writes its metadata, and then its markers.

    outcome: new metadata -> appended to the id's partition of `__transaction_state`
                             durable -> answered
                               | prepared?
                               markers into every partition -> durable -> complete, appended

A write that fails is rolled back, and its step with it. Timeouts are steps of the broker's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import CoordinatorTopic, RecordsTooLarge
from server.coordination.deadlines import Deadlines
from server.coordination.transactions.markers import Marker, Markers
from server.coordination.transactions.metadata import TransactionState, record_of
from server.coordination.transactions.transaction import Outcome, Transaction
from server.coordination.transactions.transaction_table import TransactionEntry, TransactionTable
from server.runtime.at_once import at_once
from server.runtime.tasks import raising, report_failure, spawn
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.transactions")


@loop_thread
class OutcomeWriter:
    """Carries out the outcomes of all transactions."""

    __slots__ = (
        "_abort_interval_ms", "_deadlines", "_markers", "_marking", "_table", "_topic", "_writing",
        "ended", "is_stopping", "timed_out",
    )  # fmt: skip

    def __init__(
        self,
        topic: CoordinatorTopic,
        table: TransactionTable,
        markers: Markers,
        *,
        abort_interval_ms: int,
    ) -> None:
        """`abort_interval_ms`: the delay before an abort that could not be written is retried."""
        # Constant after construction
        self._topic = topic
        self._table = table
        self._markers = markers
        self._abort_interval_ms = abort_interval_ms
        self._deadlines = Deadlines(table.now_ms, self._on_deadline)
        # State
        self._writing: set[asyncio.Task[Any]] = set()
        """Writes of metadata in flight."""
        self._marking: set[asyncio.Task[Any]] = set()
        """Transactions whose markers are being written."""
        self.is_stopping = False
        """Whether the next start writes the markers of transactions that are decided from now on."""
        self.ended: Counter[TransactionState] = Counter()
        """Number of transactions decided since the start, by the decision."""
        self.timed_out = 0
        """Number of transactions aborted because of their timeout; also counted in `ended`."""

    def interrupt(self) -> None:
        """Complete no further transactions, because the broker is stopping."""
        self.is_stopping = True

    async def stop(self) -> None:
        """Wait until pending writes are durable. The next start writes the remaining markers."""
        self._deadlines.stop()
        for task in self._marking:
            task.cancel()
        if ending := self._marking | self._writing:
            await asyncio.wait(ending)

    def carry_out(self, entry: TransactionEntry, outcome: Outcome) -> Awaitable[Outcome]:
        """Append an outcome's metadata at once. The result resolves when it is durable."""
        if outcome.metadata is None:
            return at_once(outcome)
        entry.transaction.begin_write(outcome)
        try:
            appended = self._append(entry)
        except Exception as error:  # noqa: BLE001 - treated like a failed write
            appended = raising(error)
        written = self._await_write(entry, outcome, appended)
        # The write continues even if the caller stops waiting.
        return asyncio.shield(spawn(written, "transaction write", among=self._writing))

    def _append(self, entry: TransactionEntry) -> Awaitable[int]:
        """Append the pending metadata. The returned awaitable raises any error."""
        transactional_id, metadata = entry.transaction.transactional_id, entry.transaction.pending
        assert metadata is not None
        partition = self._topic.partition_of(transactional_id)
        return self._topic.append(partition, (record_of(transactional_id, metadata),))

    async def _await_write(
        self, entry: TransactionEntry, outcome: Outcome, appended: Awaitable[int]
    ) -> Outcome:
        transaction = entry.transaction
        try:
            await appended
        except StorageError as error:
            _log.warning(
                "transactional id %r could not be written: %s", transaction.transactional_id, error
            )
            is_ours = isinstance(error, RecordsTooLarge)
            return self._roll_back(
                entry,
                ErrorCode.UNKNOWN_SERVER_ERROR if is_ours else ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        except Exception as error:  # noqa: BLE001 - waiting clients must get an answer
            report_failure("transaction write", error)
            return self._roll_back(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
        transaction.finish_write()
        if transaction.metadata.state.is_prepared:
            self.ended[transaction.metadata.state] += 1
        self.follow_up(entry)
        entry.notify()
        return outcome

    def _roll_back(self, entry: TransactionEntry, error_code: ErrorCode) -> Outcome:
        """Return to the state before the step, and let waiting requests proceed."""
        entry.transaction.fail_write()
        self._clean_up_failed_write(entry)
        entry.notify()
        return Outcome(error_code)

    def _clean_up_failed_write(self, entry: TransactionEntry) -> None:
        """Clean up after a failed write: forget an unused id, or retry a due abort later."""
        transaction = entry.transaction
        if not transaction.is_known:
            self._table.forget(entry)
        elif transaction.metadata.deadline_ms is not None:
            due_ms = self._table.now_ms() + self._abort_interval_ms
            self._deadlines.set(transaction.transactional_id, due_ms)

    def follow_up(self, entry: TransactionEntry) -> None:
        """Act on metadata that is now durable: forget the id, write markers, set the timeout."""
        transaction = entry.transaction
        metadata = transaction.metadata
        if metadata.state is TransactionState.DEAD:
            self._table.forget(entry)
        elif metadata.state.is_prepared and not self.is_stopping:
            entry.unmarked = set(metadata.partitions)
            spawn(self._complete(entry), "transaction markers", among=self._marking)
        self._deadlines.set(transaction.transactional_id, metadata.deadline_ms)

    async def _complete(self, entry: TransactionEntry) -> None:
        """Write the markers of a decided transaction, then its completion."""
        transaction = entry.transaction
        try:
            await self._markers.write(self._marker_of(transaction), entry.unmarked)
            transaction.begin_write(transaction.complete(self._table.now_ms()))
            appended = self._append(entry)
            # The completion may be used before it is durable: see `transaction.py`.
            transaction.finish_write()
            entry.notify()
            await appended
        except StorageError as error:
            _log.warning(
                "transactional id %r: the transaction could not be completed: %s",
                transaction.transactional_id,
                error,
            )

    def _marker_of(self, transaction: Transaction) -> Marker:
        partition = self._topic.partition_of(transaction.transactional_id)
        return Marker(
            producer=transaction.producer,
            is_commit=transaction.metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._topic.log_of(partition).leader_epoch,
        )

    def _on_deadline(self, transactional_id: str) -> None:
        entry = self._table.find(transactional_id)
        if not isinstance(entry, TransactionEntry):
            return
        outcome = entry.transaction.time_out(self._table.now_ms())
        if outcome.metadata is not None:
            _log.info(
                "transactional id %r: its transaction timed out and is aborted", transactional_id
            )
            self.timed_out += 1
            self.carry_out(entry, outcome)
        elif entry.transaction.pending is None:
            self._deadlines.set(transactional_id, entry.transaction.metadata.deadline_ms)
