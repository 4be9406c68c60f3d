"""The outcome of a group's step: answers, records to write, and the next deadline.

None of it has taken effect yet: the records must be durable before the answers are sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.assignors import Assignment
from server.coordination.groups.member import NO_MEMBER, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member, as the leader sees it."""

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
    """The member leads, but must not assign: the group already has an assignment (KIP-814)."""
    members: tuple[JoinedMember, ...] = ()
    """All members, in the leader's answer; empty in the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a SyncGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The answer to a LeaveGroup: an error code for each member, in request order."""

    error_codes: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a ConsumerGroupHeartbeat."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """The member's complete assignment; None: unchanged."""


Value = Joined | Synced | Left | HeartbeatAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer for the client that holds this ticket."""

    ticket: Ticket
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a step."""

    answers: tuple[Answer, ...] = ()
    records: tuple[GroupRecord, ...] = ()
    deadline_ms: int | None = None
    """When the group must be called next, at the latest; None: no deadline."""
    notes: tuple[str, ...] = ()
    """Notes for the operator's log, with text from clients; the log line starts with the group's id."""
