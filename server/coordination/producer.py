"""The identity of a producer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer id with the epoch that distinguishes its successive users."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)
"""No producer."""
