"""The rule of compaction, record by record and batch by batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.rules.retain import (
    INT64_MAX,
    Fate,
    PassBounds,
    Remains,
    Verdict,
    judge,
    retain_batch,
)
from tests.cleaner.kernel_log import LogBatch, LogRecord, PlainOffsetMap, log_batch

NOW_MS = 10_000


def bounds(
    *, tail_offset: int = -1, end_offset: int = 100, producers: frozenset[int] = frozenset()
) -> PassBounds:
    return PassBounds(
        end_offset=end_offset,
        tail_offset=tail_offset,
        now_ms=NOW_MS,
        delete_retention_ms=500,
        producer_last_offsets=producers,
    )


def retain(
    batch: LogBatch, latest: dict[bytes, int], a_pass: PassBounds | None = None
) -> Remains[LogRecord]:
    a_pass = a_pass or bounds()
    offset_map = PlainOffsetMap(latest, a_pass.end_offset)
    return retain_batch(batch, batch.records, offset_map=offset_map, bounds=a_pass)


def with_fields(batch: LogBatch, **fields: object) -> LogBatch:
    values = {name: getattr(batch, name) for name in LogBatch.__dataclass_fields__}
    return LogBatch(**(values | fields))


@pytest.mark.parametrize(
    ("key", "has_value", "offset", "horizon", "verdict"),
    [
        pytest.param(b"k", True, 5, None, Verdict.KEPT_LATEST, id="newest_of_its_key"),
        pytest.param(b"k", True, 4, None, Verdict.DROPPED_SUPERSEDED, id="older_than_the_newest"),
        pytest.param(b"clean", True, 4, None, Verdict.KEPT_LATEST, id="key_not_in_the_map"),
        pytest.param(b"k", True, 10, None, Verdict.KEPT_UNMAPPED, id="beyond_the_map"),
        pytest.param(None, True, 4, None, Verdict.DROPPED_UNKEYED, id="without_a_key"),
        pytest.param(None, True, 10, None, Verdict.KEPT_UNMAPPED, id="unkeyed_beyond_the_map"),
        pytest.param(b"k", False, 5, None, Verdict.KEPT_LATEST, id="tombstone_without_horizon"),
        pytest.param(b"k", False, 5, NOW_MS + 1, Verdict.KEPT_LATEST, id="before_its_horizon"),
        pytest.param(b"k", False, 5, NOW_MS, Verdict.DROPPED_TOMBSTONE, id="at_its_horizon"),
        pytest.param(b"k", True, 5, NOW_MS, Verdict.KEPT_LATEST, id="value_after_a_horizon"),
        pytest.param(b"k", False, 4, NOW_MS, Verdict.DROPPED_SUPERSEDED, id="superseded_tombstone"),
    ],
)
def test_verdict(
    key: bytes | None, has_value: bool, offset: int, horizon: int | None, verdict: Verdict
) -> None:
    assert verdict is judge(
        key=key,
        has_value=has_value,
        offset=offset,
        offset_map=PlainOffsetMap({b"k": 5}, 10),
        delete_horizon_ms=horizon,
        now_ms=NOW_MS,
    )


def test_a_record_without_a_key_stays_where_its_topic_keeps_such_records() -> None:
    batch = log_batch(0, (None, b"1"), (b"a", b"1"))

    remains = retain(batch, {b"a": 7}, replace(bounds(), keeps_unkeyed=True))

    assert remains.verdicts == (Verdict.KEPT_UNKEYED, Verdict.DROPPED_SUPERSEDED)
    assert remains.survivors == batch.records[:1]


def test_a_batch_of_which_nothing_dies_stays_as_it_is() -> None:
    assert retain(log_batch(0, (b"a", b"1")), {b"a": 0}).fate is Fate.VERBATIM


def test_a_batch_of_which_something_dies_is_rebuilt_from_the_rest() -> None:
    batch = log_batch(0, (b"a", b"1"), (b"b", b"2"))

    remains = retain(batch, {b"a": 7, b"b": 1})

    assert remains.fate is Fate.REBUILT
    assert remains.survivors == batch.records[1:]
    assert remains.stamped_horizon_ms is None


def test_a_tombstone_kept_for_the_first_time_starts_its_batchs_delete_horizon() -> None:
    remains = retain(log_batch(0, (b"a", None)), {b"a": 0})

    assert remains.fate is Fate.REBUILT
    assert remains.stamped_horizon_ms == NOW_MS + 500


def test_a_delete_horizon_never_restarts() -> None:
    batch = with_fields(log_batch(0, (b"a", None)), delete_horizon_ms=NOW_MS + 1)

    assert retain(batch, {b"a": 0}).fate is Fate.VERBATIM


def test_a_superseded_tombstone_starts_no_horizon() -> None:
    assert retain(log_batch(0, (b"a", None)), {b"a": 9}).fate is Fate.DROPPED


def test_a_batch_beyond_the_map_is_left_alone() -> None:
    """Older values of its tombstones may still be in the log: no delete horizon must be set yet."""
    batch = log_batch(0, (b"a", None), (b"a", b"1"), (None, b"2"))

    remains = retain(batch, {b"a": 50}, bounds(end_offset=2))

    assert remains.fate is Fate.VERBATIM
    assert remains.verdicts == (Verdict.KEPT_UNMAPPED,) * 3


def test_a_control_record_of_another_kind_is_left_alone() -> None:
    batch = with_fields(log_batch(0, (b"a", b"1")), is_control=True)

    assert retain(batch, {b"a": 50}).fate is Fate.VERBATIM


def test_the_last_batch_of_an_active_producer_stays_as_a_header() -> None:
    batch = with_fields(log_batch(0, (b"a", b"1")), producer_id=4)

    assert retain(batch, {b"a": 9}, bounds(producers=frozenset({0}))).fate is Fate.EMPTIED
    assert retain(batch, {b"a": 9}, bounds(producers=frozenset({7}))).fate is Fate.DROPPED


def test_a_batch_without_producer_is_no_producers_last() -> None:
    a_pass = bounds(producers=frozenset({0}))

    assert retain(log_batch(0, (b"a", b"1")), {b"a": 9}, a_pass).fate is Fate.DROPPED


def test_an_emptied_batch_goes_when_its_producer_needs_it_no_more() -> None:
    batch = LogBatch(base_offset=0, last_offset=3, producer_id=4)

    assert retain(batch, {}, bounds(producers=frozenset({3}))).fate is Fate.VERBATIM
    assert retain(batch, {}, bounds(tail_offset=3)).fate is Fate.VERBATIM
    assert retain(batch, {}).fate is Fate.DROPPED


def test_the_batch_at_the_passs_upper_bound_keeps_its_last_record() -> None:
    """Otherwise a client that reads to the end of the log would never reach it."""
    expired = with_fields(log_batch(0, (b"a", None), (b"b", None)), delete_horizon_ms=NOW_MS)
    latest = {b"a": 0, b"b": 1}

    remains = retain(expired, latest, bounds(tail_offset=1))

    assert remains.verdicts == (Verdict.DROPPED_TOMBSTONE, Verdict.KEPT_TAIL)
    assert remains.survivors == expired.records[1:]
    assert retain(expired, latest, bounds(tail_offset=8)).fate is Fate.DROPPED


def test_a_delete_retention_of_for_ever_does_not_overflow() -> None:
    a_pass = PassBounds(end_offset=1, tail_offset=-1, now_ms=1, delete_retention_ms=INT64_MAX)

    assert a_pass.new_delete_horizon_ms == INT64_MAX
