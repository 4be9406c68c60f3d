"""The split of an earlier release's store into the cluster's and the node's facts, despite crashes."""

from __future__ import annotations

import json
from random import Random

import pytest

from server.topics.keys import DELETED, PLACED, TOPICS, UNSETTLED, placement
from server.topics.migration import CREATING
from server.topics.topic import OfflineLog, Topic
from storage.files.paths import topic_id_text
from tests.harness.earlier_store import make_earlier
from tests.harness.examples import not_quick
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world

A, BOTH = "/a", "/a,/b"
CONFIG = "/broker_configs/1"


async def earlier(*, marks: dict[str, str] | None = None) -> MemoryFileSystem:
    """Returns a disk with topics as an earlier release has left them after a clean stop."""
    disk = MemoryFileSystem()
    world = await open_world(disk, BOTH)
    for name, count in (("orders", 3), ("users", 1)):
        topic = await world.create(name, count, retention_ms="5")
        for number in range(count):
            append(topic, partition=number)
    ids = {topic.name: topic_id_text(topic.id) for topic in world.topics.all()}
    await world.close()
    texts = {key.format(**ids): value for key, value in (marks or {}).items()}
    make_earlier(disk, A, texts)
    return disk


async def facts(world: World) -> dict[str, object]:
    """Returns what both stores say about topics."""
    topics = {
        entry.key.removeprefix(TOPICS): json.loads(entry.value)["partitions"]
        for entry in (await world.store.range(TOPICS)).entries
    }
    placed = dict(placement(each.value) for each in (await world.node_store.range(PLACED)).entries)
    names = {each.directory_id: each.path for each in world.directories}
    return {
        "topics": topics,
        "placed": {name: [names[holder] for holder in holders] for name, holders in placed.items()},
    }


MIGRATED = {
    "topics": {"orders": 3, "users": 1},
    "placed": {"orders": ["/a", "/b", "/a"], "users": ["/b"]},
}


def ends(topic: Topic | None) -> list[int]:
    assert topic is not None
    assert not any(isinstance(log, OfflineLog) for log in topic.partitions)
    return [log.log_end_offset for log in topic.logs()]


async def check(world: World) -> None:
    assert ends(world.topics.get("orders")) == [1, 1, 1]
    assert ends(world.topics.get("users")) == [1]
    assert {topic.config.retention_ms for topic in world.topics.all()} == {5}
    assert await facts(world) == MIGRATED


async def test_the_directories_of_logs_move_to_the_node_s_store_once() -> None:
    disk = await earlier(marks={CONFIG: '{"log.cleaner.threads":"2"}', "/other": "stays"})
    revisions = (0, 0)
    for _ in range(2):
        world = await open_world(disk, BOTH)
        await check(world)
        revisions = world.store.revision, world.node_store.revision
        node = {entry.key: entry.value for entry in (await world.node_store.range("/")).entries}
        assert node[CONFIG] == '{"log.cleaner.threads":"2"}'
        cluster = [entry.key for entry in (await world.store.range("/")).entries]
        assert cluster == ["/other", "/topics/orders", "/topics/users"]
        await world.close()
    world = await open_world(disk, BOTH)
    assert (world.store.revision, world.node_store.revision) == revisions
    await world.close()


async def test_a_growth_that_was_not_acknowledged_is_not_part_of_the_topic() -> None:
    disk = await earlier(marks={CREATING + "{orders}": "2", "/unsettled/{orders}/2": ""})
    path = next(name for name in disk.list(A) if name.startswith("orders"))
    disk.remove_tree(f"{A}/{path}/2")
    world = await open_world(disk, BOTH)
    assert ends(world.topics.get("orders")) == [1, 1]
    await world.topics._settling.finish()
    assert await facts(world) == {
        "topics": {"orders": 2, "users": 1},
        "placed": {"orders": ["/a", "/b"], "users": ["/b"]},
    }
    assert (await world.node_store.range(UNSETTLED)).entries == ()
    await world.close()


async def test_a_growth_with_records_was_acknowledged_whatever_the_store_says() -> None:
    disk = await earlier(marks={CREATING + "{orders}": "1"})
    world = await open_world(disk, BOTH)
    await check(world)
    await world.close()


async def test_a_topic_whose_creation_was_not_acknowledged_gets_its_missing_logs() -> None:
    disk = await earlier(marks={CREATING + "{users}": ""})
    (path,) = [name for name in disk.list("/b") if name.startswith("users")]
    disk.remove_tree(f"/b/{path}")
    world = await open_world(disk, BOTH)
    assert ends(world.topics.get("users")) == [0]
    assert ends(world.topics.get("orders")) == [1, 1, 1]
    await world.close()


async def test_deletions_that_were_under_way_continue() -> None:
    gone = "A" * 21 + "Q"
    disk = await earlier(marks={DELETED + gone: '{"name":"gone"}'})
    disk.make_directory(f"/b/gone.{gone}")
    world = await open_world(disk, BOTH)
    await check(world)
    await world.topics._deletion.finish()
    assert not disk.exists(f"/b/gone.{gone}")
    assert (await world.node_store.range(DELETED)).entries == ()
    await world.close()


async def test_facts_of_an_attempt_before_an_earlier_release_ran_again_are_dropped() -> None:
    disk = await earlier()
    before = disk.after_crash(Loss.NOTHING, Random(0))
    world = await open_world(disk, BOTH)
    await world.create("newer")
    await world.close()
    # The node's store was written, the cluster's was not.
    for name in disk.list("/a/node"):
        before.make_directory("/a/node")
        before.write_bytes(f"/a/node/{name}", disk.read_bytes(f"/a/node/{name}"))
    world = await open_world(before, BOTH)
    await check(world)
    await world.close()


@not_quick
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crash_at_any_operation_of_the_split_loses_nothing(seed: int) -> None:
    random, disk = Random(seed), await earlier(marks={"/unsettled/{users}/0": ""})
    states: list[MemoryFileSystem] = []

    def crash(*_: object) -> None:
        states.extend(disk.after_crash(loss, random) for loss in Loss)
        states.append(disk.after_kill())

    disk.on_operation = crash
    world = await open_world(disk, BOTH)
    await world.close()
    assert len(states) > 40
    for state in states:
        for _ in range(2):
            after = await open_world(state, BOTH)
            await check(after)
            await after.close()
