"""What an operator has paused: all cleaning, or that of single topics or partitions. A plain value."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass


class CleaningPaused(Exception):
    """A pass was requested for a log whose cleaning is paused. Nothing was done."""


class PauseScope(enum.Enum):
    """The scopes of a pause."""

    EVERYTHING = "everything"
    TOPIC = "topic"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class Paused:
    """The active pauses, by topic id: a later topic of the same name is not paused."""

    everything: bool = False
    topics: frozenset[uuid.UUID] = frozenset()
    partitions: frozenset[tuple[uuid.UUID, int]] = frozenset()

    def scope_of(self, topic_id: uuid.UUID, partition: int) -> PauseScope | None:
        """Returns the widest pause that applies to a partition; None if it is not paused."""
        if self.everything:
            return PauseScope.EVERYTHING
        if topic_id in self.topics:
            return PauseScope.TOPIC
        return PauseScope.PARTITION if (topic_id, partition) in self.partitions else None


NOTHING_PAUSED = Paused()
