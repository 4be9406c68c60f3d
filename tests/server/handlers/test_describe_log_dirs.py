"""DescribeLogDirs: what is in which directory, and how much room its disk has."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.faults import FOR_EVER
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.served_broker import ServedBroker, serving_broker, serving_broker_on


async def ask(
    served: ServedBroker, *asked: tuple[str, list[int]], version: int = 5
) -> list[DescribeLogDirsResult]:
    topics = tuple(DescribableLogDirTopic(topic=name, partitions=tuple(n)) for name, n in asked)
    request = DescribeLogDirsRequest(topics=topics or None)
    response = await served.call(request, version, DescribeLogDirsResponse)
    assert response.error_code == ErrorCode.NONE
    return list(response.results)


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_a_directory_is_described_in_every_version(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        await served.produce("orders")
        (result,) = await ask(served, version=version)
        size = served.log("orders").size_bytes
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(tmp_path))
    assert sizes(result) == {("orders", 0): size, ("orders", 1): 0}
    assert size > 0
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    for partition in result.topics[0].partitions:
        assert (partition.offset_lag, partition.is_future_key) == (0, False)


async def test_partitions_are_described_where_they_are(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving_broker(tmp_path, log_dirs=f"{first},{second}") as served:
        await served.create("orders", partitions=2)
        await served.create("users", partitions=2)
        results = await ask(served, ("orders", [0, 1, 77]), ("nowhere", [0]))
    assert [result.log_dir for result in results] == [str(first), str(second)]
    assert [sizes(result) for result in results] == [{("orders", 0): 0}, {("orders", 1): 0}]


async def test_a_relative_path_is_told_as_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_broker(Path("data")) as served:
        (result,) = await ask(served)
    assert result.log_dir == str(tmp_path / "data")


async def test_a_directory_out_of_service_is_said(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving_broker(tmp_path, log_dirs=f"{first},{second}") as served:
        await served.create("orders", partitions=2)
        served.broker.directories[1].go_offline("the disk failed")
        sound, failed = await ask(served)
    assert (sound.error_code, list(sizes(sound))) == (ErrorCode.NONE, [("orders", 0)])
    assert (failed.error_code, failed.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())


async def test_a_disk_that_does_not_tell_its_size_is_described_without(tmp_path: Path) -> None:
    files = FaultyFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        files.faults.fail("stat", errno.EIO, times=FOR_EVER)
        (result,) = await ask(served)
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert sizes(result) == {("orders", 0): 0}
