"""A cleaning pass over a real log: which records stay and which go.

The test names state the rules of log compaction, from Kafka's documentation ("Log Compaction",
docs/design) and its LogCleanerTest.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CHUNK_BYTES_MIN
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Codec, build_control_batch
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, read_bytes, superseded_log
from tests.harness.log_builder import batch_of, headers_in, run_of, valid

RETENTION_MS = CONFIG.delete_retention_ms


# -------------------------------------------------------------------- offsets and order


def test_the_last_value_of_each_key_stays_with_its_offset_and_in_order() -> None:
    log = superseded_log()

    log.clean()

    assert log.pairs() == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]


def test_the_log_start_and_end_do_not_move() -> None:
    log = superseded_log()

    log.clean()

    assert log.log.log_start_offset == 0
    assert (log.log.high_watermark, log.log.log_end_offset) == (5, 5)


def test_every_offset_stays_a_legal_fetch_position() -> None:
    log = superseded_log()
    log.clean()

    first_records = [
        next((record.offset for record in log.records(offset)), None) for offset in range(6)
    ]

    assert first_records == [2, 2, 2, 3, 4, None]


def test_a_batch_keeps_its_range_of_offsets_whatever_dies_in_it() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=Codec.ZSTD)
    log.append((b"c", b"1"), (b"b", b"2"))

    log.clean()

    headers = log.headers()
    assert [(header.base_offset, header.last_offset) for header in headers] == [(0, 2), (3, 4)]
    assert [header.record_count for header in headers] == [1, 2]
    assert headers[0].codec is Codec.ZSTD


def test_a_batch_in_which_nothing_dies_is_copied_byte_for_byte() -> None:
    log = CompactedLog()
    log.append((b"a", b"1" * 500), (b"b", b"1" * 500), codec=Codec.GZIP)
    log.append((b"c", b"1"))
    log.append((b"c", b"2"))
    before = read_bytes(log.log, 0)

    log.clean()

    kept_size = headers_in(before)[0].size_bytes
    assert read_bytes(log.log, 0)[:kept_size] == before[:kept_size]


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_one() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.append((b"a", b"3"))

    log.clean()

    first = log.headers()[0]
    assert (first.record_count, first.producer_id, first.last_sequence) == (0, 7, 1)
    duplicate = log.append(
        (b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert duplicate.duplicate


def test_an_older_batch_of_a_producer_goes_altogether() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.append((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    log.append((b"a", b"3"))

    log.clean()

    assert [header.base_offset for header in log.headers()] == [1, 2]


# -------------------------------------------------------------------- the upper bound


def test_the_active_segment_is_not_cleaned() -> None:
    log = superseded_log()
    log.append((b"c", b"2"))
    log.append((b"c", b"3"))

    log.execute(log.plan())

    assert log.pairs()[-3:] == [(4, b"c", b"1"), (5, b"c", b"2"), (6, b"c", b"3")]


def test_nothing_past_the_high_watermark_deletes_anything() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"b", b"1"))
    log.log.appender.append_as_leader(valid(batch_of([(b"a", b"2")])), now_ms=log.now_ms)
    log.roll()

    plan = log.plan()
    log.execute(plan)
    log.make_durable()

    assert plan.end_offset == 2
    assert log.pairs() == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2")]


def test_a_segment_younger_than_the_minimum_lag_keeps_all_its_records() -> None:
    log = CompactedLog(replace(CONFIG, min_compaction_lag_ms=10_000))
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.now_ms += 10_000
    log.append_segment((b"a", b"3"), (b"a", b"4"))

    log.execute(log.plan())

    assert log.pairs() == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


def test_the_record_before_the_upper_bound_stays_even_if_it_would_die() -> None:
    """KAFKA-17076, KAFKA-20452: otherwise a client that reads to the end would never reach it."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", None))
    log.clean()
    log.now_ms += RETENTION_MS

    log.clean()

    assert log.pairs() == [(1, b"a", None)]
    assert log.headers()[-1].last_offset == log.log.high_watermark - 1


# -------------------------------------------------------------------- keys


def test_control_batches_are_kept_and_their_keys_mean_nothing() -> None:
    """KAFKA-14055: a user's key may have the same bytes as a marker's key."""
    log = CompactedLog()
    marker = build_control_batch(
        TransactionMarker(type=ControlType.COMMIT, coordinator_epoch=0),
        timestamp=1,
        producer_id=7,
        producer_epoch=0,
    )
    log.append_batch(valid(marker))
    log.append((struct.pack(">hh", 0, 1), b"user"))
    log.append((b"b", b"1"))

    log.clean()

    assert [header.is_control for header in log.headers()] == [True, False, False]
    assert [record.offset for record in log.records()] == [0, 1, 2]


def test_different_keys_never_delete_each_other() -> None:
    log = CompactedLog()
    keys = [b"%d" % number for number in range(3000)]
    log.append(*[(key, b"v") for key in keys], codec=Codec.LZ4)

    log.clean()

    assert [record.key for record in log.records()] == keys


