"""Builds a data directory with many segments, with storage's own classes, as a clean stop leaves it."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path

from bench.base.batches import keyed_batch
from replog.trigger import CompactionSettings
from server.runtime.executors import Executor
from server.topics.stores import open_stores
from server.topics.topic import Topic, TopicDefaults
from server.topics.topics import Topics
from storage.batches.validate import Refused, validate_batch
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_id_text
from storage.formats.log_config import LogConfig
from storage.formats.meta_properties import MetaProperties
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog

CONFIGS = {"cleanup.policy": "compact"}


class UnsyncedFileSystem(LocalFileSystem):
    """Does not sync directories: a data directory that is lost can be built again."""

    def sync_directory(self, path: str) -> None:
        pass

    def sync_all(self, path: str) -> None:
        pass


def build_data_directory(
    path: Path, *, topics_count: int, partitions_each: int, segments_each: int
) -> None:
    """Make a data directory for a broker with node.id 1; each segment holds one batch.

    With `segments_each` 1 the partitions are empty.
    """
    files = UnsyncedFileSystem()
    directory = LogDirectory(
        files,
        str(path),
        MetaProperties(
            cluster_id=topic_id_text(uuid.uuid4()),
            node_id=1,
            directory_id=topic_id_text(uuid.uuid4()),
        ),
        background=lambda work: work(),
        now_ms=now_ms,
        random_bytes=os.urandom,
    )
    asyncio.run(_fill(files, directory, topics_count, partitions_each, segments_each))
    directory.close()
    os.sync()


def now_ms() -> int:
    return int(time.time() * 1000)


async def _fill(
    files: UnsyncedFileSystem,
    directory: LogDirectory,
    topics_count: int,
    partitions_each: int,
    segments_each: int,
) -> None:
    stores = await open_stores(files, directory.path, CompactionSettings())
    defaults = TopicDefaults(config=LogConfig(), partitions_count=1, partitions_max=partitions_each)
    administration = Executor("administration", threads=1)
    topics = Topics(
        stores.cluster,
        stores.node,
        [directory],
        files=files,
        defaults=defaults,
        administration=administration,
        removals=administration,
    )
    batch = keyed_batch(records=1, value_bytes=100, keys=1, seed=1)
    for number in range(topics_count):
        topic = await topics.create(
            f"many-{number}", partitions_count=partitions_each, overrides=CONFIGS
        )
        assert isinstance(topic, Topic), topic
        for log in topic.logs():
            _roll_often(log, batch, segments_each)
    await topics.close()
    administration.close()
    await stores.close()


def _roll_often(log: PartitionLog, batch: bytes, segments: int) -> None:
    for _ in range(segments - 1):
        valid = validate_batch(memoryview(bytearray(batch)), log.validation_rules(now_ms=now_ms()))
        assert not isinstance(valid, Refused), valid.message
        log.appender.append_as_leader(valid, now_ms=now_ms())
        log.roll(now_ms())
