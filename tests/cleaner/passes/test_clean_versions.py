"""Passes over a log whose records have versions: lost tails, tombstones that wait, and bounds."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cleaner.inspect.verify_keys import verify_keys
from cleaner.kernel.kernel import SLOT_BYTES
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.memory import map_beside_marks, marks_bytes
from cleaner.rules.pick import Reason
from cleaner.rules.record_verdict import Verdict
from protocol.records.record import Headers
from protocol.records.record_batch import Record, build_batch
from protocol.wire.numbers import Offset
from storage.files.paths import LOG
from storage.formats.compaction_strategy import CompactionStrategy, Ranking
from storage.formats.config_property import LONG_MAX
from tests.harness.compacted_log import CONFIG, HASH_KEY, START_MS, CompactedLog, identity
from tests.harness.damage import flip
from tests.harness.log_builder import valid

BY_HEADER = replace(CONFIG, compaction_strategy="header", compaction_strategy_header="version")
RETENTION_MS = BY_HEADER.delete_retention_ms


def version(number: int) -> Headers:
    return (("version", struct.pack(">q", number)),)


def append(log: CompactedLog, key: bytes, value: bytes | None, rank: int) -> None:
    headers = version(rank)
    record = Record(offset=0, timestamp=START_MS, key=key, value=value, headers=headers)
    log.append_batch(valid(build_batch([record])))


def deleted_key(log: CompactedLog) -> None:
    """Leave the tombstone of a key at offset 0, whose delete horizon has passed, and another record."""
    append(log, b"a", None, 5)
    append(log, b"x", b"1", 1)
    log.clean()
    log.now_ms += RETENTION_MS


def test_a_record_that_lost_at_a_passs_end_stays_dirty_and_goes_once_something_follows() -> None:
    log = CompactedLog(BY_HEADER)
    append(log, b"a", b"new", 2)
    append(log, b"b", b"1", 1)
    append(log, b"a", b"late", 1)

    report = log.clean()

    assert (report.end_offset, report.is_tail_lost, log.log.clean_offset) == (2, True, 2)
    assert [offset for offset, _, _ in log.pairs()] == [0, 1, 2]
    # The same pass again would change nothing.
    assert log.assess().reason is None
    append(log, b"c", b"1", 1)
    log.clean()
    assert [offset for offset, _, _ in log.pairs()] == [0, 1, 3]
    assert log.log.clean_offset == 4


def test_no_cut_takes_what_a_pass_has_dropped_others_for_though_its_batch_stays_dirty() -> None:
    log = CompactedLog(BY_HEADER)
    append(log, b"k", b"old", 1)
    append(log, b"a", b"new", 5)
    records = [
        Record(offset=number, timestamp=START_MS, key=key, value=b"1", headers=version(rank))
        for number, (key, rank) in enumerate(((b"k", 9), (b"a", 1)))
    ]
    log.append_batch(valid(build_batch(records)))

    log.clean()

    assert [offset for offset, _, _ in log.pairs()] == [1, 2, 3]
    assert (log.log.clean_offset, log.log.cut_offset_min) == (2, 4)
    log.reopen(is_clean=True)
    assert log.log.cut_offset_min == 4
    append(log, b"z", b"1", 1)
    log.clean()
    assert (log.log.clean_offset, log.log.cut_offset_min) == (5, 5)


def test_a_lost_tail_makes_no_clean_segment_dirty() -> None:
    """Otherwise each small append would have the whole segment rewritten."""
    log = CompactedLog(replace(BY_HEADER, min_cleanable_dirty_ratio=0.5))
    for number in range(50):
        append(log, b"key-%d" % number, b"v" * 100, 2)
    append(log, b"key-0", b"late", 1)
    assert log.clean().is_tail_lost

    append(log, b"x", b"1", 1)
    log.roll()

    assert log.assess().reason is None
    assert log.assess().dirty_ratio < 0.1


def test_a_tombstone_that_waits_has_the_idle_segment_rolled_after_a_pass_too() -> None:
    log = CompactedLog(replace(BY_HEADER, min_cleanable_dirty_ratio=0.5))
    for number in range(20):
        append(log, b"key-%d" % number, b"v" * 100, 1)
    append(log, b"a", None, 5)
    append(log, b"x", b"1", 1)
    log.clean()
    append(log, b"a", b"in the active segment", 4)
    log.now_ms += RETENTION_MS

    log.execute(log.plan())

    assert log.assess().reason is None
    assert log.assess().roll_ms == START_MS + BY_HEADER.compaction_idle_roll_ms


def test_nothing_rolls_for_tombstones_of_a_topic_that_is_no_longer_compacted() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    log.now_ms -= RETENTION_MS
    append(log, b"a", b"in the active segment", 4)
    log.now_ms += RETENTION_MS
    log.log.update_config(replace(BY_HEADER, cleanup_policy=("delete",)))

    assert log.assess().roll_ms == LONG_MAX


def test_below_the_clean_offset_each_key_has_one_record_for_those_who_look_by_offset() -> None:
    log = CompactedLog(BY_HEADER)
    append(log, b"a", b"new", 2)
    append(log, b"a", b"late", 1)
    log.clean()

    assert not verify_keys(log.fs, identity(), map_bytes=1 << 20)


def test_a_tombstone_stays_while_a_pass_drops_what_it_outranks_and_goes_in_the_next() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    append(log, b"a", b"late", 4)
    append(log, b"x", b"2", 1)

    report = log.clean()

    assert report.records_by_verdict[Verdict.KEPT_CONTESTED.value] == 1
    assert [offset for offset, _, _ in log.pairs()] == [0, 3]
    assert log.assess().reason is Reason.TOMBSTONES_DUE
    assert log.clean_until_idle() == 1
    assert [offset for offset, _, _ in log.pairs()] == [3]


def test_a_tombstone_waits_for_records_above_the_pass_which_may_be_outranked_by_it() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    log.now_ms -= RETENTION_MS
    append(log, b"a", b"in the active segment", 4)
    log.now_ms += RETENTION_MS

    # Nothing may go now. The segment rolls for it once it has been idle.
    assert log.assess().reason is None
    assert log.assess().roll_ms == START_MS + max(RETENTION_MS, BY_HEADER.compaction_idle_roll_ms)
    log.clean()
    append(log, b"x", b"2", 1)
    log.clean()
    log.clean_until_idle()
    assert [offset for offset, _, _ in log.pairs()] == [3]


def test_a_record_appended_after_the_horizon_does_not_keep_the_tombstone() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    append(log, b"y", b"1", 1)

    assert log.assess().reason is Reason.TOMBSTONES_DUE
    log.clean_until_idle()
    assert [offset for offset, _, _ in log.pairs()] == [1, 2]


def test_a_mirror_keeps_tombstones_as_records_that_they_outrank_may_still_be_copied() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    append(log, b"x", b"2", 1)
    log.log.update_config(replace(BY_HEADER, mirror_link="dr", mirror_compaction="on"))

    log.clean()
    assert log.assess().reason is None
    assert (0, b"a", None) in log.pairs()
    # Promoted: what was copied is compared first.
    log.log.update_config(BY_HEADER)
    log.clean()
    assert (0, b"a", None) not in log.pairs()


def test_append_times_below_what_must_be_covered_let_no_tombstone_go() -> None:
    log = CompactedLog(BY_HEADER)
    deleted_key(log)
    append(log, b"y", b"1", 1)

    assert log.assess().reason is Reason.TOMBSTONES_DUE
    log.must_cover = Offset(3)
    assert log.assess().reason is None
    assert log.execute(log.plan()).groups == 0
    log.clean()
    assert (0, b"a", None) not in log.pairs()


def test_an_infinite_retention_of_tombstones_is_no_obstacle() -> None:
    log = CompactedLog(replace(BY_HEADER, delete_retention_ms=LONG_MAX))
    append(log, b"a", b"1", 1)
    append(log, b"a", None, 2)
    log.roll()
    append(log, b"b", b"1", 1)

    log.execute(log.plan())

    assert [offset for offset, _, _ in log.pairs()] == [1, 2]


@pytest.mark.parametrize("records", [1_000, 100_000_000, 1_000_000_000])
def test_half_of_the_memory_is_for_keys_however_many_marks_there_are(records: int) -> None:
    """With a map of a few keys, a pass would scan all sidecars millions of times."""
    strategy = CompactionStrategy(Ranking.TIMESTAMP)
    source = SimpleNamespace(totals=SimpleNamespace(entries=records))
    settings = CleanerSettings(dedupe_buffer_size=1 << 24)

    found = map_beside_marks(HASH_KEY, [source], [slice(0, 1)], settings, strategy)

    left = settings.map_bytes - 2 * marks_bytes(records)
    assert found.memory_bytes <= max(left, settings.map_bytes // 2)
    assert found.memory_bytes >= settings.map_bytes // 2 - SLOT_BYTES - 8


def test_a_tombstone_below_a_fence_stays_because_it_may_outrank_a_record_in_it() -> None:
    log = CompactedLog(BY_HEADER)
    append(log, b"a", None, 5)
    append(log, b"x", b"1", 1)
    log.roll()
    append(log, b"a", b"late", 1)
    log.roll()
    append(log, b"x", b"2", 2)
    log.roll()
    path = log.log.segments[1].path(LOG)
    flip(log.fs, path, 70)
    for _ in range(3):
        log.execute(log.plan())
        log.now_ms += RETENTION_MS
    append(log, b"guard", b"1", 1)
    report = log.clean()
    tombstones = log.log.segments[0].tombstone_count

    flip(log.fs, path, 70)
    log.clean()
    log.now_ms += RETENTION_MS
    log.clean_until_idle()

    assert (report.fences[0].base_offset, report.hold_offset, tombstones) == (2, 0, 1)
    assert [(key, value) for _, key, value in log.pairs()] == [(b"x", b"2"), (b"guard", b"1")]
