"""Topics: creation, deletion, reopening, and repair after crashes."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from random import Random

import pytest

from protocol.wire.error_codes import ErrorCode
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Entry, Put
from server.topics.topic import OfflineLog, Topic, TopicRefused
from storage.files.errors import DirectoryLocked, ForeignDirectory
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_id_text
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.topics_world import World, append, open_world, opened

# Creating.


async def test_a_topic_is_there_after_a_restart_with_its_id_and_settings(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        before = await world.create("orders", 2, cleanup_policy="compact")
        append(before)

    async with opened(tmp_path) as world:
        after = world.topics.get("orders")

        assert after is not None
        assert after.id == before.id
        assert world.topics.by_id(before.id) is after
        assert after.overrides == {"cleanup.policy": "compact"}
        assert after.config.is_compacted
        assert after.config.retention_ms == 77
        assert [log.log_end_offset for log in after.logs()] == [1, 0]
        epochs = {log.leader_epoch for log in after.logs()}
        assert epochs == {before.partitions[0].leader_epoch + 1}


async def test_unspecified_parts_of_a_request_come_from_the_defaults(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.topics.create("orders")

        assert isinstance(topic, Topic)
        assert len(topic.partitions) == 3
        assert topic.config == LogConfig(retention_ms=77)


@pytest.mark.parametrize(
    ("wanted", "error_code", "words"),
    [
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name"),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        ({"name": "taken"}, ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        ({"name": "ta_ken.x"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with"),
        ({"partitions_count": 0}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ({"partitions_count": -2}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ({"partitions_count": 101}, ErrorCode.INVALID_PARTITIONS, "at most 100"),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, "3 time(s)"),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        ({"overrides": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG, "no.such"),
        (
            {"overrides": {"segment.bytes": "1"}},
            ErrorCode.INVALID_CONFIG,
            "1 for configuration segment.bytes:",
        ),
    ],
)
async def test_an_invalid_creation_is_refused_and_changes_nothing(
    wanted: dict[str, object], error_code: ErrorCode, words: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as world:
        await world.create("taken")
        await world.create("ta.ken_x")
        await world.topics._settling.finish()  # It writes to the store, too.
        revision = world.store.revision

        refused = await world.topics.create(**({"name": "new"} | wanted))  # type: ignore[arg-type]

        assert isinstance(refused, TopicRefused)
        assert refused.error_code is error_code
        assert words in refused.message
        assert world.store.revision == revision
        assert [topic.name for topic in world.topics.all()] == ["ta.ken_x", "taken"]


async def test_a_creation_with_validate_only_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        checked = await world.topics.create("orders", validate_only=True)

        assert isinstance(checked, Topic)
        assert len(checked.partitions) == 3
        assert world.topics.get("orders") is None
        assert world.store.revision == 0


async def test_one_of_several_concurrent_creations_wins_and_all_get_the_topic(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        made = await asyncio.gather(*(world.topics.create_if_absent("orders") for _ in range(5)))

        assert {topic.id for topic in made if isinstance(topic, Topic)} == {
            topic.id for topic in world.topics.all()
        }
        assert len(world.topics) == 1


async def test_internal_topics_are_not_created_on_demand(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        refused = await world.topics.create_if_absent("__consumer_offsets")

        assert isinstance(refused, TopicRefused)


async def test_partitions_are_spread_evenly_over_the_directories(tmp_path: Path) -> None:
    async with opened(tmp_path, "a", "b", "c") as world:
        await world.create("orders", 4)
        await world.create("users", 5)

        assert [len(directory.logs()) for directory in world.directories] == [3, 3, 3]


# Deleting.


async def test_a_deleted_topic_is_gone_and_its_files_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 2)

        assert await world.topics.delete(topic) is None

        assert world.topics.get("orders") is None
        assert world.topics.by_id(topic.id) is None
        assert [str(log.topic_partition) for log in world.removed] == ["orders-0", "orders-1"]

    assert not directories_of(tmp_path)
    async with opened(tmp_path) as world:
        assert world.topics.all() == []


def directories_of(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("*/orders*"))


async def test_a_recreated_topic_has_nothing_of_its_predecessor(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        first = await world.create("orders", 1)
        append(first)
        await world.topics.delete(first)
        second = await world.create("orders", 1)

        assert second.id != first.id
        assert [log.log_end_offset for log in second.logs()] == [0]
        refused = await world.topics.delete(first)
        assert refused is not None
        assert refused.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Opening.


async def test_a_log_that_cannot_be_opened_is_offline_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 2)
        append(topic, partition=1)
    shutil.rmtree(tmp_path / "data" / f"orders.{topic_id_text(topic.id)}" / "0")

    async with opened(tmp_path) as world:
        found = world.topics.get("orders")
        assert found is not None
        assert isinstance(found.partitions[0], OfflineLog)
        assert "no segment is left" in found.partitions[0].offline_reason
        assert found.partition(0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0: offline" in caplog.text
        assert [log.log_end_offset for log in found.logs()] == [1]


async def test_settings_that_this_release_does_not_accept_are_ignored_and_the_others_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        topics = [await world.create(name, retention_ms="5") for name in ("a", "b")]
        faulty = {"retention.ms": "7", "from.the.future": "1"}
        for topic, overrides in zip(topics, (faulty, topics[1].overrides), strict=True):
            content = {
                "id": topic_id_text(topic.id),
                "partitions": len(topic.partitions),
                "configs": dict(overrides),
            }
            await world.store.txn((), [Put(key=f"/topics/{topic.name}", value=json.dumps(content))])

    async with opened(tmp_path) as world:
        kept = [world.topics.get(name) for name in ("a", "b")]

    assert [topic.config.retention_ms for topic in kept if topic is not None] == [7, 5]
    assert "a: setting ignored" in caplog.text
    assert "b: setting ignored" not in caplog.text


async def test_a_directory_with_a_log_that_is_offline_is_never_marked_clean(tmp_path: Path) -> None:
    """Otherwise the next start would trust the log's files without a check."""
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 1)
    assert is_there(tmp_path / "data" / ".clean-shutdown")
    shutil.rmtree(tmp_path / "data" / f"orders.{topic_id_text(topic.id)}" / "0")

    async with opened(tmp_path):
        pass

    assert not is_there(tmp_path / "data" / ".clean-shutdown")


