"""Makes one snapshot, of now or of an earlier time.

    directories -> prepare each log -> the moment -> for each log: take it, link it -> complete

The moment is one assignment, so that all logs have the same one, and no request waits for it. It comes
when every log of the topics is prepared that exist in that turn of the loop. What follows takes as long
as the links, while clients continue: a log keeps what it was at the moment (`storage/state/moment.py`).
A topic that is deleted meanwhile is left out, unless it was asked for by name.

A snapshot of an earlier time is one of now, cut back before it is complete
(`storage/snapshots/cut_at_time.py`). It has no topics of the coordinators, because nothing says what was
committed then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cleaner.rules.text import count_text
from server.metadata.node import Node
from server.metadata.store import Entry
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.turns import Pace, Turns
from server.snapshots.refusal import SnapshotRefused
from server.snapshots.snapshot_metadata import entries_about
from server.topics.keys import TOPICS
from server.topics.stores import MetadataStores
from server.topics.topic import OfflineLog, Topic
from server.topics.topics import Topics
from storage.files.errors import CutRefused, StorageError
from storage.files.paths import topic_directory, topic_id_text
from storage.log.directory import LogDirectory
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.snapshots.cut_at_time import (
    cut_at_time,
    earliest_ms,
    end_at,
    obstacle,
)
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
)
from storage.snapshots.snapshot_files import SnapshotExists, SnapshotFiles, StoredSnapshot
from storage.state.moment import Moment, MomentLost
from storage.threads import any_thread, loop_thread

LOGS_AT_A_TIME = 16
"""A thread links so many logs before the loop takes the next ones."""
ROUNDS_MAX = 20
"""Each creation, change or deletion of a topic before the moment takes one more round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of the broker that snapshots are made of, and with."""

    files: SnapshotFiles
    topics: Topics
    stores: MetadataStores
    directories: Sequence[LogDirectory]
    """The log directories in service."""
    metadata_directory: str
    node: Node
    clock: Clock
    thread: Executor
    """Links and removes files."""
    turns: Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a snapshot is to have."""

    names: Sequence[str] | None = None
    """The topics; None for all."""
    at_ms: int | None = None
    """The earlier time as which they are kept; None for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What the loop has at the moment."""

    topics: Sequence[Topic]
    created_ms: int
    cluster: Sequence[Entry]
    node: Sequence[Entry]


