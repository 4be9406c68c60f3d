"""When a snapshot is due, and what the files may then take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.trigger import (
    QUIET_SHARE,
    CompactionSettings,
    Measures,
    Reason,
    ReplayRate,
    due,
)
from tests.harness.examples import examples

SETTINGS = CompactionSettings(u=0.1, replay_ms=200, age_ms=1_000, floor_bytes=100)


def measures(**values: float | None) -> Measures:
    base: dict[str, float | None] = {
        "log_bytes": 0,
        "log_entries": 1,
        "snapshot_bytes": 500,
        "next_bytes": None,
        "replay_ms": 0,
        "age_ms": 0,
    }
    return Measures(**(base | values))  # type: ignore[arg-type]


def test_a_snapshot_is_due_once_the_log_times_u_exceeds_the_last_snapshot() -> None:
    assert due(SETTINGS, measures(log_bytes=5_000)) is None
    assert due(SETTINGS, measures(log_bytes=5_001)) is Reason.U


def test_a_small_snapshot_counts_as_large_as_the_floor() -> None:
    assert due(SETTINGS, measures(snapshot_bytes=0, log_bytes=1_000)) is None
    assert due(SETTINGS, measures(snapshot_bytes=0, log_bytes=1_001)) is Reason.U


def test_a_snapshot_that_would_be_larger_than_the_last_one_waits_for_more_log() -> None:
    assert due(SETTINGS, measures(log_bytes=8_000, next_bytes=900)) is None
    assert due(SETTINGS, measures(log_bytes=9_001, next_bytes=900)) is Reason.U


def test_a_long_replay_or_an_old_entry_makes_one_due_before_u_does() -> None:
    assert due(SETTINGS, measures(replay_ms=200.1)) is Reason.REPLAY
    assert due(SETTINGS, measures(age_ms=1_000.1)) is Reason.AGE
    assert due(SETTINGS, measures(log_entries=0, replay_ms=999, age_ms=9_999)) is None


def test_a_quiet_process_snapshots_at_four_fifths_of_each_limit() -> None:
    assert due(SETTINGS, measures(log_bytes=4_000), is_quiet=True) is None
    assert due(SETTINGS, measures(log_bytes=4_001), is_quiet=True) is Reason.U
    assert due(SETTINGS, measures(replay_ms=160.0), is_quiet=True) is None
    assert due(SETTINGS, measures(replay_ms=160.1), is_quiet=True) is Reason.REPLAY
    assert due(SETTINGS, measures(log_entries=0, replay_ms=999), is_quiet=True) is None


def test_the_rate_of_a_replay_is_measured_once_it_had_enough_entries() -> None:
    rate = ReplayRate()
    assumed = rate.estimate_ms(1_000)

    rate.measured(10, 500)
    assert rate.estimate_ms(1_000) == assumed
    rate.measured(10_000, 500)
    assert rate.estimate_ms(1_000) == 50


@settings(max_examples=examples(200), deadline=None)
@given(
    u=st.sampled_from([0.05, 0.1, 0.5, 1.0]),
    growth=st.floats(0, 1),
    knows_size=st.booleans(),
    is_quiet=st.booleans(),
    start=st.integers(0, 5_000),
)
def test_snapshots_write_at_most_u_bytes_for_each_byte_of_log_if_the_size_is_known(
    u: float, growth: float, knows_size: bool, is_quiet: bool, start: int
) -> None:
    """Ongaro's claim; without the size, it fails for a state that grows: the bound is then 1 + u.
    A quiet process, which has the time, writes u / QUIET_SHARE."""
    chosen = CompactionSettings(u=u, replay_ms=1e12, age_ms=1e12, floor_bytes=100)
    state = float(start)
    log = snapshots = 0
    last, since = start, 0
    for _ in range(3_000):
        log, since, state = log + 50, since + 50, state + 50 * growth
        now = measures(
            log_bytes=since,
            snapshot_bytes=last,
            next_bytes=int(state) if knows_size else None,
        )
        if due(chosen, now, is_quiet=is_quiet) is not None:
            last, since = int(state), 0
            snapshots += last

    u = u / QUIET_SHARE if is_quiet else u
    bound = u if knows_size else 1 + u
    assert snapshots <= bound * log + 100
