"""OffsetForLeaderEpoch: each start of the broker is an epoch, and each epoch has an end (KIP-320)."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker


async def ask(
    served: ServedBroker,
    leader_epoch: int,
    *,
    version: int = 4,
    partitions: tuple[int, ...] = (0,),
    current_leader_epoch: int = -1,
) -> list[EpochEndOffset]:
    asked = tuple(
        OffsetForLeaderPartition(
            partition=partition,
            current_leader_epoch=current_leader_epoch,
            leader_epoch=leader_epoch,
        )
        for partition in partitions
    )
    topics = (OffsetForLeaderTopic(topic="orders", partitions=asked),)
    request = OffsetForLeaderEpochRequest(topics=topics)
    response = await served.call(request, version, OffsetForLeaderEpochResponse)
    (topic,) = response.topics
    assert topic.topic == "orders"
    return list(topic.partitions)


def answer(epoch: int, end_offset: int) -> EpochEndOffset:
    return EpochEndOffset(error_code=0, partition=0, leader_epoch=epoch, end_offset=end_offset)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_epoch_ends_where_the_next_begins_and_the_current_one_at_the_log_end(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        first = served.log("orders").leader_epoch
    async with serving_broker(tmp_path) as served:
        await served.produce("orders", batch_of(2))
        assert served.log("orders").leader_epoch == first + 1
        assert await ask(served, first, version=version) == [answer(first, 3)]
        assert await ask(served, first + 1, version=version) == [answer(first + 1, 5)]


async def test_the_current_epoch_is_known_before_its_first_append(tmp_path: Path) -> None:
    """A consumer may have it from the metadata; -1 would make it reset its position."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        first = served.log("orders").leader_epoch
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        assert await ask(served, first + 2) == [answer(first + 2, 3)]
        assert await ask(served, first + 1) == [answer(first, 3)]
        assert await ask(served, first) == [answer(first, 3)]


@pytest.mark.parametrize("epoch", [-1, 1 << 20])
async def test_an_epoch_that_cannot_be_known_is_no_error(tmp_path: Path, epoch: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        assert await ask(served, epoch) == [answer(-1, -1)]


async def test_a_wrong_current_epoch_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        epoch = served.log("orders").leader_epoch
        for given, code in (
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch, ErrorCode.NONE),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            (found,) = await ask(served, epoch, current_leader_epoch=given)
            assert found.error_code == code
            assert (found.end_offset >= 0) == (code == ErrorCode.NONE)


async def test_every_partition_asked_for_is_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        answers = await ask(served, 0, partitions=(1, 5, 0))
    assert [(each.partition, each.error_code) for each in answers] == [
        (1, ErrorCode.NONE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.NONE),
    ]
