"""Invariants of tombstones: dropped after their retention, and no deleted value comes back."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from cleaner.rules.pick import Reason
from protocol.wire.numbers import Offset
from tests.cleaner.invariants.scenes import (
    EACH_SEGMENT_ITS_GROUP,
    RETENTION_MS,
    open_again,
    values_of,
)
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.groups import watched_swaps
from tests.harness.memory_fs import Loss
from tests.harness.transactional_producer import TransactionalProducer


def test_invariant_10_a_tombstones_clock_starts_once_with_its_first_clean() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.now_ms += 5 * RETENTION_MS
    log.clean()
    horizon = log.now_ms + RETENTION_MS
    assert log.headers()[0].delete_horizon_ms == horizon

    for number in range(3):
        log.now_ms += RETENTION_MS // 4
        log.append((b"b", b"%d" % number))
        log.clean()
        log.reopen(is_clean=number % 2 == 0)
        assert log.headers()[0].delete_horizon_ms == horizon
        assert (1, b"a", None) in log.pairs()

    log.now_ms = horizon
    log.append((b"b", b"last"))
    log.clean()
    assert b"a" not in {key for _offset, key, _value in log.pairs()}


def test_invariant_11_no_horizon_is_stamped_beyond_what_the_pass_covers() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 1)
    log.append((b"early", None), *[(b"%02d" % n, b"1") for n in range(14)])
    producer.send((b"01", b"open"))
    log.append((b"00", None))
    log.roll()

    report = log.execute(log.plan())

    horizons = {header.base_offset: header.delete_horizon_ms for header in log.headers()}
    assert horizons[Offset(0)] is not None
    assert all(horizons[offset] is None for offset in horizons if offset >= report.end_offset)
    assert report.end_offset <= 15


def test_invariant_12_the_oldest_group_is_swapped_first_and_no_crash_brings_a_value_back() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    log.append_segment((b"a", b"1"))
    log.append_segment((b"a", None))
    log.append_segment((b"b", b"1"))
    log.clean_until_idle()
    log.now_ms += RETENTION_MS
    log.append_segment((b"a", b"2"))
    log.append_segment((b"a", None))
    log.append_segment((b"b", b"2"))
    plan = log.plan()
    seen = []

    def crash(action: str, path: str) -> None:
        left = CompactedLog()
        left.fs, left.now_ms = log.fs.after_crash(Loss.NOTHING, Random(0)), log.now_ms
        left.log = log.log
        left.log = open_again(left)
        seen.append([segment.is_cleaned for segment in left.log.segments])
        assert b"a" not in values_of(left.log)

    log.fs.on_operation = crash
    with watched_swaps() as groups:
        log.execute(plan)

    bases = [group[0].base_offset for group in groups]
    assert bases == sorted(bases)
    assert len({tuple(each) for each in seen}) > 2


def test_invariant_20_the_clock_rolls_an_idle_segment_and_retires_tombstones() -> None:
    log = CompactedLog(replace(CONFIG, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0))
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    assert not log.log.roll_if_due(log.now_ms + 4999)
    assert log.clean_until_idle() == 0

    log.now_ms += 5000
    assert log.log.roll_if_due(log.now_ms)
    assert log.assess().reason is Reason.DEADLINE
    log.clean_until_idle()
    assert log.pairs() == [(1, b"a", None), (2, b"b", b"1")]

    log.now_ms += RETENTION_MS
    assert log.assess().reason is Reason.TOMBSTONES_DUE
    log.clean_until_idle()
    assert log.pairs() == [(2, b"b", b"1")]
