"""The snapshots of a broker: makes them, lists them, drops them.

    create   directories -> prepare each log -> the moment -> for each log: take it, link it -> complete

The moment is one assignment, so that all logs have the same one, and no request waits for it. What
follows takes as long as the links, while clients go on: a log keeps what it was at the moment
(`storage/log/moment.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from server.metadata.node import Node
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.tasks import to_its_end
from server.runtime.turns import Pace, Turns
from server.snapshots.snapshot_metadata import entries_about
from server.topics.stores import MetadataStores
from server.topics.topic import OfflineLog, Topic
from server.topics.topics import Topics
from server.views.snapshot_topics import SnapshotTopics
from storage.files.errors import LinksRefused, LogOffline, NoSpace, StorageError
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.log.moment import Moment, MomentLost
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
)
from storage.snapshots.snapshot_files import SnapshotFiles, StoredSnapshot
from storage.threads import any_thread, loop_thread

ATTEMPTS = 3
"""A log that is truncated, or a topic that is deleted, meanwhile spoils an attempt."""
LOGS_AT_A_TIME = 16
"""A thread links so many logs before the loop takes the next ones."""


class SnapshotRefused(Exception):
    """Nothing was made or dropped. The message is a sentence for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """What a snapshot is made of."""

    topics: Sequence[Topic]
    logs: Sequence[PartitionLog]
    """All logs of the topics."""


