"""Partitions whose last pass failed: why, and when they are tried again.

One damaged partition must not keep the cleaner from all others, and must not be forgotten either:
each failure doubles its rest, up to a bound, and one success releases it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container
from dataclasses import dataclass

from storage.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A partition that rests after a failed pass."""

    topic_partition: TopicPartition
    reason: str
    """What went wrong, one sentence for people."""
    kind: str
    """The same as one word of few, for metrics: the name of the error, `corrupt_batch`."""
    failures: int
    """Passes that failed in a row."""
    retry_at: float
    """Monotonic seconds at which the next pass may be tried."""
    rest_seconds: float
    """How long it rests in all."""


class Quarantine:
    """The quarantined partitions. Owned by the pool, used on the event loop."""

    __slots__ = ("_entries", "_rest_seconds", "_rest_seconds_max")

    def __init__(self, *, rest_ms: int, rest_ms_max: int) -> None:
        # Constant after construction.
        self._rest_seconds = rest_ms / 1000
        self._rest_seconds_max = rest_ms_max / 1000
        # State.
        self._entries: dict[TopicPartition, Quarantined] = {}

    def add(
        self, topic_partition: TopicPartition, reason: str, *, kind: str, now: float
    ) -> Quarantined:
        """Let a partition rest after a failure at monotonic `now`."""
        former = self._entries.get(topic_partition)
        failures = former.failures + 1 if former else 1
        # The exponent is bounded, too: 2.0 ** 1024 does not exist.
        rest = min(self._rest_seconds * 2.0 ** min(failures - 1, 62), self._rest_seconds_max)
        entry = Quarantined(
            topic_partition=topic_partition,
            reason=reason,
            kind=kind,
            failures=failures,
            retry_at=now + rest,
            rest_seconds=rest,
        )
        self._entries[topic_partition] = entry
        return entry

    def release(self, topic_partition: TopicPartition) -> bool:
        """Forget a partition; whether it was in quarantine."""
        return self._entries.pop(topic_partition, None) is not None

    def is_resting(self, topic_partition: TopicPartition, *, now: float) -> bool:
        """Whether the partition may not be tried yet."""
        entry = self._entries.get(topic_partition)
        return entry is not None and now < entry.retry_at

    def next_retry_at(self, *, now: float) -> float:
        """When the next resting partition may be tried, in monotonic seconds; inf if none rests."""
        retries = (entry.retry_at for entry in self._entries.values() if now < entry.retry_at)
        return min(retries, default=math.inf)

    def missing_from(self, present: Container[TopicPartition]) -> tuple[TopicPartition, ...]:
        """The quarantined partitions that are not among those `present`."""
        return tuple(partition for partition in self._entries if partition not in present)

    def entries(self) -> tuple[Quarantined, ...]:
        """All quarantined partitions, whether resting or due for a retry."""
        return tuple(self._entries.values())


def kind_of(error: Exception) -> str:
    """The name of an error as one word: `CorruptBatch` is `corrupt_batch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
