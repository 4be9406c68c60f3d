"""The rule of compaction, record by record and batch by batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.rules.record_verdict import (
    AbortedTransaction,
    Fate,
    PassBounds,
    Remains,
    Verdict,
    retain_batch,
    retain_log,
    verdict_of,
)
from protocol.records.control_record import ControlType
from tests.cleaner.kernel_log import LogBatch, LogRecord, PlainOffsetMap, log_batch, marker_batch

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
        pytest.param(b"k", True, 6, None, Verdict.KEPT_LATEST, id="newer_than_the_map_knows"),
        pytest.param(b"k", True, 10, None, Verdict.KEPT_UNMAPPED, id="at_the_maps_end"),
        pytest.param(b"k", True, 11, None, Verdict.KEPT_UNMAPPED, id="beyond_the_map"),
        pytest.param(None, True, 4, None, Verdict.DROPPED_UNKEYED, id="without_a_key"),
        pytest.param(None, True, 10, None, Verdict.KEPT_UNMAPPED, id="unkeyed_beyond_the_map"),
        pytest.param(b"k", False, 5, None, Verdict.KEPT_LATEST, id="tombstone_without_horizon"),
        pytest.param(b"k", False, 5, NOW_MS + 1, Verdict.KEPT_LATEST, id="before_its_horizon"),
        pytest.param(b"k", False, 5, NOW_MS, Verdict.DROPPED_TOMBSTONE, id="at_its_horizon"),
        pytest.param(b"k", False, 5, NOW_MS - 1, Verdict.DROPPED_TOMBSTONE, id="after_its_horizon"),
        pytest.param(b"k", True, 5, NOW_MS, Verdict.KEPT_LATEST, id="value_after_a_horizon"),
        pytest.param(b"k", False, 4, NOW_MS, Verdict.DROPPED_SUPERSEDED, id="superseded_tombstone"),
    ],
)
def test_verdict(
    key: bytes | None, has_value: bool, offset: int, horizon: int | None, verdict: Verdict
) -> None:
    assert verdict is verdict_of(
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


def test_a_record_without_a_key_goes_where_its_topic_says_nothing_of_such_records() -> None:
    assert retain(log_batch(0, (None, b"1")), {}).verdicts == (Verdict.DROPPED_UNKEYED,)


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


@pytest.mark.parametrize("end_offset", [2, 1, 0])
def test_a_batch_that_reaches_beyond_the_map_is_left_alone(end_offset: int) -> None:
    """Older values of its tombstones may still be in the log: no delete horizon must be set yet."""
    batch = log_batch(0, (b"a", None), (b"a", b"1"), (None, b"2"))

    remains = retain(batch, {b"a": 50}, bounds(end_offset=end_offset))

    assert remains.fate is Fate.VERBATIM
    assert remains.verdicts == (Verdict.KEPT_UNMAPPED,) * 3


def test_a_control_record_of_another_kind_is_left_alone() -> None:
    batch = with_fields(log_batch(0, (b"a", b"1")), is_control=True)

    assert retain(batch, {b"a": 50}).fate is Fate.VERBATIM


def test_the_last_batch_of_an_active_producer_stays_as_a_header() -> None:
    batch = with_fields(log_batch(0, (b"a", b"1")), producer_id=4)

    assert retain(batch, {b"a": 9}, bounds(producers=frozenset({0}))).fate is Fate.EMPTIED
    assert retain(batch, {b"a": 9}, bounds(producers=frozenset({7}))).fate is Fate.DROPPED


def test_producer_0_is_a_producer() -> None:
    batch = with_fields(log_batch(0, (b"a", b"1")), producer_id=0)

    assert retain(batch, {b"a": 9}, bounds(producers=frozenset({0}))).fate is Fate.EMPTIED


def test_a_batch_without_producer_is_no_producers_last() -> None:
    a_pass = bounds(producers=frozenset({0}))

    assert retain(log_batch(0, (b"a", b"1")), {b"a": 9}, a_pass).fate is Fate.DROPPED


def test_an_emptied_batch_goes_when_its_producer_needs_it_no_more() -> None:
    batch = LogBatch(base_offset=0, last_offset=3, producer_id=4)

    assert retain(batch, {}, bounds(producers=frozenset({3}))).fate is Fate.VERBATIM
    assert retain(batch, {}, bounds(tail_offset=3)).fate is Fate.VERBATIM
    assert retain(batch, {}, bounds(tail_offset=4)).fate is Fate.DROPPED
    assert retain(batch, {}).fate is Fate.DROPPED


def test_the_batch_at_the_passs_upper_bound_keeps_its_last_record() -> None:
    """Otherwise a client that reads to the end of the log would never reach it."""
    expired = with_fields(log_batch(0, (b"a", None), (b"b", None)), delete_horizon_ms=NOW_MS)
    latest = {b"a": 0, b"b": 1}

    remains = retain(expired, latest, bounds(tail_offset=1))

    assert remains.verdicts == (Verdict.DROPPED_TOMBSTONE, Verdict.KEPT_TAIL)
    assert remains.survivors == expired.records[1:]
    assert retain(expired, latest, bounds(tail_offset=8)).fate is Fate.DROPPED


def test_only_the_last_record_at_the_passs_upper_bound_is_kept_for_that() -> None:
    expired = with_fields(
        log_batch(0, (b"a", None), (b"b", None), (b"c", None)), delete_horizon_ms=NOW_MS
    )

    remains = retain(expired, {}, bounds(tail_offset=2))

    assert remains.verdicts == (*[Verdict.DROPPED_TOMBSTONE] * 2, Verdict.KEPT_TAIL)


def test_a_last_record_that_stays_anyway_has_its_own_reason() -> None:
    remains = retain(log_batch(0, (b"a", b"1"), (b"b", b"2")), {b"a": 7}, bounds(tail_offset=1))

    assert remains.verdicts == (Verdict.DROPPED_SUPERSEDED, Verdict.KEPT_LATEST)


def test_a_delete_retention_of_for_ever_does_not_overflow() -> None:
    largest_int64 = 9_223_372_036_854_775_807
    a_pass = PassBounds(end_offset=1, tail_offset=-1, now_ms=1, delete_retention_ms=largest_int64)

    assert a_pass.new_delete_horizon_ms == largest_int64


# ---------------------------------------------------------------------- transactions

PRODUCER = 4
ABORTED = AbortedTransaction(producer_id=PRODUCER, first_offset=10, marker_offset=20)


def data_batch(offset: int, **fields: object) -> LogBatch:
    """Returns a transactional batch of two records."""
    batch = log_batch(offset, (b"a", b"1"), (b"b", b"2"))
    return with_fields(batch, **{"is_transactional": True, "producer_id": PRODUCER} | fields)


def due_marker(offset: int, *, due_ms: int | None = NOW_MS) -> LogBatch:
    batch = marker_batch(offset, PRODUCER, ControlType.COMMIT)
    return with_fields(batch, delete_horizon_ms=due_ms)


@pytest.mark.parametrize(
    ("batch", "is_held"),
    [
        pytest.param(data_batch(9), False, id="before_the_first"),
        pytest.param(data_batch(10), True, id="the_first"),
        pytest.param(data_batch(11), True, id="between"),
        pytest.param(data_batch(19), True, id="before_the_marker"),
        pytest.param(data_batch(20), False, id="at_the_marker"),
        pytest.param(data_batch(21), False, id="after_the_marker"),
        pytest.param(data_batch(11, producer_id=PRODUCER - 1), False, id="of_a_smaller_producer"),
        pytest.param(data_batch(11, producer_id=PRODUCER + 1), False, id="of_a_larger_producer"),
        pytest.param(data_batch(11, is_transactional=False), False, id="outside_of_transactions"),
        pytest.param(data_batch(11, is_control=True), False, id="control"),
    ],
)
def test_an_aborted_transaction_has_its_producers_data_up_to_the_marker(
    batch: LogBatch, is_held: bool
) -> None:
    assert ABORTED.holds(batch) is is_held


@pytest.mark.parametrize("tail_offset", [-1, 11])
def test_aborted_records_go_even_at_the_passs_upper_bound(tail_offset: int) -> None:
    a_pass = replace(bounds(tail_offset=tail_offset), aborted=[ABORTED])

    remains = retain(data_batch(10), {}, a_pass)

    assert remains.verdicts == (Verdict.DROPPED_ABORTED,) * 2
    assert remains.fate is Fate.DROPPED


@pytest.mark.parametrize(
    ("due_ms", "verdict"),
    [
        pytest.param(None, Verdict.KEPT_MARKER, id="no_horizon"),
        pytest.param(NOW_MS + 1, Verdict.KEPT_MARKER, id="before"),
        pytest.param(NOW_MS, Verdict.DROPPED_MARKER, id="at"),
        pytest.param(NOW_MS - 1, Verdict.DROPPED_MARKER, id="after"),
    ],
)
def test_a_marker_goes_at_its_delete_horizon(due_ms: int | None, verdict: Verdict) -> None:
    assert retain(due_marker(5, due_ms=due_ms), {}).verdicts == (verdict,)


def test_a_due_marker_stays_while_data_of_its_transaction_is_left() -> None:
    batch = due_marker(5)
    offset_map = PlainOffsetMap({}, 100)

    remains = retain_batch(
        batch, batch.records, offset_map=offset_map, bounds=bounds(), remaining={PRODUCER}
    )

    assert remains.verdicts == (Verdict.KEPT_MARKER,)


@pytest.mark.parametrize("key", [b"a", b"\0\0\0\2", b""], ids=["no_type", "another_type", "empty"])
def test_what_is_no_marker_stays_whatever_its_horizon(key: bytes) -> None:
    batch = with_fields(log_batch(0, (key, b"1")), is_control=True, delete_horizon_ms=NOW_MS)

    assert retain(batch, {}, replace(bounds(), stamps_markers=True)).fate is Fate.VERBATIM


@pytest.mark.parametrize(
    ("stamps", "remaining", "stamped_ms"),
    [
        pytest.param(True, frozenset[int](), NOW_MS + 500, id="nothing_is_left"),
        pytest.param(True, frozenset({PRODUCER}), None, id="data_is_left"),
        pytest.param(True, frozenset({PRODUCER + 1}), NOW_MS + 500, id="data_of_others_is_left"),
        pytest.param(False, frozenset[int](), None, id="the_pass_does_not_see_all"),
    ],
)
def test_a_marker_gets_its_horizon_once_its_transaction_is_gone(
    stamps: bool, remaining: frozenset[int], stamped_ms: int | None
) -> None:
    marker = marker_batch(5, PRODUCER, ControlType.ABORT)

    remains = retain_batch(
        marker,
        marker.records,
        offset_map=PlainOffsetMap({}, 100),
        bounds=replace(bounds(), stamps_markers=stamps),
        remaining=remaining,
    )

    assert remains.stamped_horizon_ms == stamped_ms
    assert remains.fate is (Fate.VERBATIM if stamped_ms is None else Fate.REBUILT)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "fate"),
    [
        pytest.param(PRODUCER, 0, Fate.EMPTIED, id="its_last_epoch"),
        pytest.param(PRODUCER, 1, Fate.DROPPED, id="another_epoch"),
        pytest.param(PRODUCER + 1, 0, Fate.DROPPED, id="another_producer"),
    ],
)
def test_a_marker_stays_as_a_header_while_it_has_its_producers_epoch(
    producer_id: int, epoch: int, fate: Fate
) -> None:
    a_pass = replace(bounds(), producer_marker_epochs={producer_id: epoch})

    assert retain(due_marker(5), {}, a_pass).fate is fate


def test_a_pass_stamps_no_marker_unless_it_says_so() -> None:
    assert retain(marker_batch(5, PRODUCER, ControlType.ABORT), {}).fate is Fate.VERBATIM


MARKER_FATES = [
    pytest.param([data_batch(0)], {}, Fate.VERBATIM, id="data_stays"),
    pytest.param([data_batch(0)], {b"a": 50, b"b": 50}, Fate.DROPPED, id="data_goes"),
    pytest.param([data_batch(0)], {b"a": 50}, Fate.VERBATIM, id="a_part_stays"),
    pytest.param([data_batch(0, producer_id=5)], {}, Fate.DROPPED, id="data_of_another"),
    pytest.param([data_batch(0, is_transactional=False)], {}, Fate.DROPPED, id="not_in_it"),
    pytest.param([data_batch(0), due_marker(2, due_ms=None)], {}, Fate.DROPPED, id="ended_before"),
    pytest.param(
        [data_batch(0), with_fields(log_batch(2, (b"\0\0\0\2", b"")), is_control=True,
         is_transactional=True, producer_id=PRODUCER)],
        {}, Fate.VERBATIM, id="another_control_record_ends_nothing",
    ),
    pytest.param(
        [with_fields(log_batch(2, (b"\0\0\0\2", b"")), is_control=True, is_transactional=True,
         producer_id=PRODUCER)],
        {}, Fate.DROPPED, id="a_control_record_is_no_data",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("before", "latest", "fate"), MARKER_FATES)
def test_a_due_marker_goes_with_the_last_data_before_it(
    before: list[LogBatch], latest: dict[bytes, int], fate: Fate
) -> None:
    log = [(batch, batch.records) for batch in [*before, due_marker(9)]]

    *_, marker = retain_log(log, offset_map=PlainOffsetMap(latest, 100), bounds=bounds())

    assert marker.fate is fate


@pytest.mark.parametrize(("end_offset", "fate"), [(3, Fate.REBUILT), (2, Fate.VERBATIM)])
def test_a_marker_beyond_the_map_is_left_alone(end_offset: int, fate: Fate) -> None:
    log = [data_batch(0), due_marker(2, due_ms=None)]
    a_pass = replace(bounds(end_offset=end_offset), stamps_markers=True)
    offset_map = PlainOffsetMap({b"a": 50, b"b": 50}, end_offset)

    *_, marker = retain_log(
        [(batch, batch.records) for batch in log], offset_map=offset_map, bounds=a_pass
    )

    assert marker.fate is fate


@pytest.mark.parametrize(
    ("offset", "horizon", "verdict"),
    [
        pytest.param(4, NOW_MS, Verdict.DROPPED_TOMBSTONE, id="below"),
        pytest.param(5, NOW_MS, Verdict.KEPT_HELD, id="at"),
        pytest.param(6, NOW_MS, Verdict.KEPT_HELD, id="above"),
        pytest.param(6, NOW_MS + 1, Verdict.KEPT_LATEST, id="above_before_its_horizon"),
        pytest.param(6, None, Verdict.KEPT_LATEST, id="above_without_a_horizon"),
    ],
)
def test_a_tombstone_at_or_above_the_hold_outlives_its_horizon(
    offset: int, horizon: int | None, verdict: Verdict
) -> None:
    assert verdict is verdict_of(
        key=b"k",
        has_value=False,
        offset=offset,
        offset_map=PlainOffsetMap({}, 10),
        delete_horizon_ms=horizon,
        now_ms=NOW_MS,
        hold_offset=5,
    )


def test_a_marker_at_or_above_the_hold_outlives_its_horizon() -> None:
    marker = with_fields(marker_batch(7, 3, ControlType.COMMIT), delete_horizon_ms=NOW_MS)

    held = retain(marker, {}, replace(bounds(), hold_offset=7))
    free = retain(marker, {}, replace(bounds(), hold_offset=8))

    assert (held.fate, held.verdicts) == (Fate.VERBATIM, (Verdict.KEPT_HELD,))
    assert (free.fate, free.verdicts) == (Fate.DROPPED, (Verdict.DROPPED_MARKER,))


def test_a_marker_in_the_dirty_section_outlives_its_horizon() -> None:
    marker = with_fields(marker_batch(7, 3, ControlType.ABORT), delete_horizon_ms=NOW_MS)

    dirty = retain(marker, {}, replace(bounds(), start_offset=7))
    clean = retain(marker, {}, replace(bounds(), start_offset=8))

    assert (dirty.fate, dirty.verdicts) == (Fate.VERBATIM, (Verdict.KEPT_MARKER,))
    assert (clean.fate, clean.verdicts) == (Fate.DROPPED, (Verdict.DROPPED_MARKER,))


def test_a_hold_keeps_no_superseded_tombstone_and_no_aborted_record() -> None:
    bounds_held = replace(
        bounds(),
        hold_offset=0,
        aborted=(AbortedTransaction(producer_id=3, first_offset=5, marker_offset=9),),
    )
    aborted = with_fields(log_batch(5, (b"x", None)), is_transactional=True, producer_id=3)

    assert retain(log_batch(0, (b"a", None)), {b"a": 7}, bounds_held).fate is Fate.DROPPED
    assert retain(aborted, {}, bounds_held).verdicts == (Verdict.DROPPED_ABORTED,)
