"""Topics with their metadata store and log directories, on any file system."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from server.config.broker_configs import node_config_key
from server.config.config import BrokerConfig
from server.durability.directories import abandon, any_topic_in, keep_reserves, open_directories
from server.runtime.executors import Executor, P, R
from server.topics.stores import MetadataStores, open_stores
from server.topics.topic import Topic, TopicDefaults
from server.topics.topics import Topics
from server.views.readable_topics import ReadableTopics
from server.views.snapshot_topics import SnapshotTopics
from storage.batches.validate import ValidBatch, validate_batch
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.log.new_logs import NewLogs
from storage.recovery.progress import RecoveryProgress
from tests.harness.served_broker import NOW_MS, batch_of

SYNCS_OF_NEW_LOGS = {NewLogs.make_safe.__name__, NewLogs.make_all_safe.__name__}
FILES_OF_NEW_LOGS = {NewLogs.make_files.__name__}


class FixedClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


def run_inline(job: Callable[[], None]) -> None:
    job()


class SteeredExecutor(Executor):
    """An executor with which a test can hold back the files of new logs, and their syncs."""

    def __init__(self, *, may_settle: bool) -> None:
        super().__init__("administration", threads=4)
        self.may_make_files = asyncio.Event()
        self.may_settle = asyncio.Event()
        if may_settle:
            self.release()

    def release(self) -> None:
        """Let everything continue."""
        self.may_make_files.set()
        self.may_settle.set()

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        name = getattr(work, "__name__", "")
        if name in FILES_OF_NEW_LOGS:
            await self.may_make_files.wait()
        if name in SYNCS_OF_NEW_LOGS:
            await self.may_settle.wait()
        return await super().run(work, *args, **kwargs)


class World:
    """Topics with their store and directories."""

    def __init__(
        self,
        topics: Topics,
        stores: MetadataStores,
        directories: tuple[LogDirectory, ...],
        removed: list[PartitionLog],
        progress: RecoveryProgress,
        administration: SteeredExecutor,
        removals: Executor,
    ) -> None:
        self.topics = topics
        self.stores = stores
        self.store = stores.cluster
        self.node_store = stores.node
        self.directories = directories
        self.removed = removed
        self.progress = progress
        self.administration = administration
        self.removals = removals

    @property
    def readable(self) -> ReadableTopics:
        """The topics and their views."""
        snapshots = SnapshotTopics(
            self.directories, LogConfig(), thread=Executor("snapshots", threads=1)
        )
        return ReadableTopics(self.topics, snapshots, suffix=".latest", is_listed=False)

    async def close(self) -> None:
        self.administration.release()
        unclean = await self.topics.close()
        self.administration.close()
        self.removals.close()
        await self.stores.close()
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


async def open_world(
    files: FileSystem, paths: str, may_settle: bool = True, /, **texts: str
) -> World:
    config = BrokerConfig.from_texts({"log.dirs": paths} | texts)
    progress = RecoveryProgress()
    opened = open_directories(
        config, files=files, background=run_inline, clock=FixedClock(), progress=progress
    )
    directories = opened.directories
    stores = await open_stores(
        files,
        config.metadata_directory,
        config.compaction_settings(),
        node_config_key=node_config_key(config.node_id),
        any_topic=lambda: any_topic_in(directories),
    )
    removed: list[PartitionLog] = []
    administration = SteeredExecutor(may_settle=may_settle)
    removals = Executor("removals", threads=1)
    topics = Topics(
        stores.cluster,
        stores.node,
        directories,
        files=files,
        administration=administration,
        removals=removals,
        defaults=TopicDefaults(
            config=LogConfig(retention_ms=77), partitions_count=3, partitions_max=100
        ),
        on_removed=removed.append,
        recovery_threads=config.num_recovery_threads_per_data_dir,
        progress=progress,
        has_all_directories=not opened.left_out,
    )
    await topics.open()
    keep_reserves(directories)
    return World(topics, stores, directories, removed, progress, administration, removals)


@asynccontextmanager
async def opened(path: Path, *names: str, files: FileSystem | None = None) -> AsyncIterator[World]:
    paths = ",".join(str(path / name) for name in names or ("data",))
    world = await open_world(files or LocalFileSystem(), paths)
    yield world
    await world.close()


def append(topic: Topic, value: bytes = b"v", partition: int = 0) -> None:
    log = topic.partition(partition)
    assert isinstance(log, PartitionLog)
    view = memoryview(batch_of(1, value=value))
    batch = validate_batch(view, log.validation_rules(now_ms=FixedClock().now_ms()))
    assert isinstance(batch, ValidBatch)
    assert isinstance(log.appender.append_as_leader(batch, now_ms=FixedClock().now_ms()), Appended)
