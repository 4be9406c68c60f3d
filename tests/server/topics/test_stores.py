"""Opening the cluster's and the node's store: nothing is lost without a word."""

from __future__ import annotations

import pytest

from storage.files.errors import MissingNodeMetadata
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.topics_world import append, open_world


async def written() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    world = await open_world(disk, "/data")
    append(await world.create("orders", 2), partition=1)
    await world.close()
    disk.remove_tree("/data/node")
    return disk


async def test_a_missing_node_s_store_is_a_stop_that_says_what_to_do() -> None:
    disk = await written()
    for _ in range(2):
        with pytest.raises(
            MissingNodeMetadata, match="/data/node is missing, but there are topics"
        ):
            await open_world(disk, "/data")
        disk = disk.after_kill()
        assert not disk.exists("/data/node")


async def test_an_empty_directory_in_its_place_lets_the_broker_find_the_logs() -> None:
    disk = await written()
    disk.make_directory("/data/node")
    for _ in range(2):
        world = await open_world(disk, "/data")
        (topic,) = world.topics.all()
        assert [log.log_end_offset for log in topic.logs()] == [0, 1]
        await world.close()


async def test_a_broker_without_topics_starts_without_a_node_s_store() -> None:
    disk = MemoryFileSystem()
    await (await open_world(disk, "/data")).close()
    disk.remove_tree("/data/node")
    await (await open_world(disk, "/data")).close()
    assert disk.exists("/data/node")
