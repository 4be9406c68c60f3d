"""A mirror never misses a tombstone without saying so; one that keeps up never says so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.replication.tombstones import (
    MARGIN_MS_MAX,
    SAMPLE_EVERY_MS,
    SAMPLES_MAX,
    TombstoneWatch,
)

RETENTION_MS = 3_600_000


def test_a_mirror_that_keeps_up_misses_nothing() -> None:
    watch = TombstoneWatch(None)
    for now_ms in range(0, 10 * RETENTION_MS, RETENTION_MS):
        watch.note(now_ms, source_end=now_ms, end=now_ms, is_empty=False)
        assert watch.missed(now_ms, RETENTION_MS) == ""


def test_one_that_lags_for_longer_than_tombstones_are_kept_says_so() -> None:
    watch = TombstoneWatch(None)
    watch.note(0, source_end=10, end=10, is_empty=False)
    watch.note(1_000, source_end=20, end=10, is_empty=False)
    assert watch.missed(RETENTION_MS - MARGIN_MS_MAX, RETENTION_MS) == ""
    text = watch.missed(RETENTION_MS, RETENTION_MS)
    assert "has lagged for 3600 s" in text
    assert "delete.retention.ms" in text


def test_nothing_is_known_of_a_mirror_whose_slot_was_lost() -> None:
    assert "not known" in TombstoneWatch(None).missed(0, RETENTION_MS)


def test_copying_up_to_an_earlier_end_makes_it_safe_since_then() -> None:
    watch = TombstoneWatch(0)
    for step in range(1, 11):
        watch.note(step * SAMPLE_EVERY_MS, source_end=100 * step, end=0, is_empty=False)
    watch.note(11 * SAMPLE_EVERY_MS, source_end=1100, end=500, is_empty=False)
    assert watch.safe_ms == 5 * SAMPLE_EVERY_MS


def test_a_first_copy_counts_from_its_beginning() -> None:
    watch = TombstoneWatch(None)
    watch.note(5_000, source_end=1_000_000, end=0, is_empty=True)
    watch.note(6_000, source_end=1_000_000, end=100, is_empty=False)
    assert watch.missed(5_000 + RETENTION_MS // 2, RETENTION_MS) == ""
    assert watch.missed(5_000 + RETENTION_MS, RETENTION_MS) != ""


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 100_000), st.integers(0, 50), st.integers(0, 50)), max_size=60
    )
)
def test_it_is_never_safe_since_a_time_at_which_the_source_had_more(
    steps: list[tuple[int, int, int]],
) -> None:
    """The model keeps every answer; the watch may only be more careful."""
    watch, answers, now_ms, source_end, end = TombstoneWatch(0), [(0, 0)], 0, 0, 0
    for passed_ms, written, copied in steps:
        now_ms += passed_ms
        source_end += written
        watch.note(now_ms, source_end=source_end, end=end, is_empty=False)
        answers.append((now_ms, source_end))
        safe_ms = max(at for at, its_end in answers if its_end <= end)
        assert watch.safe_ms is not None
        assert watch.safe_ms <= safe_ms
        assert len(watch._samples) <= SAMPLES_MAX
        end = min(source_end, end + copied)


def test_a_watch_that_has_forgotten_does_not_know_what_is_missing() -> None:
    watch = TombstoneWatch(0)
    watch.note(1_000, source_end=9, end=5, is_empty=False)

    watch.forget()
    watch.note(2_000, source_end=9, end=5, is_empty=False)

    assert "it is not known since when the mirror lags" in watch.missed(2_000, RETENTION_MS)
