"""A group with its runtime state: the state machine, its committed offsets, and its pending writes.

Answers wait until all that the group has written so far is durable, so that no client learns of a state
that a crash can undo. If a write fails, all waiting answers become errors, and the group returns to the
state of its last durable records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from protocol.internal_topics.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from protocol.internal_topics.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.committed_offsets import CommittedOffsets
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.consumer.records import member_tombstones
from server.coordination.groups.outcome import Answer, HeartbeatAnswer, Joined, Left, Synced, Value

AnyGroup = Group | MixedGroup
"""A group of the classic protocol, or one of the consumer protocol."""


@dataclass(slots=True, eq=False)
class GroupEntry:
    """One group. Only the coordinator changes it."""

    group: AnyGroup
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    _stored: dict[GroupKey, tuple[int, GroupValue | None]] = field(default_factory=dict)
    """The last durable record of each key of the group, with its offset in the log. Tombstones are kept
    while writes are pending, because an older record may become durable later."""
    _tombstones: set[GroupKey] = field(default_factory=set)
    """The keys in `_stored` whose value is a tombstone."""
    writes: int = 0
    """Number of the group's own writes that are appended but not durable yet."""
    commits: int = 0
    """Number of offset commits in flight; no answer waits for them, but they keep the group."""
    committed_ms: int = 0
    """When the last commit of offsets came, in this process; 0: none yet."""
    held: list[Answer] = field(default_factory=list)
    """Answers that wait for the writes."""
    failure: ErrorCode | None = None
    """Set when a write failed: the held answers become this error."""

    @property
    def is_vacant(self) -> bool:
        """Whether the group has no state that a new one would lack."""
        group = self.group
        if isinstance(group, ConsumerGroup):
            is_empty = not group.data.members
        else:
            is_empty = group.state is GroupState.EMPTY and not group.roster.pending
        is_idle = not self.writes and not self.commits
        return is_empty and is_idle and not self.offsets and not any(self.stored())

    def stored(self) -> Iterator[GroupRecord]:
        """Yields the group's last durable records, without tombstones."""
        for key, (_, value) in self._stored.items():
            if value is not None:
                yield GroupRecord(key, value)

    def note_stored(self, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Note records that are durable from `first_offset` on. Calls may come out of order."""
        for offset, record in enumerate(records, first_offset):
            known_offset, _ = self._stored.get(record.key, (-1, None))
            if not isinstance(record.key, OffsetCommitKey) and offset > known_offset:
                self._stored[record.key] = offset, record.value
                if record.value is None:
                    self._tombstones.add(record.key)
                else:
                    self._tombstones.discard(record.key)

    def forget_tombstones(self) -> None:
        """Drop the tombstones from `_stored`. Call it when no write of the group is pending."""
        for key in self._tombstones:
            del self._stored[key]
        self._tombstones.clear()

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Returns the tombstones that delete the group itself."""
        group_id = self.group.group_id
        keys: set[GroupKey] = {record.key for record in self.stored()}
        if isinstance(self.group, ConsumerGroup):
            for member_id in self.group.data.members:
                keys |= {record.key for record in member_tombstones(group_id, member_id)}
            keys.add(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
            keys.add(ConsumerGroupMetadataKey(group_id=group_id))
        else:
            keys.add(GroupMetadataKey(group=group_id))
        return tuple(
            GroupRecord(key, None) for key in sorted(keys, key=lambda key: key.record_type)
        )


def error_answer(value: Value, error_code: ErrorCode) -> Value:
    """Returns the same type of answer with an error."""
    match value:
        case Joined():
            return Joined(error_code=error_code)
        case Synced():
            return Synced(error_code=error_code)
        case Left():
            return Left(error_codes=(error_code,) * len(value.error_codes))
        case HeartbeatAnswer():
            return HeartbeatAnswer(error_code=error_code)
