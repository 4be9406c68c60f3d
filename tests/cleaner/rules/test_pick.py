"""The assessment of a log: its bounds, whether it is eligible, when its active segment rolls.

The cases follow the rules of KIP-58 (minimum lag), KIP-354 (maximum lag), KIP-534 (tombstones) and
of Kafka's LogCleanerManagerTest: testCleanableOffsets{ForNone, ActiveSegment, ForTime, ForShortTime,
NeedsCheckpointReset}, testUndecidedTransactionalDataNotCleanable, testDirtyOffsetResetIf{LargerThanEnd,
SmallerThanStart}Offset, testLogStartOffsetLargerThanActiveSegmentBaseOffset,
testDirtyOffsetLargerThanActiveSegmentBaseOffset; of LogCleanerTest: testLogToClean,
testLogToCleanWithUncleanableSection; of LogCleanerIntegrationTest: testMaxLogCompactionLag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cleaner.rules.fence import fence_around
from cleaner.rules.hold import Hold
from cleaner.rules.pick import Assessment, Blocker, Reason, Remainder, assess
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN, SegmentRow

NOW_MS = 1_000_000
COMPACT = LogConfig(cleanup_policy=("compact",))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A log of segments of ten offsets and 100 bytes each, as picking sees it."""

    sealed_rows: tuple[SegmentRow, ...]
    clean_offset: Offset
    active_row: SegmentRow
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    has_history: bool = False


def row(index: int, *, appended_ms: int = 0, horizon_ms: int = -1, size: int = 100) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(index * 10),
        end_offset=Offset(index * 10 + 10),
        file_version=index + 1,
        size=size,
        created_ms=appended_ms,
        first_append_ms=appended_ms,
        last_append_ms=appended_ms,
        tombstone_count=int(horizon_ms >= 0),
        least_delete_horizon_ms=horizon_ms,
    )


def log_of(
    *rows: SegmentRow, clean_offset: int = 0, active_records: int = 5, active_ms: int = NOW_MS
) -> State:
    base = rows[-1].end_offset if rows else Offset(0)
    end = Offset(base + active_records)
    return State(
        sealed_rows=rows,
        clean_offset=Offset(clean_offset),
        active_row=SegmentRow(
            base_offset=base,
            end_offset=end,
            file_version=99,
            size=active_records * 10,
            created_ms=active_ms,
            first_append_ms=active_ms if active_records else UNKNOWN,
            last_append_ms=active_ms if active_records else UNKNOWN,
        ),
        log_start_offset=Offset(0),
        last_stable_offset=end,
        high_watermark=end,
        log_end_offset=end,
    )


def bounds_of(assessment: Assessment) -> tuple[int, int]:
    bounds = assessment.bounds
    return bounds.first_dirty_offset, bounds.first_uncleanable_offset


def test_everything_from_the_clean_offset_to_the_active_segment_is_cleanable() -> None:
    assessment = assess(log_of(row(0), row(1), row(2), clean_offset=10), COMPACT, NOW_MS)

    assert bounds_of(assessment) == (10, 30)
    assert (assessment.clean_bytes, assessment.cleanable_bytes) == (100, 200)
    assert assessment.reason is Reason.DIRTY


@pytest.mark.parametrize(
    ("ratio", "reason", "blocker"),
    [
        pytest.param(0.49, Reason.DIRTY, None, id="below_the_log's"),
        pytest.param(0.5, None, Blocker.RATIO, id="exactly_the_log's"),
        pytest.param(0.51, None, Blocker.RATIO, id="above_the_log's"),
    ],
)
def test_the_dirty_ratio_must_be_exceeded(
    ratio: float, reason: Reason | None, blocker: Blocker | None
) -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=ratio)

    assessment = assess(log_of(row(0), row(1), clean_offset=10), config, NOW_MS)

    assert assessment.dirty_ratio == 0.5
    assert (assessment.reason, assessment.blocker) == (reason, blocker)