@loop_thread
class Making:
    """One snapshot that is being made."""

    __slots__ = ("_is_stopping", "_moment", "_pace", "_prepared", "_sources", "_wanted")

    def __init__(
        self, sources: Sources, wanted: Wanted, *, is_stopping: Callable[[], bool]
    ) -> None:
        """
        Args:
            is_stopping: whether the broker is stopping.
        """
        # Constant after construction
        self._sources = sources
        self._wanted = wanted
        self._is_stopping = is_stopping
        # State
        self._pace = Pace(sources.turns)
        self._moment = Moment()
        self._prepared: set[PartitionLog] = set()

    async def run(self) -> StoredSnapshot:
        """Make the snapshot.

        Raises:
            SnapshotRefused, MomentLost, StorageError: nothing is left of it. If the broker is stopping,
                the next start removes the rest.
        """
        # So that a refusal costs nothing.
        chosen = await self._choose()
        if self._wanted.at_ms is not None:
            await self._check_time(chosen, self._wanted.at_ms)
        snapshot_id = await self._begin()
        try:
            cut = await self._cut()
            linked = await self._link_all(cut.topics, snapshot_id)
            return await self._sources.thread.run(self._finish, snapshot_id, cut, linked)
        except BaseException:
            if not self._is_stopping():
                await self._sources.thread.run(self._sources.files.abandon, snapshot_id)
            raise
        finally:
            async for log in self._pace.paced(self._prepared):
                log.end_moment()

    async def _begin(self) -> str:
        """Create the directories. Returns the snapshot's id."""
        files, thread = self._sources.files, self._sources.thread
        while True:
            snapshot_id = _new_id(self._sources.clock.now_ms())
            try:
                await thread.run(files.begin, snapshot_id)
            except SnapshotExists:
                continue
            except BaseException:
                await thread.run(files.abandon, snapshot_id)
                raise
            return snapshot_id

    # ---------------------------------------------------------------- before the moment

    async def _cut(self) -> _Cut:
        """Begin the moment, in a turn of the loop in which every log of the topics is prepared."""
        for _ in range(ROUNDS_MAX):
            self._check_not_stopping()
            revision = self._sources.topics.revision
            topics = await self._choose()
            await self._prepare(topics)
            if self._sources.topics.revision == revision:
                # The moment: nothing else runs on the loop until this returns.
                self._moment.has_begun = True
                stores = self._sources.stores
                return _Cut(
                    topics=topics,
                    created_ms=self._sources.clock.now_ms(),
                    cluster=stores.cluster.entries(),
                    node=stores.node.entries(),
                )
        raise SnapshotRefused(
            409, "topics were created, changed or deleted all the time: ask again"
        )

    async def _choose(self) -> list[Topic]:
        """Returns the topics to take.

        Raises:
            SnapshotRefused: one of them is unknown, or has a log that is out of service.
        """
        everything, asked = self._sources.topics.all(), self._wanted.names
        has_internal = self._wanted.at_ms is None
        names = {each.name for each in everything if not each.is_internal}
        if asked is not None:
            if missing := set(asked) - {each.name for each in everything}:
                raise SnapshotRefused(404, f"there is no topic {min(missing)}")
            if not has_internal and (internal := set(asked) - names):
                raise SnapshotRefused(
                    400,
                    f"{min(internal)} is the broker's own: only snapshots of now have such topics",
                )
            names &= set(asked)
        chosen = [
            each for each in everything if each.name in names or (each.is_internal and has_internal)
        ]
        async for topic in self._pace.paced(chosen):
            for log in topic.created_partitions:
                if _is_out_of_service(log):
                    raise SnapshotRefused(
                        409,
                        f"{log.topic_partition} is out of service ({log.offline_reason}): name the"
                        " topics that the snapshot is of, without this one",
                    )
        return chosen

    async def _check_time(self, topics: Sequence[Topic], at_ms: int) -> None:
        """Raises SnapshotRefused if a log can no longer be had as it was then."""
        if at_ms > self._sources.clock.now_ms():
            raise SnapshotRefused(400, "the time lies in the future")
        thread, obstacles = self._sources.thread, list[str]()
        logs = [log for topic in topics for log in topic.logs()]
        for at in range(0, len(logs), LOGS_AT_A_TIME):
            self._check_not_stopping()
            obstacles += await thread.run(_obstacles, logs[at : at + LOGS_AT_A_TIME], at_ms)
        if obstacles:
            earliest = await thread.run(_earliest_ms, logs)
            now_ms = self._sources.clock.now_ms()
            raise SnapshotRefused(409, _refusal_of_time(obstacles, earliest, now_ms))

    async def _prepare(self, topics: Sequence[Topic]) -> None:
        new: list[PartitionLog] = []
        async for topic in self._pace.paced(topics):
            for log in topic.logs():
                if log not in self._prepared:
                    self._prepared.add(log)
                    log.prepare_moment(self._moment)
                    new.append(log)
        if new:
            # So that the loop does not read them when it takes the moment.
            await self._sources.thread.run(_load_producers, new)

    def _check_not_stopping(self) -> None:
        if self._is_stopping():
            raise SnapshotRefused(503, "the broker is stopping")

    # ---------------------------------------------------------------- after the moment

    async def _link_all(
        self, topics: Sequence[Topic], snapshot_id: str
    ) -> dict[PartitionLog, LinkedLog]:
        """Link the logs. Returns those whose topics were not deleted meanwhile."""
        linked: dict[PartitionLog, LinkedLog] = {}
        logs = [log for topic in topics for log in topic.logs()]
        for at in range(0, len(logs), LOGS_AT_A_TIME):
            some = logs[at : at + LOGS_AT_A_TIME]
            async for log in self._pace.paced(some):
                self._check_not_stopping()
                log.take_moment(self._sources.clock.now_ms())
            linked |= await self._sources.thread.run(self._link, some, snapshot_id)
            for log in some:
                log.end_moment()
        return linked

    @any_thread
    def _link(
        self, logs: Sequence[PartitionLog], snapshot_id: str
    ) -> dict[PartitionLog, LinkedLog]:
        linked: dict[PartitionLog, LinkedLog] = {}
        for log in logs:
            try:
                linked[log] = self._link_one(log, snapshot_id)
            except MomentLost:
                if not log.is_retired:
                    raise
        return linked

    @any_thread
    def _link_one(self, log: PartitionLog, snapshot_id: str) -> LinkedLog:
        """Link a log, and cut it back if the snapshot is of an earlier time. Raises MomentLost."""
        (holder,) = [
            each
            for each in self._sources.directories
            if each.directory_id == log.identity.directory_id
        ]
        unfinished = self._sources.files.unfinished(holder.path, snapshot_id)
        path = unfinished + log.directory.removeprefix(holder.path)
        linked = log.link_moment(path)
        if self._wanted.at_ms is None:
            return linked
        copy = holder.open_snapshot_log(log.topic_partition, log.topic_id, log.config, path)
        try:
            cut = cut_at_time(copy, self._wanted.at_ms)
            copy.close()
        except CutRefused as refused:
            # A pass has come in between. The next attempt says so.
            raise MomentLost(
                str(log.topic_partition), f"can no longer be cut: {refused}"
            ) from refused
        finally:
            copy.retire()
        return cut

    @any_thread
    def _finish(
        self, snapshot_id: str, cut: _Cut, linked: dict[PartitionLog, LinkedLog]
    ) -> StoredSnapshot:
        """Make the snapshot durable and complete. Raises MomentLost and DiskError."""
        topics = self._left(snapshot_id, cut, linked)
        ids = {topic_id_text(each.id): each.name for each in topics}
        node = self._sources.node
        descriptor = SnapshotDescriptor(
            id=snapshot_id,
            created_ms=cut.created_ms,
            at_ms=self._wanted.at_ms,
            cluster_id=node.cluster_id,
            node_id=node.node_id,
            directories=self._described_directories(),
            topics=[_described(topic, linked) for topic in topics],
            cluster=entries_about(ids, cut.cluster),
            node=entries_about(ids, cut.node),
        )
        self._sources.files.finish(descriptor)
        return StoredSnapshot.complete(descriptor)

    @any_thread
    def _left(
        self, snapshot_id: str, cut: _Cut, linked: dict[PartitionLog, LinkedLog]
    ) -> list[Topic]:
        """Returns the topics that were not deleted meanwhile, and removes what was linked of the others.

        Raises MomentLost if one of those was asked for.
        """
        # A deletion is in the store before the topic is out of the table.
        stored = {each.key for each in cut.cluster}
        left: list[Topic] = []
        for topic in cut.topics:
            if TOPICS + topic.name in stored and all(log in linked for log in topic.logs()):
                left.append(topic)
            elif self._wanted.names is not None:
                raise MomentLost(topic.name, "was deleted")
            else:
                name = topic_directory(topic.name, topic.id)
                self._sources.files.leave_out(snapshot_id, name)
        return left

    @any_thread
    def _described_directories(self) -> list[DirectoryInSnapshot]:
        return [
            DirectoryInSnapshot(
                id=each.directory_id,
                path=str(Path(each.path).absolute()),
                has_metadata=each.path == self._sources.metadata_directory,
            )
            for each in self._sources.directories
        ]


