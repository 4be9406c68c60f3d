"""The asyncio shell around transactions: turns requests into steps, whose outcomes are carried out.

    request -> loaded? -> transaction.init, add_partitions, end -> outcome: new metadata
                                                                      |
                                        `outcome_writer.py`: durable -> answered; markers

Only the event loop touches transactions. A step is carried out even if its client has disconnected.
After a restart every prepared transaction is completed.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionStateManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.error_codes import ErrorCode
from server.config.transaction_config import TransactionConfig
from server.coordination.coordinator_topic import TRANSACTION_STATE_TOPIC, CoordinatorTopic
from server.coordination.producer import Producer
from server.coordination.transactions.expiry import Expiry
from server.coordination.transactions.markers import Markers, TransactionEnded
from server.coordination.transactions.metadata import (
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
)
from server.coordination.transactions.outcome_writer import OutcomeWriter
from server.coordination.transactions.transaction import Outcome
from server.coordination.transactions.transaction_table import TransactionEntry, TransactionTable
from server.durability.group_commit import GroupCommit
from server.runtime.at_once import at_once
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.turns import Turns
from server.topics.topics import Topics
from storage.files.errors import StorageError

_log = logging.getLogger("server.coordination.transactions")

COMPLETION_SECONDS = 10.0
"""How long `abort_ongoing` waits until all decided transactions are complete."""
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

    __slots__ = ("_producer_ids", "_settings", "expiry", "markers", "outcomes", "table", "topic")

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
        self.outcomes = OutcomeWriter(
            topic, table, markers, abort_interval_ms=settings.abort_interval_ms
        )
        self.expiry = Expiry(
            table,
            self.outcomes.carry_out,
            retention_ms=settings.id_expiration_ms,
            interval_ms=settings.expiration_interval_ms,
        )

    def start(self, when_loaded: Callable[[TransactionEntry], None] | None = None) -> None:
        """Start to load the transactions and to complete the prepared ones.

        Args:
            when_loaded: called with each transaction before its completion begins.
        """

        def loaded(entry: TransactionEntry) -> None:
            if when_loaded is not None:
                when_loaded(entry)
            self.outcomes.follow_up(entry)

        self.table.start(on_loaded=loaded)
        self.expiry.start()

    async def stop(self) -> None:
        """Wait until pending writes are durable. The next start writes the remaining markers."""
        self.outcomes.interrupt()
        await self.table.loads.stop()
        await self.expiry.stop()
        await self.outcomes.stop()

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
        return await self.outcomes.carry_out(entry, outcome)

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
        return self.outcomes.carry_out(entry, outcome)

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
        return self.outcomes.carry_out(entry, outcome)

    async def _spare_id(self, transactional_id: str) -> int:
        entry = self._find(transactional_id)
        needs = isinstance(entry, TransactionEntry) and (
            entry.transaction.metadata.is_epoch_exhausted
        )
        return await self._producer_ids.next_id() if needs else NO_PRODUCER_ID

    # Requests of the broker.

    async def loaded(self) -> None:
        """Wait until no load of a partition is running."""
        await self.table.loads.loaded()

    async def abort_ongoing(self) -> None:
        """Abort all ongoing transactions once they are loaded, as their timeouts would.

        Returns when every decided transaction is complete, or after 10 s: one with a partition that is
        offline is completed later.

        Raises:
            StorageError: an abort could not be written.
        """
        await self.table.loads.loaded()
        until_s = asyncio.get_running_loop().time() + COMPLETION_SECONDS
        for entry in self.table.entries():
            await self._abort(entry)
        for entry in self.table.entries():
            while entry.transaction.metadata.state.is_prepared:
                left_s = until_s - asyncio.get_running_loop().time()
                if left_s <= 0:
                    return
                await entry.wait_for_change(seconds_max=left_s)

    async def _abort(self, entry: TransactionEntry) -> None:
        """Abort a transaction that is ongoing, or wait until its timeout has done so."""
        transaction = entry.transaction
        while (deadline_ms := transaction.metadata.deadline_ms) is not None:
            if transaction.pending is not None:
                await entry.wait_for_change(seconds_max=COMPLETION_SECONDS)
                continue
            outcome = transaction.time_out(max(deadline_ms, self.table.now_ms()))
            outcome = await self.outcomes.carry_out(entry, outcome)
            if outcome.error_code is not ErrorCode.NONE:
                text = f"the transaction of {transaction.transactional_id} could not be aborted"
                raise StorageError(f"{text}: {outcome.error_code.message}")

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
        if self.outcomes.is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry for entry in self.table.entries() if entry.transaction.is_known]

    def _find(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        if self.outcomes.is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.table.find(transactional_id)

    def _find_existing(self, transactional_id: str) -> TransactionEntry | ErrorCode:
        """Returns the entry of an id that the client claims to own, or an error."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self._find(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING


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