@pytest.mark.parametrize(
    ("field", "blocker"),
    [
        pytest.param("last_stable_offset", Blocker.LAST_STABLE_OFFSET, id="open_transaction"),
        pytest.param("high_watermark", Blocker.HIGH_WATERMARK, id="not_durable_yet"),
    ],
)
def test_nothing_at_or_past_an_offset_that_may_go_is_cleaned(field: str, blocker: Blocker) -> None:
    changes = {"last_stable_offset": 17, field: 17}
    log = replace(log_of(row(0), row(1), row(2)), **changes)  # type: ignore[arg-type]

    assessment = assess(log, COMPACT, NOW_MS)

    assert bounds_of(assessment) == (0, 17)
    assert assessment.bounds.limited_by is blocker
    assert assessment.cleanable_bytes == 200


def test_an_offset_bound_at_the_first_dirty_offset_leaves_nothing() -> None:
    log = replace(log_of(row(0), row(1)), last_stable_offset=Offset(0))

    assessment = assess(log, COMPACT, NOW_MS)

    assert assessment.reason is None
    assert assessment.blocker is Blocker.LAST_STABLE_OFFSET


def test_the_first_segment_younger_than_the_minimum_lag_bounds_the_pass() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    log = log_of(
        row(0, appended_ms=NOW_MS - 5000),
        row(1, appended_ms=NOW_MS - 999),
        row(2, appended_ms=NOW_MS - 5000),
    )

    assessment = assess(log, config, NOW_MS)

    assert bounds_of(assessment) == (0, 10)
    assert assessment.bounds.limited_by is Blocker.MIN_LAG


def test_a_segment_exactly_as_old_as_the_minimum_lag_is_cleanable() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)

    assessment = assess(log_of(row(0, appended_ms=NOW_MS - 1000)), config, NOW_MS)

    assert bounds_of(assessment) == (0, 10)


def test_a_young_segment_that_is_clean_already_bounds_nothing() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    log = log_of(row(0, appended_ms=NOW_MS), row(1, appended_ms=NOW_MS - 2000), clean_offset=10)

    assert bounds_of(assess(log, config, NOW_MS)) == (10, 20)


def test_record_timestamps_in_the_future_hold_nothing_back() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    future = replace(row(0, appended_ms=NOW_MS - 2000), max_timestamp=NOW_MS * 1000)

    assert bounds_of(assess(log_of(future), config, NOW_MS)) == (0, 10)


def test_no_minimum_lag_holds_nothing_back_even_if_the_clock_went_back() -> None:
    assert bounds_of(assess(log_of(row(0, appended_ms=NOW_MS * 2)), COMPACT, NOW_MS)) == (0, 10)


@pytest.mark.parametrize(
    ("waited_ms", "reason"),
    [
        pytest.param(999, None, id="before_the_deadline"),
        pytest.param(1000, Reason.DEADLINE, id="at_the_deadline"),
    ],
)
def test_the_maximum_lag_cleans_a_log_whatever_its_ratio(
    waited_ms: int, reason: Reason | None
) -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.9)
    log = log_of(row(0), row(1, appended_ms=NOW_MS - waited_ms), clean_offset=10)

    assert assess(log, config, NOW_MS).reason is reason


def test_a_deadline_without_cleanable_bytes_picks_nothing() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1)
    log = log_of(row(0), row(1), clean_offset=20)

    assert assess(log, config, NOW_MS).reason is None


def test_a_due_delete_horizon_picks_a_log_without_dirty_bytes() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS), row(1), clean_offset=20)

    assessment = assess(log, COMPACT, NOW_MS)

    assert assessment.reason is Reason.TOMBSTONES_DUE
    assert bounds_of(assessment) == (20, 20)


def test_a_delete_horizon_is_not_due_before_its_time() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS + 1), row(1), clean_offset=20)

    assessment = assess(log, COMPACT, NOW_MS)

    assert (assessment.reason, assessment.horizon_ms) == (None, NOW_MS + 1)


def test_a_held_tombstone_is_not_picked_again_until_something_follows_it() -> None:
    held = log_of(row(0, horizon_ms=NOW_MS - 1), clean_offset=10)
    remainder = Remainder(first_uncleanable_offset=Offset(10), now_ms=NOW_MS)
    followed = log_of(row(0, horizon_ms=NOW_MS - 1), row(1, size=1), clean_offset=10)

    assert assess(held, COMPACT, NOW_MS).reason is Reason.TOMBSTONES_DUE
    assert assess(held, COMPACT, NOW_MS + 10**9, remainder=remainder).reason is None
    assert assess(followed, COMPACT, NOW_MS, remainder=remainder).reason is Reason.TOMBSTONES_DUE


