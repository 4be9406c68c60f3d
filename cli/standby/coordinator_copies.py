"""The copies of all partitions of the coordinators' topics. One thread, except where a method says so.

A topic that the followed metadata no longer has loses its copy; one that was created again with another
id gets a new one. Only metadata that are current can say so.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cleaner.checkpoints.making import CheckpointOrder, LiveDigest
from cleaner.pacing.meter import CleaningAborted
from cli.standby.coordinator_requests import (
    Fetched,
    PartitionId,
    Place,
    ReceivedPiece,
    WantedPiece,
)
from cli.standby.followed_partition import FollowedPartition
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from replog.trigger import CompactionSettings
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.standby.followed_topics import COORDINATOR_TOPICS, FollowedTopic
from server.standby.partition_copy import PartitionCopy
from storage.files.files import FileSystem
from storage.files.paths import join, parse_topic_directory, topic_directory
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition

_log = logging.getLogger("cli.standby")

LEADER_HAS_NOT = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """How far the copies of one topic's partitions are."""

    name: str
    partitions: int
    lag: int
    """The offsets that the leader had at its last answers and that are not here."""
    installs: int
    waiting: tuple[str, ...]
    """Why partitions do not follow the log now: they need a checkpoint, or the leader refuses them."""
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask the leader next."""

    places: tuple[Place, ...]
    pieces: tuple[WantedPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCheckpoint:
    """An own checkpoint to make, in another thread."""

    copy: PartitionCopy
    order: CheckpointOrder


class CoordinatorCopies:
    """The copies in one directory."""

    __slots__ = (
        "_checkpoints",
        "_clock",
        "_followed",
        "_fs",
        "_path",
        "_removed_for",
        "_settings",
        "_topics",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        settings: CompactionSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have no copies yet; `follow` opens them.

        Args:
            clock: returns seconds that never go back.
        """
        # Constant after construction
        self._fs = fs
        self._path = path
        self._settings = settings
        self._clock = clock
        # State
        self._topics: tuple[FollowedTopic, ...] = ()
        self._removed_for: tuple[FollowedTopic, ...] | None = None
        """The topics beside which no other copies are left."""
        self._checkpoints: dict[str, TopicCheckpoints] = {}
        self._followed: dict[PartitionId, FollowedPartition] = {}

    # ---------------------------------------------------------------- which partitions

    def follow(self, topics: tuple[FollowedTopic, ...], *, may_remove: bool) -> None:
        """Open or create the copies of these topics, and close those of others.

        Args:
            may_remove: whether the metadata are current: then copies of topics that no longer exist go.

        Raises:
            StorageError: a copy cannot be opened.
        """
        if topics != self._topics:
            wanted = {each.id for each in topics}
            for gone in [each for each in self._followed if each.topic_id not in wanted]:
                self._followed.pop(gone).copy.close()
            for topic in topics:
                self._open(topic)
            self._topics = topics
        if may_remove and self._removed_for != topics:
            self._remove_others(topics)
            self._removed_for = topics

    def _open(self, topic: FollowedTopic) -> None:
        has_commits = topic.name == OFFSETS_TOPIC
        checkpoints = self._checkpoints.get(topic.name)
        if checkpoints is None or all(each.topic_id != topic.id for each in self._followed):
            checkpoints = TopicCheckpoints(has_commits=has_commits)
            self._checkpoints[topic.name] = checkpoints
        for partition in range(topic.partitions_count):
            its = PartitionId(name=topic.name, topic_id=topic.id, partition=partition)
            if its not in self._followed:
                identity = self._identity(topic, partition)
                copy = PartitionCopy(self._fs, identity, checkpoints, now_ms=_now_ms)
                self._followed[its] = FollowedPartition(its, copy)

    def _identity(self, topic: FollowedTopic, partition: int) -> LogIdentity:
        folder = join(self._path, topic_directory(topic.name, topic.id))
        return LogIdentity(
            topic_partition=TopicPartition(topic.name, partition),
            topic_id=topic.id,
            directory=join(folder, str(partition)),
            directory_id="",
            # For the memory of one pass: no file of a copy has hashes.
            hash_key=os.urandom(16),
        )

    def _remove_others(self, topics: Iterable[FollowedTopic]) -> None:
        kept = {topic_directory(each.name, each.id) for each in topics}
        for name in self._fs.list(self._path):
            is_copy = parse_topic_directory(name) is not None
            if is_copy and name not in kept and name.rpartition(".")[0] in COORDINATOR_TOPICS:
                _log.warning("removing the copy %s: the leader has deleted its topic", name)
                self._fs.remove_tree(join(self._path, name))
                self._fs.sync_directory(self._path)

    # ---------------------------------------------------------------- asking and receiving

    def connected(self) -> None:
        """Forget what the leader said over an earlier connection: it may have lost its log's tail.

        At first it must show that it has the last batch of each copy (`last_batch.py`).

        Raises:
            StorageError: the disk failed.
        """
        for each in self._followed.values():
            each.connected()

    def plan(self) -> Plan:
        """Returns what to ask next. A partition for which nothing came goes first.

        The first partition with records gets a whole batch, even beyond the limits. So an empty answer
        means that there is nothing, if those for all partitions before it are empty too.
        """
        now_s = self._clock()
        ready = [each for each in self._followed.values() if each.rests_until_s <= now_s]
        following = [each for each in ready if each.copy.wanted is None]
        following.sort(key=lambda each: not each.is_stuck)
        return Plan(
            places=tuple(each.place() for each in following),
            pieces=tuple(
                sorted(
                    (each.wanted_piece() for each in ready if each.copy.wanted is not None),
                    # One after the other, so that others may download too.
                    key=lambda piece: piece.snapshot is None,
                )
            ),
        )

    def receive(self, answers: Sequence[Fetched]) -> None:
        """Append what a leader has answered, and sync it.

        Raises:
            ProtocolError: the answer has no sound batches.
            StorageError: the disk failed.
        """
        is_first = True
        for answer in answers:
            followed = self._followed.get(answer.id)
            if followed is None or followed.copy.wanted is not None:
                continue
            self._receive(followed, answer, is_first=is_first)
            is_first = is_first and not answer.records
            followed.copy.sync()

    def _receive(self, followed: FollowedPartition, answer: Fetched, *, is_first: bool) -> None:
        """Take the answer for one partition.

        Args:
            is_first: whether no partition before it in the answer has records.
        """
        copy = followed.copy
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            copy.want(f"the leader's log does not have offset {copy.end}")
            return
        if answer.error_code:
            followed.rest(self._clock(), _name(answer.error_code))
            return
        followed.answered()
        if answer.is_diverging:
            copy.want(f"the leader's log diverges from this one, which ends at {copy.end}")
            return
        copy.leader_starts_at(Offset(answer.log_start_offset))
        if copy.wanted is None and followed.compared_first is not None:
            answer = followed.compare(answer, is_first=is_first)
        if copy.wanted is not None:
            return
        before, followed.leader_end = followed.leader_end, answer.high_watermark
        if answer.records:
            copy.append(memoryview(answer.records))
        elif is_first and before is not None:
            # The leader has read up to where its log ended at the last answer at least.
            copy.nothing_until(Offset(min(before, answer.high_watermark)))
        followed.is_stuck = not answer.records and copy.end < answer.high_watermark

    def receive_piece(self, wanted: WantedPiece, piece: ReceivedPiece) -> None:
        """Take bytes of a checkpoint. Raises StorageError."""
        followed = self._followed.get(wanted.id)
        if followed is None:
            return
        followed.answered()
        installs = followed.copy.installs
        if not followed.copy.receive(piece.snapshot, piece.position, piece.data, piece.size):
            followed.rest(self._clock(), "the leader's checkpoint was damaged")
        if followed.copy.installs > installs:
            followed.leader_end, followed.is_stuck = None, False

    def piece_refused(self, wanted: WantedPiece, code: ErrorCode, at_least_s: float) -> None:
        """Note that the leader has not answered with bytes. Raises StorageError."""
        followed = self._followed.get(wanted.id)
        if followed is None:
            return
        if code in LEADER_HAS_NOT and wanted.snapshot is not None:
            followed.copy.drop_download()
            return
        if code in LEADER_HAS_NOT:
            followed.copy.ask_again()
            followed.leader_end = None
        followed.rest(self._clock(), f"the leader has no checkpoint now: {code.name}", at_least_s)

    # ---------------------------------------------------------------- own checkpoints, digests

    def due_checkpoint(self) -> DueCheckpoint | None:
        """Returns an own checkpoint to make, if one is due. Raises StorageError."""
        for each in self._followed.values():
            if each.copy.is_checkpoint_due(self._settings):
                return DueCheckpoint(copy=each.copy, order=each.copy.order())
        return None

    def digest_order(self, id_: PartitionId, end_offset: int) -> DueCheckpoint | None:
        """Returns what `digest_of` needs; None if the copy cannot tell the digest there."""
        followed = self._followed.get(id_)
        order = None if followed is None else followed.copy.digest_order(Offset(end_offset))
        return (
            None
            if followed is None or order is None
            else DueCheckpoint(copy=followed.copy, order=order)
        )

    def places(self) -> tuple[Place, ...]:
        """Returns where all copies end."""
        return tuple(
            Place(id=each.id, end=each.copy.end, last_epoch=each.copy.last_epoch)
            for each in self._followed.values()
        )

    def behind(self) -> list[str]:
        """Returns a sentence for each copy that lacks what the leader had at its last answer."""
        return [
            f"{each.id}: this log ends at {each.copy.end}, the source's at {each.leader_end}"
            for each in self._followed.values()
            if each.leader_end is not None and each.copy.end < each.leader_end
        ]

    def facts(self) -> tuple[TopicFacts, ...]:
        """Returns how far the copies are."""
        return tuple(self._facts(topic) for topic in self._topics)

    def _facts(self, topic: FollowedTopic) -> TopicFacts:
        its = [each for each in self._followed.values() if each.id.topic_id == topic.id]
        return TopicFacts(
            name=topic.name,
            partitions=len(its),
            lag=sum(max(0, (each.leader_end or 0) - each.copy.end) for each in its),
            installs=sum(each.copy.installs for each in its),
            waiting=tuple(each.waits_for() for each in its if each.waits_for()),
            disk_bytes=sum(each.copy.disk_bytes for each in its),
        )

    # ---------------------------------------------------------------- the end

    def stop(self) -> None:
        """Let a checkpoint that is being made be given up soon; any thread may call."""
        for each in tuple(self._followed.values()):
            each.copy.stop()

    def close(self) -> None:
        """Close all files. Raises StorageError."""
        for each in self._followed.values():
            each.copy.close()
        self._followed.clear()


def make_due(due: DueCheckpoint) -> Callable[[], None] | None:
    """Make an own checkpoint; any thread. Returns what the copies' thread must call afterwards.

    Raises StorageError.
    """
    try:
        made = due.copy.make_checkpoint(due.order)
    except CleaningAborted:
        return None
    except ProtocolError as error:
        _log.warning("%s: cannot make a checkpoint: %s", due.copy.log.topic_partition, error)
        return None
    return None if made is None else lambda: due.copy.made(made)


def digest_of(due: DueCheckpoint) -> LiveDigest | None:
    """Returns the digest of a copy's state; None if it has changed meanwhile. Any thread; blocks."""
    try:
        return due.copy.digest(due.order)
    except CleaningAborted:
        return None


def _name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else str(code)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
