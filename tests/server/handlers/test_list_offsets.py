"""ListOffsets: special timestamps, leader epochs, every partition answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from tests.harness.served_broker import NOW_MS, ServedBroker, batch_of, serving_broker

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def ask(
    served: ServedBroker,
    *timestamps: int,
    version: int = 7,
    partitions: tuple[int, ...] = (0,),
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    asked = tuple(
        ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
        )
        for timestamp in timestamps
        for partition in partitions
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level if version >= 2 else 0,
        topics=(ListOffsetsTopic(name="orders", partitions=asked),),
    )
    response = await served.call(request, version, ListOffsetsResponse)
    (topic,) = response.topics
    assert topic.name == "orders"
    return list(topic.partitions)


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_latest_is_the_end_and_earliest_the_start(
    tmp_path: Path, version: int, isolation_level: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(7))
        epoch = served.log("orders").leader_epoch if version >= 4 else -1
        for timestamp, offset in ((LATEST, 7), (EARLIEST, 0)):
            (answer,) = await ask(
                served, timestamp, version=version, isolation_level=isolation_level
            )
            assert (answer.error_code, answer.offset) == (ErrorCode.NONE, offset)
            assert (answer.timestamp, answer.leader_epoch) == (-1, epoch)


async def test_a_timestamp_is_the_first_record_not_older(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        for timestamp, offset in ((0, 0), (NOW_MS, 0), (NOW_MS + 2, 2), (NOW_MS + 4, 4)):
            (answer,) = await ask(served, timestamp)
            assert (answer.offset, answer.timestamp) == (offset, NOW_MS + offset)


async def test_no_such_record_is_no_error(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        (empty,) = await ask(served, MAX_TIMESTAMP)
        await served.produce("orders", batch_of(5))
        (later,) = await ask(served, NOW_MS + 1000)
    for answer in (empty, later):
        assert answer.error_code == ErrorCode.NONE
        assert (answer.offset, answer.timestamp, answer.leader_epoch) == (-1, -1, -1)


async def test_the_largest_timestamp_can_be_asked_for_since_v7(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(5))
        await served.produce("orders", batch_of(2))
        (answer,) = await ask(served, MAX_TIMESTAMP)
        (too_old,) = await ask(served, MAX_TIMESTAMP, version=6)
    assert (answer.offset, answer.timestamp) == (4, NOW_MS + 4)
    assert too_old.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-4, 8, 2), (-5, 9, -1), (-6, 11, -1)])
async def test_without_tiered_storage_all_is_local_and_nothing_is_tiered(
    tmp_path: Path, timestamp: int, since: int, offset: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        served.log("orders").delete_records(Offset(2))
        for version in range(1, 12):
            (answer,) = await ask(served, timestamp, version=version)
            if version < since:
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            else:
                found = (answer.error_code, answer.offset, answer.timestamp)
                assert found == (ErrorCode.NONE, offset, -1)


async def test_a_negative_timestamp_that_nobody_defined_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        for timestamp in (-7, -100, -(2**63)):
            (answer,) = await ask(served, timestamp, version=11)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_every_partition_asked_for_is_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        answers = await ask(served, LATEST, partitions=(1, 5, -1, 0))
    assert [(a.partition_index, a.error_code) for a in answers] == [
        (1, ErrorCode.NONE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.NONE),
    ]


async def test_a_partition_asked_for_twice_is_refused_both_times(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        answers = await ask(served, LATEST, EARLIEST)
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(
    ("difference", "error_code"),
    [
        (-1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_wrong_leader_epoch_is_refused(
    tmp_path: Path, difference: int, error_code: ErrorCode
) -> None:
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        epoch = served.log("orders").leader_epoch + difference
        assert epoch >= 0
        (answer,) = await ask(served, LATEST, leader_epoch=epoch)
    assert answer.error_code == error_code


async def test_an_offset_comes_with_the_epoch_it_was_written_in_and_the_end_with_the_current_one(
    tmp_path: Path,
) -> None:
    """Kafka takes the first from the batch and the second from the partition."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(3))
        first = served.log("orders").leader_epoch
    async with serving_broker(tmp_path):
        pass
    async with serving_broker(tmp_path) as served:
        for timestamp, epoch in ((EARLIEST, first), (NOW_MS + 1, first), (LATEST, first + 2)):
            (answer,) = await ask(served, timestamp)
            assert answer.leader_epoch == epoch
        later = build_batch([Record(offset=0, timestamp=NOW_MS + 9, key=b"k", value=b"v")])
        await served.produce("orders", later)
        for timestamp, epoch in ((EARLIEST, first), (NOW_MS + 5, first + 2), (-3, first + 2)):
            (answer,) = await ask(served, timestamp)
            assert answer.leader_epoch == epoch


async def test_the_start_of_an_empty_log_has_the_current_epoch(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        (answer,) = await ask(served, EARLIEST)
        assert (answer.offset, answer.leader_epoch) == (0, served.log("orders").leader_epoch)
