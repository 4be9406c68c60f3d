"""Fetch, ListOffsets and DescribeProducers where producers have transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from protocol.messages.fetch import AbortedTransaction, FetchResponse, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from server.handlers.list_offsets import LATEST, MAX_TIMESTAMP
from tests.harness.served_broker import (
    ServedBroker,
    fetch_request,
    only_fetched,
    records_in,
    serving_broker,
)
from tests.harness.served_transactions import ServedTransactions

COMMITTED = 1
LONG_MS = 30_000


@asynccontextmanager
async def transacting(tmp_path: Path) -> AsyncIterator[tuple[ServedBroker, ServedTransactions]]:
    """A broker, and a producer whose transaction with `orders` has begun."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        transactions = ServedTransactions(served, "tx", "orders")
        await transactions.begin()
        yield served, transactions


async def fetch(served: ServedBroker, isolation_level: int, version: int = 12) -> PartitionData:
    request = fetch_request([("orders", 0, 0)], isolation_level=isolation_level)
    return only_fetched(await served.call(request, version, FetchResponse))


@pytest.mark.parametrize("version", range(4, 13))
async def test_fetch_tells_what_to_skip_to_whoever_wants_committed_records(
    tmp_path: Path, version: int
) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"a", b"1"))
        await transactions.end(is_commit=False)
        await transactions.begin()
        await transactions.send((b"a", b"2"))
        committed = await fetch(served, COMMITTED, version)
        all_records = await fetch(served, 0, version)

    producer_id = transactions.producer.id
    aborted = AbortedTransaction(producer_id=producer_id, first_offset=0)
    assert committed.aborted_transactions == (aborted,)
    assert (committed.last_stable_offset, committed.high_watermark) == (2, 3)
    assert [record.offset for record in records_in(committed)] == [0, 1]
    assert all_records.aborted_transactions is None
    assert [record.offset for record in records_in(all_records)] == [0, 1, 2]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_waiting_fetch_is_answered_when_the_transaction_is_decided(
    tmp_path: Path, is_commit: bool
) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"a", b"1"))
        request = fetch_request(
            [("orders", 0, 0)], isolation_level=COMMITTED, min_bytes=1, max_wait_ms=LONG_MS
        )
        waiting = asyncio.ensure_future(served.call(request, 12, FetchResponse))
        async with asyncio.timeout(30):
            while not served.broker.fetch_waiters.parked_count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await transactions.send((b"a", b"2"))
        assert not waiting.done()

        await transactions.end(is_commit=is_commit)

        async with asyncio.timeout(30):
            data = only_fetched(await waiting)
    assert [record.offset for record in records_in(data)] == [0, 1, 2]
    assert bool(data.aborted_transactions) is not is_commit


@pytest.mark.parametrize(("isolation_level", "end_offset"), [(0, 3), (COMMITTED, 2)])
async def test_the_end_of_committed_records_is_the_last_stable_offset(
    tmp_path: Path, isolation_level: int, end_offset: int
) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"a", b"1"))
        await transactions.end(is_commit=True)
        await transactions.begin()
        await transactions.send((b"a", b"2"))
        assert await list_offset(served, LATEST, isolation_level) == end_offset


async def test_the_youngest_record_is_looked_for_among_committed_ones(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"a", b"1"))
        assert await list_offset(served, MAX_TIMESTAMP, 0) == 0
        assert await list_offset(served, MAX_TIMESTAMP, COMMITTED) == -1


async def list_offset(served: ServedBroker, timestamp: int, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=(ListOffsetsTopic(name="orders", partitions=(asked,)),),
    )
    response = await served.call(request, 7, ListOffsetsResponse)
    return response.topics[0].partitions[0].offset


async def test_producers_are_described_with_the_transaction_they_have_open(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as (served, transactions):
        await transactions.send((b"a", b"1"))
        await transactions.end(is_commit=True)
        await transactions.begin()
        await transactions.send((b"a", b"2"))
        request = DescribeProducersRequest(
            topics=(TopicRequest(name="orders", partition_indexes=(0,)),)
        )
        response = await served.call(request, 0, DescribeProducersResponse)
    (producer,) = response.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (
        transactions.producer.id,
        2,
    )
    assert producer.coordinator_epoch >= 0
