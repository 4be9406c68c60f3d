"""Invariants of offsets, order, bounds and lookups by time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cleaner.rules.pick import Blocker
from protocol.records.record_batch import Codec
from tests.cleaner.invariants.scenes import EACH_SEGMENT_ITS_GROUP, RETENTION_MS, values_of
from tests.harness.compacted_log import CONFIG, CompactedLog, read_bytes
from tests.harness.log_builder import batch_of, headers_in, valid

KEYS = [b"key-%d" % number for number in range(6)]


def random_log(seed: int, *, segments: int = 8) -> CompactedLog:
    """Returns several groups of segments with values and tombstones of few keys, in varied batches."""
    log, random = CompactedLog(replace(CONFIG, segment_bytes=400)), Random(seed)
    for number in range(segments * 3):
        pairs = [
            (random.choice(KEYS), None if random.random() < 0.3 else b"%d" % number)
            for _ in range(random.randint(1, 4))
        ]
        log.append(*pairs, codec=random.choice(list(Codec)))
        if number % 3 == 2:
            log.roll()
    return log


@pytest.mark.parametrize("seed", range(3))
def test_invariant_01_offsets_and_order_never_change(seed: int) -> None:
    log = random_log(seed)
    before = log.records()

    log.clean()

    after = log.records()
    assert after == [record for record in before if record in after] != before
    assert values_of(log.log) == {
        key: value for key, value in {r.key: r.value for r in before}.items() if value is not None
    }
    for offset in range(log.log.log_start_offset, log.log.log_end_offset + 1):
        assert log.records(offset) == [record for record in after if record.offset >= offset]


def test_invariant_03_nothing_is_cleaned_past_the_least_of_the_upper_bounds() -> None:
    log = CompactedLog(replace(CONFIG, min_compaction_lag_ms=1000))
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.now_ms += 1000
    log.append_segment((b"a", b"3"), (b"a", b"4"))
    assert log.plan().end_offset == 2
    assert log.assess(requested=True).bounds.limited_by is Blocker.MIN_LAG
    log.now_ms += 1000
    log.append((b"a", b"5"), (b"a", b"6"))
    assert log.plan().end_offset == 4
    assert log.assess(requested=True).bounds.limited_by is Blocker.ACTIVE_SEGMENT
    log.now_ms += 1000
    log.log.appender.append_as_leader(valid(batch_of([(b"a", b"7")])), now_ms=log.now_ms - 1000)
    log.roll()
    assert log.plan().end_offset == 6
    assert log.assess(requested=True).bounds.limited_by is Blocker.HIGH_WATERMARK

    log.execute(log.plan())
    log.make_durable()

    assert log.pairs() == [(5, b"a", b"6"), (6, b"a", b"7")]


def test_invariant_04_the_log_start_does_not_move_because_of_compaction() -> None:
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number in range(4):
        log.append_segment((b"a", b"%d" % number))

    log.clean_until_idle()
    log.reopen(is_clean=False)

    assert log.log.log_start_offset == 0
    assert log.pairs() == log.pairs() == [(3, b"a", b"3")]
    assert read_bytes(log.log, 0)


def test_invariant_05_the_batch_that_ends_at_the_high_watermark_keeps_its_last_record() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.append((b"b", None), (b"a", None))
    log.clean()
    log.now_ms += RETENTION_MS

    log.clean()

    assert log.pairs() == [(3, b"a", None)]
    assert headers_in(read_bytes(log.log, 0))[-1].next_offset == log.log.high_watermark


def test_invariant_22_a_lookup_by_time_falls_through_segments_of_empty_batches() -> None:
    """For more see tests/storage/segment/test_timestamp_lookup.py."""
    log = CompactedLog(EACH_SEGMENT_ITS_GROUP)
    for number, timestamp in enumerate((9000, 5000, 6000)):
        log.append_batch(
            valid(
                batch_of(
                    [(b"a" if number < 2 else b"b", b"1")],
                    timestamps=[timestamp],
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=0,
                )
            )
        )
        log.roll()

    log.execute(log.plan())

    assert [header.record_count for header in log.headers()] == [0, 1, 1]
    found = [log.log.reader.offset_for_timestamp(timestamp) for timestamp in (4000, 5500, 6001)]
    assert [each and each.offset for each in found] == [1, 2, None]
