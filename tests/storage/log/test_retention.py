"""Retention selects segments by log start, size and age, and never past the high watermark."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import SegmentRow
from storage.log.retention import DeletionReason, Retention, decide_retention

DAY_MS = 24 * 3600 * 1000
NOW_MS = 100 * DAY_MS
LOG_START, SIZE, TIME = DeletionReason.LOG_START, DeletionReason.SIZE, DeletionReason.TIME
FOREVER = LogConfig(retention_ms=-1)


def rows(*ages_days: float, size: int = 100) -> list[SegmentRow]:
    """Segments of ten offsets, each with the age of its youngest record in days; the last is active."""
    return [
        SegmentRow(
            base_offset=Offset(10 * number),
            file_version=number,
            end_offset=Offset(10 * number + 10),
            size=size,
            max_timestamp=int(NOW_MS - age * DAY_MS),
            created_ms=0,
            last_append_ms=int(NOW_MS - age * DAY_MS),
        )
        for number, age in enumerate(ages_days)
    ]


def decide(
    segments: list[SegmentRow],
    config: LogConfig,
    *,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
) -> Retention:
    end = segments[-1].end_offset
    return decide_retention(
        segments,
        config,
        now_ms=NOW_MS,
        log_start_offset=Offset(log_start_offset),
        high_watermark=Offset(end if high_watermark is None else high_watermark),
    )


def test_segments_older_than_retention_ms_go_up_to_the_first_that_is_not() -> None:
    found = decide(rows(9, 8, 6.9, 8, 0), LogConfig())
    assert found == Retention((TIME, TIME), Offset(20))


def test_a_segment_exactly_as_old_as_retention_ms_stays() -> None:
    assert decide(rows(7, 0), LogConfig()).reasons == ()
    assert decide(rows(7 + 1e-8, 0), LogConfig()).reasons == (TIME,)


def test_retention_ms_of_minus_one_keeps_everything_and_of_zero_nothing() -> None:
    assert decide(rows(50, 40), FOREVER).reasons == ()
    assert decide(rows(3, 1e-8), LogConfig(retention_ms=0)).reasons == (TIME, TIME)


@pytest.mark.parametrize(
    ("retention_bytes", "going"),
    [
        pytest.param(-1, 0, id="no_bound"),
        pytest.param(401, 0, id="more_than_there_is"),
        pytest.param(400, 0, id="as_much_as_there_is"),
        pytest.param(301, 0, id="a_segment_that_would_leave_too_little_stays"),
        pytest.param(300, 1, id="what_is_left_is_exactly_the_bound"),
        pytest.param(299, 1, id="what_is_left_is_above_the_bound"),
        pytest.param(100, 3, id="the_active_segment_alone_is_left"),
        pytest.param(1, 3, id="the_active_segment_alone_is_more"),
        pytest.param(0, 4, id="nothing_may_be_left"),
    ],
)
def test_segments_go_while_what_is_left_is_at_least_retention_bytes(
    retention_bytes: int, going: int
) -> None:
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=-1)
    found = decide(rows(0, 0, 0, 0), config)
    assert found == Retention((SIZE,) * going, Offset(10 * going))


def test_segments_below_the_log_start_go_with_any_policy_but_the_active_one_stays() -> None:
    for policy in ((), ("compact",), ("delete",), ("compact", "delete")):
        config = LogConfig(cleanup_policy=policy, retention_ms=-1)
        assert decide(rows(0, 0, 0), config, log_start_offset=19) == Retention(
            (LOG_START,), Offset(19)
        )
        assert decide(rows(0, 0, 0), config, log_start_offset=20).reasons == (LOG_START,) * 2
        whole = decide(rows(0, 0, 0), config, log_start_offset=30)
        assert whole == Retention((LOG_START,) * 2, Offset(30))


@pytest.mark.parametrize("policy", [(), ("compact",)])
def test_without_delete_in_the_policy_age_and_size_do_not_count(policy: tuple[str, ...]) -> None:
    config = LogConfig(cleanup_policy=policy, retention_bytes=1)
    assert decide(rows(90, 90, 90), config) == Retention((), Offset(0))


@pytest.mark.parametrize("policy", [("delete",), ("compact", "delete")])
def test_a_mirrors_age_and_size_do_not_count_only_its_log_start_does(
    policy: tuple[str, ...],
) -> None:
    config = LogConfig(cleanup_policy=policy, retention_bytes=1, retention_ms=1, mirror_link="dr")
    assert decide(rows(90, 90, 90), config) == Retention((), Offset(0))
    found = decide(rows(90, 90, 90), config, log_start_offset=20)
    assert found == Retention((LOG_START,) * 2, Offset(20))


def test_each_segment_goes_for_the_first_reason_that_holds() -> None:
    config = LogConfig(retention_bytes=250)
    found = decide(rows(90, 90, 90, 0), config, log_start_offset=12)
    assert found == Retention((LOG_START, TIME, TIME), Offset(30))
    assert decide(rows(0, 90, 90, 0), config).reasons == (SIZE, TIME, TIME)


def test_no_segment_goes_that_reaches_past_the_high_watermark() -> None:
    assert decide(rows(90, 90, 90), LogConfig(), high_watermark=29).reasons == (TIME, TIME)
    assert decide(rows(90, 90, 90), LogConfig(), high_watermark=9).reasons == ()


def test_an_old_active_segment_goes_too_unless_it_is_empty() -> None:
    assert decide(rows(90), LogConfig()).reasons == (TIME,)
    assert decide(rows(90, size=0), LogConfig(retention_bytes=0)).reasons == ()


def test_a_timestamp_in_the_future_does_not_keep_a_segment_for_ever() -> None:
    """Its age counts from its last append; Kafka keeps the segment until that future time is over."""
    (segment,) = rows(8)
    early = dataclasses.replace(segment, max_timestamp=NOW_MS + 9000 * DAY_MS)
    assert decide([early], LogConfig()).reasons == (TIME,)


def test_records_without_timestamps_are_as_old_as_their_append_or_their_file() -> None:
    (segment,) = rows(8)
    appended = dataclasses.replace(segment, max_timestamp=-1)
    made = dataclasses.replace(appended, last_append_ms=-1)
    unknown = dataclasses.replace(made, created_ms=-1)
    assert decide([appended], LogConfig()).reasons == (TIME,)
    assert decide([made], LogConfig()).reasons == (TIME,)
    assert decide([unknown], LogConfig()).reasons == ()


# Against a slow, obvious model: one segment after the other, each rule as documented.


def obvious(
    segments: list[SegmentRow], config: LogConfig, *, log_start_offset: int, high_watermark: int
) -> int:
    """Returns how many segments go, by Kafka's three rules one after the other, as Kafka does it."""
    left = list(segments)

    def may_go() -> bool:
        is_empty_active = len(left) == 1 and left[0].size == 0
        return bool(left) and left[0].end_offset <= high_watermark and not is_empty_active

    while len(left) > 1 and may_go() and left[1].base_offset <= log_start_offset:
        left.pop(0)
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            while may_go() and sum(each.size for each in left[1:]) >= config.retention_bytes:
                left.pop(0)
        if config.retention_ms >= 0:
            while may_go() and (
                NOW_MS - min(left[0].max_timestamp, left[0].last_append_ms) > config.retention_ms
            ):
                left.pop(0)
    return len(segments) - len(left)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentRow]:
    found = []
    base = draw(st.integers(0, 20))
    for version in range(draw(st.integers(1, 8))):
        end = base + draw(st.integers(1, 9))
        found.append(
            SegmentRow(
                base_offset=Offset(base),
                file_version=version,
                end_offset=Offset(end),
                size=draw(st.integers(0, 5)),
                max_timestamp=NOW_MS - draw(st.integers(-4, 9)),
                last_append_ms=NOW_MS - draw(st.integers(0, 9)),
            )
        )
        base = end
    return found


CONFIGS = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from([(), ("compact",), ("delete",), ("compact", "delete")]),
    retention_ms=st.integers(-1, 9),
    retention_bytes=st.integers(-1, 30),
)


@given(segments=logs(), config=CONFIGS, data=st.data())
def test_the_decision_is_that_of_the_rules_taken_one_after_the_other(
    segments: list[SegmentRow], config: LogConfig, data: st.DataObject
) -> None:
    start, end = segments[0].base_offset, segments[-1].end_offset
    log_start_offset = data.draw(st.integers(start, end))
    high_watermark = data.draw(st.integers(log_start_offset, end))

    found = decide_retention(
        segments,
        config,
        now_ms=NOW_MS,
        log_start_offset=Offset(log_start_offset),
        high_watermark=Offset(high_watermark),
    )

    count = len(found.reasons)
    assert count == obvious(
        segments, config, log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    assert log_start_offset <= found.log_start_offset <= high_watermark
    assert all(each.end_offset <= found.log_start_offset for each in segments[:count])
    assert found.log_start_offset in {log_start_offset, *(each.end_offset for each in segments)}
