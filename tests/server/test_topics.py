"""Topics: created, deleted, opened again, and healed after crashes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from protocol.error_codes import ErrorCode
from server.config import BrokerConfig
from server.directories import abandon, open_directories
from server.metadata_store import EmbeddedMetadataStore, Entry, Put
from server.topic import OfflineLog, Topic, TopicDefaults, TopicRefused
from server.topics import Topics
from storage.errors import DirectoryLocked, ForeignDirectory
from storage.files import FileSystem, LocalFileSystem
from storage.log import Appended, PartitionLog
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text
from storage.recovery_progress import RecoveryProgress
from storage.validate import ValidBatch, validate_batch
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.served_broker import NOW_MS, batch_of


class FixedClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


def run_inline(job: Callable[[], None]) -> None:
    job()


class World:
    """Topics with the store and the directories beneath them."""

    def __init__(
        self,
        topics: Topics,
        store: EmbeddedMetadataStore,
        directories: tuple[LogDirectory, ...],
        removed: list[PartitionLog],
        progress: RecoveryProgress,
    ) -> None:
        self.topics = topics
        self.store = store
        self.directories = directories
        self.removed = removed
        self.progress = progress

    async def close(self) -> None:
        unclean = await self.topics.close()
        await self.store.close()
        for directory in self.directories:
            if directory.directory_id in unclean:
                abandon(directory, "unclean")
            else:
                directory.close()

    async def create(self, name: str, count: int = 1, **configs: str) -> Topic:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        topic = await self.topics.create(name, partitions_count=count, overrides=overrides)
        assert isinstance(topic, Topic), topic
        return topic


async def open_world(files: FileSystem, paths: str, **texts: str) -> World:
    config = BrokerConfig.from_texts({"log.dirs": paths} | texts)
    progress = RecoveryProgress()
    opened = open_directories(
        config, files=files, background=run_inline, clock=FixedClock(), progress=progress
    )
    directories = opened.directories
    store = await EmbeddedMetadataStore.open(files, f"{config.metadata_directory}/metadata")
    removed: list[PartitionLog] = []
    topics = Topics(
        store,
        directories,
        files=files,
        defaults=TopicDefaults(
            config=LogConfig(retention_ms=77), partitions_count=3, partitions_max=100
        ),
        on_removed=removed.append,
        recovery_threads=config.num_recovery_threads_per_data_dir,
        progress=progress,
        has_all_directories=not opened.left_out,
    )
    await topics.open()
    return World(topics, store, directories, removed, progress)


@asynccontextmanager
async def opened(path: Path, *names: str) -> AsyncIterator[World]:
    paths = ",".join(str(path / name) for name in names or ("data",))
    world = await open_world(LocalFileSystem(), paths)
    yield world
    await world.close()


def append(topic: Topic, value: bytes = b"v", partition: int = 0) -> None:
    log = topic.partition(partition)
    assert isinstance(log, PartitionLog)
    view = memoryview(batch_of(1, value=value))
    batch = validate_batch(view, log.validation_rules(now_ms=FixedClock().now_ms()))
    assert isinstance(batch, ValidBatch)
    assert isinstance(log.append_as_leader(batch, now_ms=FixedClock().now_ms()), Appended)


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


async def test_what_a_request_leaves_open_comes_from_the_defaults(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        topic = await world.topics.create("orders")

        assert isinstance(topic, Topic)
        assert len(topic.partitions) == 3
        assert topic.config == LogConfig(retention_ms=77)


@pytest.mark.parametrize(
    ("wish", "error_code", "words"),
    [
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "topic name"),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        ({"name": "taken"}, ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        ({"name": "ta_ken.x"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with"),
        ({"partitions_count": 0}, ErrorCode.INVALID_PARTITIONS, "1 to 100"),
        ({"partitions_count": -2}, ErrorCode.INVALID_PARTITIONS, "1 to 100"),
        ({"partitions_count": 101}, ErrorCode.INVALID_PARTITIONS, "1 to 100"),
        ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, "3 time(s)"),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        ({"overrides": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG, "no.such"),
        ({"overrides": {"segment.bytes": "1"}}, ErrorCode.INVALID_CONFIG, "segment.bytes: 1"),
    ],
)
async def test_a_wrong_wish_is_refused_and_changes_nothing(
    wish: dict[str, object], error_code: ErrorCode, words: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as world:
        await world.create("taken")
        await world.create("ta.ken_x")
        revision = world.store.revision

        refused = await world.topics.create(**({"name": "new"} | wish))  # type: ignore[arg-type]

        assert isinstance(refused, TopicRefused)
        assert refused.error_code is error_code
        assert words in refused.message
        assert world.store.revision == revision
        assert [topic.name for topic in world.topics.all()] == ["ta.ken_x", "taken"]


async def test_a_wish_that_is_only_checked_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        checked = await world.topics.create("orders", validate_only=True)

        assert isinstance(checked, Topic)
        assert len(checked.partitions) == 3
        assert world.topics.get("orders") is None
        assert world.store.revision == 0


async def test_of_racing_creations_one_makes_the_topic_and_all_get_it(tmp_path: Path) -> None:
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


async def test_a_topic_that_is_created_again_knows_nothing_of_its_predecessor(
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
        assert "is gone" in found.partitions[0].offline_reason
        assert found.partition(0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0: offline" in caplog.text
        assert [log.log_end_offset for log in found.logs()] == [1]


async def test_a_directory_with_a_log_that_is_offline_is_never_marked_clean(tmp_path: Path) -> None:
    """Else the next start would believe the log's files unseen."""
    async with opened(tmp_path) as world:
        topic = await world.create("orders", 1)
    assert is_there(tmp_path / "data" / ".clean-shutdown")
    shutil.rmtree(tmp_path / "data" / f"orders.{topic_id_text(topic.id)}" / "0")

    async with opened(tmp_path):
        pass

    assert not is_there(tmp_path / "data" / ".clean-shutdown")


