"""TxnOffsetCommit: offsets that hold when a producer's transaction is committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import TransactionPartition
from server.coordination.transactions.transaction_table import TransactionEntry
from tests.harness.consumer_requests import beat, join_request
from tests.harness.group_requests import AT_ONCE
from tests.harness.offsets_world import committed
from tests.harness.served_broker import ServedBroker, serving_broker

VERSIONS = range(6)
ID = "copier"
FEW = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
"""Partitions of the topics of both coordinators: they are quickly made."""


async def initialized(served: ServedBroker) -> Producer:
    """A producer without a transaction."""
    broker = served.broker
    await broker.transactions.table.loads.loaded()
    given = await broker.transactions.init_producer_id(ID, 60_000)
    assert given.error_code is ErrorCode.NONE
    return given.producer


async def begun(served: ServedBroker, group: str = "g") -> Producer:
    """A producer whose transaction has the group's partition of `__consumer_offsets` in it."""
    broker, producer = served.broker, await initialized(served)
    await broker.groups.topic.ensure()
    place = TransactionPartition(OFFSETS_TOPIC, broker.groups.topic.partition_of(group))
    added = await broker.transactions.add_partitions(ID, producer, frozenset({place}))
    assert added.error_code is ErrorCode.NONE
    return producer


async def end(served: ServedBroker, producer: Producer, *, is_commit: bool) -> None:
    """End the transaction, and wait until its markers are there."""
    transactions = served.broker.transactions
    await transactions.end(ID, producer, is_commit=is_commit, bumps_epoch=False)
    entry = transactions.table.find(ID)
    assert isinstance(entry, TransactionEntry)
    while not entry.transaction.metadata.state.is_complete:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.001)


def topic(name: str, *partitions: int, metadata: str | None = None) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(
        name=name,
        partitions=tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=each, committed_offset=5 + each, committed_metadata=metadata
            )
            for each in partitions
        ),
    )


async def answered(
    served: ServedBroker,
    producer: Producer,
    *topics: TxnOffsetCommitRequestTopic,
    version: int = 3,
    group: str = "g",
    member_id: str = "",
    generation: int = -1,
) -> dict[tuple[str, int], ErrorCode]:
    """What is answered for each partition."""
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        member_id=member_id,
        topics=topics,
    )
    response = await served.call(request, version, TxnOffsetCommitResponse)
    return {
        (each.name, partition.partition_index): ErrorCode(partition.error_code)
        for each in response.topics
        for partition in each.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_hold_when_their_transaction_is_committed(
    tmp_path: Path, version: int, is_commit: bool
) -> None:
    async with serving_broker(tmp_path, **FEW) as served:
        await served.create("orders", 2)
        producer = await begun(served)

        codes = await answered(served, producer, topic("orders", 0, 1), version=version)

        assert codes == {("orders", 0): ErrorCode.NONE, ("orders", 1): ErrorCode.NONE}
        assert await committed(served) == {}
        await end(served, producer, is_commit=is_commit)
        assert await committed(served) == (
            {("orders", 0): 5, ("orders", 1): 6} if is_commit else {}
        )


async def test_what_is_wrong_with_a_partition_is_said_of_it_alone(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **FEW, offset_metadata_max_bytes="3") as served:
        await served.create("orders", 2)
        producer = await begun(served)
        assert await answered(
            served,
            producer,
            topic("orders", 0, 2, -1),
            topic("orders", 1, metadata="four"),
            topic("nowhere", 0),
        ) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_a_request_that_is_wrong_as_a_whole_commits_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **FEW) as served:
        await served.create("orders")
        producer = await begun(served)
        one = topic("orders", 0)

        async def refused(who: Producer = producer, **how: object) -> ErrorCode:
            (code,) = (await answered(served, who, one, **how)).values()  # type: ignore[arg-type]
            return code

        assert await refused(group="") == ErrorCode.INVALID_GROUP_ID
        assert await refused(generation=1) == ErrorCode.ILLEGAL_GENERATION
        assert await refused(Producer(producer.id, 7)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await refused(Producer(77, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await end(served, producer, is_commit=True)
        assert await refused(version=3) == ErrorCode.INVALID_TXN_STATE
        assert await refused(version=4) == ErrorCode.TRANSACTION_ABORTABLE
        assert len(served.broker.groups.table) == 0


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_producers_that_do_not_know_of_loading_are_told_to_ask_again(
    tmp_path: Path, version: int, expected: ErrorCode
) -> None:
    async with serving_broker(tmp_path, **FEW) as served:
        await served.create("orders")
        producer = await begun(served)
        served.broker.groups.table.loads._loading.update(range(50))
        codes = await answered(served, producer, topic("orders", 0), version=version)
        assert codes == {("orders", 0): expected}


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("m", 2, ErrorCode.NONE),
        ("m", 7, ErrorCode.ILLEGAL_GENERATION),
        ("n", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ],
)
async def test_a_member_of_the_consumer_protocol_commits_by_its_epoch(
    tmp_path: Path, member_id: str, epoch: int, expected: ErrorCode
) -> None:
    async with serving_broker(tmp_path, **FEW | AT_ONCE) as served:
        await served.create("t", 2)
        joined = await beat(served, join_request())
        assert joined.member_epoch == 2
        producer = await begun(served, "group")
        codes = await answered(
            served,
            producer,
            topic("t", 0),
            group="group",
            member_id=member_id,
            generation=epoch,
        )
        assert codes == {("t", 0): expected}


async def test_from_v5_on_the_partition_need_not_be_in_the_transaction(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **FEW) as served:
        await served.create("orders")
        producer = await initialized(served)
        for version, expected in ((4, ErrorCode.TRANSACTION_ABORTABLE), (5, ErrorCode.NONE)):
            codes = await answered(served, producer, topic("orders", 0), version=version)
            assert codes == {("orders", 0): expected}

        await end(served, producer, is_commit=True)

        assert await committed(served) == {("orders", 0): 5}


async def test_a_late_producer_adds_nothing(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **FEW) as served:
        await served.create("orders")
        late = await initialized(served)
        await initialized(served)
        codes = await answered(served, late, topic("orders", 0), version=5)
        assert codes == {("orders", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
