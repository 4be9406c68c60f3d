"""The asyncio shell over transactions: requests become steps, and what a step owes is done.

    request -> loaded? -> transaction.init, add_partitions, end -> outcome: what the id becomes
                                                                      |
                           appended to the id's partition of `__transaction_state`
                           durable -> answered
                             | prepared?
                             markers into every partition -> durable -> complete, appended

Only the event loop touches transactions. A step is carried out whether or not whoever asked for it is
still there. After a start every transaction that was decided is carried on.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionStateManager.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from protocol.error_codes import ErrorCode
from server.at_once import at_once
from server.clock import Clock
from server.coordinator_topic import TRANSACTION_STATE_TOPIC, CoordinatorTopic, RecordsTooLarge
from server.deadlines import Deadlines
from server.executors import Executor
from server.group_commit import GroupCommit
from server.producer import Producer
from server.tasks import mistake, raising, spawn
from server.topics import Topics
from server.transaction_config import TransactionConfig
from server.transactions.expiry import Expiry
from server.transactions.markers import Marker, Markers, TransactionEnded
from server.transactions.metadata import (
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    record_of,
)
from server.transactions.transaction import Outcome, Transaction
from server.transactions.transaction_table import TransactionEntry, TransactionTable
from server.turns import Turns
from storage.errors import StorageError

_log = logging.getLogger("server.transactions")

T = TypeVar("T")

PATIENCE_SECONDS = 0.1
"""How long a transaction that begins waits for the one before; Kafka's
add.partitions.to.txn.retry.backoff.max.ms."""


class ProducerIdSource(Protocol):
    """Gives out producer ids that nobody had before."""

    async def next_id(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """What the broker's configuration says of transactions."""

    timeout_max_ms: int
    id_expiration_ms: int
    expiration_interval_ms: int
    """How often ids are looked at for those that have expired."""
    abort_interval_ms: int
    """How soon an abort that could not be written is tried again."""


