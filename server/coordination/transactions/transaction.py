"""A transactional id as a state machine: event and time in, outcome out.

                 partitions added                end (init or timeout: abort)
    Empty ------------------------> Ongoing ---------------------------------------> PrepareCommit,
      ^                               ^                                              PrepareAbort
      | init                          | partitions added                                  |
      +------------- CompleteCommit, CompleteAbort <--------------------------------------+
                                                          every marker is written

An event itself changes nothing. Its outcome holds the new metadata and the answer to send once that is
durable; until then the change is pending. So this object always agrees with the log, and a failed write
leaves nothing to undo. (Only a completion takes effect before it is durable: if a crash undoes it, the
markers are written again, and later records of the id come after it in the same log.)

While a change is pending or markers are being written, the id is busy, and requests for another change
get CONCURRENT_TRANSACTIONS. That check comes before those of the producer id and epoch: a producer that
knows its next epoch uses it at once, before the coordinator has switched to it. Only an end in the old
protocol has its id and epoch checked first.

Epochs fence producers. InitProducerId raises the epoch. If a transaction is open, it first aborts that
with a raised epoch, which fences late batches of the old producer. Only the old producer can learn that
epoch, if it asks before the new one does. No producer ever gets the highest epoch, so a higher one
always exists for fencing. A producer id whose epochs are exhausted is replaced by `spare_producer_id`;
a request that needs a spare id and has none must be retried. With KIP-890 (`bumps_epoch`) each end of a
transaction raises the epoch, too, so a late batch cannot join the next transaction.

Pure: no clock, no I/O, no randomness. Invalid requests never raise.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import NO_PRODUCER, Producer
from server.coordination.transactions.metadata import (
    EPOCH_BUMPED_SINCE,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step. None of it has taken effect yet."""

    error_code: ErrorCode = ErrorCode.NONE
    """The answer; valid once `metadata` is durable, if there is any."""
    producer: Producer = NO_PRODUCER
    """The id and epoch with which the producer continues, for answers that include them."""
    metadata: TransactionMetadata | None = None
    """The new metadata to write; None: no change."""


_NOT_OPEN = Outcome(ErrorCode.INVALID_TXN_STATE)