def test_a_horizon_that_falls_due_after_the_last_pass_is_seen_beside_a_held_one() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS + 5), row(1, horizon_ms=NOW_MS - 1), clean_offset=20)
    remainder = Remainder(first_uncleanable_offset=Offset(20), now_ms=NOW_MS)

    assert assess(log, COMPACT, NOW_MS + 4, remainder=remainder).reason is None
    assert assess(log, COMPACT, NOW_MS + 5, remainder=remainder).reason is Reason.TOMBSTONES_DUE


def test_horizons_follow_their_own_clock_where_there_is_one() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS), clean_offset=10)

    assert assess(log, COMPACT, NOW_MS, horizon_now_ms=NOW_MS - 1).reason is None


@pytest.mark.parametrize(
    ("log", "blocker"),
    [
        pytest.param(log_of(), Blocker.ACTIVE_SEGMENT, id="only_the_active_segment_has_data"),
        pytest.param(log_of(active_records=0), Blocker.NOTHING_DIRTY, id="an_empty_log"),
        pytest.param(
            log_of(row(0), clean_offset=10, active_records=0),
            Blocker.NOTHING_DIRTY,
            id="all_clean",
        ),
        pytest.param(
            log_of(row(0), clean_offset=10), Blocker.ACTIVE_SEGMENT, id="all_sealed_ones_clean"
        ),
    ],
)
def test_a_log_with_nothing_to_clean_says_why(log: State, blocker: Blocker) -> None:
    assessment = assess(log, COMPACT, NOW_MS)

    assert (assessment.reason, assessment.blocker) == (None, blocker)


def test_a_log_that_is_not_compacted_is_never_picked() -> None:
    assessment = assess(log_of(row(0)), LogConfig(), NOW_MS, requested=True)

    assert assessment.blocker is Blocker.NOT_COMPACTED


def test_a_request_needs_no_dirty_ratio() -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0)

    assert assess(log_of(row(0)), config, NOW_MS).reason is None
    assert assess(log_of(row(0)), config, NOW_MS, requested=True).reason is Reason.REQUESTED


@pytest.mark.parametrize(
    ("clean_offset", "log_start_offset", "first_dirty"),
    [
        pytest.param(0, 12, 12, id="below_the_log_start"),
        pytest.param(200, 0, 0, id="beyond_the_log_end"),
        pytest.param(32, 0, 32, id="beyond_the_active_base"),
    ],
)
def test_a_clean_offset_out_of_the_log_is_put_right(
    clean_offset: int, log_start_offset: int, first_dirty: int
) -> None:
    log = log_of(row(0), row(1), row(2), clean_offset=clean_offset)
    log = replace(log, log_start_offset=Offset(log_start_offset))

    assessment = assess(log, COMPACT, NOW_MS)

    assert assessment.bounds.first_dirty_offset == first_dirty
    assert assessment.bounds.first_uncleanable_offset >= first_dirty


def test_a_log_whose_start_lies_in_its_only_segment_has_nothing_to_clean() -> None:
    log = replace(log_of(active_records=9), log_start_offset=Offset(4))

    assert bounds_of(assess(log, COMPACT, NOW_MS)) == (4, 4)


def test_an_open_transaction_keeps_all_behind_its_start_and_its_end_lets_it_go() -> None:
    """testUndecidedTransactionalDataNotCleanable."""
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    log = log_of(row(0, appended_ms=NOW_MS - 1000), row(1, appended_ms=NOW_MS))
    undecided = replace(log, last_stable_offset=Offset(0))

    assert bounds_of(assess(undecided, config, NOW_MS)) == (0, 0)
    assert bounds_of(assess(log, config, NOW_MS)) == (0, 10)
    assert bounds_of(assess(log, config, NOW_MS + 1000)) == (0, 20)


# -------------------------------------------------------------------- the lag in bytes