@loop_thread
class Snapshots:
    """The snapshots of one broker, and the making of one of them at a time."""

    __slots__ = (
        "_clock", "_directories", "_files", "_forget_offsets", "_is_stopping", "_making",
        "_metadata_directory", "_node", "_readable", "_stores", "_thread", "_topics", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        files: SnapshotFiles,
        topics: Topics,
        stores: MetadataStores,
        directories: Sequence[LogDirectory],
        *,
        readable: SnapshotTopics,
        forget_offsets: Callable[[AbstractSet[str]], Awaitable[None]],
        metadata_directory: str,
        node: Node,
        clock: Clock,
        thread: Executor,
        turns: Turns,
    ) -> None:
        """
        Args:
            directories: the log directories in service.
            readable: the topics of snapshots that clients can read.
            forget_offsets: deletes what groups have committed for topics that are gone.
            thread: links and removes files.
        """
        # Constant after construction
        self._files = files
        self._topics = topics
        self._stores = stores
        self._directories = directories
        self._readable = readable
        self._forget_offsets = forget_offsets
        self._metadata_directory = metadata_directory
        self._node = node
        self._clock = clock
        self._thread = thread
        self._turns = turns
        # State
        self._making = asyncio.Lock()
        """Held while a snapshot is made."""
        self._is_stopping = False

    async def open(self) -> None:
        """Remove what earlier runs have left unfinished, and let clients read the snapshots."""
        await self._thread.run(self._files.remove_unfinished)
        for each in await self.all():
            if each.descriptor is not None:
                await self._readable.add(each.descriptor)

    async def stop(self) -> None:
        """End what is being made, and wait until nothing of it is left."""
        self._is_stopping = True
        async with self._making:
            self._readable.close()

    async def all(self) -> list[StoredSnapshot]:
        """Returns the snapshots, the oldest first; those that are not complete come last.

        Raises:
            StorageError: a directory cannot be read.
        """
        return await self._thread.run(self._files.all)

    async def drop(self, snapshot_id: str) -> bool:
        """Remove a snapshot. Returns whether there was one. Goes on if the caller is cancelled.

        Raises:
            StorageError: some of it may be left; it can be dropped again.
        """
        return await to_its_end(self._drop(snapshot_id))

    async def _drop(self, snapshot_id: str) -> bool:
        gone = self._readable.remove(snapshot_id)
        was_there = await self._thread.run(self._files.drop, snapshot_id)
        await self._forget_offsets(set(gone))
        return was_there

    def descriptor_path(self, snapshot_id: str) -> str:
        """Returns the absolute path of a snapshot's descriptor."""
        return str(Path(self._files.descriptor_path(snapshot_id)).absolute())

    async def create(self, names: Sequence[str] | None) -> SnapshotDescriptor:
        """Make a snapshot of these topics, or of all. Goes on if the caller is cancelled.

        The topics of the coordinators are always part of it: so it has the groups' offsets and the open
        transactions of the same moment.

        Raises:
            SnapshotRefused: with the reason; nothing is left of it.
        """
        if self._making.locked():
            raise SnapshotRefused(409, "another snapshot is being made: ask again when it is done")
        return await to_its_end(self._create(names))

    async def _create(self, names: Sequence[str] | None) -> SnapshotDescriptor:
        why = ""
        async with self._making:
            for _ in range(ATTEMPTS):
                if self._is_stopping:
                    raise SnapshotRefused(503, "the broker is stopping")
                try:
                    with _refusals():
                        return await self._attempt(self._chosen(names))
                except MomentLost as lost:
                    why = str(lost)
        raise SnapshotRefused(409, f"{why}: ask again")

    def _chosen(self, names: Sequence[str] | None) -> _Chosen:
        everything = self._topics.all()
        known = {topic.name for topic in everything}
        missing = [name for name in names or () if name not in known]
        if missing:
            raise SnapshotRefused(404, f"there is no topic {missing[0]}")
        wanted = known if names is None else set(names)
        topics = [each for each in everything if each.name in wanted or each.is_internal]
        for topic in topics:
            for log in topic.created_partitions:
                if isinstance(log, OfflineLog) or log.offline_reason is not None:
                    raise SnapshotRefused(
                        409,
                        f"{log.topic_partition} is out of service ({log.offline_reason}): name the"
                        " topics that the snapshot is of, without this one",
                    )
        return _Chosen(topics=topics, logs=[log for topic in topics for log in topic.logs()])

    # ---------------------------------------------------------------- making one

    async def _attempt(self, chosen: _Chosen) -> SnapshotDescriptor:
        now_ms = self._clock.now_ms()
        snapshot_id = _new_id(now_ms)
        moment = Moment()
        try:
            await self._thread.run(self._files.begin, snapshot_id)
            await self._prepare(chosen.logs, moment)
            # The moment: nothing else runs on the loop between these lines.
            moment.has_begun = True
            created_ms = self._clock.now_ms()
            cluster, node = self._stores.cluster.entries(), self._stores.node.entries()
            linked = await self._link_all(chosen.logs, snapshot_id)
            topic_ids = {topic_id_text(each.id): each.name for each in chosen.topics}
            descriptor = SnapshotDescriptor(
                id=snapshot_id,
                created_ms=created_ms,
                cluster_id=self._node.cluster_id,
                node_id=self._node.node_id,
                directories=self._described_directories(),
                topics=[_described(topic, linked) for topic in chosen.topics],
                cluster=entries_about(topic_ids, cluster),
                node=entries_about(topic_ids, node),
            )
            await self._thread.run(self._files.finish, descriptor)
            await self._readable.add(descriptor)
        except BaseException:
            await self._thread.run(self._files.abandon, snapshot_id)
            raise
        finally:
            for log in chosen.logs:
                log.end_moment()
        return descriptor

    async def _prepare(self, logs: Sequence[PartitionLog], moment: Moment) -> None:
        async for log in Pace(self._turns).paced(logs):
            log.prepare_moment(moment)
        # So that the loop does not read them when it takes the moment.
        await self._thread.run(_load_producers, logs)

    async def _link_all(
        self, logs: Sequence[PartitionLog], snapshot_id: str
    ) -> dict[PartitionLog, LinkedLog]:
        linked: dict[PartitionLog, LinkedLog] = {}
        pace = Pace(self._turns)
        for at in range(0, len(logs), LOGS_AT_A_TIME):
            if self._is_stopping:
                raise SnapshotRefused(503, "the broker is stopping")
            some = logs[at : at + LOGS_AT_A_TIME]
            async for log in pace.paced(some):
                log.take_moment(self._clock.now_ms())
            linked |= await self._thread.run(self._link, some, snapshot_id)
            for log in some:
                log.end_moment()
        return linked

    @any_thread
    def _link(
        self, logs: Sequence[PartitionLog], snapshot_id: str
    ) -> dict[PartitionLog, LinkedLog]:
        return {log: log.link_moment(self._directory_of(log, snapshot_id)) for log in logs}

    @any_thread
    def _directory_of(self, log: PartitionLog, snapshot_id: str) -> str:
        (holder,) = [
            each.path
            for each in self._directories
            if each.directory_id == log.identity.directory_id
        ]
        return self._files.unfinished(holder, snapshot_id) + log.directory.removeprefix(holder)

    def _described_directories(self) -> list[DirectoryInSnapshot]:
        return [
            DirectoryInSnapshot(
                id=each.directory_id,
                path=str(Path(each.path).absolute()),
                has_metadata=each.path == self._metadata_directory,
            )
            for each in self._directories
        ]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn what storage refuses into a sentence for the client."""
    try:
        yield
    except LinksRefused as error:
        raise SnapshotRefused(
            409, f"the file system of a log directory has no hard links: {error}"
        ) from error
    except NoSpace as error:
        raise SnapshotRefused(507, f"the disk is full: {error}") from error
    except (LogOffline, StorageError) as error:
        raise SnapshotRefused(500, f"the snapshot could not be made: {error}") from error


def _described(topic: Topic, linked: dict[PartitionLog, LinkedLog]) -> TopicInSnapshot:
    return TopicInSnapshot(
        name=topic.name,
        id=topic_id_text(topic.id),
        partitions=[
            PartitionInSnapshot(
                partition=log.topic_partition.partition,
                directory=log.identity.directory_id,
                start_offset=linked[log].start_offset,
                end_offset=linked[log].end_offset,
                bytes=linked[log].size_bytes,
            )
            for log in topic.logs()
        ],
    )


def _new_id(now_ms: int) -> str:
    """Returns an id by which people see the time, in UTC; the digits after it keep ids apart."""
    seconds = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms / 1000))
    return f"{seconds}-{os.urandom(2).hex()}"


@any_thread
def _load_producers(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        _ = log.producers
