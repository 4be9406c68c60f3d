"""Collects the outcome of one step of a group."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.member import Member, Ticket
from server.coordination.groups.outcome import Answer, Joined, Outcome, Synced, Value

REASON_CHARACTERS_MAX = 255
"""Clients cut their reasons at this length, too (KIP-800)."""

NAMES_MAX = 3


class Step:
    """The answers, notes and write request of one step; and the next deadline, which persists."""

    __slots__ = ("_answers", "_deadline_ms", "_notes", "_writes")

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._notes: list[str] = []
        self._writes = False
        self._deadline_ms: int | None = None
        """A lower bound: nothing is due before, but it may be earlier than the earliest deadline."""

    def answer(self, ticket: Ticket, value: Value) -> None:
        self._answers.append(Answer(ticket=ticket, value=value))

    def refuse_join(self, ticket: Ticket, error_code: ErrorCode, member_id: str) -> None:
        self.answer(ticket, Joined(error_code=error_code, member_id=member_id))

    def refuse_sync(self, member: Member, error_code: ErrorCode) -> bool:
        """Fail the member's pending SyncGroup, if any. Returns whether there was one."""
        ticket = member.take_sync()
        if ticket is not None:
            self.answer(ticket, Synced(error_code=error_code))
        return ticket is not None

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

    def end(self, records: tuple[GroupRecord, ...]) -> Outcome:
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
        return outcome


def with_reason(what: str, reason: str) -> str:
    """Returns what happened, with the client's reason if it gave one."""
    return f"{what} ({reason[:REASON_CHARACTERS_MAX]})" if reason else what


def first_names(names: Iterable[str]) -> str:
    """Returns the first few names for a log line."""
    listed = list(names)
    more = len(listed) - NAMES_MAX
    return ", ".join(listed[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
