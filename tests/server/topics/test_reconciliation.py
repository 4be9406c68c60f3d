"""Each way in which a crash, damage or a restored backup may leave the two stores and the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from server.metadata.store import Delete, Put
from server.topics.keys import PLACED, TOPICS, UNSETTLED, placed_json, placement, unsettled_key
from server.topics.topic import OfflineLog, Topic
from storage.files.errors import StorageError
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from tests.harness.topics_world import World, append, opened


async def settled(world: World, name: str = "orders", count: int = 2) -> Topic:
    topic = await world.create(name, count)
    await world.topics._settling.finish()
    return topic


def found(world: World, name: str = "orders") -> Topic:
    topic = world.topics.get(name)
    assert topic is not None
    return topic


def ends(topic: Topic) -> list[int | str]:
    """Returns the end of each log, or why it is offline."""
    return [
        log.offline_reason if isinstance(log, OfflineLog) else log.log_end_offset
        for log in topic.partitions
    ]


async def forget_topic(world: World, topic: Topic) -> None:
    await world.store.txn((), [Delete(key=TOPICS + topic.name)])


async def forget_placement(world: World, topic: Topic) -> None:
    await world.node_store.txn((), [Delete(key=PLACED + topic_id_text(topic.id))])


async def set_count(world: World, topic: Topic, count: int) -> None:
    entry = await world.store.get(TOPICS + topic.name)
    assert entry is not None
    content = json.loads(entry.value) | {"partitions": count}
    await world.store.txn((), [Put(key=entry.key, value=json.dumps(content))])


async def set_unsettled(world: World, topic: Topic, first: int) -> None:
    await world.node_store.txn((), [Put(key=unsettled_key(topic, first), value="")])


async def placed(world: World) -> dict[str, int]:
    """Returns how many partitions of each topic are placed."""
    entries = (await world.node_store.range(PLACED)).entries
    return {name: len(holders) for name, holders in (placement(each.value) for each in entries)}


def topic_path(path: Path, topic: Topic) -> Path:
    return path / f"{topic.name}.{topic_id_text(topic.id)}"


# A placement without its topic.


async def test_a_creation_that_was_cut_short_before_the_topic_existed_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world)
        await set_unsettled(world, topic, 0)
        await forget_topic(world, topic)

    async with opened(tmp_path) as world:
        assert world.topics.all() == []
        assert await placed(world) == {}
        assert (await world.node_store.range(UNSETTLED)).entries == ()
    assert not topic_path(tmp_path / "data", topic).exists()


@pytest.mark.parametrize("is_settled", [True, False])
async def test_a_lost_topic_is_put_back_and_nothing_of_it_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_settled: bool
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world)
        append(topic, partition=1)
        if not is_settled:
            await set_unsettled(world, topic, 0)
        await forget_topic(world, topic)

    for _ in range(2):
        async with opened(tmp_path) as world:
            assert ends(found(world)) == [0, 1]
            assert found(world).id == topic.id
            assert found(world).config.retention_ms == found(world).config.retention_bytes == -1
            assert not found(world).config.is_compacted
    assert caplog.text.count("has lost this topic with its configuration") == 1


async def test_a_lost_topic_without_records_is_put_back_if_its_creation_was_completed(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        await forget_topic(world, await settled(world))

    async with opened(tmp_path) as world:
        assert ends(found(world)) == [0, 0]


async def test_a_lost_topic_whose_name_is_in_use_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world, "or.ders")
        append(topic)
        await forget_topic(world, topic)
        # As if the cluster's store had been restored, and a topic created in it.
        del world.topics._by_name["or.ders"], world.topics._names_by_key["or_ders"]
        await settled(world, "or_ders", 1)

    async with opened(tmp_path) as world:
        assert [each.name for each in world.topics.all()] == ["or_ders"]
        assert await placed(world) == {"or.ders": 2, "or_ders": 1}
    assert "they are left alone" in caplog.text
    assert topic_path(tmp_path / "data", topic).exists()


async def test_a_creation_is_decided_once_all_of_its_directories_are_in_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        await set_unsettled(world, topic, 0)
        await forget_topic(world, topic)

    async with opened(tmp_path, "a") as world:
        assert world.topics.all() == []
        assert await placed(world) == {"orders": 2}
        assert len((await world.node_store.range(UNSETTLED)).entries) == 1
    assert topic_path(tmp_path / "a", topic).exists()
    assert "cannot tell yet whether it was created" in caplog.text

    async with opened(tmp_path, "a", "b") as world:
        assert await placed(world) == {}
    assert not topic_path(tmp_path / "a", topic).exists()


async def test_remains_that_cannot_be_removed_are_left_to_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise StorageError("for this test")

    async with opened(tmp_path) as world:
        topic = await settled(world)
        await set_unsettled(world, topic, 0)
        await forget_topic(world, topic)

    with monkeypatch.context() as patch:
        patch.setattr(LogDirectory, "delete_topic", failing)
        async with opened(tmp_path) as world:
            assert world.directories[0].offline_reason == "for this test"
            assert await placed(world) == {"orders": 2}
    async with opened(tmp_path) as world:
        assert await placed(world) == {}


# A placement with more partitions than its topic.


async def test_a_growth_that_was_cut_short_leaves_the_topic_as_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world, count=3)
        append(topic, partition=0)
        await set_unsettled(world, topic, 1)
        await set_count(world, topic, 1)

    async with opened(tmp_path) as world:
        assert ends(found(world)) == [1]
        assert await placed(world) == {"orders": 1}
        grown = await world.topics.add_partitions("orders", 2)
        assert isinstance(grown, Topic)
        assert ends(grown) == [1, 0]
    assert sorted(each.name for each in topic_path(tmp_path / "data", topic).iterdir()) == [
        "0",
        "1",
    ]


@pytest.mark.parametrize("is_settled", [True, False])
async def test_lost_partitions_are_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_settled: bool
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world, count=3)
        append(topic, partition=2)
        if not is_settled:
            await set_unsettled(world, topic, 1)
        await set_count(world, topic, 1)

    async with opened(tmp_path) as world:
        assert ends(found(world)) == [0, 0, 1]
    async with opened(tmp_path) as world:
        assert ends(found(world)) == [0, 0, 1]
    assert caplog.text.count("has lost its partitions from 1 on") == 1


async def test_no_partitions_are_added_while_an_undecided_growth_may_hold_records(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        append(topic, partition=1)
        await set_unsettled(world, topic, 1)
        await set_count(world, topic, 1)

    async with opened(tmp_path, "a") as world:
        assert ends(found(world)) == [0]
        refused = await world.topics.add_partitions("orders", 2)
        assert "is not in service" in getattr(refused, "message", "")

    async with opened(tmp_path, "a", "b") as world:
        assert ends(found(world)) == [0, 1]


# A topic without its placement.


async def test_logs_without_a_placement_are_found_in_the_directories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        append(topic, partition=1)
        await forget_placement(world, topic)

    for _ in range(2):
        async with opened(tmp_path, "a", "b") as world:
            assert ends(found(world)) == [0, 1]
            assert await placed(world) == {"orders": 2}
    assert caplog.text.count("2 partitions are: 2 logs found") == 1


async def test_an_empty_log_without_a_placement_is_not_taken_while_another_directory_is_missing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        append(topic, partition=1)
        await forget_placement(world, topic)
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_bytes(b"")

    missing = "none of the log directories in service has its files"
    async with opened(tmp_path, "a", "b") as world:
        assert ends(found(world)) == [missing, missing]
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    async with opened(tmp_path, "a", "b") as world:
        assert ends(found(world)) == [0, 1]


async def test_of_two_copies_the_one_that_was_written_to_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        empty = topic_path(tmp_path / "a", topic) / "0"
        append(topic, partition=1)
        await forget_placement(world, topic)
    shutil.copytree(empty, topic_path(tmp_path / "a", topic) / "1")

    async with opened(tmp_path, "a", "b") as world:
        assert ends(found(world)) == [0, 1]
        (_, log) = found(world).partitions
        assert isinstance(log, PartitionLog)
        assert log.directory.startswith(str(tmp_path / "b"))


async def test_of_two_copies_with_records_none_is_taken(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b") as world:
        topic = await settled(world)
        append(topic, partition=1)
        await forget_placement(world, topic)
    original = topic_path(tmp_path / "b", topic) / "1"
    shutil.copytree(original, topic_path(tmp_path / "a", topic) / "1")

    async with opened(tmp_path, "a", "b") as world:
        assert ends(found(world)) == [0, "none of the log directories in service has its files"]


async def test_a_log_that_no_directory_has_is_offline_and_never_created_again(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world)
        await forget_placement(world, topic)
    shutil.rmtree(topic_path(tmp_path / "data", topic) / "1")

    for _ in range(2):
        async with opened(tmp_path) as world:
            assert ends(found(world)) == [0, "none of the log directories in service has its files"]

    async with opened(tmp_path) as world:
        assert await world.topics.delete(found(world)) is None
        await world.topics._deletion.finish()
        assert await placed(world) == {}


async def test_a_deletion_that_was_cut_short_before_the_topic_was_gone_changes_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world)
        append(topic)
        note = json.dumps({"name": topic.name})
        await world.node_store.txn((), [Put(key=f"/deleted/{topic_id_text(topic.id)}", value=note)])

    async with opened(tmp_path) as world:
        assert ends(found(world)) == [1, 0]
        assert (await world.node_store.range("/deleted/")).entries == ()


async def test_a_topic_of_an_old_backup_of_the_node_s_store_keeps_its_logs(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await settled(world, count=3)
        append(topic, partition=2)
        entry = await world.node_store.get(PLACED + topic_id_text(topic.id))
        assert entry is not None
        _, holders = placement(entry.value)
        older = placed_json(topic.name, holders[:1])
        await world.node_store.txn((), [Put(key=entry.key, value=older)])

    async with opened(tmp_path) as world:
        assert ends(found(world)) == [0, 0, 1]
        assert await placed(world) == {"orders": 3}
