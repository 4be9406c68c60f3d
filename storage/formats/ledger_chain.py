"""Follows the chain of a ledger, line by line, and says where it is broken. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.formats.ledger_entry import NO_HEAD, Entry, Head, Line, lines_of


class Chain:
    """The chain up to the last line that was taken."""

    __slots__ = ("_is_after_damage", "head")

    def __init__(self, head: Head | None = NO_HEAD) -> None:
        """Begin after `head`; with None, the first sound line may be any entry."""
        self.head = head
        """The last sound entry; None before the first."""
        self._is_after_damage = False

    def take(self, line: Line) -> str | None:
        """Take the next line. Returns what is wrong with it, in a sentence, or None."""
        entry = line.entry
        if entry is None:
            self._is_after_damage = True
            number = "the first entry" if self.head is None else f"entry {self.head.number + 1}"
            return f"{number} is damaged: its hash is not that of its {line.size} bytes"
        problem = self._problem_of(entry)
        self.head, self._is_after_damage = entry.head, False
        return problem

    def _problem_of(self, entry: Entry) -> str | None:
        head = self.head
        if head is None or entry.follows(head):
            return None
        if self._is_after_damage and entry.number > head.number + 1:
            return (
                None  # The damage was reported, and takes the hash that this entry names with it.
            )
        if entry.number == head.number + 1:
            return f"entry {entry.number} names another entry {head.number} than the one before it"
        return f"entry {entry.number} comes after entry {head.number}: others were removed or exchanged"


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file holds, as the writer needs it that continues it."""

    entries: tuple[Entry, ...]
    """All sound ones, in the order of the file."""
    sound_end: int
    """Where the last sound line ends."""
    problem: str | None
    """The first break of the chain before that; None: it is whole."""


def state_of_file(data: bytes) -> FileState:
    """Returns the state of a file; what comes after its last sound line was torn by a crash."""
    lines = list(lines_of(data))
    while lines and lines[-1].entry is None:
        lines.pop()
    chain = Chain(None)
    problems = [problem for line in lines if (problem := chain.take(line)) is not None]
    return FileState(
        entries=tuple(line.entry for line in lines if line.entry is not None),
        sound_end=_end(lines),
        problem=problems[0] if problems else None,
    )


def _end(lines: Sequence[Line]) -> int:
    return lines[-1].position + lines[-1].size if lines else 0
