"""The outcome of a group's step: answers, records to write, and the next deadline; and its builder.

None of it has taken effect yet: the records must be durable before the answers are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.events import NO_MEMBER, Assignment, Ticket

REASON_CHARACTERS_MAX = 255
"""Clients cut their reasons at this length, too (KIP-800)."""

NAMES_MAX = 3


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


class OutcomeBuilder:
    """Collects the answers, the notes and the write request of one step, and the next deadline, which
    persists from step to step."""

    __slots__ = ("_answers", "_deadline_ms", "_notes", "_writes", "steps")

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._notes: list[str] = []
        self._writes = False
        self.steps = 0
        """The number of steps that were built."""
        self._deadline_ms: int | None = None
        """A lower bound: nothing is due before, but it may be earlier than the earliest deadline."""

    def answer(self, ticket: Ticket, value: Value) -> None:
        self._answers.append(Answer(ticket=ticket, value=value))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def request_write(self) -> None:
        """Request that the group's record be written, in its state at the end of the step."""
        self._writes = True

    @property
    def writes(self) -> bool:
        return self._writes

    def add_deadline(self, due_ms: int) -> None:
        """Note that the group has a deadline at `due_ms`."""
        if self._deadline_ms is None or due_ms < self._deadline_ms:
            self._deadline_ms = due_ms

    def forget_deadline(self) -> None:
        """Reset the deadline; the caller then adds all deadlines again."""
        self._deadline_ms = None

    @property
    def deadline_ms(self) -> int | None:
        return self._deadline_ms

    def build(self, records: tuple[GroupRecord, ...]) -> Outcome:
        """Returns the collected outcome and clears it for the next step."""
        outcome = Outcome(
            answers=tuple(self._answers),
            records=records,
            deadline_ms=self._deadline_ms,
            notes=tuple(self._notes),
        )
        self._answers.clear()
        self._notes.clear()
        self._writes = False
        self.steps += 1
        return outcome


def with_reason(what: str, reason: str) -> str:
    """Returns what happened, with the client's reason if it gave one."""
    return f"{what} ({reason[:REASON_CHARACTERS_MAX]})" if reason else what


def first_names(names: Iterable[str]) -> str:
    """Returns the first few names for a log line."""
    listed = list(names)
    more = len(listed) - NAMES_MAX
    return ", ".join(listed[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
