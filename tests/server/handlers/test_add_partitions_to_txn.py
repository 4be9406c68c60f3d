"""AddPartitionsToTxn: all partitions of a transaction or none; each is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.producer import Producer
from tests.harness.served_broker import ServedBroker, serving_broker
from tests.harness.transaction_requests import TX, add, described, init

NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_in_the_transaction_once_it_is_said(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 3)
        producer = await init(served)
        assert await add(served, producer, {"t": (0, 2)}, version) == {
            ("t", 0): NONE,
            ("t", 2): NONE,
        }
        state = await described(served)
    assert state.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", (0, 2))]


async def test_if_one_partition_cannot_be_added_none_is(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        producer = await init(served)
        topics = {"t": (0, 1), "nowhere": (0,), "__consumer_offsets": (0,)}
        assert await add(served, producer, topics) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("__consumer_offsets", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert (await described(served)).transaction_state == "Empty"


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
async def test_who_was_replaced_hears_so_in_terms_of_its_version(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        old = await init(served)
        await init(served)
        assert await add(served, old, {"t": (0,)}, version) == {("t", 0): code}


async def test_a_transactional_id_that_nobody_has_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t")
        answered = await add(served, Producer(7, 0), {"t": (0,)})
    assert answered == {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def codes(
    served: ServedBroker, version: int, *transactions: AddPartitionsToTxnTransaction
) -> list[list[int]]:
    """By transaction and partition."""
    request = AddPartitionsToTxnRequest(transactions=transactions)
    answer = await served.call(request, version, AddPartitionsToTxnResponse)
    assert answer.error_code == NONE
    return [
        [
            each.partition_error_code
            for topic in result.topic_results
            for each in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    ]


def asked(
    producer: Producer, *partitions: int, transactional_id: str = TX, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=(AddPartitionsToTxnTopic(name="t", partitions=partitions),),
    )


@pytest.mark.parametrize("version", [4, 5])
async def test_several_transactions_are_answered_each_on_its_own(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("t", 2)
        producer = await init(served)
        other = asked(producer, 0, transactional_id="other")
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await codes(served, version, asked(producer, 0), other) == [[NONE], [mapping]]

        verified = asked(producer, 0, 1, verify_only=True)
        assert await codes(served, version, verified) == [[NONE, ErrorCode.TRANSACTION_ABORTABLE]]
        assert [topic.partitions for topic in (await described(served)).topics] == [(0,)]
