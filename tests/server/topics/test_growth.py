"""Adding partitions to a topic: all of them or none, despite crashes and failing disks."""

from __future__ import annotations

import contextlib
import errno
import json
from pathlib import Path
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from server.topics.keys import PLACED, placement
from server.topics.topic import Topic, TopicRefused
from storage.files.errors import StorageError
from storage.files.paths import topic_directory
from tests.harness.faults import FOR_EVER
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world, opened


async def grow(world: World, count: int) -> Topic:
    grown = await world.topics.add_partitions("orders", count)
    assert isinstance(grown, Topic), grown
    assert world.topics.get("orders") is world.topics.by_id(grown.id) is grown
    assert len(grown.logs()) == count
    return grown


async def refused(world: World, count: int) -> TopicRefused:
    answer = await world.topics.add_partitions("orders", count)
    assert isinstance(answer, TopicRefused), answer
    return answer


def orders(world: World) -> Topic:
    topic = world.topics.get("orders")
    assert topic is not None
    return topic


def ends(topic: Topic) -> list[int]:
    """Returns the end offset of each log, after checking that all are online."""
    assert len(topic.logs()) == len(topic.partitions)
    return [log.log_end_offset for log in topic.logs()]


async def test_new_partitions_are_empty_and_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        append(await world.create("orders", 2))
        grown = await grow(world, 4)
        assert ends(grown) == [1, 0, 0, 0]
        append(grown, partition=3)

    async with opened(tmp_path) as world:
        assert ends(orders(world)) == [1, 0, 0, 1]
        assert ends(await grow(world, 5)) == [1, 0, 0, 1, 0]


async def test_new_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b") as world:
        await world.create("orders", 1)
        grown = await grow(world, 6)
        counts = [directory.logs_count for directory in world.directories]
    assert counts == [3, 3]
    assert [log.topic_partition.partition for log in grown.logs()] == list(range(6))
    assert all(log.config is grown.config for log in grown.logs())


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic orders currently has 2 partition(s); 1 would not be an increase."),
        (-1, "The topic orders currently has 2 partition(s); -1 would not be an increase."),
        (101, "101 partitions: a topic has at most 100 (max.topic.partitions)."),
    ],
)
async def test_a_count_that_is_not_an_increase_is_refused(
    tmp_path: Path, count: int, message: str
) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 2)
        refusal = await refused(world, count)
        assert (refusal.error_code, refusal.message) == (ErrorCode.INVALID_PARTITIONS, message)
        assert orders(world) is topic


async def test_partitions_cannot_be_added_to_a_missing_topic(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        assert (await refused(world, 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_adding_partitions_with_validate_only_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 1)
        revision = world.store.revision
        planned = await world.topics.add_partitions("orders", 3, validate_only=True)
        assert isinstance(planned, Topic)
        assert (len(planned.partitions), len(planned.logs())) == (3, 1)
        assert (orders(world), world.store.revision) == (topic, revision)


async def test_partitions_can_be_added_to_a_topic_with_a_lost_partition(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b") as world:
        await world.create("orders", 2)

    async with opened(tmp_path, "a") as world:
        grown = await world.topics.add_partitions("orders", 3)
        assert isinstance(grown, Topic)
        assert [log.topic_partition.partition for log in grown.logs()] == [0, 2]

    async with opened(tmp_path, "a", "b") as world:
        assert ends(orders(world)) == [0, 0, 0]


async def test_unknown_files_are_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 1)
        await world.topics._settling.finish()
        stray = tmp_path / "data" / topic_directory("orders", topic.id) / "2"
        make(stray / "kept")

        refusal = await refused(world, 3)

        assert refusal.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-2" in refusal.message
        assert is_there(stray / "kept")
        assert orders(world) is topic


def make(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")


def is_there(path: Path) -> bool:
    return path.exists()


# Failing disks and crashes.


async def test_wherever_the_disk_fails_all_partitions_or_none_are_added_and_a_retry_works() -> None:
    operations = await count_operations()
    assert operations > 8
    for number in range(1, 2 * operations):
        disk = MemoryFileSystem()
        world = await open_world(disk, "/metadata,/logs")
        await world.create("orders", 2)
        disk.faults.fail_nth(number, errno.EIO)
        answer = None
        with contextlib.suppress(StorageError):
            answer = await world.topics.add_partitions("orders", 4)
        disk.faults.heal()
        counts = {4} if isinstance(answer, Topic) else {2, 4} if answer is None else {2}
        assert len(orders(world).partitions) in counts
        with contextlib.suppress(StorageError):
            await world.close()

        after = await open_world(disk, "/metadata,/logs")
        assert len(ends(orders(after))) in counts, number
        assert ends(await grow(after, 6)) == [0] * 6
        await after.close()


async def count_operations() -> int:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/metadata,/logs")
    await world.create("orders", 2)
    count = 0

    def one_more(*_: object) -> None:
        nonlocal count
        count += 1

    disk.on_operation = one_more
    await grow(world, 4)
    return count


async def test_the_next_start_removes_remains_that_an_undo_could_not(tmp_path: Path) -> None:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/metadata,/logs")
    topic = await world.create("orders", 1)
    disk.faults.fail("open", errno.EIO, path="/2/")
    disk.faults.fail("remove", errno.EIO, times=FOR_EVER)
    await refused(world, 3)
    disk.faults.heal()
    await world.close()
    remains = f"/logs/{topic_directory('orders', topic.id)}/1"
    assert disk.exists(remains)

    after = await open_world(disk, "/metadata,/logs")
    assert ends(orders(after)) == [0]
    assert not disk.exists(remains)
    assert ends(await grow(after, 3)) == [0, 0, 0]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_crash_leaves_a_topic_as_it_was_or_grown_and_never_loses_what_was_written(
    seed: int,
) -> None:
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a,/b")
    await world.create("orders", 1)
    possible = {1}
    states: list[tuple[MemoryFileSystem, set[int]]] = []
    disk.on_operation = lambda *_: states.extend(
        (disk.after_crash(loss, random), set(possible)) for loss in Loss
    )

    for count in (2, 5):
        possible.add(count)
        grown = await grow(world, count)
        possible = {count}
        append(grown, partition=count - 1)
        grown.logs()[count - 1].sync()
    await world.close()

    assert len(states) >= 60
    for left, counts in states:
        after = await open_world(left, "/a,/b")
        topic = orders(after)
        assert len(ends(topic)) in counts
        await grow(after, 7)
        await after.close()
    last = await open_world(disk, "/a,/b")
    assert ends(orders(last)) == [0, 1, 0, 0, 1]
    stored = (await last.store.range("/topics/")).entries
    assert json.loads(stored[0].value)["partitions"] == 5
    placed = (await last.node_store.range(PLACED)).entries
    assert [len(placement(each.value)[1]) for each in placed] == [5]
