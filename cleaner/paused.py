"""What an operator has paused: all cleaning, a topic's, or one partition's. A plain value."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass


class CleaningPaused(Exception):
    """A pass was asked for over a log whose cleaning is paused. Nothing was done."""


class PauseScope(enum.Enum):
    """How far a pause reaches."""

    EVERYTHING = "everything"
    TOPIC = "topic"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class Paused:
    """What is paused. By topic id: a topic of the same name that comes later is another one."""

    everything: bool = False
    topics: frozenset[uuid.UUID] = frozenset()
    partitions: frozenset[tuple[uuid.UUID, int]] = frozenset()

    def scope_of(self, topic_id: uuid.UUID, partition: int) -> PauseScope | None:
        """The widest pause that holds this partition; None if none does."""
        if self.everything:
            return PauseScope.EVERYTHING
        if topic_id in self.topics:
            return PauseScope.TOPIC
        return PauseScope.PARTITION if (topic_id, partition) in self.partitions else None


NOTHING_PAUSED = Paused()
