"""The committed offsets of this broker's groups, as a link reads and writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.internal_topics.group_records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.coordination.groups.committed_offsets import CommittedOffsets
from server.coordination.groups.offset_checks import OUTSIDE
from server.coordination.groups.offset_commands import OffsetCommands
from server.replication.groups.group_offsets import Commit, GroupRefused
from server.runtime.tasks import to_its_end
from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread


class HasMembers(GroupRefused):
    """The group has members here, so its offsets here are theirs."""


@loop_thread
class LocalGroups:
    """Commits like a client outside of the group, which is refused while the group has members."""

    __slots__ = ("_now_ms", "_offsets")

    def __init__(self, offsets: OffsetCommands, now_ms: Callable[[], int]) -> None:
        self._offsets = offsets
        self._now_ms = now_ms

    def committed(self, group: str) -> Callable[[TopicPartition], Commit | None]:
        """Returns a function that returns what the group has committed for a partition.

        Raises:
            GroupRefused: the groups are not loaded yet.
        """
        found = self._offsets.fetch(group)
        if isinstance(found, ErrorCode):
            raise GroupRefused(found.message)
        return lambda partition: _commit_of(found, partition)

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> None:
        """Commit offsets, all or none, if the group has no members.

        Raises:
            HasMembers: it has members.
            GroupRefused: the commit cannot be written.
        """
        records = [self._record(group, each, commit) for each, commit in commits.items()]
        error = await to_its_end(self._offsets.commit(group, OUTSIDE, records))
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            raise HasMembers
        if error is not ErrorCode.NONE:
            raise GroupRefused(error.message)

    def _record(self, group: str, partition: TopicPartition, commit: Commit) -> GroupRecord:
        key = OffsetCommitKey(group=group, topic=partition.topic, partition=partition.partition)
        value = OffsetCommitValue(
            offset=commit.offset,
            leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            commit_timestamp=self._now_ms(),
            expire_timestamp=NO_TIMESTAMP,
        )
        return GroupRecord(key, value)


def _commit_of(offsets: CommittedOffsets, partition: TopicPartition) -> Commit | None:
    found = offsets.get(partition.topic, partition.partition)
    if found is None:
        return None
    return Commit(Offset(found.offset), Epoch(found.leader_epoch), found.metadata)
