"""Appends the records without a key that the cleaner moves to another topic.

A batch goes through the checks of a client's produce, and is synced before the pass continues, also
where `flush.on.acks.all` is off: the pass removes the records from the log that had them.
"""

from __future__ import annotations

from cleaner.passes.unkeyed import ChunkTooLarge, MoveRefused
from protocol.wire.error_codes import ErrorCode
from server.durability.group_commit import GroupCommit
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.topics.topic import Topic
from server.topics.topics import Topics
from storage.batches.validate import Refused, ValidBatch, validate_at_once, validate_batch
from storage.files.errors import StorageError
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def fault_of_unkeyed_topic(topic: Topic | None, name: str, origin: str) -> str | None:
    """Returns why a topic cannot take records without a key; None if it can. Pure.

    Args:
        topic: the topic of this name; None if there is none.
        origin: the name of the topic whose records are moved.
    """
    if name == origin:
        return f"{name} cannot take its own records"
    if topic is None:
        return f"there is no topic {name}"
    if topic.is_internal:
        return f"{name} is an internal topic"
    if topic.config.is_mirror:
        return f"{name} is a mirror"
    if topic.config.policy_compacts:
        return f"{name} is compacted, so it takes no records without a key"
    return None


@loop_thread
class UnkeyedAppends:
    """`cleaner.pool.unkeyed_mover.UnkeyedTopics`, over the topics of a broker."""

    __slots__ = ("_clock", "_group_commit", "_topics", "_validation")

    def __init__(
        self, topics: Topics, group_commit: GroupCommit, *, clock: Clock, validation: Executor
    ) -> None:
        """`validation`: the threads that validate large batches."""
        self._topics = topics
        self._group_commit = group_commit
        self._clock = clock
        self._validation = validation

    async def check(self, name: str, origin: TopicPartition) -> None:
        """Raises MoveRefused if the topic would take nothing now."""
        self._log_for(name, origin)

    async def append(self, name: str, origin: TopicPartition, batch: bytearray) -> None:
        """Append a batch to the partition that takes the records of `origin`, and sync it.

        Raises:
            MoveRefused: it may or may not be in the topic.
            ChunkTooLarge: nothing was appended.
        """
        log = self._log_for(name, origin)
        try:
            if not log.new_files.are_made:
                await self._topics.make_files(log)
            valid = await self._validated(log, memoryview(batch))
            self._check_is_there(name, origin, log)
            appended = log.appender.append_as_leader(valid, now_ms=self._clock.now_ms())
        except StorageError as error:
            raise MoveRefused(f"{log.topic_partition}: {error}") from error
        if isinstance(appended, Refused):
            raise MoveRefused(f"{log.topic_partition}: {appended.message}")
        self._group_commit.appended(log)
        await self._group_commit.rest(log)
        self._check_is_there(name, origin, log)

    def _log_for(self, name: str, origin: TopicPartition) -> PartitionLog:
        topic = self._topics.get(name)
        fault = fault_of_unkeyed_topic(topic, name, origin.topic)
        if fault is not None or topic is None:
            raise MoveRefused(f"{fault} (compaction.unkeyed.topic)")
        log = topic.partition(origin.partition % len(topic.partitions))
        if isinstance(log, ErrorCode):
            raise MoveRefused(f"a partition of {name} is offline (compaction.unkeyed.topic)")
        return log

    def _check_is_there(self, name: str, origin: TopicPartition, log: PartitionLog) -> None:
        """Raises MoveRefused if a log has gone offline, or its topic was deleted or changed."""
        if self._log_for(name, origin) is not log:
            raise MoveRefused(f"{name} was deleted meanwhile (compaction.unkeyed.topic)")

    async def _validated(self, log: PartitionLog, batch: memoryview) -> ValidBatch:
        rules = log.validation_rules(now_ms=self._clock.now_ms())
        valid = validate_at_once(batch, rules)
        if valid is None:
            valid = await self._validation.run(validate_batch, batch, rules)
        if isinstance(valid, Refused):
            text = f"{log.topic_partition}: {valid.message or valid.error_code.message}"
            raise (ChunkTooLarge if valid.error_code in TOO_LARGE else MoveRefused)(text)
        return valid