def _is_out_of_service(log: PartitionLog | OfflineLog) -> bool:
    if isinstance(log, OfflineLog):
        return True
    # One whose topic was just deleted is not chosen again.
    return log.offline_reason is not None and not log.is_retired


@any_thread
def _obstacles(logs: Sequence[PartitionLog], at_ms: int) -> list[str]:
    """Returns why some logs cannot be had as they were at a time."""
    reasons: list[str] = []
    for log in logs:
        try:
            reason = obstacle(log, end_at(log, at_ms))
        except StorageError:
            # The files of a deleted topic vanish; its log is not chosen again.
            if not log.is_retired:
                raise
            continue
        reasons += [reason] if reason else []
    return reasons


@any_thread
def _earliest_ms(logs: Sequence[PartitionLog]) -> int | None:
    """Returns since when all logs can be had; None if nobody knows, because a pass is not finished."""
    times = [earliest_ms(log) for log in logs]
    known = [each for each in times if each is not None]
    return max(known, default=0) if len(known) == len(times) else None


def _refusal_of_time(obstacles: Sequence[str], earliest: int | None, now_ms: int) -> str:
    others = len(obstacles) - 1
    more = f" (and {count_text(others, 'more partition')})" if others else ""
    if earliest is None or earliest > now_ms:  # A producer's clock may be ahead.
        return f"{obstacles[0]}{more}: ask for other topics by name, or later"
    since = datetime.fromtimestamp(earliest / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"{obstacles[0]}{more}: ask for these topics as of {since} or later, or for others by name"
    )


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
        try:
            _ = log.producers
        except StorageError:
            # The files of a deleted topic vanish; its log is not chosen again.
            if not log.is_retired:
                raise