class TransactionCoordinator:
    """What clients, time and the broker ask of transactions."""

    __slots__ = (
        "_deadlines",
        "_is_stopping",
        "_marking",
        "_producer_ids",
        "_settings",
        "_under_way",
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
        self._deadlines = Deadlines(table.now_ms, self._time_is_up)
        self.expiry = Expiry(
            table,
            self._carry_out,
            retention_ms=settings.id_expiration_ms,
            interval_ms=settings.expiration_interval_ms,
        )
        # State
        self._under_way: set[asyncio.Task[Any]] = set()
        """Steps that are being written."""
        self._marking: set[asyncio.Task[Any]] = set()
        """Transactions whose markers are being written."""
        self._is_stopping = False
        self.ended: Counter[TransactionState] = Counter()
        """Transactions that were decided since the start, by what they were decided to be."""
        self.timed_out = 0
        """Of these, those that took too long."""

    def start(self) -> None:
        """Begin to read the transactions back, and to carry on what is decided."""
        self.table.start(on_loaded=self._settled)
        self.expiry.start()

    async def stop(self) -> None:
        """Let what is being written become durable; markers go on with the next start."""
        self._is_stopping = True
        await self.table.loads.stop()
        self._deadlines.stop()
        await self.expiry.stop()
        for task in self._marking:
            task.cancel()
        if ending := self._marking | self._under_way:
            await asyncio.wait(ending)

    # Asked for by clients.

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None = None
    ) -> Outcome:
        """Give an id to who asks; whoever had it before is fenced."""
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
        """Let a transaction write to partitions, in this turn; what is returned resolves then."""
        entry = self._known(transactional_id)
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
        """The same, but while the transaction before is not over, wait a moment: else the client
        would, for longer."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PATIENCE_SECONDS
        while True:
            outcome = await self.add_partitions(
                transactional_id, producer, partitions, transaction_version=transaction_version
            )
            left_s = end_s - loop.time()
            entry = self._find(transactional_id)
            is_busy = outcome.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_busy or left_s <= 0 or not isinstance(entry, TransactionEntry):
                return outcome
            await entry.changed(seconds_max=left_s)

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool, bumps_epoch: bool
    ) -> Awaitable[Outcome]:
        """Commit or abort a transaction; what is returned resolves when that is decided for good,
        and the markers follow."""
        try:
            spare_id = await self._spare_id(transactional_id) if bumps_epoch else NO_PRODUCER_ID
        except StorageError as error:
            _log.error("transactional id %r: %s", transactional_id, error)
            return at_once(Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self._known(transactional_id)
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

    # Asked for by the broker.

    def may_write(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
    ) -> ErrorCode:
        """Whether a transactional batch may be appended now; NONE if so.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED: the id is another producer's.
        CONCURRENT_TRANSACTIONS: the transaction is decided, and its markers are being written.
        INVALID_TXN_STATE: the partition is in no open transaction. COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE: nobody can say.
        """
        entry = self._known(transactional_id)
        if isinstance(entry, ErrorCode):
            return entry
        producer = Producer(producer_id, producer_epoch)
        return entry.transaction.write_error(producer, TransactionPartition(topic, partition))

    def describe(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        """A transactional id as it is now; None if there is none."""
        entry = self._find(transactional_id)
        is_there = isinstance(entry, TransactionEntry) and entry.transaction.is_known
        return entry if is_there or isinstance(entry, ErrorCode) else None

    def transactions(self) -> list[TransactionEntry] | ErrorCode:
        """All of them; an error while some are not known yet."""
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry for entry in self.table.entries() if entry.transaction.is_known]

    def _find(self, transactional_id: str) -> TransactionEntry | ErrorCode | None:
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.table.find(transactional_id)

    def _known(self, transactional_id: str) -> TransactionEntry | ErrorCode:
        """One that somebody claims to have."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self._find(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # Steps.

    def _carry_out(self, entry: TransactionEntry, outcome: Outcome) -> Awaitable[Outcome]:
        """Append what a step comes to now; what is returned resolves when it is durable."""
        if outcome.metadata is None:
            return at_once(outcome)
        entry.transaction.begin(outcome)
        try:
            appended = self._append(entry)
        except Exception as error:  # noqa: BLE001 - as if it had failed later
            appended = raising(error)
        written = self._written(entry, outcome, appended)
        # It goes on, whoever stops waiting.
        return asyncio.shield(spawn(written, "transaction write", among=self._under_way))

    def _append(self, entry: TransactionEntry) -> Awaitable[int]:
        """Append what is pending; what is returned raises whatever goes wrong."""
        transactional_id, metadata = entry.transaction.transactional_id, entry.transaction.pending
        assert metadata is not None
        partition = self.topic.partition_of(transactional_id)
        return self.topic.append(partition, (record_of(transactional_id, metadata),))

    async def _written(
        self, entry: TransactionEntry, outcome: Outcome, appended: Awaitable[int]
    ) -> Outcome:
        transaction = entry.transaction
        try:
            await appended
        except StorageError as error:
            _log.warning("%r could not be written: %s", transaction.transactional_id, error)
            is_ours = isinstance(error, RecordsTooLarge)
            return self._failed(
                entry,
                ErrorCode.UNKNOWN_SERVER_ERROR if is_ours else ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are answered
            mistake("transaction write", error)
            return self._failed(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
        transaction.written()
        if transaction.metadata.state.is_prepared:
            self.ended[transaction.metadata.state] += 1
        self._settled(entry)
        entry.tell()
        return outcome

    def _failed(self, entry: TransactionEntry, error_code: ErrorCode) -> Outcome:
        """Be as before the step, and let others go on."""
        entry.transaction.failed()
        self._not_written(entry)
        entry.tell()
        return Outcome(error_code)

    def _not_written(self, entry: TransactionEntry) -> None:
        """Nothing has changed: a transaction that is to be aborted is, later."""
        transaction = entry.transaction
        if not transaction.is_known:
            self.table.forget(entry)
        elif transaction.metadata.deadline_ms is not None:
            due_ms = self.table.now_ms() + self._settings.abort_interval_ms
            self._deadlines.set(transaction.transactional_id, due_ms)

    def _settled(self, entry: TransactionEntry) -> None:
        """Do what follows from what is durable."""
        transaction = entry.transaction
        metadata = transaction.metadata
        if metadata.state is TransactionState.DEAD:
            self.table.forget(entry)
        elif metadata.state.is_prepared and not self._is_stopping:
            entry.unmarked = set(metadata.partitions)
            spawn(self._end(entry), "transaction markers", among=self._marking)
        self._deadlines.set(transaction.transactional_id, metadata.deadline_ms)

    async def _end(self, entry: TransactionEntry) -> None:
        """Write the markers of a transaction that is decided, then that it is complete."""
        transaction = entry.transaction
        try:
            await self.markers.write(self._marker_of(transaction), entry.unmarked)
            transaction.begin(transaction.complete(self.table.now_ms()))
            appended = self._append(entry)
            # Nobody has to wait for this one: see `transaction.py`.
            transaction.written()
            entry.tell()
            await appended
        except StorageError as error:
            _log.warning("%r stays decided: %s", transaction.transactional_id, error)

    def _marker_of(self, transaction: Transaction) -> Marker:
        partition = self.topic.partition_of(transaction.transactional_id)
        return Marker(
            producer=transaction.producer,
            is_commit=transaction.metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.topic.log_of(partition).leader_epoch,
        )

    # Caused by time.

    def _time_is_up(self, transactional_id: str) -> None:
        entry = self.table.find(transactional_id)
        if not isinstance(entry, TransactionEntry):
            return
        outcome = entry.transaction.time_out(self.table.now_ms())
        if outcome.metadata is not None:
            _log.info("%r is aborted: its transaction took too long", transactional_id)
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
    """The coordinator of a broker's transactions."""
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