class Transaction:
    """One transactional id. Each method that takes an event performs one step."""

    __slots__ = ("metadata", "pending", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        # State; others may read it
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        """The metadata that is being written."""

    @property
    def producer(self) -> Producer:
        return Producer(self.metadata.producer_id, self.metadata.producer_epoch)

    @property
    def is_busy(self) -> bool:
        """Whether a change, or the markers of a decided transaction, are being written."""
        return self.pending is not None or self.metadata.state.is_prepared

    @property
    def is_known(self) -> bool:
        """Whether a producer has got the id."""
        return self.metadata.producer_epoch != NO_EPOCH

    # Writing.

    def begin_write(self, outcome: Outcome) -> None:
        """Note that the outcome's metadata is being written."""
        assert self.pending is None
        self.pending = outcome.metadata

    def finish_write(self) -> None:
        """Make the pending metadata current: it is durable."""
        assert self.pending is not None
        self.metadata, self.pending = self.pending, None

    def fail_write(self) -> None:
        """Drop the pending metadata: it could not be written."""
        self.pending = None

    # Init.

    def init(
        self, timeout_ms: int, expected: Producer | None, *, spare_producer_id: int, now_ms: int
    ) -> Outcome:
        """Give the id to the requesting producer, which may name its last id and epoch (KIP-360).
        Fences the producer that had it."""
        metadata = self.metadata
        if self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._was_owner(expected):
            return Outcome(ErrorCode.PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            return Outcome(
                ErrorCode.CONCURRENT_TRANSACTIONS, metadata=self._aborted_and_fenced(now_ms)
            )
        if metadata.is_epoch_exhausted and (
            expected is None or expected.epoch == metadata.producer_epoch
        ):
            if spare_producer_id == NO_PRODUCER_ID:
                return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
            producer = Producer(spare_producer_id, 0)
        elif expected is not None and self._missed_new_epoch(expected):
            producer = self.producer
        else:
            producer = Producer(metadata.producer_id, metadata.producer_epoch + 1)
        return self._give_to(producer, timeout_ms, expected, now_ms)

    def _was_owner(self, expected: Producer) -> bool:
        """Returns whether the id still belongs to that producer, as far as it can know."""
        if not self.is_known or expected == self.producer:
            return True
        # An open transaction in the new epoch proves that a producer has learnt that epoch.
        return self.metadata.state is not TransactionState.ONGOING and self._missed_new_epoch(
            expected
        )

    def _missed_new_epoch(self, producer: Producer) -> bool:
        """Returns whether the producer missed the last answer, which gave it a new epoch or id."""
        if producer.epoch != self.metadata.last_producer_epoch:
            return False
        is_same = producer.id == self.metadata.producer_id
        return is_same or self._missed_new_id(producer)

    def _missed_new_id(self, producer: Producer) -> bool:
        metadata = self.metadata
        return (
            producer.id == metadata.previous_producer_id
            and producer.epoch == EPOCH_MAX - 1
            and metadata.producer_epoch == 0
        )

    def _give_to(
        self, producer: Producer, timeout_ms: int, expected: Producer | None, now_ms: int
    ) -> Outcome:
        metadata = self.metadata
        if expected is None:
            last_epoch = NO_EPOCH
        elif producer == self.producer:
            last_epoch = metadata.last_producer_epoch
        else:
            last_epoch = metadata.producer_epoch
        given = metadata.changed(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NOT_STARTED,
            last_update_ms=now_ms,
        )
        return Outcome(ErrorCode.NONE, producer, given)

    # Partitions.

    def add_partitions(
        self,
        producer: Producer,
        partitions: frozenset[TransactionPartition],
        *,
        transaction_version: int,
        now_ms: int,
    ) -> Outcome:
        """Add partitions to a transaction; the first ones begin it."""
        if self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        error = self.producer_error(producer)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        metadata = self.metadata
        is_open = metadata.state is TransactionState.ONGOING
        if is_open and partitions <= metadata.partitions:
            return Outcome()
        added = metadata.changed(
            state=TransactionState.ONGOING,
            partitions=metadata.partitions | partitions,
            start_ms=metadata.start_ms if is_open else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=transaction_version,
        )
        return Outcome(metadata=added)

    def producer_error(self, producer: Producer) -> ErrorCode:
        """Returns NONE for the producer that has the id, else the error."""
        if not self.is_known or producer.id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.metadata.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def write_error(self, producer: Producer, partition: TransactionPartition) -> ErrorCode:
        """Returns why a batch must not be appended to the partition; NONE if it may."""
        error = self.producer_error(producer)
        if error is not ErrorCode.NONE:
            return error
        if (self.pending or self.metadata).state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_open = self.metadata.state is TransactionState.ONGOING
        if not is_open or partition not in self.metadata.partitions:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    # The end.

    def end(
        self,
        producer: Producer,
        *,
        is_commit: bool,
        bumps_epoch: bool,
        spare_producer_id: int,
        now_ms: int,
    ) -> Outcome:
        """Decide the open transaction.

        Args:
            bumps_epoch: whether the producer uses the new protocol (KIP-890).
        """
        if bumps_epoch and self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_retry = bumps_epoch and self._missed_end(producer)
        error = ErrorCode.NONE if is_retry else self.producer_error(producer)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        if self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        decided = _is_committed(self.metadata.state)
        if decided is not None and (is_retry or not bumps_epoch):
            is_same = decided is is_commit
            return Outcome(ErrorCode.NONE, self.producer) if is_same else _NOT_OPEN
        is_open = self.metadata.state is TransactionState.ONGOING
        if not is_open and (is_commit or not bumps_epoch):
            return _NOT_OPEN
        return self._prepare_end(is_commit, bumps_epoch, spare_producer_id, now_ms)

    def _missed_end(self, producer: Producer) -> bool:
        """Returns whether this producer's transaction ended with a raised epoch that it does not know.

        It ended the transaction itself and missed the answer (KIP-890), or the transaction timed out,
        or another producer took the id.

        Kafka does not check that the end raised the epoch. There, after an end in the old protocol, a
        producer that was replaced would get the epoch of its replacement.
        """
        metadata = self.metadata
        if not metadata.state.is_complete or not metadata.has_raised_epoch:
            return False
        is_raised = (
            producer.id == metadata.producer_id
            and producer.epoch + 1 == metadata.producer_epoch < EPOCH_MAX
        )
        return is_raised or self._missed_new_id(producer)

    def _prepare_end(
        self, is_commit: bool, bumps_epoch: bool, spare_producer_id: int, now_ms: int
    ) -> Outcome:
        metadata = self.metadata
        needs_another = bumps_epoch and metadata.is_epoch_exhausted
        if needs_another and spare_producer_id == NO_PRODUCER_ID:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        epoch = metadata.producer_epoch + bumps_epoch
        is_open = metadata.state is TransactionState.ONGOING
        prepared = metadata.changed(
            producer_epoch=epoch,
            last_producer_epoch=(
                metadata.producer_epoch if bumps_epoch else metadata.last_producer_epoch
            ),
            next_producer_id=spare_producer_id if needs_another else NO_PRODUCER_ID,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            # An abort without an open transaction counts as one that begins now (KIP-890).
            partitions=metadata.partitions if is_open else frozenset(),
            start_ms=metadata.start_ms if is_open else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=EPOCH_BUMPED_SINCE if bumps_epoch else 0,
        )
        producer = Producer(spare_producer_id, 0)
        if not needs_another:
            producer = Producer(metadata.producer_id, epoch)
        return Outcome(ErrorCode.NONE, producer, prepared)

    def time_out(self, now_ms: int) -> Outcome:
        """Abort a transaction that has exceeded its timeout."""
        deadline_ms = self.metadata.deadline_ms
        if self.pending is not None or deadline_ms is None or now_ms < deadline_ms:
            return Outcome()
        return Outcome(metadata=self._aborted_and_fenced(now_ms))

    def _aborted_and_fenced(self, now_ms: int) -> TransactionMetadata:
        """Returns the metadata that aborts the open transaction with a raised epoch. Its producer may
        continue with that epoch unless another producer takes the id first: Kafka, too, writes such
        aborts with the newest transaction version."""
        metadata = self.metadata
        epoch = min(metadata.producer_epoch + 1, EPOCH_MAX)
        return metadata.changed(
            producer_epoch=epoch,
            last_producer_epoch=metadata.producer_epoch if epoch < EPOCH_MAX else NO_EPOCH,
            state=TransactionState.PREPARE_ABORT,
            last_update_ms=now_ms,
            client_transaction_version=EPOCH_BUMPED_SINCE,
        )

    def complete(self, now_ms: int) -> Outcome:
        """Complete the transaction: every marker is written."""
        metadata = self.metadata
        assert metadata.state.is_prepared
        assert self.pending is None
        is_commit = metadata.state is TransactionState.PREPARE_COMMIT
        has_next = metadata.next_producer_id != NO_PRODUCER_ID
        completed = metadata.changed(
            producer_id=metadata.next_producer_id if has_next else metadata.producer_id,
            producer_epoch=0 if has_next else metadata.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.COMPLETE_COMMIT
            if is_commit
            else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
        return Outcome(metadata=completed)

    # Expiry.

    def expire(self, *, retention_ms: int, now_ms: int) -> Outcome:
        """Expire an idle id that has not changed for `retention_ms`."""
        state = self.metadata.state
        is_idle = state is TransactionState.EMPTY or state.is_complete
        is_due = self.metadata.last_update_ms + retention_ms <= now_ms
        if self.pending is not None or not is_idle or not is_due:
            return Outcome()
        return Outcome(metadata=self.metadata.changed(state=TransactionState.DEAD))


def _is_committed(state: TransactionState) -> bool | None:
    """Returns whether the state stands for a commit; None: the transaction is not decided."""
    if state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT):
        return True
    if state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT):
        return False
    return None
