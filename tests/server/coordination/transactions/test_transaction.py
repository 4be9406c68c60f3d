"""A transactional id as a state machine: its producer, its transactions, and refused requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import NO_PRODUCER, Producer
from server.coordination.transactions.metadata import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from server.coordination.transactions.transaction import Outcome, Transaction

FIRST_ID, SPARE_ID = 1000, 2000
A, B = TransactionPartition("t", 0), TransactionPartition("t", 1)
TIMEOUT_MS = 60_000


class Scene:
    """One transactional id; the outcome of a step is written at once."""

    def __init__(self, **fields: Any) -> None:
        metadata = TransactionMetadata(
            producer_id=FIRST_ID, timeout_ms=TIMEOUT_MS, last_update_ms=0
        )
        self.transaction = Transaction("tx", replace(metadata, **fields))
        self.now_ms = 1_000

    @property
    def metadata(self) -> TransactionMetadata:
        return self.transaction.metadata

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    def init(self, expected: Producer | None = None, *, spare: int = SPARE_ID) -> Outcome:
        return self._written(
            self.transaction.init(TIMEOUT_MS, expected, spare_producer_id=spare, now_ms=self.now_ms)
        )

    def add(self, producer: Producer, *partitions: TransactionPartition) -> ErrorCode:
        return self._written(
            self.transaction.add_partitions(
                producer, frozenset(partitions), transaction_version=0, now_ms=self.now_ms
            )
        ).error_code

    def end(
        self,
        producer: Producer,
        *,
        is_commit: bool = True,
        bumps_epoch: bool = False,
        spare: int = SPARE_ID,
    ) -> Outcome:
        return self._written(
            self.transaction.end(
                producer,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
                spare_producer_id=spare,
                now_ms=self.now_ms,
            )
        )

    def time_out(self) -> Outcome:
        return self._written(self.transaction.time_out(self.now_ms))

    def complete(self) -> None:
        self._written(self.transaction.complete(self.now_ms))

    def _written(self, outcome: Outcome) -> Outcome:
        if outcome.metadata is not None:
            self.transaction.begin_write(outcome)
            self.transaction.finish_write()
        return outcome


def begun(**fields: Any) -> tuple[Scene, Producer]:
    """With a transaction open in A."""
    scene = Scene(**fields)
    producer = scene.init().producer
    assert scene.add(producer, A) is ErrorCode.NONE
    return scene, producer


def ended(*, is_commit: bool = True, bumps_epoch: bool = False) -> tuple[Scene, Producer]:
    """Returns a scene with a completed transaction, and the producer's next id and epoch."""
    scene, producer = begun()
    outcome = scene.end(producer, is_commit=is_commit, bumps_epoch=bumps_epoch)
    scene.complete()
    return scene, outcome.producer


# Whose the id is.


def test_a_new_id_begins_with_epoch_0_and_each_init_raises_it() -> None:
    scene = Scene()
    assert [scene.init().producer for _ in range(3)] == [
        Producer(FIRST_ID, epoch) for epoch in range(3)
    ]
    assert scene.state is TransactionState.EMPTY
    assert scene.metadata.start_ms == -1


def test_an_init_fences_whoever_had_the_id() -> None:
    scene = Scene()
    old = scene.init().producer
    scene.init()
    assert scene.add(old, A) is ErrorCode.PRODUCER_FENCED
    assert scene.end(old).error_code is ErrorCode.PRODUCER_FENCED
    assert scene.transaction.write_error(old, A) is ErrorCode.PRODUCER_FENCED


def test_an_id_that_nobody_was_told_of_is_nobodys() -> None:
    scene = Scene()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert scene.add(Producer(FIRST_ID, -1), A) is mapping
    assert scene.end(NO_PRODUCER).error_code is mapping
    assert scene.transaction.write_error(Producer(FIRST_ID, -1), A) is mapping


def test_an_init_aborts_an_open_transaction_with_an_epoch_that_nobody_is_told() -> None:
    scene, old = begun()
    assert scene.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.state is TransactionState.PREPARE_ABORT
    assert scene.metadata.producer_epoch == old.epoch + 1
    assert scene.metadata.partitions == {A}

    assert scene.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.complete()
    assert scene.init().producer == Producer(FIRST_ID, old.epoch + 2)
    assert scene.end(old).error_code is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_says_who_it_was_goes_on() -> None:
    scene = Scene()
    old = scene.init().producer
    new = scene.init(old).producer
    assert new == Producer(FIRST_ID, old.epoch + 1)
    # It missed the answer, so it gets the same epoch again, not the next one.
    assert scene.init(old).producer == new
    assert scene.init(old).producer == new


