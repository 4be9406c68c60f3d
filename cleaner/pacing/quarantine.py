"""The quarantine: partitions whose last pass failed, why, and when they are tried again.

One damaged partition must not keep the cleaner from the others, and must not be forgotten either: each
failure doubles its rest, up to a limit, and one success releases it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container
from dataclasses import dataclass

from storage.formats.topic_partition import TopicPartition
from storage.threads import loop_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A partition that rests after a failed pass."""

    topic_partition: TopicPartition
    reason: str
    """What went wrong, in one sentence for people."""
    kind: str
    """The class of the error as one word for metrics, such as `corrupt_batch`."""
    failures: int
    """Passes that failed in a row."""
    retry_at: float
    """Monotonic seconds from which the next pass may start."""
    rest_seconds: float
    """The length of this rest."""


@loop_thread
class Quarantine:
    """The quarantined partitions. Owned by the pool."""

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
        # The exponent needs a bound: 2.0 ** 1024 raises OverflowError.
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
        """Remove a partition. Returns whether it was in quarantine."""
        return self._entries.pop(topic_partition, None) is not None

    def is_resting(self, topic_partition: TopicPartition, *, now: float) -> bool:
        """Returns whether the partition is in quarantine and its retry is not due yet."""
        entry = self._entries.get(topic_partition)
        return entry is not None and now < entry.retry_at

    def next_retry_at(self, *, now: float) -> float:
        """Returns when the next retry is due, in monotonic seconds; inf if no partition rests."""
        retries = (entry.retry_at for entry in self._entries.values() if now < entry.retry_at)
        return min(retries, default=math.inf)

    def missing_from(self, present: Container[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Returns the quarantined partitions that are not in `present`."""
        return tuple(partition for partition in self._entries if partition not in present)

    def entries(self) -> tuple[Quarantined, ...]:
        """Returns all quarantined partitions, whether they still rest or are due for a retry."""
        return tuple(self._entries.values())


def kind_of(error: Exception) -> str:
    """Returns the name of an error's class in snake case: `corrupt_batch` for `CorruptBatch`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
