"""A log that the source is asked for: the mirror's own, or the new copy of a resync.

An answer belongs to the target that was asked for. Offsets alone do not tell: gaps are legal, so records
from the old log's end on would pass for the continuation of an empty copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from protocol.wire.numbers import Offset
from server.replication.divergence import Place
from server.replication.findings import UNKNOWN
from server.replication.tombstones import TombstoneWatch
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
@dataclass(slots=True, eq=False)
class Target:
    """One log, and since when it lacks no tombstone. Compared by identity."""

    log: PartitionLog
    tombstones: TombstoneWatch
    source_end: Offset = UNKNOWN
    """The source's high watermark at the last answer for this target."""
    sources: set[UUID | None] = field(default_factory=set)
    """The names of those whose answers it has (`PartitionLog.copied_from`); None: one has no name."""

    @property
    def place(self) -> Place:
        """Where its log ends."""
        return Place(
            end=self.log.log_end_offset,
            epochs=self.log.epochs.entries,
            cut_offset_min=self.log.cut_offset_min,
        )

    @property
    def only_source(self) -> UUID | None:
        """The name of the source if all answers were of one that has a name; else None."""
        return next(iter(self.sources)) if len(self.sources) == 1 else None

    @property
    def is_empty(self) -> bool:
        """Whether no record was copied yet."""
        return self.log.log_start_offset == self.log.log_end_offset

    def note(self, now_ms: int, source_end: int) -> None:
        """Note where the source's log ends, before the answer is appended.

        Only the synced end counts for tombstones: after a crash the log may end there.
        """
        self.tombstones.note(
            now_ms, source_end=source_end, end=self.log.high_watermark, is_empty=self.is_empty
        )