def test_a_producer_that_is_fenced_cannot_go_on_by_saying_who_it_was() -> None:
    scene = Scene()
    old = scene.init().producer
    new = scene.init().producer
    for expected in (old, Producer(FIRST_ID + 1, new.epoch), Producer(FIRST_ID, new.epoch + 1)):
        assert scene.init(expected).error_code is ErrorCode.PRODUCER_FENCED
    assert scene.transaction.producer == new


def test_a_producer_that_is_fenced_does_not_abort_the_transaction_of_the_next() -> None:
    scene = Scene()
    old = scene.init().producer
    new = scene.init(old).producer
    scene.add(new, A)
    assert scene.init(old).error_code is ErrorCode.PRODUCER_FENCED
    assert scene.state is TransactionState.ONGOING


def test_a_timed_out_producer_goes_on_by_saying_who_it_was() -> None:
    scene, old = begun()
    scene.now_ms += TIMEOUT_MS
    scene.time_out()
    scene.complete()
    assert scene.init(old).producer == Producer(FIRST_ID, old.epoch + 1)


def test_the_producer_whose_transaction_another_one_aborts_goes_on_until_that_has_the_id() -> None:
    scene, old = begun()
    assert scene.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.complete()
    assert scene.init(old).producer == Producer(FIRST_ID, old.epoch + 1)
    new = scene.init().producer
    assert new == Producer(FIRST_ID, old.epoch + 2)
    assert scene.init(old).error_code is ErrorCode.PRODUCER_FENCED


def test_nobody_goes_on_with_the_highest_epoch() -> None:
    scene = Scene(producer_epoch=EPOCH_MAX - 2)
    old = scene.init().producer
    scene.add(old, A)
    scene.now_ms += TIMEOUT_MS
    scene.time_out()
    scene.complete()
    assert scene.metadata.producer_epoch == EPOCH_MAX
    assert scene.init(old).error_code is ErrorCode.PRODUCER_FENCED
    ended = scene.end(old, is_commit=False, bumps_epoch=True)
    assert ended.error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("says_who_it_was", [True, False])
def test_a_producer_id_whose_epochs_are_used_up_is_replaced(says_who_it_was: bool) -> None:
    last = EPOCH_MAX - 1
    scene = Scene(producer_epoch=last)
    old = Producer(FIRST_ID, last)
    expected = old if says_who_it_was else None
    assert scene.init(expected, spare=NO_PRODUCER_ID).error_code is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    assert scene.init(expected).producer == Producer(SPARE_ID, 0)
    # Only who asked for that itself may ask again.
    again = scene.init(old, spare=SPARE_ID + 1)
    if says_who_it_was:
        assert again.producer == Producer(SPARE_ID, 0)
    else:
        assert again.error_code is ErrorCode.PRODUCER_FENCED


def test_an_abort_by_fencing_always_has_a_higher_epoch() -> None:
    scene = Scene(producer_epoch=EPOCH_MAX - 2)
    producer = scene.init().producer
    assert producer.epoch == EPOCH_MAX - 1
    scene.add(producer, A)
    scene.init()
    assert scene.metadata.producer_epoch == EPOCH_MAX
    scene.complete()
    assert scene.init().producer == Producer(SPARE_ID, 0)


# Partitions.


def test_partitions_join_the_open_transaction() -> None:
    scene, producer = begun()
    begun_ms = scene.now_ms
    scene.now_ms += 5
    assert scene.add(producer, A, B) is ErrorCode.NONE
    assert scene.metadata.partitions == {A, B}
    assert (scene.metadata.start_ms, scene.metadata.last_update_ms) == (begun_ms, begun_ms + 5)


def test_partitions_that_are_in_it_already_are_not_written_again() -> None:
    scene, producer = begun()
    outcome = scene.transaction.add_partitions(
        producer, frozenset({A}), transaction_version=0, now_ms=2_000
    )
    assert outcome == Outcome()