@pytest.mark.parametrize(
    ("lag_bytes", "bound"),
    [
        pytest.param(0, 30, id="none"),
        pytest.param(50, 30, id="the_active_segment_is_enough"),
        pytest.param(51, 20, id="one_byte_more"),
        pytest.param(150, 20, id="a_segment_more"),
        pytest.param(151, 10, id="and_a_byte"),
        pytest.param(10**9, 0, id="more_than_the_log"),
    ],
)
def test_whole_segments_of_min_compaction_lag_bytes_stay_untouched(
    lag_bytes: int, bound: int
) -> None:
    config = replace(COMPACT, min_compaction_lag_bytes=lag_bytes)

    assessment = assess(log_of(row(0), row(1), row(2)), config, NOW_MS)

    assert bounds_of(assessment) == (0, bound)
    if bound < 30:
        assert assessment.bounds.limited_by is Blocker.MIN_LAG_BYTES
    if bound == 0:
        assert assessment.blocker is Blocker.MIN_LAG_BYTES


def test_of_both_minimum_lags_the_larger_head_stays() -> None:
    log = log_of(row(0), row(1, appended_ms=NOW_MS), row(2, appended_ms=NOW_MS))
    by_time = replace(COMPACT, min_compaction_lag_ms=10, min_compaction_lag_bytes=51)
    by_size = replace(COMPACT, min_compaction_lag_ms=10, min_compaction_lag_bytes=251)

    assert bounds_of(assess(log, by_time, NOW_MS)) == (0, 10)
    assert bounds_of(assess(log, by_size, NOW_MS)) == (0, 0)


def test_a_head_by_size_does_not_outlive_the_maximum_lag() -> None:
    config = replace(COMPACT, min_compaction_lag_bytes=10**9, max_compaction_lag_ms=1000)
    log = log_of(row(0, appended_ms=NOW_MS - 1000), row(1, appended_ms=NOW_MS - 999))

    assessment = assess(log, config, NOW_MS)

    assert (assessment.reason, bounds_of(assessment)) == (Reason.DEADLINE, (0, 10))


def test_neither_lag_listens_to_record_timestamps() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000, min_compaction_lag_bytes=50)
    future = replace(row(0), max_timestamp=NOW_MS * 1000)

    assert bounds_of(assess(log_of(future), config, NOW_MS)) == (0, 10)


# -------------------------------------------------------------------- the active segment's roll

IDLE = replace(COMPACT, compaction_idle_roll_ms=1000)


def test_an_idle_active_segment_that_makes_the_log_dirty_enough_rolls() -> None:
    assert assess(log_of(active_ms=NOW_MS), IDLE, NOW_MS).roll_ms == NOW_MS + 1000


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(log_of(active_records=0), id="it_is_empty"),
        pytest.param(
            log_of(row(0), clean_offset=10, active_records=0), id="all_was_rolled_and_cleaned"
        ),
        pytest.param(log_of(row(0), clean_offset=10, active_records=10), id="exactly_the_ratio"),
        pytest.param(
            replace(log_of(row(0)), last_stable_offset=Offset(10)), id="it_may_not_be_cleaned_yet"
        ),
        pytest.param(replace(log_of(row(0)), high_watermark=Offset(10)), id="it_is_not_safe_yet"),
    ],
)
def test_an_idle_active_segment_stays_where_a_roll_gains_nothing(log: State) -> None:
    assert assess(log, IDLE, NOW_MS + 10**9).roll_ms == LONG_MAX


def test_dirt_that_has_rolled_already_counts_for_the_active_segment() -> None:
    log = log_of(row(0), row(1), clean_offset=10, active_records=1)

    assessment = assess(log, IDLE, NOW_MS)

    assert (assessment.blocker, assessment.roll_ms) == (Blocker.RATIO, NOW_MS + 1000)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"compaction_idle_roll_ms": -1}, id="switched_off"),
        pytest.param({"min_compaction_lag_bytes": 1}, id="it_would_stay_in_the_head"),
        pytest.param({"cleanup_policy": ("delete",)}, id="not_compacted"),
    ],
)
def test_settings_that_keep_an_idle_active_segment(changes: dict[str, int]) -> None:
    config = replace(IDLE, **changes)  # type: ignore[arg-type]

    assert assess(log_of(), config, NOW_MS).roll_ms == LONG_MAX


