"""What one step of a group has come to so far; the group collects it here and hands it over whole."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord
from server.groups.member import Member, Ticket
from server.groups.outcome import Answer, Joined, Outcome, Synced, Value

REASON_CHARACTERS_MAX = 255
"""What clients keep to, too (KIP-800)."""

NAMES_MAX = 3


class Step:
    """Answers, notes, a wish to write and the next deadline, which lives on from step to step."""

    __slots__ = ("_answers", "_deadline_ms", "_notes", "_writes")

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._notes: list[str] = []
        self._writes = False
        self._deadline_ms: int | None = None
        """Nothing is due before; it may be earlier than what is."""

    def answer(self, ticket: Ticket, value: Value) -> None:
        self._answers.append(Answer(ticket=ticket, value=value))

    def refuse_join(self, ticket: Ticket, error_code: ErrorCode, member_id: str) -> None:
        self.answer(ticket, Joined(error_code=error_code, member_id=member_id))

    def refuse_sync(self, member: Member, error_code: ErrorCode) -> bool:
        """End its SyncGroup; whether one waited."""
        ticket = member.take_sync()
        if ticket is not None:
            self.answer(ticket, Synced(error_code=error_code))
        return ticket is not None

    def note(self, text: str) -> None:
        self._notes.append(text)

    def write(self) -> None:
        """The group's record, as it is at the end of the step."""
        self._writes = True

    @property
    def writes(self) -> bool:
        return self._writes

    def look_again(self, due_ms: int) -> None:
        """Something is due then."""
        if self._deadline_ms is None or due_ms < self._deadline_ms:
            self._deadline_ms = due_ms

    def forget_deadline(self) -> None:
        """All that is due will be said again."""
        self._deadline_ms = None

    def end(self, records: tuple[GroupRecord, ...]) -> Outcome:
        """Hand over what has come together."""
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


def why(what: str, reason: str) -> str:
    """What has happened, with what the client says of it."""
    return f"{what} ({reason[:REASON_CHARACTERS_MAX]})" if reason else what


def some_of(names: Iterable[str]) -> str:
    """Some of these names, for a person."""
    listed = list(names)
    more = len(listed) - NAMES_MAX
    return ", ".join(listed[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
