from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential.compare import Difference, Moment, Reason, Stale, differences
from tests.harness.kafka_cleaner import DumpedBatch, DumpedRecord

NOW_MS = 50_000
MOMENT = Moment(
    now_ms=NOW_MS,
    tail_offset=39,
    kafka_was_idle=False,
    marker_horizons={},
    stale=Stale(),
    passes_were_cut=False,
)
VALUE = DumpedRecord(offset=20, timestamp=1, key="=6b", value="=76", headers="[]")
TOMBSTONE = replace(VALUE, offset=22, value="-")


def batch(*records: DumpedRecord, horizon_ms: int = -1) -> DumpedBatch:
    return DumpedBatch(
        base_offset=20,
        last_offset=29,
        leader_epoch=0,
        codec="none",
        timestamp_type="CreateTime",
        max_timestamp=1,
        delete_horizon_ms=horizon_ms,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        last_sequence=9,
        is_transactional=False,
        is_control=False,
        record_count=len(records),
        records=records,
    )


def compared(
    kafka: DumpedBatch | None, ours: DumpedBatch | None, moment: Moment = MOMENT
) -> list[Difference]:
    return list(differences([kafka] if kafka else [], [ours] if ours else [], moment))


def reasons(
    kafka: DumpedBatch | None, ours: DumpedBatch | None, moment: Moment = MOMENT
) -> list[Reason | None]:
    return [difference.reason for difference in compared(kafka, ours, moment)]


def test_equal_logs_do_not_differ() -> None:
    assert compared(batch(VALUE, TOMBSTONE), batch(VALUE, TOMBSTONE)) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(VALUE, timestamp=2),
        replace(VALUE, key="=00"),
        replace(VALUE, value="="),
        replace(VALUE, headers="[=00:-,]"),
    ],
)
def test_a_record_that_is_not_the_same_has_no_reason(other: DumpedRecord) -> None:
    assert reasons(batch(VALUE), batch(other)) == [None]


@pytest.mark.parametrize(
    "other",
    [
        replace(batch(VALUE), last_offset=28),
        replace(batch(VALUE), leader_epoch=1),
        replace(batch(VALUE), codec="zstd"),
        replace(batch(VALUE), max_timestamp=2),
        replace(batch(VALUE), producer_id=8),
        replace(batch(VALUE), producer_epoch=1),
        replace(batch(VALUE), base_sequence=1),
        replace(batch(VALUE), is_transactional=True),
    ],
)
def test_a_header_that_is_not_the_same_has_no_reason(other: DumpedBatch) -> None:
    assert reasons(batch(VALUE), other) == [None]


def test_a_value_that_only_one_side_has_has_no_reason() -> None:
    assert reasons(batch(VALUE, TOMBSTONE), batch(TOMBSTONE)) == [None]
    assert reasons(batch(TOMBSTONE), batch(VALUE, TOMBSTONE)) == [None]
    assert reasons(batch(VALUE), None) == [None]


def test_only_the_last_record_below_the_bound_may_be_ours_alone() -> None:
    at_bound, last = replace(MOMENT, tail_offset=29), replace(VALUE, offset=29)
    before_a_hole = replace(VALUE, offset=28)

    assert reasons(None, batch(VALUE, last), at_bound) == [None, Reason.TAIL_RECORD]
    assert reasons(batch(VALUE), batch(VALUE, before_a_hole), at_bound) == [Reason.TAIL_RECORD]
    assert reasons(None, batch(VALUE), MOMENT) == [None]


def test_a_due_tombstone_may_be_kafkas_alone_while_kafka_is_idle() -> None:
    idle = replace(MOMENT, kafka_was_idle=True)

    assert reasons(batch(TOMBSTONE, horizon_ms=NOW_MS), None, idle) == [Reason.KAFKA_WAITS]
    assert reasons(batch(TOMBSTONE, horizon_ms=NOW_MS), None) == [None]
    assert reasons(batch(TOMBSTONE, horizon_ms=NOW_MS + 1), None, idle) == [None]
    assert reasons(batch(VALUE, horizon_ms=NOW_MS), None, idle) == [None]


def test_an_empty_batch_may_be_kafkas_alone_while_kafka_is_idle() -> None:
    assert reasons(batch(), None) == [None]
    assert reasons(batch(), None, replace(MOMENT, kafka_was_idle=True)) == [Reason.KAFKA_WAITS]
    assert reasons(None, batch(), replace(MOMENT, kafka_was_idle=True)) == [None]


def test_horizons_may_differ_only_without_tombstones_and_behind_a_cut_pass() -> None:
    cut = replace(MOMENT, passes_were_cut=True)

    assert reasons(batch(VALUE, horizon_ms=1), batch(VALUE)) == [None]
    assert reasons(batch(VALUE, horizon_ms=1), batch(VALUE), cut) == [Reason.CUT_PASS]
    assert reasons(batch(TOMBSTONE, horizon_ms=1), batch(TOMBSTONE), cut) == [None]


def test_a_due_marker_may_be_kafkas_alone_once_ours_was_due() -> None:
    marker = replace(batch(VALUE), is_control=True)
    was_due = replace(MOMENT, marker_horizons={VALUE.offset: NOW_MS})

    assert reasons(marker, None) == [None]
    assert reasons(marker, None, was_due) == [Reason.MARKER_CLOCK]
    assert reasons(None, marker, was_due) == [None]


def test_a_markers_horizon_may_be_ours_earlier_but_not_later() -> None:
    unstamped, stamped, later = (
        replace(batch(VALUE, horizon_ms=horizon_ms), is_control=True) for horizon_ms in (-1, 5, 6)
    )

    assert reasons(unstamped, stamped) == reasons(later, stamped) == [Reason.MARKER_CLOCK]
    assert reasons(stamped, unstamped) == reasons(stamped, later) == [None]


def test_what_a_transaction_has_superseded_in_kafka_may_stay_there_even_once_that_is_gone() -> None:
    superseding = replace(batch(replace(TOMBSTONE, offset=33)), is_transactional=True)
    stale = Stale()
    stale.look([batch(VALUE), replace(superseding, base_offset=30)])

    assert reasons(batch(VALUE), None) == [None]
    assert reasons(batch(VALUE), None, replace(MOMENT, stale=stale)) == [Reason.KAFKA_UNMAPPED]
    assert reasons(None, batch(VALUE), replace(MOMENT, stale=stale)) == [None]


def test_only_what_a_cut_pass_leaves_may_last() -> None:
    lasting = [reason for reason in Reason if reason.may_last]

    assert lasting == [Reason.KAFKA_UNMAPPED, Reason.CUT_PASS]
