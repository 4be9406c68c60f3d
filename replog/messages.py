"""What a follower asks a leader, and what that answers. No wire format: any transport may carry these.

A follower handles each answer by its content, so answers may be lost, repeated, late and out of order.
Each names the leader's term; a follower ignores those of a leader that was replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replog.entry import Frame, SnapshotId


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for the entries from `end` on, where the asker's log ends after an entry of `last_term`."""

    end: int
    last_term: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Asks for bytes of a snapshot's file, from `position` on."""

    snapshot: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries from the asked index on, all committed; none if there are no more."""

    leader_term: int
    after: Fetch
    frames: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class Diverging:
    """The asker's log differs: the leader's entries of terms up to `term` end at `end`."""

    leader_term: int
    after: Fetch
    term: int
    end: int


@dataclass(frozen=True, slots=True)
class SnapshotOffered:
    """The asked entries, or the asked snapshot, are gone: take this snapshot."""

    leader_term: int
    snapshot: SnapshotId
    size: int


@dataclass(frozen=True, slots=True)
class LogOffered:
    """The asked entries are gone: begin with the START at `base`, whose snapshot is in the log."""

    leader_term: int
    base: int
    previous_term: int


@dataclass(frozen=True, slots=True)
class SnapshotBytes:
    """Bytes of a snapshot's file, whose whole size is `size`."""

    leader_term: int
    snapshot: SnapshotId
    position: int
    data: bytes
    size: int


Request = Fetch | FetchSnapshot
Answer = Entries | Diverging | SnapshotOffered | LogOffered | SnapshotBytes
