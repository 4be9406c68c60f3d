"""Requests of a transactional producer, each on a new connection."""

from __future__ import annotations

import asyncio

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from tests.harness.served_broker import ServedBroker

TX = "tx"


async def init(served: ServedBroker, *, timeout_ms: int = 60_000) -> Producer:
    """Initialise a producer; retry while the previous transaction is not complete, as clients do."""
    request = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=timeout_ms)
    while True:
        answer = await served.call(request, 4, InitProducerIdResponse)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert answer.error_code == ErrorCode.NONE
            return Producer(answer.producer_id, answer.producer_epoch)
        await asyncio.sleep(0.001)


async def add(
    served: ServedBroker, producer: Producer, topics: dict[str, tuple[int, ...]], version: int = 3
) -> dict[tuple[str, int], ErrorCode]:
    """Add partitions. Returns the error code of each."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TX,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ),
    )
    answer = await served.call(request, version, AddPartitionsToTxnResponse)
    return {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


async def add_offsets(
    served: ServedBroker, producer: Producer, group_id: str, version: int = 3
) -> ErrorCode:
    request = AddOffsetsToTxnRequest(
        transactional_id=TX,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    return ErrorCode((await served.call(request, version, AddOffsetsToTxnResponse)).error_code)


async def end(
    served: ServedBroker, producer: Producer, *, is_commit: bool = True, version: int = 3
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=TX,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )
    return await served.call(request, version, EndTxnResponse)


async def described(served: ServedBroker, transactional_id: str = TX) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    answer = await served.call(request, 0, DescribeTransactionsResponse)
    (state,) = answer.transaction_states
    return state


async def until_state(served: ServedBroker, title: str) -> None:
    """Wait until the transaction is in this state."""
    async with asyncio.timeout(10):
        while (await described(served)).transaction_state != title:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