async def test_a_missing_directory_takes_its_partitions_offline(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, "a", "b") as world:
        await world.create("orders", 2)

    async with opened(tmp_path, "a") as world:
        topic = world.topics.get("orders")
        assert topic is not None
        assert isinstance(topic.partition(0), PartitionLog)
        assert topic.partition(1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert topic.partition(2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.partition(-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_directories_of_unknown_topics_are_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.create("orders")
    stray = tmp_path / "data" / "stray.AAAAAAAAAAAAAAAAAAAAAQ"
    make_stray(stray)

    async with opened(tmp_path) as world:
        assert [each.name for each in world.topics.all()] == [topic.name]

    assert is_there(stray / "0" / "kept")


def make_stray(path: Path) -> None:
    (path / "0").mkdir(parents=True)
    (path / "0" / "kept").write_bytes(b"")


def is_there(path: Path) -> bool:
    return path.exists()


async def test_two_brokers_cannot_open_one_directory(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(DirectoryLocked):
            await open_world(LocalFileSystem(), str(tmp_path / "data"))


async def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass

    with pytest.raises(ForeignDirectory, match=r"node\.id 1"):
        await open_world(LocalFileSystem(), str(tmp_path / "data"), **{"node.id": "2"})


async def test_a_new_directory_joins_the_cluster_of_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path, "a") as world:
        cluster_id = world.directories[0].meta.cluster_id

    async with opened(tmp_path, "new", "a") as world:
        assert {each.meta.cluster_id for each in world.directories} == {cluster_id}


# Crashes.


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_crash_leaves_a_topic_as_it_was_or_as_it_was_to_become(seed: int) -> None:
    random, disk = Random(seed), MemoryFileSystem()
    world = await open_world(disk, "/a")
    await world.create("one", 2, cleanup_policy="delete")
    possible = {"delete"}
    states: list[tuple[MemoryFileSystem, set[str]]] = []
    disk.on_operation = lambda *_: states.extend(
        (disk.after_crash(loss, random), set(possible)) for loss in Loss
    )

    for policy in ("compact", "", "compact,delete"):
        possible.add(policy)
        await alter(world, policy)
        possible = {policy}
    await world.close()

    assert len(states) >= 30
    for left, policies in states:
        after = await open_world(left, "/a")
        topic = after.topics.get("one")
        assert topic is not None
        assert topic.overrides["cleanup.policy"] in policies
        assert {log.config for log in topic.logs()} == {topic.config}
        await after.close()


async def alter(world: World, policy: str) -> None:
    altered = await world.topics.alter("one", lambda *_: {"cleanup.policy": policy})
    assert isinstance(altered, Topic)
    assert world.topics.get("one") is altered
    assert {log.config for log in altered.logs()} == {altered.config}


async def test_a_change_that_lost_a_race_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = EmbeddedMetadataStore.get

    async def forestalled(store: EmbeddedMetadataStore, key: str) -> Entry | None:
        entry = await get(store, key)
        assert entry is not None
        await store.txn((), [Put(key=key, value=entry.value)])
        return entry

    async with opened(tmp_path) as world:
        before = await world.create("one")
        monkeypatch.setattr(EmbeddedMetadataStore, "get", forestalled)
        refused = await world.topics.alter("one", lambda *_: {"retention.ms": "1"})

        assert isinstance(refused, TopicRefused)
        assert "at the same time" in refused.message
        assert world.topics.get("one") is before


async def test_a_missing_topic_cannot_be_altered(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        refused = await world.topics.alter("one", lambda *_: {"retention.ms": "1"})
        assert isinstance(refused, TopicRefused)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
