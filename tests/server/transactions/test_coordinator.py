"""The coordinator of transactions: what is told is durable, and is carried on after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.error_codes import ErrorCode
from server.producer import Producer
from server.transactions.coordinator import TransactionCoordinator
from server.transactions.metadata import TransactionPartition, TransactionState
from server.transactions.transaction import Outcome
from tests.harness.served_broker import serving_broker

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