def test_an_idle_segment_does_not_roll_before_the_minimum_lag_lets_a_pass_at_it() -> None:
    config = replace(IDLE, min_compaction_lag_ms=5000)

    assert assess(log_of(), config, NOW_MS).roll_ms == NOW_MS + 5000


def test_the_maximum_lag_rolls_an_active_segment_whatever_the_ratio() -> None:
    config = replace(IDLE, max_compaction_lag_ms=100, compaction_idle_roll_ms=-1)
    log = log_of(row(0), clean_offset=10, active_records=1, active_ms=NOW_MS - 30)

    assessment = assess(log, config, NOW_MS)

    assert (assessment.roll_ms, assessment.deadline_ms) == (NOW_MS + 70, NOW_MS + 70)


# -------------------------------------------------------------------- the next moment


@pytest.mark.parametrize(
    ("log", "changes", "moment"),
    [
        pytest.param(log_of(active_records=0), {}, LONG_MAX, id="nothing"),
        pytest.param(
            log_of(row(0), row(1, appended_ms=NOW_MS - 10), clean_offset=10, active_records=0),
            {"max_compaction_lag_ms": 1000},
            NOW_MS + 990,
            id="deadline",
        ),
        pytest.param(
            log_of(row(0, horizon_ms=NOW_MS + 7), clean_offset=10, active_records=0),
            {},
            NOW_MS + 7,
            id="horizon",
        ),
        pytest.param(
            log_of(row(0, appended_ms=NOW_MS - 10), active_records=0),
            {"min_compaction_lag_ms": 1000},
            NOW_MS + 990,
            id="minimum_lag",
        ),
        pytest.param(
            log_of(active_ms=NOW_MS - 10),
            {"compaction_idle_roll_ms": 1000},
            NOW_MS + 990,
            id="idle_roll",
        ),
    ],
)
def test_the_next_moment_is_when_time_alone_changes_the_answer(
    log: State, changes: dict[str, int], moment: int
) -> None:
    config = replace(COMPACT, **changes)  # type: ignore[arg-type]

    before = assess(log, config, NOW_MS)

    assert before.wake_ms == moment
    if moment < LONG_MAX:
        early, then = assess(log, config, moment - 1), assess(log, config, moment)
        assert (early.reason, early.roll_ms > moment - 1) == (None, True)
        assert then.reason is not None or then.roll_ms <= moment


def test_a_horizon_of_another_clock_is_told_in_wall_time() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS + 7), clean_offset=10, active_records=0)

    assert assess(log, COMPACT, NOW_MS, horizon_now_ms=NOW_MS - 100).wake_ms == NOW_MS + 107


@pytest.mark.parametrize("first_append_ms", [0, NOW_MS - 501, NOW_MS - 500])
def test_a_deadline_stays_passed(first_append_ms: int) -> None:
    config = replace(COMPACT, max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0)

    assessment = assess(log_of(row(0, appended_ms=first_append_ms)), config, NOW_MS)

    assert assessment.reason is Reason.DEADLINE


def test_a_maximum_lag_of_for_ever_has_no_deadline() -> None:
    """The largest value means never, also for a record of the year 1970."""
    config = replace(COMPACT, max_compaction_lag_ms=LONG_MAX, min_cleanable_dirty_ratio=1.0)
    log = replace(log_of(row(0)), active_row=replace(row(1), first_append_ms=-2))

    assert assess(log, config, NOW_MS).deadline_ms == LONG_MAX


@pytest.mark.parametrize("past_ms", [300, 500])
def test_a_head_by_size_yields_to_a_deadline_that_passed_long_ago(past_ms: int) -> None:
    config = replace(
        COMPACT, min_compaction_lag_bytes=1 << 20, max_compaction_lag_ms=NOW_MS - past_ms
    )

    assert bounds_of(assess(log_of(row(0), row(1)), config, NOW_MS)) == (0, 20)


