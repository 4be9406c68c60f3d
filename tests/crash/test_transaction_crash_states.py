"""Stop a broker at every operation of its disk while transactions come and go, and start it again.

Producers take transactional ids, write, commit and abort in both protocols, ids expire, passes compact
what is written of all that. After every crash each id is as the last answer said, or as the step that
was under way leaves it; and once the start has carried on what was decided, no partition has a
transaction open that the coordinator does not have open, too: none hangs.

`coordinator_sweep.py` has the crashes.
"""

from __future__ import annotations

from random import Random

import pytest

from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.metadata import (
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from server.coordination.transactions.transaction import Outcome, Transaction
from server.coordination.transactions.transaction_table import TransactionEntry
from storage.batches.validate import ValidBatch
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from tests.crash.coordinator_sweep import CrashStates, Sweep
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.offsets_disk import SyncAtOnce, compact
from tests.harness.served_broker import NOW_MS
from tests.harness.topics_world import World, open_world
from tests.harness.transactions_disk import CountedIds, carried_out, coordinator_over

IDS = ("a", "b")
PARTITIONS = (TransactionPartition("t", 0), TransactionPartition("t", 1))
KINDS = ("init", *("write",) * 6, *("end",) * 4, "expire")
TIMEOUT_MS = 60_000

View = tuple[Producer, str, frozenset[TransactionPartition]]
"""Whose an id is, how its transaction stands, and where it may write."""

Told = dict[str, View]

TITLES = {
    TransactionState.EMPTY: "empty",
    TransactionState.ONGOING: "open",
    TransactionState.PREPARE_COMMIT: "committed",
    TransactionState.COMPLETE_COMMIT: "committed",
    TransactionState.PREPARE_ABORT: "aborted",
    TransactionState.COMPLETE_ABORT: "aborted",
}


def view_of(metadata: TransactionMetadata) -> View:
    is_open = metadata.state is TransactionState.ONGOING
    producer = Producer(metadata.producer_id, metadata.producer_epoch)
    return producer, TITLES[metadata.state], metadata.partitions if is_open else frozenset()


class TransactionsOnDisk:
    """A coordinator over a disk, and what it has told."""

    def __init__(self, world: World, transactions: TransactionCoordinator, ids: CountedIds) -> None:
        self.world, self.transactions, self.ids = world, transactions, ids
        self.told: Told = {}
        self.will_tell: Told = {}
        self.sequences: dict[tuple[Producer, TransactionPartition], int] = {}

    async def step(self, what: str, random: Random) -> None:
        transactional_id = random.choice(IDS)
        entry = self.transactions.describe(transactional_id)
        assert not isinstance(entry, ErrorCode)
        if what == "expire":
            await self._expire()
        elif entry is None or what == "init":
            await self._init(transactional_id, entry)
        elif what == "write":
            partitions = PARTITIONS[: random.randrange(1, 3)]
            await self._add(entry.transaction, frozenset(partitions))
            self.told = self.will_tell
            for partition in partitions:
                self._append(entry.transaction, partition)
        else:
            await self._end(entry.transaction, random)
        await carried_out(self.transactions)
        self.told = self.will_tell

    async def _init(self, transactional_id: str, entry: TransactionEntry | None) -> None:
        spare_id = self.ids.following
        if entry is None:
            empty = TransactionMetadata(
                producer_id=spare_id, timeout_ms=TIMEOUT_MS, last_update_ms=NOW_MS
            )
            transaction = Transaction(transactional_id, empty)
        else:
            transaction = entry.transaction
        self._foresee(
            transaction,
            transaction.init(TIMEOUT_MS, None, spare_producer_id=spare_id, now_ms=NOW_MS),
        )
        await self.transactions.init_producer_id(transactional_id, TIMEOUT_MS)

    async def _add(
        self, transaction: Transaction, partitions: frozenset[TransactionPartition]
    ) -> None:
        self._foresee(
            transaction,
            transaction.add_partitions(
                transaction.producer, partitions, transaction_version=0, now_ms=NOW_MS
            ),
        )
        added = self.transactions.add_partitions(
            transaction.transactional_id, transaction.producer, partitions
        )
        assert (await added).error_code is ErrorCode.NONE

    def _append(self, transaction: Transaction, partition: TransactionPartition) -> None:
        producer = transaction.producer
        may_write = self.transactions.may_write(
            transaction.transactional_id, producer.id, producer.epoch, *partition
        )
        assert may_write is ErrorCode.NONE
        sequence = self.sequences.get((producer, partition), 0)
        batch = build_batch(
            [Record(offset=0, timestamp=NOW_MS, key=b"k", value=b"v")],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        log = log_of(self.world, partition)
        valid = ValidBatch(read_header(batch), memoryview(batch))
        assert isinstance(log.appender.append_as_leader(valid, now_ms=NOW_MS), Appended)
        SyncAtOnce().appended(log)
        self.sequences[producer, partition] = sequence + 1

    async def _end(self, transaction: Transaction, random: Random) -> None:
        is_commit, bumps_epoch = random.random() < 0.6, random.random() < 0.5
        self._foresee(
            transaction,
            transaction.end(
                transaction.producer,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
                spare_producer_id=-1,
                now_ms=NOW_MS,
            ),
        )
        await (
            await self.transactions.end(
                transaction.transactional_id,
                transaction.producer,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
            )
        )

    async def _expire(self) -> None:
        """Each on its own: every one is a step."""
        for entry in self.transactions.table.entries():
            transaction = entry.transaction
            outcome = transaction.expire(retention_ms=0, now_ms=NOW_MS)
            if outcome.metadata is not None:
                self.will_tell = {**self.told}
                del self.will_tell[transaction.transactional_id]
                await self.transactions.outcomes.carry_out(entry, outcome)
                self.told = self.will_tell

    def _foresee(self, transaction: Transaction, outcome: Outcome) -> None:
        if outcome.metadata is not None:
            view = view_of(outcome.metadata)
            self.will_tell = {**self.told, transaction.transactional_id: view}


def log_of(world: World, partition: TransactionPartition) -> PartitionLog:
    topic = world.topics.get(partition.topic)
    assert topic is not None
    log = topic.partition(partition.partition)
    assert isinstance(log, PartitionLog)
    return log


async def found_on(disk: MemoryFileSystem) -> Told:
    """What a start reads back, once it has carried on what was decided."""
    world = await open_world(disk, "/a")
    transactions = coordinator_over(world, CountedIds(1_000_000))
    transactions.start()
    await carried_out(transactions)
    found = {
        entry.transaction.transactional_id: view_of(entry.transaction.metadata)
        for entry in transactions.table.entries()
    }
    if world.topics.get("t") is not None:
        for partition in PARTITIONS:
            assert_none_hangs(log_of(world, partition), partition, found)
    await transactions.stop()
    await world.stores.close()
    return found


def assert_none_hangs(log: PartitionLog, partition: TransactionPartition, found: Told) -> None:
    may_write = {producer for producer, _, partitions in found.values() if partition in partitions}
    for producer_id, state in log.producers.items():
        if state.current_txn_first_offset >= 0:
            assert Producer(producer_id, state.producer_epoch) in may_write, "a transaction hangs"


async def history(seed: int) -> CrashStates[Told]:
    """Play one history; every state that a crash in it may leave."""
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    await world.create("t", len(PARTITIONS))
    ids = CountedIds(1_000)
    transactions = coordinator_over(world, ids)
    transactions.start()
    await transactions.topic.ensure()
    on_disk = TransactionsOnDisk(world, transactions, ids)
    states = CrashStates(disk, seed, lambda: (on_disk.told, on_disk.will_tell))
    for what in states.steps(random, KINDS):
        if what == "clean":
            compact(transactions.topic.log_of(0))
        else:
            await on_disk.step(what, random)
    await transactions.stop()
    await world.close()
    return states


SWEEP = Sweep(history, found_on)


async def test_what_was_told_of_a_transaction_is_so_after_a_crash_and_none_hangs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await SWEEP.run_all("transactions", capsys)


async def test_the_sweep_catches_a_step_that_is_answered_before_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await SWEEP.catches_answers_before_the_sync(monkeypatch)
