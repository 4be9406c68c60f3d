"""Cases from Apache Kafka's tests of its cleaner that no other file here covers.

Source: LogCleanerTest.java and UnifiedLogTest.java; each test names its Kafka counterpart. README.md
lists where all the others are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cleaner.passes.clean import clean
from cleaner.rules.cleaning_plan import plan_pass
from cleaner.rules.pick import assess
from protocol.wire.numbers import Offset
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOG
from storage.log.appender import Appended
from storage.log.opening import create_log
from tests.harness.compacted_log import (
    CONFIG,
    SETTINGS,
    START_MS,
    CompactedLog,
    identity,
    meter_of,
    opening,
)
from tests.harness.log_builder import batch_of, run_of, valid
from tests.harness.memory_fs import Loss

RETENTION_MS = CONFIG.delete_retention_ms


@pytest.mark.parametrize("is_clean_stop", [True, False])
def test_batches_that_were_cleaned_away_are_still_known_as_duplicates(is_clean_stop: bool) -> None:
    """testDuplicateCheckAfterCleaning, testRebuildProducerIdMapWithCompactedData."""
    log = CompactedLog()
    for producer in (1, 3, 4):
        log.append((b"2", b"x"), (b"3", b"x"), producer_id=producer, producer_epoch=0,
                   base_sequence=0)  # fmt: skip
    log.append((b"1", b"x"), (b"4", b"x"))

    for _ in range(2):
        log.clean()
        log.reopen(is_clean=is_clean_stop)
        for number, producer in enumerate((1, 3, 4)):
            again = log.append((b"2", b"x"), (b"3", b"x"), producer_id=producer,
                               producer_epoch=0, base_sequence=0)  # fmt: skip
            assert again == Appended(Offset(2 * number), Offset(2 * number + 2), duplicate=True)
        assert [(each.base_offset, each.last_offset) for each in log.headers()][:4] == [
            (0, 1), (2, 3), (4, 5), (6, 7)]  # fmt: skip
        assert [each.record_count for each in log.headers()][:4] == [0, 0, 2, 2]


def test_producers_are_rebuilt_from_empty_batches_where_no_snapshot_is_sound() -> None:
    """testRebuildProducerStateWithEmptyCompactedBatch."""
    log = CompactedLog()
    log.append((b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.append((b"a", b"3"))
    log.clean()
    for name in log.files():
        if name.endswith(".snapshot"):
            log.fs.overwrite(f"{log.log.directory}/{name}", 12, b"\xff")

    log.reopen(is_clean=False, loss=Loss.EVERYTHING)

    again = log.append((b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert again == Appended(Offset(0), Offset(2), duplicate=True)
    log.append((b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=2)


def test_a_batch_larger_than_the_topic_now_takes_is_cleaned() -> None:
    """testMessageLargerThanMaxMessageSize: max.message.bytes was lowered after the append."""
    log = CompactedLog()
    log.append_segment((b"a", bytes(2_000)), (b"a", bytes(3_000)), (b"b", bytes(4_000)))
    log.log.update_config(replace(CONFIG, max_message_bytes=100))

    log.clean()

    assert [record.offset for record in log.records()] == [1, 2]


def test_a_map_that_takes_few_keys_cleans_all_of_them_in_one_pass() -> None:
    """testPartialSegmentClean; Kafka needs one pass per map full of keys."""
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 16))
    log.append_segment(*[(b"%02d" % (number % 20), b"%d" % number) for number in range(60)])

    assert log.clean_until_idle() == 1

    assert log.log.clean_offset == 60
    assert log.pairs() == [(40 + n, b"%02d" % n, b"%d" % (40 + n)) for n in range(20)]


def test_a_segment_of_which_nothing_is_left_is_empty_and_its_offsets_stay_legal() -> None:
    """testCleanSegmentsNotRetainingLastEmptyBatch."""
    log = CompactedLog(replace(CONFIG, segment_bytes=1))
    log.append_segment((b"a", b"1"))
    log.append_segment((b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))

    log.clean()

    first = log.log.segments[0]
    assert (first.size, first.end_offset) == (0, 2)
    assert [record.offset for record in log.records(0)] == [2, 3]
    assert log.log.log_start_offset == 0


def test_keys_are_mapped_across_a_jump_of_seven_million_offsets() -> None:
    """testBuildOffsetMapFakeLarge."""
    log = CompactedLog(replace(CONFIG, segment_bytes=120))
    log.append((b"0", b"0"))
    jump = 7_206_178
    log.log.appender.append_as_follower(
        run_of(batch_of([(b"1", b"1"), (b"2", b"2"), (b"0", b"3")], base_offset=jump)),
        now_ms=log.now_ms,
    )
    log.make_durable()

    report = log.clean()

    assert report.keys_mapped == 3
    assert log.pairs() == [
        (jump, b"1", b"1"), (jump + 1, b"2", b"2"), (jump + 2, b"0", b"3")]  # fmt: skip


def test_a_values_time_in_the_future_does_not_take_a_tombstone_away_early() -> None:
    """testCleanTombstone; KAFKA-4529."""
    log = CompactedLog()
    far = 2**62
    log.append_batch(valid(batch_of([(b"0", b"0")], timestamps=[far])))
    log.roll()
    log.append_batch(valid(batch_of([(b"0", None)], timestamps=[1])))
    log.append((b"1", b"1"))

    for _ in range(2):
        log.clean()
        assert log.pairs()[0] == (1, b"0", None)
        log.append((b"1", b"1"))


def test_offsets_that_are_missing_between_segments_are_passed() -> None:
    """testCleaningBeyondMissingOffsetsMultipleSegments; KAFKA-8764."""
    log = CompactedLog()
    for base_offset in (10, 30, 70):
        batch = batch_of([(b"a", b"1"), (b"b", b"1")], base_offset=base_offset)
        log.log.appender.append_as_follower(run_of(batch), now_ms=log.now_ms)
        log.make_durable()
        log.roll()
        log.log.appender.advance_end(Offset(base_offset + 15))
        log.make_durable()

    assert log.clean().end_offset == 85
    assert log.clean_until_idle() == 0
    assert log.log.clean_offset == 85
    assert log.pairs() == [(70, b"a", b"1"), (71, b"b", b"1")]


def test_a_cleaned_segment_of_a_preallocated_log_takes_no_more_than_its_batches(
    tmp_path: Path,
) -> None:
    """testSizeTrimmedForPreallocatedAndCompactedTopic."""
    config = replace(CONFIG, preallocate=True, segment_bytes=1 << 20)
    log = create_log(
        LocalFileSystem(), identity("orders", str(tmp_path / "orders/0")), config, opening()
    )
    for number in range(3):
        log.appender.append_as_leader(valid(batch_of([(b"a", b"%d" % number)])), now_ms=START_MS)
    log.advance_high_watermark(log.sync())
    assert Path(log.segments[0].path(LOG)).stat().st_blocks * 512 >= 1 << 20
    log.roll(START_MS)
    view = log.cleaning_view()
    plan = plan_pass(
        view,
        assess(view, config, START_MS, requested=True),
        now_ms=START_MS,
        stamp_ms=START_MS,
    )

    clean(
        log.cleaning,
        plan,
        SETTINGS,
        meter=meter_of(log, plan.view.generation),
        monotonic=lambda: 0.0,
    )

    status = Path(log.segments[0].path(LOG)).stat()
    assert status.st_size == log.segments[0].size
    assert status.st_blocks * 512 <= 64 << 10


def test_cleaning_leaves_no_more_snapshots_of_producers_than_recovery_needs() -> None:
    """testCompactionDeletesProducerStateSnapshots."""
    log = CompactedLog()
    for number in range(6):
        log.append((b"a", b"1"), producer_id=number, producer_epoch=0, base_sequence=0)
        log.roll()

    log.clean()

    assert len([name for name in log.files() if name.endswith(".snapshot")]) <= 2
