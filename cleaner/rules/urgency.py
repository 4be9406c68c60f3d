"""Decide which eligible log is cleaned first. Pure.

    score = dirty ratio, or with log.cleaner.order=benefit twice the bytes freed per byte of I/O
            + time since it became eligible / AGEING_MS
            + INTERNAL_HEAD_START if the topic is internal: all other topics depend on it
            + or - PRIORITY_HEAD_START if the topic's compaction.priority is high or low
    of a late log, which has missed max.compaction.lag.ms, at least
            time since the deadline / AGEING_MS + DEADLINE_HEAD_START

The highest score has the next turn, and a late log's turn goes to the late log with the earliest
deadline. So late logs are served strictly by their deadlines, and before all others, also internal ones
of high priority, that have not waited an hour longer than the late log is late.

Not strictly before all others: a log that is always late (a short lag, steady writes) would starve them.
Waiting adds to all scores alike, so the order of two logs does not change once both are eligible, and
head starts are finite: of two logs, the one that became eligible more than `HEAD_START_MAX_MS` earlier
has the higher score. Among late logs nobody starves either: a pass moves a log's deadline past the
moment at which the pass began, so each of them overtakes another late one at most once. So a log waits
at most for `HEAD_START_MAX_MS`, and for a round of passes or two. The waiting time of a log that is
always dirty starts again after each pass.

While a disk is nearly full, only the bytes that a pass frees per byte of I/O count for its logs.

Kafka always serves the highest ratio: a log past its deadline may wait for ever behind a dirty one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.rules.pick import Assessment
from cleaner.rules.reclaimable import Reclaimable
from storage.formats.topic_partition import TopicPartition

AGEING_MS = 600_000
"""The waiting time that counts as much as a dirty ratio of 1."""

INTERNAL_HEAD_START = 12

PRIORITY_HEAD_START = 3
"""A topic of high priority goes before others that have waited less than half an hour longer."""

HEAD_STARTS = {"low": -PRIORITY_HEAD_START, "normal": 0, "high": PRIORITY_HEAD_START}
"""By `compaction.priority`."""

DEADLINE_HEAD_START = 6 + 1 + INTERNAL_HEAD_START + PRIORITY_HEAD_START
"""A late log goes before all others that have waited less than an hour longer than it is late."""

HEAD_START_MAX_MS = (DEADLINE_HEAD_START + PRIORITY_HEAD_START) * AGEING_MS

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
    """Time since this process found it eligible, or since its deadline if that is longer."""
    late_ms: int | None = None
    """The time since its deadline; None if it has not missed one."""
    is_disk_nearly_full: bool = False
    """Whether the disk of its log directory is nearly full."""
    gain: float = 1.0
    """The expected share of its dirty bytes that a pass frees, 0 to 1: measured, or the last pass's."""
    reclaimable: Reclaimable | None = None
    """What was measured; None if its keys were not counted."""
    head_start: int = 0
    """By its topic's priority."""
    is_by_benefit: bool = False
    """Whether the bytes freed per byte of I/O count instead of the dirty ratio."""


def in_turn(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Returns the candidates in the order in which they are served."""
    waiting = sorted(candidates, key=urgency, reverse=True)
    late = iter(sorted((each for each in waiting if is_late(each)), key=_lateness, reverse=True))
    return [next(late) if is_late(each) else each for each in waiting]


def is_late(candidate: Candidate) -> bool:
    """Returns whether the candidate has a late log's turn, which goes to the earliest deadline."""
    return candidate.late_ms is not None and not candidate.is_disk_nearly_full


def is_served_before(one: Candidate, other: Candidate) -> bool:
    """Returns which of two late candidates has a late log's turn."""
    return _lateness(one) > _lateness(other)


def _lateness(candidate: Candidate) -> int:
    return candidate.late_ms or 0


def urgency(candidate: Candidate) -> Urgency:
    """Returns the sort key: bytes freed per byte of I/O if the disk is nearly full, then the score."""
    freed = _bytes_freed_per_io(candidate) if candidate.is_disk_nearly_full else -1.0
    return freed, _score(candidate)


def _score(candidate: Candidate) -> float:
    # All of a log that is freed costs two bytes of I/O each.
    share = 2 * _bytes_freed_per_io(candidate) if candidate.is_by_benefit else None
    score = candidate.assessment.dirty_ratio if share is None else share
    score += candidate.waited_ms / AGEING_MS + candidate.head_start
    if candidate.topic_partition.topic.startswith(INTERNAL_PREFIX):
        score += INTERNAL_HEAD_START
    if candidate.late_ms is not None:
        score = max(score, candidate.late_ms / AGEING_MS + DEADLINE_HEAD_START)
    return score


def _bytes_freed_per_io(candidate: Candidate) -> float:
    """Returns the bytes freed per byte of I/O: dirty bytes are read twice, clean ones once."""
    assessment = candidate.assessment
    freed = assessment.cleanable_bytes * candidate.gain
    read = assessment.clean_bytes + 2 * assessment.cleanable_bytes
    written = assessment.clean_bytes + assessment.cleanable_bytes - freed
    return freed / (read + written) if read else 0.0