def test_a_head_of_one_byte_keeps_a_segment_only_while_nothing_follows_it() -> None:
    config = replace(COMPACT, min_compaction_lag_bytes=1)

    assert bounds_of(assess(log_of(row(0), row(1), active_records=0), config, NOW_MS)) == (0, 10)
    assert bounds_of(assess(log_of(row(0), row(1)), config, NOW_MS)) == (0, 20)


def test_a_minimum_lag_of_a_millisecond_counts() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1)

    assert bounds_of(assess(log_of(row(0, appended_ms=NOW_MS)), config, NOW_MS)) == (0, 0)
    assert bounds_of(assess(log_of(row(0, appended_ms=NOW_MS)), config, NOW_MS + 1)) == (0, 10)


def test_a_segment_without_append_times_is_as_old_as_its_file() -> None:
    """So a manifest that was rebuilt from the segments has it."""
    config = replace(COMPACT, min_compaction_lag_ms=100)
    rebuilt = replace(row(0), created_ms=NOW_MS, first_append_ms=UNKNOWN, last_append_ms=UNKNOWN)
    older = replace(row(0), created_ms=NOW_MS, first_append_ms=0, last_append_ms=0)

    assert bounds_of(assess(log_of(rebuilt), config, NOW_MS)) == (0, 0)
    assert bounds_of(assess(log_of(older), config, NOW_MS)) == (0, 10)


def stuck(at: int) -> Remainder:
    return Remainder(first_uncleanable_offset=Offset(at), now_ms=NOW_MS, is_stuck=True)


@pytest.mark.parametrize(
    ("remainder", "cleanable_bytes"),
    [
        pytest.param(None, 200, id="first_pass"),
        pytest.param(stuck(20), 0, id="stuck_at_the_same_bound"),
        pytest.param(stuck(10), 200, id="the_bound_moved_up"),
        pytest.param(stuck(30), 200, id="the_bound_moved_down"),
        pytest.param(replace(stuck(20), is_stuck=False), 200, id="not_stuck"),
        pytest.param(
            Remainder(first_uncleanable_offset=Offset(20), now_ms=NOW_MS),
            200,
            id="not_stuck_by_default",
        ),
    ],
)
def test_a_pass_that_an_open_transaction_stopped_waits_for_the_bound_to_move(
    remainder: Remainder | None, cleanable_bytes: int
) -> None:
    assessment = assess(log_of(row(0), row(1)), COMPACT, NOW_MS, remainder=remainder)

    assert assessment.cleanable_bytes == cleanable_bytes
    assert assessment.blocker is (None if cleanable_bytes else Blocker.LAST_STABLE_OFFSET)
    assert bounds_of(assessment) == (0, 20 if cleanable_bytes else 0)


def test_a_request_is_not_held_by_what_stopped_the_last_pass() -> None:
    assessment = assess(
        log_of(row(0), row(1)), COMPACT, NOW_MS, remainder=stuck(20), requested=True
    )

    assert assessment.cleanable_bytes == 200


def test_a_horizon_in_the_segment_at_the_upper_bound_is_not_due() -> None:
    log = replace(log_of(row(0), row(1, horizon_ms=1), clean_offset=10), high_watermark=Offset(10))

    assert (
        assess(replace(log, last_stable_offset=Offset(10)), COMPACT, NOW_MS).horizon_ms == LONG_MAX
    )
    assert assess(replace(log, high_watermark=Offset(11)), COMPACT, NOW_MS).horizon_ms == 1


def test_the_stable_offset_is_named_only_where_a_transaction_is_open() -> None:
    log = replace(log_of(row(0), row(1)), high_watermark=Offset(12), last_stable_offset=Offset(12))

    assert assess(log, COMPACT, NOW_MS).bounds.limited_by is Blocker.HIGH_WATERMARK
    log = replace(log, last_stable_offset=Offset(11))
    assert assess(log, COMPACT, NOW_MS).bounds.limited_by is Blocker.LAST_STABLE_OFFSET


