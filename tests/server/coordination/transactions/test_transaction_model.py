"""Whatever producers do, miss or claim falsely, every answer about a transaction holds.

Several producers have one transactional id after each other, in the old protocol and in the new one,
and some do not know that they are replaced. Answers get lost, writes fail, time passes, the broker
restarts. The partitions are modelled as logs: what is appended to one belongs to the transaction that
its next marker ends. What must hold is said with `check`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol.internal_topics.coordinator_records import write_key, write_value
from protocol.internal_topics.transaction_records import read_record
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import (
    EPOCH_MAX,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    metadata_of,
    record_of,
)
from server.coordination.transactions.transaction import Outcome, Transaction
from tests.harness.examples import examples

PARTITIONS = tuple(TransactionPartition("t", number) for number in range(3))
TIMEOUT_MS = 60_000
CLIENTS_MAX = 3
HEARS = st.sampled_from([True, True, False])


@dataclass(eq=False)
class Client:
    """A producer, and what it believes."""

    bumps_epoch: bool
    producer: Producer | None = None
    added: set[TransactionPartition] = field(default_factory=set)
    batches: list[Batch] = field(default_factory=list)
    """Of the transaction that it has open."""
    late: tuple[Producer, TransactionPartition] | None = None
    """Its last batch, which may come again."""
    is_ending: bool = False
    """It has asked for an end, and has no answer yet."""

    def forget_transaction(self) -> None:
        self.added, self.batches, self.is_ending = set(), [], False


@dataclass(eq=False)
class Batch:
    """A batch that a producer has appended, and its outcome."""

    producer: Producer
    is_committed: bool | None = None


class TransactionModel(RuleBasedStateMachine):
    """Steps of producers, of time and of the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.spare_id = 1_000
        # Close to where epochs run out.
        self.transaction = Transaction(
            "tx",
            TransactionMetadata(
                producer_id=self.spare_id,
                producer_epoch=EPOCH_MAX - 6,
                timeout_ms=TIMEOUT_MS,
                last_update_ms=0,
            ),
        )
        self.clients: list[Client] = []
        self.owner: Client | None = None
        """Who was given the id last."""
        self.logs: dict[TransactionPartition, list[Batch]] = {each: [] for each in PARTITIONS}
        """What has no marker yet."""
        self.told: list[tuple[list[Batch], bool]] = []
        """What a producer has heard of its batches."""

    # Producers.

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(bumps_epoch=st.booleans(), hears=HEARS)
    def somebody_comes(self, bumps_epoch: bool, hears: bool) -> None:
        client = Client(bumps_epoch)
        self.clients.append(client)
        self._init(client, None, hears)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), hears=HEARS, says_who_it_was=st.booleans())
    def somebody_comes_again(self, data: st.DataObject, hears: bool, says_who_it_was: bool) -> None:
        client = self._draw(data)
        self._init(client, client.producer if says_who_it_was else None, hears)

    def _init(self, client: Client, expected: Producer | None, hears: bool) -> None:
        outcome = self.transaction.init(
            TIMEOUT_MS, expected, spare_producer_id=self._spare(), now_ms=self.now_ms
        )
        if expected is not None and outcome.metadata is not None:
            check(client is self.owner, "a replaced producer continues")
        self._write(outcome)
        if outcome.error_code is ErrorCode.NONE:
            self.owner = client
            if hears:
                client.producer = outcome.producer
                client.forget_transaction()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), count=st.integers(1, 3), hears=HEARS)
    def somebody_adds_partitions(self, data: st.DataObject, count: int, hears: bool) -> None:
        self._add(self._draw(data), frozenset(PARTITIONS[:count]), hears)

    def _add(
        self, client: Client, partitions: frozenset[TransactionPartition], hears: bool
    ) -> None:
        if client.producer is None or client.is_ending:
            return
        outcome = self.transaction.add_partitions(
            client.producer,
            partitions,
            transaction_version=2 if client.bumps_epoch else 0,
            now_ms=self.now_ms,
        )
        self._write(outcome)
        if outcome.error_code is ErrorCode.NONE:
            check(client is self.owner, "a replaced producer adds partitions")
            if hears:
                client.added |= partitions

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def somebody_writes(self, data: st.DataObject, partition: TransactionPartition) -> None:
        client = self._draw(data)
        if client.producer is not None and partition in client.added and not client.is_ending:
            client.late = (client.producer, partition)
            self._append(client, client.producer, partition)

    @precondition(lambda self: any(each.late for each in self.clients))
    @rule(data=st.data())
    def a_batch_comes_late(self, data: st.DataObject) -> None:
        """It was on its way when its producer gave up, and may join any transaction; only those
        of the new protocol are safe from it once the next one has begun."""
        client = data.draw(st.sampled_from([each for each in self.clients if each.late]))
        assert client.late is not None
        if client.bumps_epoch or self.transaction.metadata.state is not TransactionState.ONGOING:
            self._append(client, *client.late)

    def _append(self, client: Client, producer: Producer, to: TransactionPartition) -> None:
        if self.transaction.write_error(producer, to) is ErrorCode.NONE:
            check(client is self.owner, "a replaced producer writes")
            check(
                producer == client.producer or client.is_ending, "a late batch joins the next one"
            )
            batch = Batch(producer)
            self.logs[to].append(batch)
            client.batches.append(batch)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_commit=st.booleans(), hears=HEARS)
    def somebody_ends(self, data: st.DataObject, is_commit: bool, hears: bool) -> None:
        self._end(self._draw(data), is_commit, hears)

    def _end(self, client: Client, is_commit: bool, hears: bool) -> None:
        """Also the opposite of what was asked before, if that was not heard of."""
        if client.producer is None:
            return
        outcome = self.transaction.end(
            client.producer,
            is_commit=is_commit,
            bumps_epoch=client.bumps_epoch,
            spare_producer_id=self._spare(),
            now_ms=self.now_ms,
        )
        self._write(outcome)
        client.is_ending = True
        if outcome.error_code is ErrorCode.NONE:
            check(client is self.owner, "a replaced producer ends a transaction")
            if hears:
                self.told.append((client.batches, is_commit))
                client.producer = outcome.producer if client.bumps_epoch else client.producer
                client.forget_transaction()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), count=st.integers(1, 3), is_commit=st.booleans(), hears=HEARS)
    def somebody_transacts(
        self, data: st.DataObject, count: int, is_commit: bool, hears: bool
    ) -> None:
        """Everything in its order."""
        client = self._draw(data)
        self._add(client, frozenset(PARTITIONS[:count]), hears=True)
        if client.producer is not None:
            for partition in sorted(client.added):
                self._append(client, client.producer, partition)
        self._end(client, is_commit, hears)

    def _draw(self, data: st.DataObject) -> Client:
        """Mostly whose the id is."""
        if self.owner is not None and data.draw(st.integers(0, 3)):
            return self.owner
        return data.draw(st.sampled_from(self.clients))

    def _spare(self) -> int:
        self.spare_id += 1
        return self.spare_id

    # Time and the broker.

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self._write(self.transaction.time_out(self.now_ms))

    @precondition(lambda self: self.transaction.metadata.state.is_prepared)
    @rule()
    def the_markers_are_written(self) -> None:
        metadata = self.transaction.metadata
        is_commit = metadata.state is TransactionState.PREPARE_COMMIT
        for partition in metadata.partitions:
            for batch in self.logs[partition]:
                check(batch.producer.id == metadata.producer_id, "a marker of another producer")
                check(batch.producer.epoch <= metadata.producer_epoch, "a log refuses the marker")
                batch.is_committed = is_commit
            self.logs[partition].clear()
        self._write(self.transaction.complete(self.now_ms))

    @rule()
    def the_broker_restarts(self) -> None:
        record = record_of("tx", self.transaction.metadata)
        assert record.value is not None
        read = read_record(write_key(record.key), write_value(record.value))
        assert read.value is not None
        self.transaction = Transaction("tx", metadata_of(read.value))

    @precondition(lambda self: self.clients and self.clients[-1].producer)
    @rule()
    def a_write_fails(self) -> None:
        """It is as if nobody had asked."""
        before = self.transaction.metadata
        outcome = self.transaction.init(
            TIMEOUT_MS, None, spare_producer_id=self._spare(), now_ms=self.now_ms
        )
        if outcome.metadata is not None:
            self.transaction.begin_write(outcome)
            self.transaction.fail_write()
        check(self.transaction.metadata == before, "a step that was not written is remembered")

    def _write(self, outcome: Outcome) -> None:
        if outcome.metadata is not None:
            self.transaction.begin_write(outcome)
            self.transaction.finish_write()

    # What must hold.

    @invariant()
    def what_was_told_is_so(self) -> None:
        decided = self.transaction.metadata.state
        for batches, is_committed in self.told:
            for batch in batches:
                if batch.is_committed is None:
                    check(decided.is_prepared, "a batch of a transaction that is over hangs")
                else:
                    check(batch.is_committed is is_committed, "an answer does not hold")

    @invariant()
    def nothing_hangs(self) -> None:
        """What has no marker is in a transaction that is open or decided, which brings one."""
        metadata = self.transaction.metadata
        is_pending = metadata.state is TransactionState.ONGOING or metadata.state.is_prepared
        for partition, batches in self.logs.items():
            if batches:
                check(is_pending and partition in metadata.partitions, "a transaction hangs")

    def teardown(self) -> None:
        """Whatever happened, a new producer soon gets the id."""
        outcome = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        for _ in range(3):
            outcome = self.transaction.init(
                TIMEOUT_MS, None, spare_producer_id=self._spare(), now_ms=self.now_ms
            )
            self._write(outcome)
            if self.transaction.metadata.state.is_prepared:
                self.the_markers_are_written()
        check(outcome.error_code is ErrorCode.NONE, "no producer gets the id")
        check(not any(self.logs.values()), "a transaction hangs")


def check(holds: bool, what_is_wrong: str) -> None:
    assert holds, what_is_wrong


def test_what_producers_are_told_is_so() -> None:
    run_state_machine_as_test(
        TransactionModel,
        settings=settings(max_examples=examples(100), stateful_step_count=40, deadline=None),
    )
