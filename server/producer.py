"""Who writes with a producer id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer id, and which of those that had it one after the other."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)
"""Nobody."""
