"""AlterReplicaLogDirs: logs stay where they are. Codes are Kafka 4.3.1's, except for a real move."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import ServedBroker, serving_broker

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def move(
    served: ServedBroker, *asked: tuple[Path | str, str, list[int]], version: int = 2
) -> dict[tuple[str, int], int]:
    request = AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path=str(path),
                topics=(AlterReplicaLogDirTopic(name=name, partitions=tuple(numbers)),),
            )
            for path, name, numbers in asked
        )
    )
    response = await served.call(request, version, AlterReplicaLogDirsResponse)
    answers = [
        ((topic.topic_name, partition.partition_index), partition.error_code)
        for topic in response.results
        for partition in topic.partitions
    ]
    assert len(dict(answers)) == len(answers), "a partition was answered twice"
    return dict(answers)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_log_that_is_there_already_stays(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        asked = (tmp_path, "orders", [0, 1])
        stays = {("orders", 0): 0, ("orders", 1): 0}
        assert await move(served, asked, version=version) == stays
        assert await move(served) == {}
        assert await move(served, (tmp_path, "orders", [])) == {}


async def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        answers = await move(served, (tmp_path, "nowhere", [0]), (tmp_path, "orders", [7, -1]))
    assert answers == {("nowhere", 0): UNKNOWN, ("orders", 7): UNKNOWN, ("orders", -1): UNKNOWN}


@pytest.mark.parametrize("path", ["/nowhere", "nowhere", "", "{held}/", "{held}/../{name}"])
async def test_a_directory_that_is_none_of_this_brokers_is_not_found(
    tmp_path: Path, path: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders")
        target = path.format(held=tmp_path, name=tmp_path.name)
        answers = await move(served, (target, "orders", [0]), (target, "nowhere", [0]))
    not_found = ErrorCode.LOG_DIR_NOT_FOUND
    assert answers == {("orders", 0): not_found, ("nowhere", 0): not_found}


async def test_of_a_partition_that_is_named_twice_the_last_directory_counts(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=2)
        asked = [(str(tmp_path), "orders", [0, 0]), ("/nowhere", "orders", [0, 1])]
        not_found = ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(served, *asked) == {("orders", 0): not_found, ("orders", 1): not_found}
        asked.reverse()
        assert await move(served, *asked) == {("orders", 0): 0, ("orders", 1): not_found}


async def test_a_log_does_not_move_between_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving_broker(tmp_path, log_dirs=f"{first},{second}") as served:
        await served.create("orders", partitions=2)
        here, there = [await move(served, (path, "orders", [0, 1])) for path in (first, second)]
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert sorted([here["orders", 0], there["orders", 0]]) == [ErrorCode.NONE, refused]
    assert here["orders", 0] == there["orders", 1]
