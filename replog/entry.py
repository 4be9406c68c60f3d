"""Entries of a log, and the ids of snapshots.

Indexes count up by one from 1. Ranges are half-open: a log has the entries [start, end), and the
snapshot with `end` 8 covers the entries below 8. The paper names the last entry that a snapshot covers,
which is `end - 1` here; Kafka's snapshot ids are like ours.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

FIRST_INDEX = 1
NO_TERM = 0
"""The term before the first entry. Leaders have terms from 1 on."""


class Kind(enum.IntEnum):
    """What an entry is for. The numbers are on disk."""

    COMMAND = 1
    """For the state machine."""
    START = 2
    """A snapshot begins that covers everything up to and including this entry."""
    CHUNK = 3
    """A part of a snapshot that is stored in the log."""
    END = 4
    """The snapshot is complete: the prefix before its START is no longer needed."""
    ABANDONED = 5
    """The snapshot that the previous leader began stays incomplete."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of the log."""

    index: int
    term: int
    kind: Kind
    payload: bytes


class Frame(msgspec.Struct, frozen=True, gc=False):
    """The entries that one sync made durable. They have one term, and no power cut divides them."""

    index: int
    """The index of the first entry."""
    term: int
    contents: tuple[tuple[Kind, bytes], ...]

    @property
    def end(self) -> int:
        """The index after the last entry."""
        return self.index + len(self.contents)

    def entries(self) -> list[Entry]:
        """Returns the entries in order."""
        return [
            Entry(index, self.term, kind, payload)
            for index, (kind, payload) in enumerate(self.contents, self.index)
        ]


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """A snapshot covers the entries below `end`; `term` is that of the last one."""

    end: int
    term: int


EMPTY = SnapshotId(FIRST_INDEX, NO_TERM)
"""The state before the first entry, which has no file."""
