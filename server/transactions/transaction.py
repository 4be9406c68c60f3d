"""A transactional id as a state machine: event and time in, outcome out.

                 partitions added                end (or init, or time is up: abort)
    Empty ------------------------> Ongoing ---------------------------------------> PrepareCommit,
      ^                               ^                                              PrepareAbort
      | init                          | partitions added                                  |
      +------------- CompleteCommit, CompleteAbort <--------------------------------------+
                                                          every marker is written

An event changes nothing by itself: its outcome is what the id becomes once that is durable, and what
to answer then. Until then the change is pending. So what this object says is always what the log
says, and a write that fails leaves nothing to undo. (A completion alone is believed before it is
durable: if a crash takes it back, the markers are written once more, and whatever follows stands
behind it in the same log.)

While a change is pending, or markers are being written, the id is busy, and whoever asks for another
change hears CONCURRENT_TRANSACTIONS. That comes before any look at the producer id and epoch: a
producer that was told of its next epoch uses it at once, before the coordinator has taken it on.
Only an end in the old protocol has its id and epoch checked first.

Epochs fence: InitProducerId raises the producer's epoch, and if a transaction is open it first aborts
that with a raised epoch, which the old producer's batches are then behind. Only the old producer may
learn of that epoch, if it asks before the new one does. The highest epoch is never told, so that there
always is a higher one. A producer id whose
epochs are used up is replaced by `spare_producer_id`; who asks without one and needs it has to come
again. With KIP-890 (`bumps_epoch`) each end of a transaction raises the epoch, too: a batch that
comes late can then never join the next one.

Pure: no clock, no I/O, nothing random. Nothing is raised for what a peer sent.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from server.producer import NO_PRODUCER, Producer
from server.transactions.metadata import (
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
    """What a step comes to. Nothing of it has happened yet."""

    error_code: ErrorCode = ErrorCode.NONE
    """What to answer; once `metadata` is durable, if there is any."""
    producer: Producer = NO_PRODUCER
    """What the producer goes on with, if it is told."""
    metadata: TransactionMetadata | None = None
    """What the id becomes; None: nothing changes."""


_NOT_OPEN = Outcome(ErrorCode.INVALID_TXN_STATE)


class Transaction:
    """One transactional id. Each method that takes an event is one step."""

    __slots__ = ("metadata", "pending", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        # State; others read it
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        """What is being written."""

    @property
    def producer(self) -> Producer:
        return Producer(self.metadata.producer_id, self.metadata.producer_epoch)

    @property
    def is_busy(self) -> bool:
        """A change is being written, or the markers of a transaction that is decided."""
        return self.pending is not None or self.metadata.state.is_prepared

    @property
    def is_known(self) -> bool:
        """Somebody was told of it."""
        return self.metadata.producer_epoch != NO_EPOCH

    # Writing.

    def begin(self, outcome: Outcome) -> None:
        """What the outcome says is being written."""
        assert self.pending is None
        self.pending = outcome.metadata

    def written(self) -> None:
        """It is durable."""
        assert self.pending is not None
        self.metadata, self.pending = self.pending, None

    def failed(self) -> None:
        """It could not be written."""
        self.pending = None

    # Init.

    def init(
        self, timeout_ms: int, expected: Producer | None, *, spare_producer_id: int, now_ms: int
    ) -> Outcome:
        """Give the id to who asks, who may say who it was (KIP-360); whoever had it is fenced."""
        metadata = self.metadata
        if self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._was(expected):
            return Outcome(ErrorCode.PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS, metadata=self._fenced(now_ms))
        if metadata.is_epoch_exhausted and (
            expected is None or expected.epoch == metadata.producer_epoch
        ):
            if spare_producer_id == NO_PRODUCER_ID:
                return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
            producer = Producer(spare_producer_id, 0)
        elif expected is not None and self._has_raised(expected):
            producer = self.producer
        else:
            producer = Producer(metadata.producer_id, metadata.producer_epoch + 1)
        return self._given_to(producer, timeout_ms, expected, now_ms)

    def _was(self, expected: Producer) -> bool:
        """Whether the id is still that producer's, as far as it can know."""
        if not self.is_known or expected == self.producer:
            return True
        # With a transaction of the new epoch open, somebody has heard of it.
        return self.metadata.state is not TransactionState.ONGOING and self._has_raised(expected)

    def _has_raised(self, producer: Producer) -> bool:
        """It did not hear of its own last step, which gave it another epoch or id."""
        if producer.epoch != self.metadata.last_producer_epoch:
            return False
        is_same = producer.id == self.metadata.producer_id
        return is_same or self._has_overflowed(producer)

    def _has_overflowed(self, producer: Producer) -> bool:
        metadata = self.metadata
        return (
            producer.id == metadata.previous_producer_id
            and producer.epoch == EPOCH_MAX - 1
            and metadata.producer_epoch == 0
        )

    def _given_to(
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
        """Let a transaction write to partitions; the first ones begin it."""
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
        """What is wrong with who asks; NONE for the producer whose the id is."""
        if not self.is_known or producer.id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.metadata.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def write_error(self, producer: Producer, partition: TransactionPartition) -> ErrorCode:
        """Why a batch must not be appended there; NONE if it may."""
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
            bumps_epoch: whether the producer speaks the new protocol (KIP-890).
        """
        if bumps_epoch and self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_retry = bumps_epoch and self._has_ended(producer)
        error = ErrorCode.NONE if is_retry else self.producer_error(producer)
        if error is not ErrorCode.NONE:
            return Outcome(error)
        if self.is_busy:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        decided = _outcome_of(self.metadata.state)
        if decided is not None and (is_retry or not bumps_epoch):
            is_same = decided is is_commit
            return Outcome(ErrorCode.NONE, self.producer) if is_same else _NOT_OPEN
        is_open = self.metadata.state is TransactionState.ONGOING
        if not is_open and (is_commit or not bumps_epoch):
            return _NOT_OPEN
        return self._decided(is_commit, bumps_epoch, spare_producer_id, now_ms)

    def _has_ended(self, producer: Producer) -> bool:
        """The transaction of this producer has ended with a raised epoch, of which it has not heard:
        it ended the transaction itself (KIP-890), or its time was up, or another producer came.

        Kafka does not ask whether the end raised the epoch. After an end in the old protocol the
        producer that was replaced would be told the epoch of the one that replaced it.
        """
        metadata = self.metadata
        if not metadata.state.is_complete or not metadata.has_raised_epoch:
            return False
        is_raised = (
            producer.id == metadata.producer_id
            and producer.epoch + 1 == metadata.producer_epoch < EPOCH_MAX
        )
        return is_raised or self._has_overflowed(producer)

    def _decided(
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
            # An abort of nothing is one of a transaction that begins now (KIP-890).
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
        """Abort a transaction that has been open for too long."""
        deadline_ms = self.metadata.deadline_ms
        if self.pending is not None or deadline_ms is None or now_ms < deadline_ms:
            return Outcome()
        return Outcome(metadata=self._fenced(now_ms))

    def _fenced(self, now_ms: int) -> TransactionMetadata:
        """The open transaction aborted, with the next epoch. Its producer may still go on from there,
        unless another one is faster: Kafka aborts in the name of the newest protocol, too."""
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
        """Every marker is written."""
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

    # Being forgotten.

    def expire(self, *, retention_ms: int, now_ms: int) -> Outcome:
        """Forget an id that nobody has used for so long."""
        state = self.metadata.state
        is_idle = state is TransactionState.EMPTY or state.is_complete
        is_due = self.metadata.last_update_ms + retention_ms <= now_ms
        if self.pending is not None or not is_idle or not is_due:
            return Outcome()
        return Outcome(metadata=self.metadata.changed(state=TransactionState.DEAD))


def _outcome_of(state: TransactionState) -> bool | None:
    """Whether that transaction is committed; None: it is not decided."""
    if state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT):
        return True
    if state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT):
        return False
    return None
