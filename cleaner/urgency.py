"""Which of the eligible logs is cleaned first. Pure.

    score = dirty ratio + time since it became eligible / AGEING_MS
            + DEADLINE_HEAD_START if max.compaction.lag.ms is over for it
            + INTERNAL_HEAD_START if the topic is internal: the groups and transactions of all others

The highest score is served first. Waiting adds to all scores alike, so which of two logs goes first is
settled once both are eligible, and head starts are finite. So nothing starves: a log is only ever
overtaken by those that became eligible at most `HEAD_START_MAX_MS` after it, each once for every pass
that it needs in that time. A log that is always dirty waits anew after each pass.

While a disk is nearly full, all that counts on it is the bytes that a pass frees by byte of I/O.

Kafka serves the highest ratio, always: a log past its deadline may wait for ever behind a dirty one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.pick import Assessment, Reason
from storage.topic_partition import TopicPartition

AGEING_MS = 600_000
"""So long a wait counts as much as a dirty ratio of 1."""

DEADLINE_HEAD_START = 6
"""A log past its deadline goes before dirty ones that have waited less than an hour longer."""

INTERNAL_HEAD_START = 12

HEAD_START_MAX_MS = (1 + DEADLINE_HEAD_START + INTERNAL_HEAD_START) * AGEING_MS

INTERNAL_PREFIX = "__"
"""What the names of Kafka's own topics begin with, `__consumer_offsets` first of all."""

Urgency: TypeAlias = tuple[float, float]
"""Sorts eligible logs: the greatest is served first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An eligible log, and what its turn depends on."""

    topic_partition: TopicPartition
    assessment: Assessment
    waited_ms: int
    """Since it became eligible, as far as this process has seen."""
    is_disk_nearly_full: bool = False
    """Whether its log directory is short of space."""
    gain: float = 1.0
    """The part of its dirty bytes that a pass is expected to free, 0 to 1."""


def most_urgent(candidates: Iterable[Candidate]) -> Candidate | None:
    """The log to clean first; None if there is none."""
    return max(candidates, key=urgency, default=None)


def urgency(candidate: Candidate) -> Urgency:
    """The bytes to free by byte of I/O where the disk is nearly full; then the score."""
    freed = _bytes_freed_per_io(candidate) if candidate.is_disk_nearly_full else -1.0
    return freed, _score(candidate)


def _score(candidate: Candidate) -> float:
    score = candidate.assessment.dirty_ratio + candidate.waited_ms / AGEING_MS
    if candidate.assessment.reason is Reason.DEADLINE:
        score += DEADLINE_HEAD_START
    if candidate.topic_partition.topic.startswith(INTERNAL_PREFIX):
        score += INTERNAL_HEAD_START
    return score


def _bytes_freed_per_io(candidate: Candidate) -> float:
    """A pass reads what is dirty twice and all else once, and writes what stays."""
    assessment = candidate.assessment
    freed = assessment.cleanable_bytes * candidate.gain
    read = assessment.clean_bytes + 2 * assessment.cleanable_bytes
    written = assessment.clean_bytes + assessment.cleanable_bytes - freed
    return freed / (read + written) if read else 0.0
