"""What a step of a group comes to: answers that are ready, records to be written, the next deadline.

Nothing in here has happened yet. The records are made durable first; then the answers may be given.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord
from server.groups.assignors import Assignment
from server.groups.member import NO_MEMBER, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member, as the leader hears of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a JoinGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER
    skip_assignment: bool = False
    """The leader shall lead, but the group has its assignment already (KIP-814)."""
    members: tuple[JoinedMember, ...] = ()
    """All of them, for the leader; nobody, for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a SyncGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The answer to a LeaveGroup: what became of each, in the order in which they were named."""

    error_codes: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """The answer to a ConsumerGroupHeartbeat."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """All that the member shall have; None: as it was."""


Value = Joined | Synced | Left | Beaten


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to tell whoever gave in this ticket."""

    ticket: Ticket
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is owed after a step."""

    answers: tuple[Answer, ...] = ()
    records: tuple[GroupRecord, ...] = ()
    deadline_ms: int | None = None
    """The group wants to be told of this time, if not of an earlier one; None: of none."""
    notes: tuple[str, ...] = ()
    """What an operator may want to know, in the words of clients; the group's id comes before it."""
