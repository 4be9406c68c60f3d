"""The most bytes that a log and its snapshots may take on disk.

    p + P/u + n + d + c + s      with one snapshot kept

p the last snapshot, P what the trigger relates the log to (`trigger.py`: p, unless the next snapshot is
larger, or the floor), n the next snapshot, which may be half written, d what was appended while it is
written, c the entries kept for slow followers, s one segment, since only whole ones are removed. Each
further snapshot that is kept adds its size and the log back to it, another P/u. A snapshot that is kept
because a follower fetches it adds its size; the log back to it counts in c.

Ongaro's bound is (1 + 1/u)p + n: his snapshots take no time and his log is cut at any byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from replog.trigger import CompactionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """What a log takes on disk, by what it is for."""

    snapshots_bytes: int
    """The snapshots that are kept, and those that followers fetch."""
    writing_bytes: int
    """The snapshot that is being written or received."""
    log_bytes: int
    """All segments."""
    reference_bytes: int
    """The paper's p: `reference_bytes` of the trigger, the sum over the snapshots that are kept."""
    during_bytes: int
    """Bytes appended while a snapshot is or was being written, since the oldest snapshot kept.

    A start does not know them: it counts the log between the kept snapshots, and what exceeds P/u."""
    catchup_bytes: int
    """Bytes of the entries that only slow followers need."""
    unseen_bytes: int
    """The most that was appended between two looks of the trigger."""

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.snapshots_bytes + self.writing_bytes + self.log_bytes


def bound_bytes(settings: CompactionSettings, use: DiskUse) -> float:
    """Returns the most bytes that these files may take; infinite if `u` is 0."""
    if settings.u <= 0:
        return float("inf")
    logs = use.reference_bytes / settings.u
    segment = settings.segment_bytes + 2 * use.unseen_bytes
    kept = use.snapshots_bytes + use.writing_bytes + use.catchup_bytes + use.during_bytes
    return kept + logs + segment