@pytest.mark.parametrize("size", [0, 1])
def test_an_active_segment_without_bytes_or_times_never_rolls_for_its_age(size: int) -> None:
    config = replace(COMPACT, max_compaction_lag_ms=500)
    log = log_of(row(0))
    timeless = replace(log.active_row, size=size, last_append_ms=UNKNOWN)
    empty = replace(log.active_row, size=0)

    assert assess(replace(log, active_row=timeless), config, NOW_MS).roll_ms == LONG_MAX
    assert assess(replace(log, active_row=empty), config, NOW_MS).roll_ms == LONG_MAX
    one_byte = replace(log.active_row, size=1)
    assert assess(replace(log, active_row=one_byte), config, NOW_MS).roll_ms == NOW_MS + 500


def test_an_active_segment_may_roll_at_once() -> None:
    config = replace(COMPACT, compaction_idle_roll_ms=0, min_cleanable_dirty_ratio=0.5)

    assert assess(log_of(row(0), clean_offset=0), config, NOW_MS).roll_ms == NOW_MS


def test_dirty_and_active_bytes_are_added_for_the_ratio_of_a_roll() -> None:
    """64 clean bytes, 96 dirty and 96 active ones: 0.75, but 0.6 if a bit in both counted once."""
    rows = (row(0, size=64), row(1, size=96))
    log = log_of(*rows, clean_offset=10)
    log = replace(log, active_row=replace(log.active_row, size=96))
    config = replace(COMPACT, compaction_idle_roll_ms=0, min_cleanable_dirty_ratio=0.7)

    assert assess(log, config, NOW_MS).roll_ms == NOW_MS


def test_an_active_segment_does_not_roll_where_nothing_in_it_may_be_read() -> None:
    config = replace(COMPACT, compaction_idle_roll_ms=0)
    log = log_of(row(0))

    assert assess(replace(log, high_watermark=Offset(10)), config, NOW_MS).roll_ms == LONG_MAX
    assert assess(replace(log, last_stable_offset=Offset(9)), config, NOW_MS).roll_ms == LONG_MAX
    assert assess(replace(log, high_watermark=Offset(11)), config, NOW_MS).roll_ms == NOW_MS


def test_a_log_without_bytes_has_a_dirty_ratio_of_zero() -> None:
    assert assess(log_of(active_records=0), COMPACT, NOW_MS).dirty_ratio == 0.0


def test_one_dirty_byte_makes_a_log_dirty() -> None:
    assert assess(log_of(row(0, size=1)), COMPACT, NOW_MS).reason is Reason.DIRTY


def hold(offset: int) -> Hold:
    return Hold(offset=Offset(offset), by="group g")


def test_a_horizon_counts_once_the_hold_has_passed_its_segment() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS - 1), row(1, horizon_ms=NOW_MS - 1), clean_offset=20)

    assert assess(log, COMPACT, NOW_MS, hold=hold(0)).reason is None
    assert assess(log, COMPACT, NOW_MS, hold=hold(9)).reason is None
    assert assess(log, COMPACT, NOW_MS, hold=hold(10)).reason is Reason.TOMBSTONES_DUE
    assert assess(log, COMPACT, NOW_MS, hold=hold(0)).horizon_ms == LONG_MAX


def test_a_segment_that_a_pass_had_to_keep_is_due_again_once_when_the_hold_has_passed_it() -> None:
    log = log_of(row(0, horizon_ms=NOW_MS - 1), row(1, horizon_ms=NOW_MS - 1), clean_offset=20)
    held = Remainder(first_uncleanable_offset=Offset(20), now_ms=NOW_MS, hold_offset=Offset(10))
    free = Remainder(first_uncleanable_offset=Offset(20), now_ms=NOW_MS, hold_offset=Offset(20))

    assert assess(log, COMPACT, NOW_MS, hold=hold(19), remainder=held).reason is None
    due = assess(log, COMPACT, NOW_MS, hold=hold(20), remainder=held)
    assert due.reason is Reason.TOMBSTONES_DUE
    assert assess(log, COMPACT, NOW_MS, hold=hold(20), remainder=free).reason is None


NOON_MS = 20_000 * 86_400_000 + 12 * 3_600_000
NIGHTS = replace(COMPACT, compaction_window="22:00-06:00")
TEN_HOURS_MS = 10 * 3_600_000


