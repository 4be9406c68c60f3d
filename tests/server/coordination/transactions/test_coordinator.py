"""The coordinator of transactions: answers are durable, and a restart continues its work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from server.coordination.transactions.coordinator import TransactionCoordinator
from server.coordination.transactions.markers import Markers
from server.coordination.transactions.metadata import TransactionPartition, TransactionState
from server.coordination.transactions.transaction import Outcome
from server.runtime.tasks import raising
from tests.harness.served_broker import ServedBroker, serving_broker

PROPERTIES = {"transaction_state_log_num_partitions": "2"}
ORDERS = frozenset({TransactionPartition("orders", 0), TransactionPartition("orders", 1)})


async def init(transactions: TransactionCoordinator, transactional_id: str = "tx") -> Producer:
    """Ask until the transaction before is over, as clients do."""
    while True:
        outcome = await transactions.init_producer_id(transactional_id, 60_000)
        if outcome.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            assert outcome.error_code is ErrorCode.NONE
            return outcome.producer
        await asyncio.sleep(0.001)


async def complete(transactions: TransactionCoordinator, transactional_id: str = "tx") -> None:
    while state_of(transactions, transactional_id).is_prepared:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def state_of(
    transactions: TransactionCoordinator, transactional_id: str = "tx"
) -> TransactionState:
    entry = transactions.describe(transactional_id)
    assert entry is not None
    assert not isinstance(entry, ErrorCode)
    return entry.transaction.metadata.state


async def end(
    transactions: TransactionCoordinator, producer: Producer, *, is_commit: bool
) -> Outcome:
    return await (await transactions.end("tx", producer, is_commit=is_commit, bumps_epoch=False))


@pytest.mark.parametrize(
    ("is_commit", "state"),
    [(True, TransactionState.COMPLETE_COMMIT), (False, TransactionState.COMPLETE_ABORT)],
)
async def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    tmp_path: Path, is_commit: bool, state: TransactionState
) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 2)
        transactions = served.broker.transactions
        producer = await init(transactions)
        added = await transactions.add_partitions("tx", producer, ORDERS)
        assert added.error_code is ErrorCode.NONE
        assert (await end(transactions, producer, is_commit=is_commit)).error_code is ErrorCode.NONE
        await complete(transactions)

        assert state_of(transactions) is state
        assert [served.log("orders", number).high_watermark for number in (0, 1)] == [1, 1]


async def begun(served: ServedBroker, *, timeout_ms: int = 60_000) -> Producer:
    """With a transaction open in both partitions."""
    transactions = served.broker.transactions
    await transactions.table.loads.loaded()
    outcome = await transactions.init_producer_id("tx", timeout_ms)
    assert outcome.error_code is ErrorCode.NONE
    added = await transactions.add_partitions("tx", outcome.producer, ORDERS)
    assert added.error_code is ErrorCode.NONE
    return outcome.producer


async def test_an_open_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 2)
        producer = await begun(served)

    async with serving_broker(tmp_path, **PROPERTIES) as served:
        transactions = served.broker.transactions
        await transactions.table.loads.loaded()
        written = transactions.may_write("tx", producer.id, producer.epoch, "orders", 1)
        assert written is ErrorCode.NONE
        assert (await end(transactions, producer, is_commit=True)).error_code is ErrorCode.NONE
        await complete(transactions)
        assert state_of(transactions) is TransactionState.COMPLETE_COMMIT


async def test_what_is_decided_is_carried_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 2)
        producer = await begun(served)
        with monkeypatch.context() as patch:
            patch.setattr(Markers, "write", never)
            transactions = served.broker.transactions
            assert (await end(transactions, producer, is_commit=True)).error_code is ErrorCode.NONE
            assert state_of(transactions) is TransactionState.PREPARE_COMMIT

    async with serving_broker(tmp_path, **PROPERTIES) as served:
        transactions = served.broker.transactions
        await transactions.table.loads.loaded()
        await complete(transactions)
        assert state_of(transactions) is TransactionState.COMPLETE_COMMIT
        assert [served.log("orders", number).high_watermark for number in (0, 1)] == [1, 1]


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 2)
        producer = await begun(served, timeout_ms=1)
        transactions = served.broker.transactions
        async with asyncio.timeout(10):
            while state_of(transactions) is not TransactionState.COMPLETE_ABORT:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        fenced = await end(transactions, producer, is_commit=True)
        assert fenced.error_code is ErrorCode.PRODUCER_FENCED


async def test_a_partition_that_is_gone_holds_no_transaction_up(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        topic = await served.create("orders", 2)
        producer = await begun(served)
        await served.broker.topics.delete(topic)
        transactions = served.broker.transactions
        assert (await end(transactions, producer, is_commit=True)).error_code is ErrorCode.NONE
        await complete(transactions)
        assert state_of(transactions) is TransactionState.COMPLETE_COMMIT


async def test_an_id_that_nobody_uses_is_forgotten_for_good(tmp_path: Path) -> None:
    expired = {**PROPERTIES, "transactional_id_expiration_ms": "1"}
    async with serving_broker(tmp_path, **expired) as served:
        transactions = served.broker.transactions
        await init(transactions)
        await asyncio.sleep(0.005)
        await transactions.expiry.expire()
        assert transactions.transactions() == []

    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.broker.transactions.table.loads.loaded()
        assert served.broker.transactions.transactions() == []


async def test_until_transactions_are_read_nobody_is_told_anything_false(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        transactions = served.broker.transactions
        await init(transactions)
        await transactions.table.loads.loaded()
        transactions.table.loads._loading = {0, 1}
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert transactions.transactions() is loading
        assert transactions.describe("other") is loading
        assert transactions.may_write("other", 0, 0, "orders", 0) is loading
        assert (await transactions.init_producer_id("other", 1_000)).error_code is loading
        added = await transactions.add_partitions("other", Producer(0, 0), ORDERS)
        assert added.error_code is loading


async def test_what_cannot_be_written_is_as_if_nobody_had_asked(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 2)
        producer = await begun(served)
        transactions = served.broker.transactions
        for directory in served.broker.directories:
            directory.go_offline("broken")
        outcome = await end(transactions, producer, is_commit=True)
        assert outcome.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert state_of(transactions) is TransactionState.ONGOING
        new = await transactions.init_producer_id("new", 1_000)
        assert new.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert transactions.describe("new") is None


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
async def test_a_write_that_fails_unexpectedly_is_answered_and_the_id_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        transactions = served.broker.transactions
        await init(transactions)
        error = RuntimeError("a mistake")

        def append(*_: object) -> object:
            if is_late:
                return raising(error)
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(transactions.outcomes, "_topic", _Failing(transactions.topic, append))
            outcome = await transactions.init_producer_id("tx", 60_000)
            assert outcome.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await init(transactions)).id >= 0


class _Failing:
    """A coordinator's topic whose appends fail."""

    def __init__(self, topic: object, append: object) -> None:
        self._topic = topic
        self.append = append

    def __getattr__(self, name: str) -> object:
        return getattr(self._topic, name)