@pytest.mark.parametrize(
    ("setting", "left", "verdict"),
    [
        pytest.param("drop", [3], "dropped_unkeyed", id="dropped"),
        pytest.param("keep", [0, 1, 3], "kept_unkeyed", id="kept"),
    ],
)
def test_unkeyed_records_from_before_go_or_stay_as_the_topic_says(
    setting: str, left: list[int], verdict: str
) -> None:
    """compaction.unkeyed.records; Kafka's testCleaningWithUnkeyedMessages."""
    log = CompactedLog(replace(CONFIG, compaction_unkeyed_records=setting))
    log.append((None, b"1"), (None, None), codec=Codec.LZ4)
    log.append((b"a", b"1"), (b"a", b"2"))

    report = log.clean()

    assert [record.offset for record in log.records()] == left
    assert report.records_by_verdict[verdict] == 2


def test_a_pass_that_would_drop_what_the_topic_keeps_by_now_ends() -> None:
    log = CompactedLog()
    log.append_segment((None, b"1"), (b"a", b"1"))
    plan = log.plan()
    log.log.update_config(replace(CONFIG, compaction_unkeyed_records="keep"))

    with pytest.raises(CleaningAborted):
        log.execute(plan)


# -------------------------------------------------------------------- chunks, maps, groups


def test_a_batch_larger_than_the_buffer_grows_it() -> None:
    log = CompactedLog()
    big = bytes(3 * CHUNK_BYTES_MIN)
    log.append((b"a", big))
    log.append((b"b", b"1"))
    log.append((b"a", big + b"2"))
    log.append((b"b", b"2"))

    log.clean()

    assert [(record.offset, len(record.value or b"")) for record in log.records()] == [
        (2, len(big) + 1),
        (3, 1),
    ]


def test_a_map_too_small_for_all_keys_cleans_them_in_one_pass() -> None:
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 16))
    for round_ in range(3):
        log.append_segment(*[(b"%02d" % number, b"%d" % round_) for number in range(30)])

    passes = log.clean_until_idle()

    assert passes == 1
    assert log.pairs() == [(60 + number, b"%02d" % number, b"2") for number in range(30)]
    assert log.log.clean_offset == 90


def test_a_batch_with_more_keys_than_the_map_takes_is_cleaned_like_any_other() -> None:
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=24 * 16))
    log.append(*[(b"%d" % (number % 40), b"%d" % number) for number in range(60)])
    log.append((b"39", b"last"))
    log.roll()

    log.execute(log.plan())

    assert [offset for offset, _, _ in log.pairs()] == [*range(20, 39), *range(40, 61)]


def test_small_segments_merge_up_to_the_segment_size() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=1000))
    for number in range(20):
        log.append_segment((b"%02d" % number, b"v" * 30))

    log.clean()

    # Each of the twenty batches has a hundred bytes.
    assert [segment.size for segment in log.log.segments] == [1000, 1000, 0]
    assert len(log.pairs()) == 20


def test_the_report_adds_up() -> None:
    log = superseded_log()

    report = log.clean()

    assert (report.start_offset, report.end_offset, report.groups) == (0, 5, 1)
    assert (report.records_before, report.records_after) == (5, 3)
    assert report.records_by_verdict["dropped_superseded"] == 2
    assert report.bytes_after < report.bytes_before
    # Three sidecars of five entries, and one of three; each has a header, a trailer and its blocks.
    assert report.bytes_written == report.bytes_after + (3 + 1) * 24 + 8 * 24
    # The source is read for its sidecars and for the recopy, the output for the verification.
    blocks_read = report.bytes_read - 2 * report.bytes_before - report.bytes_after
    assert blocks_read == 3 * (3 * 24 + 5 * 24)
    assert (report.segments_before, report.segments_after) == (3, 1)
    assert (report.parts, report.keys_mapped, report.sidecars_built) == (1, 3, 3)
    assert (report.segments_untouched, report.bytes_untouched) == (0, 0)


def test_cleaned_segments_keep_the_append_times_of_their_sources() -> None:
    log = CompactedLog()
    first_ms = log.now_ms
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.now_ms += 500
    last_ms = log.now_ms
    log.append_segment((b"a", b"2"), (b"a", b"3"))
    log.now_ms += 500

    log.clean()

    row = log.log.segments[0].row()
    assert (row.first_append_ms, row.last_append_ms) == (first_ms, last_ms)
    assert (row.record_count, row.tombstone_count, row.is_cleaned) == (2, 0, True)


def test_offsets_that_are_missing_at_a_segments_end_are_passed() -> None:
    """KAFKA-8764."""
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.log.appender.advance_end(Offset(50))
    log.roll()
    log.log.appender.append_as_follower(
        run_of(batch_of([(b"a", b"2")], base_offset=60)), now_ms=log.now_ms
    )
    log.make_durable()
    log.roll()

    log.clean_until_idle()

    assert log.log.clean_offset == 61
    assert log.pairs() == [(60, b"a", b"2")]
