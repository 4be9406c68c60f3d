"""The asyncio shell around transactions: turns requests into steps and carries out their outcomes.

    request -> loaded? -> transaction.init, add_partitions, end -> outcome: new metadata
                                                                      |
                           appended to the id's partition of `__transaction_state`
                           durable -> answered
                             | prepared?
                             markers into every partition -> durable -> complete, appended

Only the event loop touches transactions. A step is carried out even if its client has disconnected.
After a restart every prepared transaction is completed.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionStateManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from protocol.wire.error_codes import ErrorCode
from server.config.transaction_config import TransactionConfig
from server.coordination.coordinator_topic import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorTopic,
    RecordsTooLarge,
)
from server.coordination.deadlines import Deadlines
from server.coordination.producer import Producer
from server.coordination.transactions.expiry import Expiry
from server.coordination.transactions.markers import Marker, Markers, TransactionEnded
from server.coordination.transactions.metadata import (
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    record_of,
)
from server.coordination.transactions.transaction import Outcome, Transaction
from server.coordination.transactions.transaction_table import TransactionEntry, TransactionTable
from server.durability.group_commit import GroupCommit
from server.runtime.at_once import at_once
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.tasks import raising, report_failure, spawn
from server.runtime.turns import Turns
from server.topics.topics import Topics
from storage.files.errors import StorageError

_log = logging.getLogger("server.coordination.transactions")

T = TypeVar("T")

PREVIOUS_TRANSACTION_WAIT_SECONDS = 0.1
"""How long a new transaction waits for the previous one to complete; Kafka's
add.partitions.to.txn.retry.backoff.max.ms."""


class ProducerIdSource(Protocol):
    """Hands out producer ids that were never used before."""

    async def next_id(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The broker's configuration for transactions."""

    timeout_max_ms: int
    id_expiration_ms: int
    expiration_interval_ms: int
    """Interval between two searches for expired ids."""
    abort_interval_ms: int
    """Delay before an abort that could not be written is retried."""


