"""With measured gains, superseded bytes go no later than in Kafka's order.

A simulation: logs of the shapes in `bench/cleaner/pass_shapes.py`, one worker, its own clock. A log's
keys are drawn evenly, so the number of distinct ones grows by 1 - distinct / keys with each record.
Gains are measured with the error of a sketch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest

from bench.cleaner.pass_shapes import LARGE, MOSTLY_KEPT, SMALL, Shape
from cleaner.keys.sketch import STANDARD_ERROR
from cleaner.rules.pick import Reason
from cleaner.rules.urgency import HEAD_START_MAX_MS, Candidate, in_turn
from storage.formats.topic_partition import TopicPartition
from tests.cleaner.rules.test_urgency import assessment

IO_BYTES_PER_MS = 100_000
RECORD_OVERHEAD_BYTES = 20
ELIGIBLE_RATIO = 0.5
HOUR_MS = 3_600_000


@dataclass(kw_only=True)
class SimulatedLog:
    """A log with records of a shape."""

    topic: str
    shape: Shape
    records_per_ms: float = 0.0
    clean: float = 0.0
    dirty: float = 0.0
    distinct: float = 0.0
    eligible_at_ms: float | None = None
    longest_wait_ms: float = 0.0

    @property
    def record_bytes(self) -> int:
        return self.shape.value_bytes + RECORD_OVERHEAD_BYTES

    @property
    def superseded_bytes(self) -> float:
        return (self.clean + self.dirty - self.distinct) * self.record_bytes

    @property
    def dirty_ratio(self) -> float:
        return self.dirty / (self.clean + self.dirty) if self.dirty else 0.0

    def append(self, records: float) -> None:
        keys = self.shape.keys
        self.distinct = keys - (keys - self.distinct) * math.exp(-records / keys)
        self.dirty += records

    def note_eligible(self, now_ms: float) -> None:
        if self.eligible_at_ms is None and self.dirty_ratio > ELIGIBLE_RATIO:
            self.eligible_at_ms = now_ms

    def pass_ms(self) -> float:
        """A pass reads the clean records once and the dirty ones twice, and writes those that stay."""
        records = self.clean + 2 * self.dirty + self.distinct
        return records * self.record_bytes / IO_BYTES_PER_MS

    def candidate(self, now_ms: float, random: Random) -> Candidate:
        assert self.eligible_at_ms is not None
        total = self.clean + self.dirty
        measured = self.distinct * (1 + STANDARD_ERROR * random.gauss())
        superseded = total - min(max(measured, self.clean), total)
        return Candidate(
            topic_partition=TopicPartition(self.topic, 0),
            assessment=assessment(
                clean=round(self.clean * self.record_bytes),
                cleanable=round(self.dirty * self.record_bytes),
                reason=Reason.DIRTY,
            ),
            waited_ms=round(now_ms - self.eligible_at_ms),
            gain=min(superseded / self.dirty, 1.0),
            is_by_benefit=True,
        )


Choose = Callable[[Sequence[SimulatedLog], float], SimulatedLog]


def as_kafka_does(waiting: Sequence[SimulatedLog], _now_ms: float) -> SimulatedLog:
    return max(waiting, key=lambda log: log.dirty_ratio)


def by_measured_benefit(random: Random) -> Choose:
    def choose(waiting: Sequence[SimulatedLog], now_ms: float) -> SimulatedLog:
        candidates = [log.candidate(now_ms, random) for log in waiting]
        first = in_turn(candidates)[0]
        return next(log for log, each in zip(waiting, candidates, strict=True) if each is first)

    return choose


def simulate(logs: Sequence[SimulatedLog], choose: Choose, duration_ms: float) -> float:
    """Let one worker clean. Returns the superseded bytes on the disk, averaged over the time."""
    now_ms, area = 0.0, 0.0

    def let_pass(ms: float) -> None:
        nonlocal now_ms, area
        ms = min(ms, duration_ms - now_ms)
        before = sum(log.superseded_bytes for log in logs)
        for log in logs:
            log.append(log.records_per_ms * ms)
        area += ms * (before + sum(log.superseded_bytes for log in logs)) / 2
        now_ms += ms
        for log in logs:
            log.note_eligible(now_ms)

    let_pass(0)
    while now_ms < duration_ms:
        waiting = [log for log in logs if log.eligible_at_ms is not None]
        if not waiting:
            let_pass(min(10_000, duration_ms))
            continue
        log = choose(waiting, now_ms)
        assert log.eligible_at_ms is not None
        log.longest_wait_ms = max(log.longest_wait_ms, now_ms - log.eligible_at_ms)
        seen, kept = log.clean + log.dirty, log.distinct
        let_pass(log.pass_ms())
        log.dirty, log.clean = log.clean + log.dirty - seen, kept
        log.eligible_at_ms = None
        log.note_eligible(now_ms)
    return area / duration_ms


def backlog(shapes: Sequence[Shape]) -> list[SimulatedLog]:
    """Returns logs that no pass has cleaned, as the benchmarks build them."""
    logs = [SimulatedLog(topic=f"topic-{n}", shape=shape) for n, shape in enumerate(shapes)]
    for log in logs:
        log.append(log.shape.records)
    return logs


def writing(shapes: Sequence[Shape], share: float) -> list[SimulatedLog]:
    """Returns logs whose writers together write that share of what the worker reads and writes."""
    logs = [SimulatedLog(topic=f"topic-{n}", shape=shape) for n, shape in enumerate(shapes)]
    for log in logs:
        log.append(log.shape.keys / 2)
        log.records_per_ms = share * IO_BYTES_PER_MS / log.record_bytes / len(logs)
    return logs


@pytest.mark.parametrize("shapes", [*itertools.permutations([SMALL, LARGE, MOSTLY_KEPT])])
def test_a_backlog_of_all_shapes_goes_no_later_than_in_kafkas_order(
    shapes: Sequence[Shape],
) -> None:
    """All these logs are dirty alike, so Kafka takes them in any order."""
    ms = sum(log.pass_ms() for log in backlog(shapes))
    kafkas = simulate(backlog(shapes), as_kafka_does, ms)
    measured = simulate(backlog(shapes), by_measured_benefit(Random(0)), ms)

    assert measured <= kafkas * 1.0001


def test_where_kafka_begins_with_the_log_that_frees_least_a_tenth_of_the_bytes_goes_sooner() -> (
    None
):
    shapes = [MOSTLY_KEPT, LARGE, SMALL]
    ms = sum(log.pass_ms() for log in backlog(shapes))

    measured = simulate(backlog(shapes), by_measured_benefit(Random(0)), ms)
    assert measured < 0.9 * simulate(backlog(shapes), as_kafka_does, ms)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("copies", [1, 3])
def test_beside_writers_no_more_superseded_bytes_are_on_the_disk_and_no_log_waits_too_long(
    share: float, copies: int
) -> None:
    shapes = [SMALL, LARGE, MOSTLY_KEPT] * copies
    ours, theirs = writing(shapes, share), writing(shapes, share)

    measured = simulate(ours, by_measured_benefit(Random(0)), 8 * HOUR_MS)
    kafkas = simulate(theirs, as_kafka_does, 8 * HOUR_MS)

    assert measured <= 1.01 * kafkas
    round_ms = sum(log.pass_ms() for log in ours)
    assert max(log.longest_wait_ms for log in ours) <= HEAD_START_MAX_MS + 2 * round_ms