def test_outside_of_its_window_a_dirty_log_waits_for_the_next_one() -> None:
    log = log_of(row(0), row(1), active_records=0)

    waits = assess(log, NIGHTS, NOON_MS)
    runs = assess(log, NIGHTS, NOON_MS + TEN_HOURS_MS)

    assert (waits.reason, waits.blocker) == (None, Blocker.WINDOW)
    assert waits.wake_ms == NOON_MS + TEN_HOURS_MS
    assert runs.reason is Reason.DIRTY


def test_tombstones_and_older_values_wait_for_the_window_too() -> None:
    clean = log_of(row(0, horizon_ms=NOON_MS), clean_offset=10, active_ms=NOON_MS)
    older = replace(clean, sealed_rows=(row(0),), has_history=True)

    assert assess(clean, NIGHTS, NOON_MS).blocker is Blocker.WINDOW
    assert assess(older, NIGHTS, NOON_MS).blocker is Blocker.WINDOW
    assert assess(older, COMPACT, NOON_MS).reason is Reason.HISTORY_DUE


def test_a_deadline_a_request_and_a_nearly_full_disk_do_not_wait_for_the_window() -> None:
    log = log_of(row(0), row(1), active_ms=NOON_MS)
    late = replace(NIGHTS, max_compaction_lag_ms=1)

    assert assess(log, late, NOON_MS).reason is Reason.DEADLINE
    assert assess(log, NIGHTS, NOON_MS, requested=True).reason is Reason.REQUESTED
    assert assess(log, NIGHTS, NOON_MS, is_disk_nearly_full=True).reason is Reason.DIRTY


def test_a_clean_log_is_clean_at_any_time() -> None:
    log = log_of(row(0), clean_offset=10, active_records=0)

    assert assess(log, NIGHTS, NOON_MS).blocker is Blocker.NOTHING_DIRTY


# ---------------------------------------------------------------- fences


def fenced(row: SegmentRow, *, end_offset: int) -> Remainder:
    """Returns what a pass has left that cleaned up to an offset around one damaged segment."""
    return Remainder(
        first_uncleanable_offset=Offset(end_offset),
        now_ms=NOW_MS,
        hold_offset=row.base_offset,
        fences=(fence_around(row, CorruptBatch("CRC"), NOW_MS),),
    )


def test_what_a_pass_has_judged_above_a_fence_counts_as_clean() -> None:
    log = log_of(row(0), row(1), row(2), clean_offset=10)
    remainder = fenced(row(1), end_offset=30)

    assessment = assess(log, replace(COMPACT, max_compaction_lag_ms=1), NOW_MS, remainder=remainder)

    assert assessment.reason is None
    assert (assessment.clean_bytes, assessment.cleanable_bytes) == (300, 0)
    assert assessment.known_fences == remainder.fences


def test_a_pass_over_news_begins_at_the_fence() -> None:
    log = log_of(row(0), row(1), row(2), row(3), clean_offset=10)
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.2)

    assessment = assess(log, config, NOW_MS, remainder=fenced(row(1), end_offset=30))

    assert assessment.reason is Reason.DIRTY
    assert assessment.dirty_ratio == 0.25
    assert bounds_of(assessment) == (10, 40)


def test_tombstones_above_a_fence_make_no_log_eligible() -> None:
    below, above = row(0, horizon_ms=NOW_MS + 1), row(2, horizon_ms=NOW_MS + 1)
    remainder = fenced(row(1), end_offset=30)
    later_ms = NOW_MS + 10

    held = assess(log_of(row(0), row(1), above), COMPACT, later_ms, remainder=remainder)
    due = assess(log_of(below, row(1), row(2)), COMPACT, later_ms, remainder=remainder)

    assert held.reason is None
    assert due.reason is Reason.TOMBSTONES_DUE


def test_a_log_whose_fence_is_gone_is_dirty_at_any_ratio() -> None:
    log = replace(log_of(row(2), clean_offset=20), log_start_offset=Offset(20))
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0)

    assessment = assess(log, config, NOW_MS, remainder=fenced(row(1), end_offset=30))

    assert assessment.reason is Reason.DIRTY
    assert assessment.known_fences == ()