class TransactionCoordinator:
    """Carries out the transaction requests of clients and of the broker, and the timeouts."""

    __slots__ = (
        "_deadlines",
        "_is_stopping",
        "_marking",
        "_producer_ids",
        "_settings",
        "_writing",
        "ended",
        "expiry",
        "markers",
        "table",
        "timed_out",
        "topic",
    )

    def __init__(
        self,
        topic: CoordinatorTopic,
        table: TransactionTable,
        markers: Markers,
        producer_ids: ProducerIdSource,
        settings: TransactionSettings,
    ) -> None:
        # Constant after construction
        self.topic = topic
        self.table = table
        self.markers = markers
        self._producer_ids = producer_ids
        self._settings = settings
        self._deadlines = Deadlines(table.now_ms, self._on_deadline)
        self.expiry = Expiry(
            table,
            self._carry_out,
            retention_ms=settings.id_expiration_ms,
            interval_ms=settings.expiration_interval_ms,
        )
        # State
        self._writing: set[asyncio.Task[Any]] = set()
        """Writes of metadata in flight."""
        self._marking: set[asyncio.Task[Any]] = set()
        """Transactions whose markers are being written."""
        self._is_stopping = False
        self.ended: Counter[TransactionState] = Counter()
        """Number of transactions decided since the start, by the decision."""
        self.timed_out = 0
        """Number of transactions aborted because of their timeout; also counted in `ended`."""

    def start(self) -> None:
        """Start to load the transactions and to complete the prepared ones."""
        self.table.start(on_loaded=self._follow_up)
        self.expiry.start()

    async def stop(self) -> None:
        """Wait until pending writes are durable. The next start writes the remaining markers."""
        self._is_stopping = True
        await self.table.loads.stop()
        self._deadlines.stop()
        await self.expiry.stop()
        for task in self._marking:
            task.cancel()
        if ending := self._marking | self._writing:
            await asyncio.wait(ending)

    # Requests of clients.

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None = None
    ) -> Outcome:
        """Give a transactional id to the requesting producer, and fence the one that had it before."""
        if not transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            return Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        try:
            await self.topic.ensure()
            spare_id = await self._producer_ids.next_id()
        except StorageError as error:
            _log.error("transactional id %r: %s", transactional_id, error)
            return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        now_ms = self.table.now_ms()
        entry = self._find(transactional_id)
        if isinstance(entry, ErrorCode):
            return Outcome(entry)
        if entry is None:
            empty = TransactionMetadata(
                producer_id=spare_id, timeout_ms=timeout_ms, last_update_ms=now_ms
            )
            entry = self.table.create(transactional_id, empty)
        outcome = entry.transaction.init(
            timeout_ms, expected, spare_producer_id=spare_id, now_ms=now_ms
        )
        return await self._carry_out(entry, outcome)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TransactionPartition],
        *,
        transaction_version: int = 0,
    ) -> Awaitable[Outcome]:
        """Add partitions to a transaction, without awaiting before the append. The result resolves when
        the change is durable."""
        entry = self._find_existing(transactional_id)
        if isinstance(entry, ErrorCode):
            return at_once(Outcome(entry))
        outcome = entry.transaction.add_partitions(
            producer,
            partitions,
            transaction_version=transaction_version,
            now_ms=self.table.now_ms(),
        )
        return self._carry_out(entry, outcome)

    async def add_when_possible(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TransactionPartition],
        *,
        transaction_version: int = 0,
    ) -> Outcome:
        """Like `add_partitions`, but wait briefly while the previous transaction is being completed. A
        refused client would back off for longer."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PREVIOUS_TRANSACTION_WAIT_SECONDS
        while True:
            outcome = await self.add_partitions(
                transactional_id, producer, partitions, transaction_version=transaction_version
            )
            left_s = end_s - loop.time()
            entry = self._find(transactional_id)
            is_busy = outcome.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_busy or left_s <= 0 or not isinstance(entry, TransactionEntry):
                return outcome
            await entry.wait_for_change(seconds_max=left_s)

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool, bumps_epoch: bool
    ) -> Awaitable[Outcome]:
        """Commit or abort a transaction. The result resolves when the decision is durable; the markers
        are written afterwards."""
        try:
            spare_id = await self._spare_id(transactional_id) if bumps_epoch else NO_PRODUCER_ID
        except StorageError as error:
            _log.error("transactional id %r: %s", transactional_id, error)
            return at_once(Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self._find_existing(transactional_id)
        if isinstance(entry, ErrorCode):
            return at_once(Outcome(entry))
        outcome = entry.transaction.end(
            producer,
            is_commit=is_commit,
            bumps_epoch=bumps_epoch,
            spare_producer_id=spare_id,
            now_ms=self.table.now_ms(),
        )
        return self._carry_out(entry, outcome)

    async def _spare_id(self, transactional_id: str) -> int:
        entry = self._find(transactional_id)
        needs = isinstance(entry, TransactionEntry) and (
            entry.transaction.metadata.is_epoch_exhausted
        )
        return await self._producer_ids.next_id() if needs else NO_PRODUCER_ID

    # Requests of the broker.

    def may_write(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
    ) -> ErrorCode:
        """Returns NONE if a transactional batch may be appended now.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED: another producer has the id.
        CONCURRENT_TRANSACTIONS: the transaction is decided, and its markers are being written.
        INVALID_TXN_STATE: the partition is not in an open transaction. COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE: the transaction's state is not known now.
        """
        entry = self._find_existing(transactional_id)
        if isinstance(entry, ErrorCode):
            return entry
        producer = Producer(producer_id, producer_epoch)
        return entry.transaction.write_error(producer, TransactionPartition(topic, partition))

    def describe(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        """Returns the current state of a transactional id; None if it does not exist."""
        entry = self._find(transactional_id)
        is_there = isinstance(entry, TransactionEntry) and entry.transaction.is_known
        return entry if is_there or isinstance(entry, ErrorCode) else None

    def transactions(self) -> list[TransactionEntry] | ErrorCode:
        """Returns all transactions, or an error while some partitions are still loading."""
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry for entry in self.table.entries() if entry.transaction.is_known]

    def _find(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.table.find(transactional_id)

    def _find_existing(self, transactional_id: str) -> TransactionEntry | ErrorCode:
        """Returns the entry of an id that the client claims to own, or an error."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self._find(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # Steps.

    def _carry_out(self, entry: TransactionEntry, outcome: Outcome) -> Awaitable[Outcome]:
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
        partition = self.topic.partition_of(transactional_id)
        return self.topic.append(partition, (record_of(transactional_id, metadata),))

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
        self._follow_up(entry)
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
            self.table.forget(entry)
        elif transaction.metadata.deadline_ms is not None:
            due_ms = self.table.now_ms() + self._settings.abort_interval_ms
            self._deadlines.set(transaction.transactional_id, due_ms)

    def _follow_up(self, entry: TransactionEntry) -> None:
        """Act on metadata that is now durable: forget the id, write markers, set the timeout."""
        transaction = entry.transaction
        metadata = transaction.metadata
        if metadata.state is TransactionState.DEAD:
            self.table.forget(entry)
        elif metadata.state.is_prepared and not self._is_stopping:
            entry.unmarked = set(metadata.partitions)
            spawn(self._complete(entry), "transaction markers", among=self._marking)
        self._deadlines.set(transaction.transactional_id, metadata.deadline_ms)

    async def _complete(self, entry: TransactionEntry) -> None:
        """Write the markers of a decided transaction, then its completion."""
        transaction = entry.transaction
        try:
            await self.markers.write(self._marker_of(transaction), entry.unmarked)
            transaction.begin_write(transaction.complete(self.table.now_ms()))
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
        partition = self.topic.partition_of(transaction.transactional_id)
        return Marker(
            producer=transaction.producer,
            is_commit=transaction.metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.topic.log_of(partition).leader_epoch,
        )

    # Timeouts.

    def _on_deadline(self, transactional_id: str) -> None:
        entry = self.table.find(transactional_id)
        if not isinstance(entry, TransactionEntry):
            return
        outcome = entry.transaction.time_out(self.table.now_ms())
        if outcome.metadata is not None:
            _log.info(
                "transactional id %r: its transaction timed out and is aborted", transactional_id
            )
            self.timed_out += 1
            self._carry_out(entry, outcome)
        elif entry.transaction.pending is None:
            self._deadlines.set(transactional_id, entry.transaction.metadata.deadline_ms)


def transactions_of(
    topics: Topics,
    group_commit: GroupCommit,
    config: TransactionConfig,
    *,
    clock: Clock,
    producer_ids: ProducerIdSource,
    offsets_ended: TransactionEnded,
    turns: Turns,
    loading: Executor,
) -> TransactionCoordinator:
    """Returns the coordinator of a broker's transactions."""
    topic = CoordinatorTopic(
        TRANSACTION_STATE_TOPIC,
        topics,
        group_commit,
        clock,
        partitions_count=config.transaction_state_log_num_partitions,
        segment_bytes=config.transaction_state_log_segment_bytes,
        loading=loading,
    )
    table = TransactionTable(topic, clock)
    settings = TransactionSettings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
    )
    markers = Markers(
        topics, group_commit, now_ms=clock.now_ms, offsets_ended=offsets_ended, turns=turns
    )
    return TransactionCoordinator(topic, table, markers, producer_ids, settings)