def test_only_partitions_of_an_open_transaction_may_be_written_to() -> None:
    scene, producer = begun()
    write_error = scene.transaction.write_error
    assert write_error(producer, A) is ErrorCode.NONE
    assert write_error(producer, B) is ErrorCode.INVALID_TXN_STATE
    assert write_error(Producer(FIRST_ID + 1, 0), A) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert write_error(Producer(FIRST_ID, producer.epoch + 1), A) is ErrorCode.PRODUCER_FENCED
    scene.end(producer)
    assert write_error(producer, A) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.complete()
    assert write_error(producer, A) is ErrorCode.INVALID_TXN_STATE


# The end.


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_is_decided_first_and_complete_once_the_markers_are_written(
    is_commit: bool,
) -> None:
    scene, producer = begun()
    assert scene.end(producer, is_commit=is_commit).error_code is ErrorCode.NONE
    assert scene.state.title == ("PrepareCommit" if is_commit else "PrepareAbort")
    assert scene.metadata.partitions == {A}

    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.end(producer, is_commit=is_commit).error_code is concurrent
    assert scene.end(producer, is_commit=not is_commit).error_code is concurrent
    assert scene.add(producer, B) is concurrent

    scene.complete()
    assert scene.state.title == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert scene.metadata.partitions == frozenset()
    assert scene.end(producer, is_commit=is_commit).error_code is ErrorCode.NONE
    assert scene.end(producer, is_commit=not is_commit).error_code is ErrorCode.INVALID_TXN_STATE
    assert scene.add(producer, B) is ErrorCode.NONE
    assert scene.state is TransactionState.ONGOING


def test_what_was_not_begun_cannot_end() -> None:
    scene = Scene()
    producer = scene.init().producer
    for is_commit in (True, False):
        outcome = scene.end(producer, is_commit=is_commit)
        assert outcome.error_code is ErrorCode.INVALID_TXN_STATE


# The end in the new protocol (KIP-890).


def test_each_end_raises_the_epoch() -> None:
    scene, old = begun()
    assert scene.end(old, bumps_epoch=True).producer == Producer(FIRST_ID, old.epoch + 1)
    assert scene.metadata.producer_epoch == old.epoch + 1
    scene.complete()
    assert scene.transaction.producer == Producer(FIRST_ID, old.epoch + 1)
    assert scene.metadata.client_transaction_version == 2


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_was_not_heard_of_is_told_again(is_commit: bool) -> None:
    scene, old = begun()
    new = scene.end(old, is_commit=is_commit, bumps_epoch=True).producer
    # Whatever it asks for: the new epoch, which it may know already, is not in effect yet.
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    for producer in (old, new, Producer(FIRST_ID, new.epoch + 1), Producer(FIRST_ID + 1, 0)):
        for verdict in (True, False):
            ended = scene.end(producer, is_commit=verdict, bumps_epoch=True)
            assert ended.error_code is concurrent

    scene.complete()
    assert scene.end(old, is_commit=is_commit, bumps_epoch=True) == Outcome(ErrorCode.NONE, new)
    other = scene.end(old, is_commit=not is_commit, bumps_epoch=True)
    assert other.error_code is ErrorCode.INVALID_TXN_STATE


def test_who_was_replaced_is_fenced_once_its_transaction_was_aborted_for_another() -> None:
    scene, old = begun()
    scene.init()
    scene.complete()
    new = scene.init().producer
    scene.add(new, A)
    scene.end(new, is_commit=True)
    scene.complete()
    for is_commit in (True, False):
        ended = scene.end(old, is_commit=is_commit, bumps_epoch=True)
        assert ended.error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_who_was_replaced_is_not_told_of_the_end_of_another(is_commit: bool) -> None:
    scene = Scene()
    old = scene.init().producer
    # The next one speaks the old protocol, so the epoch stays what it is.
    new = scene.init().producer
    scene.add(new, A)
    scene.end(new, is_commit=is_commit)
    scene.complete()
    outcome = scene.end(old, is_commit=is_commit, bumps_epoch=True)
    assert outcome.error_code is ErrorCode.PRODUCER_FENCED


