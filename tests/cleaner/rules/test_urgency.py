"""The order of eligible logs, and that none waits for ever.

LogCleanerManagerTest, testGrabFilthiestCompactedLogReturnsLogWithDirtiestRatio; Kafka has no test of
starvation, from which it suffers (docs/design/cleaning.md).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.pick import Assessment, Blocker, Bounds, Reason
from cleaner.rules.urgency import (
    AGEING_MS,
    HEAD_START_MAX_MS,
    HEAD_STARTS,
    Candidate,
    in_turn,
    urgency,
)
from protocol.wire.numbers import Offset
from storage.formats.config_property import LONG_MAX
from storage.formats.topic_partition import TopicPartition

HOUR_MS = 3_600_000


def assessment(
    *, clean: int = 0, cleanable: int = 100, reason: Reason = Reason.DIRTY
) -> Assessment:
    return Assessment(
        bounds=Bounds(
            first_dirty_offset=Offset(0),
            first_uncleanable_offset=Offset(10),
            limited_by=Blocker.ACTIVE_SEGMENT,
        ),
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        deadline_ms=LONG_MAX,
        horizon_ms=LONG_MAX,
        roll_ms=LONG_MAX,
        wake_ms=LONG_MAX,
        reason=reason,
        blocker=None,
    )


def candidate(
    topic: str = "orders",
    *,
    clean: int = 0,
    cleanable: int = 100,
    reason: Reason = Reason.DIRTY,
    waited_ms: int = 0,
    late_ms: int | None = None,
    is_disk_nearly_full: bool = False,
    gain: float = 1.0,
    priority: str = "normal",
    is_by_benefit: bool = False,
) -> Candidate:
    """Returns a candidate; one with a missed deadline is late for as long as it has waited, unless
    `late_ms` says otherwise."""
    if reason is Reason.DEADLINE and late_ms is None:
        late_ms = waited_ms
    return Candidate(
        topic_partition=TopicPartition(topic, 0),
        assessment=assessment(clean=clean, cleanable=cleanable, reason=reason),
        waited_ms=waited_ms,
        late_ms=late_ms,
        is_disk_nearly_full=is_disk_nearly_full,
        gain=gain,
        head_start=HEAD_STARTS[priority],
        is_by_benefit=is_by_benefit,
    )


def most_urgent(*candidates: Candidate) -> Candidate:
    return max(candidates, key=urgency)


def test_of_logs_that_wait_alike_the_dirtiest_is_served_first() -> None:
    half, whole = candidate(clean=100), candidate()

    assert most_urgent(half, whole) is whole


def late(topic: str = "orders", *, late_ms: int, **other: Any) -> Candidate:
    waited_ms = max(other.pop("waited_ms", 0), late_ms)
    return candidate(topic, reason=Reason.DEADLINE, late_ms=late_ms, waited_ms=waited_ms, **other)


def test_deadlines_come_before_internal_topics_and_these_before_dirt() -> None:
    offsets = candidate("__consumer_offsets", clean=90, cleanable=100)
    first, second = late(late_ms=1, clean=90), late(late_ms=0, clean=90)
    dirty = candidate()
    due = candidate(clean=100, cleanable=0, reason=Reason.TOMBSTONES_DUE)

    assert in_turn([due, dirty, second, first, offsets]) == [first, second, offsets, dirty, due]


def test_late_logs_are_served_by_their_deadlines_whatever_else_is_true_of_them() -> None:
    earliest = late("low", late_ms=3, clean=1000, cleanable=1, priority="low")
    middle = late("__internal", late_ms=2, priority="high")
    latest = late("long", late_ms=1, waited_ms=5 * HOUR_MS, priority="high")

    assert most_urgent(earliest, middle, latest) is latest
    assert in_turn([latest, middle, earliest]) == [earliest, middle, latest]


def test_a_late_log_has_its_turn_only_where_a_late_log_is_the_most_urgent() -> None:
    waited = candidate("waited", waited_ms=9 * HOUR_MS)
    long, short = late("long", late_ms=0, waited_ms=10 * HOUR_MS), late("short", late_ms=5)

    assert in_turn([waited, long, short]) == [short, waited, long]


def test_on_a_nearly_full_disk_no_deadline_has_a_turn() -> None:
    one, other = (late(late_ms=ms, is_disk_nearly_full=True, gain=1 / ms) for ms in (1, 2))

    assert in_turn([other, one]) == [one, other]


def test_a_log_that_has_waited_goes_before_a_dirtier_one_that_has_not() -> None:
    due = candidate(clean=100, cleanable=0, reason=Reason.TOMBSTONES_DUE, waited_ms=AGEING_MS + 1)

    assert most_urgent(candidate(), due) is due


def test_a_late_log_goes_before_all_that_have_waited_for_less_than_an_hour_longer() -> None:
    least = late(late_ms=HOUR_MS, clean=99, cleanable=1, priority="low")
    for waited_ms, is_first in ((2 * HOUR_MS - 1, True), (2 * HOUR_MS + 1, False)):
        other = candidate("__consumer_offsets", priority="high", waited_ms=waited_ms)
        assert (most_urgent(other, least) is least) == is_first


def test_a_topics_priority_counts_as_half_an_hour_of_waiting() -> None:
    high, normal, low = (candidate(priority=each) for each in ("high", "normal", "low"))

    assert sorted([low, high, normal], key=urgency, reverse=True) == [high, normal, low]
    assert most_urgent(high, candidate(waited_ms=HOUR_MS // 2 - 1)) is high
    assert most_urgent(high, candidate(waited_ms=HOUR_MS // 2 + 1)) is not high
    assert most_urgent(candidate(priority="low", waited_ms=HOUR_MS // 2 + 1), normal) is not normal


def test_by_benefit_the_log_goes_first_that_frees_most_bytes_per_byte_of_io() -> None:
    gainful = candidate(clean=100, cleanable=100, gain=0.9, is_by_benefit=True)
    gainless = candidate(clean=0, cleanable=5000, gain=0.05, is_by_benefit=True)
    waited = candidate(cleanable=100, gain=0.0, is_by_benefit=True, waited_ms=AGEING_MS)

    order = sorted([gainless, gainful, waited], key=urgency, reverse=True)

    assert order == [waited, gainful, gainless]
    assert urgency(candidate(is_by_benefit=True))[1] == 1.0
    assert most_urgent(candidate(clean=100), candidate(clean=0)).assessment.clean_bytes == 0


def test_where_the_disk_is_nearly_full_only_the_bytes_freed_by_byte_of_io_count() -> None:
    internal = candidate("__consumer_offsets", clean=10_000, is_disk_nearly_full=True)
    gainful = candidate(clean=100, cleanable=50, is_disk_nearly_full=True)
    gainless = candidate(clean=0, cleanable=5000, is_disk_nearly_full=True, gain=0.01)
    elsewhere = candidate(waited_ms=HEAD_START_MAX_MS * 2)

    order = sorted([elsewhere, internal, gainless, gainful], key=urgency, reverse=True)

    assert order == [gainful, internal, gainless, elsewhere]


REASONS = st.sampled_from([Reason.DEADLINE, Reason.DIRTY, Reason.TOMBSTONES_DUE])
TOPICS = st.sampled_from(["orders", "__consumer_offsets"])
WAITS_MS = st.integers(0, 2 * HEAD_START_MAX_MS)
REST: dict[str, Any] = {
    "clean": st.integers(0, 1000),
    "cleanable": st.integers(0, 1000),
    "waited_ms": WAITS_MS,
    "gain": st.floats(0, 1),
    "priority": st.sampled_from(list(HEAD_STARTS)),
    "is_by_benefit": st.just(value=False) | st.just(value=True),
}
CANDIDATES = st.builds(candidate, TOPICS, reason=REASONS, **REST) | st.builds(
    late, TOPICS, late_ms=WAITS_MS, **REST
)


@given(one=CANDIDATES, other=CANDIDATES, later_ms=st.integers(0, 10**12))
def test_which_of_two_goes_first_does_not_change_while_both_wait(
    one: Candidate, other: Candidate, later_ms: int
) -> None:
    def aged(each: Candidate) -> Candidate:
        late_ms = None if each.late_ms is None else each.late_ms + later_ms
        return replace(each, waited_ms=each.waited_ms + later_ms, late_ms=late_ms)

    difference = urgency(one)[1] - urgency(other)[1]
    if abs(difference) > 1e-3:
        assert (urgency(aged(one)) > urgency(aged(other))) == (difference > 0)


@given(one=CANDIDATES, other=CANDIDATES)
def test_nobody_overtakes_who_has_waited_longer_than_all_head_starts(
    one: Candidate, other: Candidate
) -> None:
    if one.waited_ms > other.waited_ms + HEAD_START_MAX_MS:
        assert urgency(one) > urgency(other)


@given(candidates=st.lists(CANDIDATES, max_size=8))
def test_late_logs_are_in_the_order_of_their_deadlines_and_the_others_where_they_were(
    candidates: list[Candidate],
) -> None:
    order, by_urgency = in_turn(candidates), sorted(candidates, key=urgency, reverse=True)

    deadlines = [each.late_ms for each in order if each.late_ms is not None]
    assert deadlines == sorted(deadlines, reverse=True)
    assert [each.late_ms is None for each in order] == [each.late_ms is None for each in by_urgency]
    assert [each for each in order if each.late_ms is None] == [
        each for each in by_urgency if each.late_ms is None
    ]


# -------------------------------------------------------------------- a cleaner with one worker


@dataclass(kw_only=True)
class Waiting:
    """A log in the simulation, eligible again `pause_ms` after each pass."""

    topic: str
    pause_ms: int
    pass_ms: int
    clean: int = 0
    cleanable: int = 100
    reason: Reason = Reason.DIRTY
    gain: float = 1.0
    is_by_benefit: bool = False
    late_after_ms: int = 0
    """For DEADLINE: it is only dirty for so long before it is late."""
    eligible_at_ms: int = 0
    longest_wait_ms: int = 0

    def candidate(self, now_ms: int) -> Candidate:
        waited_ms = now_ms - self.eligible_at_ms
        is_late = self.reason is Reason.DEADLINE and waited_ms >= self.late_after_ms
        return candidate(
            self.topic,
            clean=self.clean,
            cleanable=self.cleanable,
            reason=Reason.DIRTY if self.reason is Reason.DEADLINE and not is_late else self.reason,
            waited_ms=waited_ms,
            gain=self.gain,
            is_by_benefit=self.is_by_benefit,
            late_ms=waited_ms - self.late_after_ms if is_late else None,
        )


def simulate(logs: list[Waiting], duration_ms: int) -> Counter[str]:
    """Let one worker clean the most urgent logs, one after the other. Returns the passes by topic."""
    now_ms, passes = 0, Counter[str]()
    while now_ms < duration_ms:
        waiting = [log for log in logs if log.eligible_at_ms <= now_ms]
        if not waiting:
            now_ms = min(log.eligible_at_ms for log in logs)
            continue
        candidates = [log.candidate(now_ms) for log in waiting]
        first = in_turn(candidates)[0]
        chosen = next(log for log, each in zip(waiting, candidates, strict=True) if each is first)
        chosen.longest_wait_ms = max(chosen.longest_wait_ms, now_ms - chosen.eligible_at_ms)
        now_ms += chosen.pass_ms
        chosen.eligible_at_ms = now_ms + chosen.pause_ms
        passes[chosen.topic] += 1
    return passes


def test_logs_that_are_always_dirty_starve_nobody() -> None:
    """Three logs could use all of the worker's time; one of them is internal, one always late."""
    greedy = [
        Waiting(topic="__consumer_offsets", pause_ms=0, pass_ms=60_000),
        Waiting(topic="late", pause_ms=0, pass_ms=60_000, reason=Reason.DEADLINE),
        Waiting(topic="dirty", pause_ms=0, pass_ms=60_000),
    ]
    modest = [
        Waiting(topic=f"modest-{n}", pause_ms=HOUR_MS, pass_ms=1000, clean=95) for n in range(20)
    ]
    due = Waiting(
        topic="due", pause_ms=HOUR_MS, pass_ms=1000, cleanable=0, reason=Reason.TOMBSTONES_DUE
    )

    passes = simulate([*greedy, *modest, due], duration_ms=7 * 24 * HOUR_MS)

    assert len(passes) == 24
    bound_ms = HEAD_START_MAX_MS + sum(log.pass_ms for log in [*greedy, *modest, due])
    assert max(log.longest_wait_ms for log in [*greedy, *modest, due]) <= bound_ms
    assert all(passes[log.topic] >= 30 for log in [*modest, due])
    assert passes["late"] > passes["__consumer_offsets"] > passes["dirty"] > 0


@given(
    logs=st.lists(
        st.builds(
            Waiting,
            topic=st.sampled_from(["a", "b", "__c"]),
            pause_ms=st.integers(0, HOUR_MS),
            pass_ms=st.integers(60_000, 600_000),
            clean=st.integers(0, 1000),
            cleanable=st.integers(0, 1000),
            reason=REASONS,
            gain=st.floats(0, 1),
            is_by_benefit=st.booleans(),
            late_after_ms=st.integers(0, 6 * HOUR_MS),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_log_waits_no_longer_than_the_head_starts_and_a_round(logs: list[Waiting]) -> None:
    """The bound holds as long as the worker can serve all logs once within the head starts."""
    simulate(logs, duration_ms=12 * HOUR_MS)

    round_ms = sum(log.pass_ms for log in logs)
    assert max(log.longest_wait_ms for log in logs) <= HEAD_START_MAX_MS + 2 * round_ms
