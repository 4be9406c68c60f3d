"""A transactional id as a state machine: event and time in, outcome out.

                 partitions added                end (init or timeout: abort)
    Empty ------------------------> Ongoing ---------------------------------------> PrepareCommit,
      ^                               ^                                              PrepareAbort
      | init                          | partitions added                                  |
      +------------- CompleteCommit, CompleteAbort <--------------------------------------+
                                                          every marker is written

`state_table.py` says what each event does in each state, `guards.py` names the guard that holds, and the
methods here carry out the steps.

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
transaction also raises the epoch, so a late batch cannot join the next transaction.

Pure: no clock, no I/O, no randomness. Invalid requests never raise.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionMetadata.java; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import NO_PRODUCER, Producer
from server.coordination.transactions.guards import (
    add_guard,
    append_guard,
    due_guard,
    end_guard,
    init_guard,
    raising_end_guard,
)
from server.coordination.transactions.metadata import (
    EPOCH_BUMPED_SINCE,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    TransactionMetadata,
    TransactionPartition,
)
from server.coordination.transactions.state_table import (
    TRANSACTION_STATES,
    Action,
    Event,
    Guard,
    TransactionStep,
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
        return self.metadata.producer

    @property
    def is_known(self) -> bool:
        """Whether a producer has got the id."""
        return self.metadata.is_known

    def _step(self, event: Event, guard: Guard) -> TransactionStep:
        return TRANSACTION_STATES.step(self.metadata.state, event, guard)

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
        guard = init_guard(metadata, self.pending, expected, spare_producer_id)
        step = self._step(Event.INIT, guard)
        match step.action:
            case Action.ABORT_AND_FENCE:
                return self._abort_and_fence(step, now_ms)
            case Action.GIVE_NEXT_EPOCH:
                producer = Producer(metadata.producer_id, metadata.producer_epoch + 1)
            case Action.GIVE_SPARE_ID:
                producer = Producer(spare_producer_id, 0)
            case Action.GIVE_AGAIN:
                producer = metadata.producer
            case _:
                assert step.action is Action.REFUSE
                return Outcome(step.error_code)
        given = metadata.changed(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            last_producer_epoch=self._last_epoch(expected, step),
            timeout_ms=timeout_ms,
            state=step.next_state,
            partitions=frozenset(),
            start_ms=NOT_STARTED,
            last_update_ms=now_ms,
        )
        return Outcome(step.error_code, producer, given)

    def _last_epoch(self, expected: Producer | None, step: TransactionStep) -> int:
        """Returns the epoch that the producer may still use if it misses this answer."""
        if expected is None:
            return NO_EPOCH
        is_again = step.action is Action.GIVE_AGAIN
        return self.metadata.last_producer_epoch if is_again else self.metadata.producer_epoch

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
        metadata = self.metadata
        guard = add_guard(metadata, self.pending, producer, partitions)
        step = self._step(Event.ADD_PARTITIONS, guard)
        if step.action not in (Action.BEGIN, Action.ADD):
            assert step.action in (Action.REFUSE, Action.NOTHING)
            return Outcome(step.error_code)
        added = metadata.changed(
            state=step.next_state,
            partitions=metadata.partitions | partitions,
            start_ms=now_ms if step.action is Action.BEGIN else metadata.start_ms,
            last_update_ms=now_ms,
            client_transaction_version=transaction_version,
        )
        return Outcome(metadata=added)

    def write_error(self, producer: Producer, partition: TransactionPartition) -> ErrorCode:
        """Returns why a batch must not be appended to the partition; NONE if it may."""
        guard = append_guard(self.metadata, self.pending, producer, partition)
        return self._step(Event.APPEND, guard).error_code

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
        metadata = self.metadata
        if bumps_epoch:
            step = self._raising_end_step(producer, spare_producer_id, is_commit=is_commit)
        else:
            step = self._end_step(producer, is_commit=is_commit)
        match step.action:
            case Action.PREPARE:
                begun = metadata
            case Action.PREPARE_EMPTY:
                # It counts as a transaction that begins now (KIP-890).
                begun = replace(metadata, partitions=frozenset(), start_ms=now_ms)
            case Action.ANSWER_AGAIN:
                return Outcome(step.error_code, metadata.producer)
            case _:
                assert step.action is Action.REFUSE
                return Outcome(step.error_code)
        if bumps_epoch:
            return _prepare_and_raise(begun, step, spare_producer_id, now_ms)
        return _prepare(begun, step, now_ms)

    def _end_step(self, producer: Producer, *, is_commit: bool) -> TransactionStep:
        guard = end_guard(self.metadata, self.pending, producer)
        return self._step(Event.COMMIT if is_commit else Event.ABORT, guard)

    def _raising_end_step(
        self, producer: Producer, spare_id: int, *, is_commit: bool
    ) -> TransactionStep:
        guard = raising_end_guard(self.metadata, self.pending, producer, spare_id)
        return self._step(Event.COMMIT_AND_RAISE if is_commit else Event.ABORT_AND_RAISE, guard)

    def time_out(self, now_ms: int) -> Outcome:
        """Abort a transaction that has exceeded its timeout."""
        guard = due_guard(self.pending, self.metadata.deadline_ms, now_ms)
        step = self._step(Event.TIME_OUT, guard)
        if step.action is Action.ABORT_AND_FENCE:
            return self._abort_and_fence(step, now_ms)
        assert step.action is Action.NOTHING
        return Outcome(step.error_code)

    def _abort_and_fence(self, step: TransactionStep, now_ms: int) -> Outcome:
        """Abort the open transaction with a raised epoch. Its producer may continue with that epoch
        unless another producer takes the id first: Kafka also writes such aborts with the newest
        transaction version."""
        metadata = self.metadata
        epoch = min(metadata.producer_epoch + 1, EPOCH_MAX)
        aborted = metadata.changed(
            producer_epoch=epoch,
            last_producer_epoch=metadata.producer_epoch if epoch < EPOCH_MAX else NO_EPOCH,
            state=step.next_state,
            last_update_ms=now_ms,
            client_transaction_version=EPOCH_BUMPED_SINCE,
        )
        return Outcome(step.error_code, metadata=aborted)

    def complete(self, now_ms: int) -> Outcome:
        """Complete the transaction: every marker is written."""
        metadata = self.metadata
        assert self.pending is None
        step = self._step(Event.MARKERS_WRITTEN, Guard.ALWAYS)
        assert step.action is Action.COMPLETE
        has_next = metadata.next_producer_id != NO_PRODUCER_ID
        completed = metadata.changed(
            producer_id=metadata.next_producer_id if has_next else metadata.producer_id,
            producer_epoch=0 if has_next else metadata.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            state=step.next_state,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
        return Outcome(metadata=completed)

    # Expiry.

    def expire(self, *, retention_ms: int, now_ms: int) -> Outcome:
        """Expire an idle id that has not changed for `retention_ms`."""
        guard = due_guard(self.pending, self.metadata.last_update_ms + retention_ms, now_ms)
        step = self._step(Event.EXPIRE, guard)
        if step.action is Action.DELETE:
            return Outcome(metadata=self.metadata.changed(state=step.next_state))
        assert step.action is Action.NOTHING
        return Outcome(step.error_code)


def _prepare(begun: TransactionMetadata, step: TransactionStep, now_ms: int) -> Outcome:
    """Decide a transaction in the old protocol: its producer keeps its epoch."""
    prepared = begun.changed(
        next_producer_id=NO_PRODUCER_ID,
        state=step.next_state,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )
    return Outcome(step.error_code, begun.producer, prepared)


def _prepare_and_raise(
    begun: TransactionMetadata, step: TransactionStep, spare_id: int, now_ms: int
) -> Outcome:
    """Decide a transaction in the new protocol: its producer continues with the next epoch, or with
    another producer id (KIP-890)."""
    is_exhausted = begun.is_epoch_exhausted
    raised = Producer(begun.producer_id, begun.producer_epoch + 1)
    prepared = begun.changed(
        producer_epoch=raised.epoch,
        last_producer_epoch=begun.producer_epoch,
        next_producer_id=spare_id if is_exhausted else NO_PRODUCER_ID,
        state=step.next_state,
        last_update_ms=now_ms,
        client_transaction_version=EPOCH_BUMPED_SINCE,
    )
    return Outcome(step.error_code, Producer(spare_id, 0) if is_exhausted else raised, prepared)
