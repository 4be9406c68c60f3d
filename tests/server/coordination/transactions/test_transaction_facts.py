"""What a scrape shows of the transactions that a broker coordinates."""

from __future__ import annotations

import asyncio
from pathlib import Path

from protocol.wire.error_codes import ErrorCode
from server.coordination.transactions.metadata import TransactionPartition
from server.coordination.transactions.transaction_facts import transaction_facts
from tests.harness.served_broker import ServedBroker, serving_broker

PROPERTIES = {"transaction_state_log_num_partitions": "2"}
ORDERS = frozenset({TransactionPartition("orders", 0)})


async def begin(served: ServedBroker, transactional_id: str, timeout_ms: int = 60_000) -> None:
    transactions = served.broker.transactions
    told = await transactions.init_producer_id(transactional_id, timeout_ms)
    added = await transactions.add_partitions(transactional_id, told.producer, ORDERS)
    assert added.error_code is ErrorCode.NONE


async def test_ids_are_counted_by_state_and_the_oldest_open_transaction_by_its_age(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 1)
        transactions = served.broker.transactions
        assert transaction_facts(transactions).oldest_open_ms == 0

        await begin(served, "one")
        await asyncio.sleep(0.02)
        await begin(served, "other")
        await transactions.init_producer_id("idle", 60_000)
        facts = transaction_facts(transactions)

        assert facts.ids_by_state["Ongoing"] == 2
        assert facts.ids_by_state["Empty"] == 1
        assert facts.ids_by_state["PrepareCommit"] == 0
        assert facts.oldest_open_ms >= 20


async def test_ended_transactions_are_counted_by_what_ended_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **PROPERTIES) as served:
        await served.create("orders", 1)
        transactions = served.broker.transactions
        for is_commit in (True, False, True):
            name = f"tx-{is_commit}"
            told = await transactions.init_producer_id(name, 60_000)
            await transactions.add_when_possible(name, told.producer, ORDERS)
            await (
                await transactions.end(name, told.producer, is_commit=is_commit, bumps_epoch=False)
            )
        await begin(served, "slow", timeout_ms=1)
        async with asyncio.timeout(10):
            while transaction_facts(transactions).ended_by_outcome["abort"] < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        facts = transaction_facts(transactions)
        assert facts.ended_by_outcome == {"commit": 2, "abort": 2}
        assert facts.timed_out == 1