async def test_a_directory_that_is_not_there_any_more_takes_its_partitions_offline(
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


async def test_directories_of_topics_that_nobody_knows_are_left_alone(tmp_path: Path) -> None:
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


class CrashSweep:
    """Takes crash states while topics come and go, and opens each of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryFileSystem()
        self.settled: dict[str, int] = {}
        """Partitions by topic, as acknowledged."""
        self.under_way: str | None = None
        self.states: list[tuple[MemoryFileSystem, dict[str, int], str | None]] = []

    def crash(self, *_: str) -> None:
        for loss in (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN):
            left = self.disk.after_crash(loss, self.random)
            self.states.append((left, dict(self.settled), self.under_way))

    async def run(self) -> None:
        world = await open_world(self.disk, "/a,/b")
        self.disk.on_operation = self.crash
        await self._create(world, "one", 2)
        await self._create(world, "two", 1)
        await self._delete(world, "one")
        await self._create(world, "one", 3)
        await self._delete(world, "two")
        await world.close()

    async def _create(self, world: World, name: str, count: int) -> None:
        self.under_way = name
        await world.create(name, count)
        self.settled[name] = count
        self.under_way = None

    async def _delete(self, world: World, name: str) -> None:
        topic = world.topics.get(name)
        assert topic is not None
        self.under_way = name
        await world.topics.delete(topic)
        del self.settled[name]
        self.under_way = None


async def found_after(disk: MemoryFileSystem) -> dict[str, int]:
    """Start on what a crash left: every topic is whole, and nothing deleted is left on the disk."""
    world = await open_world(disk, "/a,/b")
    topics = {topic.name: len(topic.partitions) for topic in world.topics.all()}
    assert all(len(topic.logs()) == len(topic.partitions) for topic in world.topics.all())
    ids = {topic_id_text(topic.id) for topic in world.topics.all()}
    await world.close()
    left = {name.rpartition(".")[2] for path in ("/a", "/b") for name in disk.list(path)
            if name.startswith(("one.", "two."))}  # fmt: skip
    assert left <= ids
    return topics


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_crash_splits_a_creation_or_a_deletion(seed: int) -> None:
    sweep = CrashSweep(seed)
    await sweep.run()

    assert len(sweep.states) > 100
    for disk, settled, under_way in sweep.states:
        found = await found_after(disk)

        for name, count in settled.items():
            if name != under_way:
                assert found.pop(name) == count
        assert set(found) <= {under_way}


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


async def test_a_change_that_somebody_else_forestalled_is_refused(
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


async def test_a_topic_that_is_not_there_is_not_changed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        refused = await world.topics.alter("one", lambda *_: {"retention.ms": "1"})
        assert isinstance(refused, TopicRefused)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
