"""Tombstones under cleaning: when they get a delete horizon, and when they are dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.pick import Blocker, Reason
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.groups import watched_swaps
from tests.harness.log_builder import batch_of, valid
from tests.harness.transactional_producer import TransactionalProducer

RETENTION_MS = CONFIG.delete_retention_ms


def test_a_tombstone_goes_after_delete_retention_from_the_first_clean_and_not_before() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.now_ms += 10 * RETENTION_MS
    log.clean()
    assert log.pairs() == [(1, b"a", None), (2, b"b", b"1")]

    log.now_ms += RETENTION_MS - 1
    log.clean()
    assert log.pairs() == [(1, b"a", None), (2, b"b", b"1")]

    log.now_ms += 1
    log.clean()
    assert log.pairs() == [(2, b"b", b"1")]


def test_later_passes_do_not_restart_a_tombstones_clock() -> None:
    """KAFKA-8522."""
    log = CompactedLog()
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.clean()
    horizon = log.headers()[0].delete_horizon_ms

    for number in range(3):
        log.now_ms += 100
        log.append((b"b", b"%d" % number))
        log.clean()

    assert log.headers()[0].delete_horizon_ms == horizon == log.now_ms - 300 + RETENTION_MS


def test_the_clock_retires_tombstones_without_new_data() -> None:
    log = CompactedLog()
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.clean()
    assert log.assess().blocker is Blocker.NOTHING_DIRTY

    log.now_ms += RETENTION_MS

    assert log.assess().reason is Reason.TOMBSTONES_DUE
    assert log.clean_until_idle() == 1
    assert log.pairs() == [(1, b"b", b"1")]


def test_a_horizon_whose_tombstones_are_gone_hides_no_later_one() -> None:
    log = CompactedLog()
    log.append((b"a", None), (b"b", b"1"))
    log.clean()
    log.now_ms += RETENTION_MS - 1
    log.append((b"c", None))
    log.append((b"d", b"1"))
    log.clean()
    log.now_ms += 1
    assert log.clean_until_idle() == 1
    log.now_ms += RETENTION_MS

    assert log.clean_until_idle() == 1
    assert log.pairs() == [(1, b"b", b"1"), (3, b"d", b"1")]
    log.reopen(is_clean=True)
    assert log.assess().reason is None, "a start finds nothing due"


def test_a_tombstone_that_the_tail_holds_is_not_cleaned_for_ever() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", None))
    log.clean_until_idle()
    log.now_ms += RETENTION_MS

    assert log.clean_until_idle() == 1
    log.now_ms += 100 * RETENTION_MS
    assert log.clean_until_idle() == 0

    log.append_segment((b"b", b"1"))
    assert log.clean_until_idle() == 1
    assert log.pairs() == [(2, b"b", b"1")]


def test_a_tombstone_beyond_the_end_of_a_pass_gets_no_clock_yet() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.log.appender.append_as_leader(valid(batch_of([(b"a", None)])), now_ms=log.now_ms)
    log.roll()
    plan = log.plan()

    log.execute(plan)

    assert plan.end_offset == 1
    log.make_durable()
    assert log.headers()[-1].delete_horizon_ms is None


def test_a_due_horizon_touches_only_the_groups_that_hold_it() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=150))
    log.append_segment((b"a", b"1"))
    log.append_segment((b"b", None), (b"c", b"1"))
    log.append_segment((b"d", b"1"))
    log.clean()
    log.now_ms += RETENTION_MS

    plan = log.plan(requested=False)
    with watched_swaps() as groups:
        log.execute(plan)

    assert plan.reason is Reason.TOMBSTONES_DUE
    assert [row.base_offset for group in groups for row in group] == [1]


def held_log() -> CompactedLog:
    """A log whose tombstones, at offsets 1 and 3, have outlived their horizons."""
    log = CompactedLog(replace(CONFIG, delete_retention_ms=0))
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.append((b"b", None))
    log.append((b"c", b"1"))
    log.hold = Hold(offset=Offset(2), by="group mirror")
    log.clean()
    log.now_ms += 1
    return log


def test_tombstones_at_and_above_the_hold_stay_and_those_below_go() -> None:
    log = held_log()

    report = log.clean()

    assert log.pairs() == [(3, b"b", None), (4, b"c", b"1")]
    assert report.records_by_verdict["kept_held"] == 1
    assert report.records_by_verdict["dropped_tombstone"] == 1
    assert "tombstones held from offset 2 on by group mirror" in str(report)


def test_a_held_log_is_not_cleaned_again_and_again() -> None:
    log = held_log()
    log.clean_until_idle()
    log.now_ms += RETENTION_MS
    log.hold = Hold(offset=Offset(3), by="group mirror")

    assert log.clean_until_idle() == 0
    log.hold = NO_HOLD
    assert log.clean_until_idle() == 1
    assert log.pairs() == [(4, b"c", b"1")]


def test_a_pass_that_was_planned_before_a_hold_appeared_loses() -> None:
    log = held_log()
    log.hold = NO_HOLD
    log.roll()
    plan = log.plan()

    log.log.refuse_planned_passes()

    with pytest.raises(CleaningAborted, match="or is held"):
        log.execute(plan)
    assert [offset for offset, _, _ in log.pairs()] == [1, 3, 4]


def test_a_marker_that_is_held_stays_though_nothing_is_left_of_its_transaction() -> None:
    log = CompactedLog(replace(CONFIG, delete_retention_ms=0))
    producer = TransactionalProducer(log, 1)
    producer.send((b"a", b"1"))
    marker = producer.abort()
    log.append((b"b", b"1"))
    log.clean()
    TransactionalProducer(log, 2).send((b"c", b"1"))
    log.now_ms += 1
    log.log.expire_producers_after(0)

    log.hold = Hold(offset=Offset(marker), by="group mirror")
    assert log.clean().records_by_verdict["dropped_marker"] == 0
