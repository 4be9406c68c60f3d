"""Decide which eligible log is cleaned first. Pure.

    score = dirty ratio, or with log.cleaner.order=benefit twice the bytes freed per byte of I/O
            + time since it became eligible / AGEING_MS
            + DEADLINE_HEAD_START if the log has exceeded max.compaction.lag.ms
            + INTERNAL_HEAD_START if the topic is internal: all other topics depend on it
            + or - PRIORITY_HEAD_START if the topic's compaction.priority is high or low

The highest score is served first. Waiting adds to all scores alike, so the order of two logs does not
change once both are eligible, and head starts are finite. So no log starves: it is overtaken only by
logs that became eligible at most `HEAD_START_MAX_MS` after it, by each once for every pass that it needs
in that time. The waiting time of a log that is always dirty starts again after each pass.

While a disk is nearly full, only the bytes that a pass frees per byte of I/O count for its logs.

Kafka always serves the highest ratio: a log past its deadline may wait for ever behind a dirty one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cleaner.rules.pick import Assessment, Reason
from storage.formats.topic_partition import TopicPartition

AGEING_MS = 600_000
"""The waiting time that counts as much as a dirty ratio of 1."""

DEADLINE_HEAD_START = 6
"""A log past its deadline goes before dirty logs that have waited less than an hour longer."""

INTERNAL_HEAD_START = 12

PRIORITY_HEAD_START = 3
"""A topic of high priority goes before others that have waited less than half an hour longer."""

HEAD_STARTS = {"low": -PRIORITY_HEAD_START, "normal": 0, "high": PRIORITY_HEAD_START}
"""By `compaction.priority`."""

HEAD_START_MAX_MS = (
    1 + DEADLINE_HEAD_START + INTERNAL_HEAD_START + 2 * PRIORITY_HEAD_START
) * AGEING_MS

INTERNAL_PREFIX = "__"
"""The prefix of the names of internal topics, such as `__consumer_offsets`."""

Urgency: TypeAlias = tuple[float, float]
"""The sort key of eligible logs: the greatest is served first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An eligible log, with the values that its urgency depends on."""

    topic_partition: TopicPartition
    assessment: Assessment
    waited_ms: int
    """Time since this process found it eligible."""
    is_disk_nearly_full: bool = False
    """Whether the disk of its log directory is nearly full."""
    gain: float = 1.0
    """The expected share of its dirty bytes that a pass frees, 0 to 1."""
    head_start: int = 0
    """By its topic's priority."""
    is_by_benefit: bool = False
    """Whether the bytes freed per byte of I/O count instead of the dirty ratio."""


def urgency(candidate: Candidate) -> Urgency:
    """Returns the sort key: bytes freed per byte of I/O if the disk is nearly full, then the score."""
    freed = _bytes_freed_per_io(candidate) if candidate.is_disk_nearly_full else -1.0
    return freed, _score(candidate)


def _score(candidate: Candidate) -> float:
    # All of a log that is freed costs two bytes of I/O each.
    share = 2 * _bytes_freed_per_io(candidate) if candidate.is_by_benefit else None
    score = candidate.assessment.dirty_ratio if share is None else share
    score += candidate.waited_ms / AGEING_MS + candidate.head_start
    if candidate.assessment.reason is Reason.DEADLINE:
        score += DEADLINE_HEAD_START
    if candidate.topic_partition.topic.startswith(INTERNAL_PREFIX):
        score += INTERNAL_HEAD_START
    return score


def _bytes_freed_per_io(candidate: Candidate) -> float:
    """Returns the bytes freed per byte of I/O: dirty bytes are read twice, clean ones once."""
    assessment = candidate.assessment
    freed = assessment.cleanable_bytes * candidate.gain
    read = assessment.clean_bytes + 2 * assessment.cleanable_bytes
    written = assessment.clean_bytes + assessment.cleanable_bytes - freed
    return freed / (read + written) if read else 0.0