def test_who_was_timed_out_is_told_that_its_transaction_is_aborted() -> None:
    scene, producer = begun()
    scene.now_ms += TIMEOUT_MS
    scene.time_out()
    new = Producer(FIRST_ID, producer.epoch + 1)
    aborted = scene.end(producer, is_commit=False, bumps_epoch=True)
    assert aborted.error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.complete()
    assert scene.end(producer, is_commit=False, bumps_epoch=True) == Outcome(ErrorCode.NONE, new)
    committed = scene.end(producer, is_commit=True, bumps_epoch=True)
    assert committed.error_code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_nothing_can_be_aborted_but_not_committed(state: str) -> None:
    if state == "Empty":
        scene = Scene()
        producer = scene.init().producer
    else:
        scene, producer = ended(is_commit=state == "CompleteCommit", bumps_epoch=True)
    assert scene.end(producer, bumps_epoch=True).error_code is ErrorCode.INVALID_TXN_STATE

    outcome = scene.end(producer, is_commit=False, bumps_epoch=True)
    assert outcome.producer == Producer(FIRST_ID, producer.epoch + 1)
    assert scene.state is TransactionState.PREPARE_ABORT
    assert scene.metadata.partitions == frozenset()
    assert scene.metadata.start_ms == scene.now_ms


def test_an_end_with_the_last_epoch_tells_the_next_producer_id() -> None:
    scene = Scene(producer_epoch=EPOCH_MAX - 2)
    old = scene.init().producer
    scene.add(old, A)
    without = scene.end(old, bumps_epoch=True, spare=NO_PRODUCER_ID)
    assert without.error_code is ErrorCode.CONCURRENT_TRANSACTIONS

    assert scene.end(old, bumps_epoch=True).producer == Producer(SPARE_ID, 0)
    # Its markers are still the old one's.
    assert scene.transaction.producer == Producer(FIRST_ID, EPOCH_MAX)
    scene.complete()
    assert scene.transaction.producer == Producer(SPARE_ID, 0)
    assert scene.metadata.next_producer_id == NO_PRODUCER_ID
    again = scene.end(old, bumps_epoch=True)
    assert again == Outcome(ErrorCode.NONE, Producer(SPARE_ID, 0))


# Time.


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    scene, producer = begun()
    deadline_ms = scene.metadata.deadline_ms
    assert deadline_ms == scene.now_ms + TIMEOUT_MS
    scene.now_ms = deadline_ms - 1
    assert scene.time_out() == Outcome()
    scene.now_ms = deadline_ms
    scene.time_out()
    assert scene.state is TransactionState.PREPARE_ABORT
    assert scene.end(producer).error_code is ErrorCode.PRODUCER_FENCED
    assert scene.time_out() == Outcome()


def test_only_an_id_that_nobody_uses_expires() -> None:
    scene, producer = begun()
    expire = scene.transaction.expire
    assert expire(retention_ms=10, now_ms=1 << 40) == Outcome()
    scene.end(producer)
    assert expire(retention_ms=10, now_ms=1 << 40) == Outcome()
    scene.complete()
    assert expire(retention_ms=10, now_ms=scene.now_ms + 9) == Outcome()
    dead = expire(retention_ms=10, now_ms=scene.now_ms + 10).metadata
    assert dead is not None
    assert dead.state is TransactionState.DEAD


# What is being written.


def test_while_something_is_written_nothing_else_begins() -> None:
    scene, producer = begun()
    transaction, concurrent = scene.transaction, ErrorCode.CONCURRENT_TRANSACTIONS
    before = scene.metadata
    transaction.begin_write(
        transaction.end(
            producer, is_commit=True, bumps_epoch=False, spare_producer_id=-1, now_ms=2_000
        )
    )
    assert scene.metadata == before
    # A batch would belong to what is ended already.
    assert transaction.write_error(producer, A) is concurrent
    assert scene.init().error_code is concurrent
    assert scene.add(producer, B) is concurrent
    assert scene.end(producer).error_code is concurrent
    assert transaction.time_out(1 << 40) == Outcome()
    assert transaction.expire(retention_ms=1, now_ms=1 << 40) == Outcome()
    # For every producer; only an end in the old protocol has its epoch checked first.
    assert scene.add(Producer(FIRST_ID, 7), B) is concurrent
    assert scene.end(Producer(FIRST_ID, 7), bumps_epoch=True).error_code is concurrent
    assert scene.end(Producer(FIRST_ID, 7)).error_code is ErrorCode.PRODUCER_FENCED

    transaction.fail_write()
    assert scene.metadata == before
    assert transaction.write_error(producer, A) is ErrorCode.NONE
    assert scene.end(producer).error_code is ErrorCode.NONE
