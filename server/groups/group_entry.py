"""A group as the broker holds it: the state machine, what it has committed, what is not durable yet.

Answers wait until all that the group has written so far is on disk, so nobody hears of what a crash
can take back. If a write fails, they all become errors, and the group is again what its last
durable record says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord
from server.groups.committed_offsets import CommittedOffsets
from server.groups.group import Group, GroupState
from server.groups.outcome import Answer, Joined, Left, Synced


@dataclass(slots=True, eq=False)
class GroupEntry:
    """One group. The coordinator changes it, nobody else."""

    group: Group
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    stored: GroupMetadataValue | None = None
    """The group's last durable record; None if it has none."""
    stored_offset: int = -1
    """Where in the log that is, as far as this run wrote it."""
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
        is_empty = group.state is GroupState.EMPTY and not group.roster.pending
        is_idle = not self.writes and not self.commits
        return is_empty and is_idle and not self.offsets and self.stored is None

    def note_stored(self, records: Sequence[GroupRecord], first_offset: int) -> None:
        """Records are durable, in the log from that offset on; who learns it first does not count."""
        for offset, record in enumerate(records, first_offset):
            if isinstance(record.key, GroupMetadataKey) and offset > self.stored_offset:
                assert record.value is None or isinstance(record.value, GroupMetadataValue)
                self.stored, self.stored_offset = record.value, offset


def refused(value: Joined | Synced | Left, error_code: ErrorCode) -> Joined | Synced | Left:
    """The same answer, as an error."""
    match value:
        case Joined():
            return Joined(error_code=error_code)
        case Synced():
            return Synced(error_code=error_code)
        case Left():
            return Left(error_codes=(error_code,) * len(value.error_codes))
