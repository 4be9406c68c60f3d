"""A group as the broker holds it: the state machine, what it has committed, what is not durable yet.

Answers wait until all that the group has written so far is on disk, so nobody hears of what a crash
can take back. If a write fails, they all become errors, and the group is again what its last
durable record says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from protocol.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from protocol.error_codes import ErrorCode
from protocol.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
)
from server.groups.committed_offsets import CommittedOffsets
from server.groups.consumer_group import ConsumerGroup
from server.groups.consumer_records import member_is_gone
from server.groups.group import Group, GroupState
from server.groups.mixed_group import MixedGroup
from server.groups.outcome import Answer, Beaten, Joined, Left, Synced, Value

AnyGroup = Group | MixedGroup
"""Of the classic protocol, or of the consumer protocol."""


@dataclass(slots=True, eq=False)
class GroupEntry:
    """One group. The coordinator changes it, nobody else."""

    group: AnyGroup
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    _stored: dict[GroupKey, tuple[int, GroupValue | None]] = field(default_factory=dict)
    """The group's last durable record of each key, with where in the log it is. A tombstone is kept
    as long as something of the group is being written, which may be older."""
    _tombstones: set[GroupKey] = field(default_factory=set)
    """The keys of those that are tombstones."""
    writes: int = 0
    """So many of the group's own records are appended and not durable yet."""
    commits: int = 0
    """The same of its offsets; nothing waits for them, but the group must not be forgotten."""
    held: list[Answer] = field(default_factory=list)
    """What is said once they are."""
    failure: ErrorCode | None = None
    """One of them failed: what is held becomes this."""

    @property
    def is_vacant(self) -> bool:
        """Nothing is known of the group that a new one would not know."""
        group = self.group
        if isinstance(group, ConsumerGroup):
            is_empty = not group.data.members
        else:
            is_empty = group.state is GroupState.EMPTY and not group.roster.pending
        is_idle = not self.writes and not self.commits
        return is_empty and is_idle and not self.offsets and not any(self.stored())

    def stored(self) -> Iterator[GroupRecord]:
        """The group's last durable records, without tombstones."""
        for key, (_, value) in self._stored.items():
            if value is not None:
                yield GroupRecord(key, value)

    def note_stored(self, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Records are durable, in the log from that offset on; who learns it first does not count."""
        for offset, record in enumerate(records, first_offset):
            known_offset, _ = self._stored.get(record.key, (-1, None))
            if not isinstance(record.key, OffsetCommitKey) and offset > known_offset:
                self._stored[record.key] = offset, record.value
                if record.value is None:
                    self._tombstones.add(record.key)
                else:
                    self._tombstones.discard(record.key)

    def forget_tombstones(self) -> None:
        """To be called when nothing of the group is being written."""
        for key in self._tombstones:
            del self._stored[key]
        self._tombstones.clear()

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """The records that delete the group itself."""
        group_id = self.group.group_id
        keys: set[GroupKey] = {record.key for record in self.stored()}
        if isinstance(self.group, ConsumerGroup):
            for member_id in self.group.data.members:
                keys |= {record.key for record in member_is_gone(group_id, member_id)}
            keys.add(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
            keys.add(ConsumerGroupMetadataKey(group_id=group_id))
        else:
            keys.add(GroupMetadataKey(group=group_id))
        return tuple(
            GroupRecord(key, None) for key in sorted(keys, key=lambda key: key.record_type)
        )


def refused(value: Value, error_code: ErrorCode) -> Value:
    """The same answer, as an error."""
    match value:
        case Joined():
            return Joined(error_code=error_code)
        case Synced():
            return Synced(error_code=error_code)
        case Left():
            return Left(error_codes=(error_code,) * len(value.error_codes))
        case Beaten():
            return Beaten(error_code=error_code)
