"""A cleaning pass over a real log: what stays, what goes, and what happens when it is cut short.

The numbers in the docstrings are the rules of log compaction that Kafka's documentation
("Log Compaction", docs/design) and its LogCleanerTest state; the test names say them.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from cleaner.meter import CleaningAborted
from cleaner.pick import Blocker, Reason
from cleaner.settings import CHUNK_BYTES_MIN
from protocol.control_record import ControlType, TransactionMarker
from protocol.errors import CorruptBatch
from protocol.record_batch import Codec, build_control_batch
from storage.errors import NoSpace, SegmentRemoved, SwapRefused
from storage.paths import LOG
from tests.harness.compacted_log import CONFIG, SETTINGS, CompactedLog, read_bytes
from tests.harness.groups import watched_swaps
from tests.harness.log_builder import batch_of, headers_in, valid

RETENTION_MS = CONFIG.delete_retention_ms


def superseded_log() -> CompactedLog:
    """Three sealed segments with five offsets; only offsets 2, 3 and 4 hold last values."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"b", b"2"))
    log.append_segment((b"c", b"1"))
    return log


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
    log.log.append_as_leader(valid(batch_of([(b"a", b"2")])), now_ms=log.now_ms)
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
    """KAFKA-17076, KAFKA-20452: else a client that reads to the end never gets there."""
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", None))
    log.clean()
    log.now_ms += RETENTION_MS

    log.clean()

    assert log.pairs() == [(1, b"a", None)]
    assert log.headers()[-1].last_offset == log.log.high_watermark - 1


# -------------------------------------------------------------------- tombstones


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
    log.log.append_as_leader(valid(batch_of([(b"a", None)])), now_ms=log.now_ms)
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


# -------------------------------------------------------------------- keys


def test_control_batches_are_kept_and_their_keys_mean_nothing() -> None:
    """KAFKA-14055: a user's key may be the bytes of a marker's key."""
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
    # The source is read for its sidecars and for the recopy, the output to be verified.
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
    log.log.advance_end(50)
    log.roll()
    log.log.append_as_follower(valid(batch_of([(b"a", b"2")], base_offset=60)), now_ms=log.now_ms)
    log.make_durable()
    log.roll()

    log.clean_until_idle()

    assert log.log.clean_offset == 61
    assert log.pairs() == [(60, b"a", b"2")]


# -------------------------------------------------------------------- what can go wrong


def test_each_group_is_swapped_in_as_soon_as_it_is_recopied() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append(
            (b"a", b"%d" % number * 40), *((b"%d-%d" % (number, n), b"v" * 30) for n in (1, 2))
        )
        log.roll()
    plan = log.plan()
    swaps: list[tuple[int, int | None]] = []
    swap = log.log.swap

    class Watched:
        """The log, with its swaps written down."""

        generation = log.log.generation
        log_start_offset = log.log.log_start_offset
        new_cleaned_segment = staticmethod(log.log.new_cleaned_segment)
        commit_clean_offset = staticmethod(log.log.commit_clean_offset)

        def swap(self, sources, cleaned, *, generation, clean_offset) -> None:  # type: ignore[no-untyped-def]
            staged = [name for name in log.files() if name.endswith(".log.cleaned")]
            assert len(staged) == len(cleaned) == 1
            swap(sources, cleaned, generation=generation, clean_offset=clean_offset)
            swaps.append((sources[0].base_offset, clean_offset))

    log.log, real = Watched(), log.log  # type: ignore[assignment]
    try:
        log.execute(plan)
    finally:
        log.log = real

    # In the sixth nothing dies.
    assert swaps == [(0, None), (3, None), (6, None), (9, None), (12, 18)]


def test_an_aborted_pass_keeps_its_swaps_discards_its_staging_and_costs_no_record() -> None:
    log = CompactedLog(replace(CONFIG, segment_bytes=200))
    for number in range(6):
        log.append_segment((b"a", b"%d" % number * 40), (b"%d" % number, b"v"))
    before = {record.key: record.value for record in log.records()}

    def stop_at_the_third_group(_seconds: float) -> bool:
        return sum(segment.is_cleaned for segment in log.log.segments) == 2

    with pytest.raises(CleaningAborted):
        log.execute(log.plan(), stop=stop_at_the_third_group)

    swapped = [segment for segment in log.log.segments if segment.is_cleaned]
    assert len(swapped) == 2
    assert log.log.clean_offset == 0
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    assert {record.key: record.value for record in log.records()} == before


def test_a_truncation_meanwhile_aborts_the_pass() -> None:
    log = superseded_log()
    plan = log.plan()
    log.log.truncate_to(3)

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert log.pairs() == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2")]


def test_a_policy_change_meanwhile_aborts_the_pass() -> None:
    log = superseded_log()
    plan = log.plan()
    log.log.update_config(replace(CONFIG, cleanup_policy=("delete",)))

    with pytest.raises(CleaningAborted):
        log.execute(plan)

    assert len(log.pairs()) == 5


def test_a_pass_whose_sources_were_cleaned_by_another_one_is_refused() -> None:
    log = superseded_log()
    stale = log.plan()
    # Somebody still reads the old segments, else their files would be gone.
    for segment in log.log.segments:
        segment.files.pin()
    log.clean()

    with pytest.raises(SwapRefused):
        log.execute(stale)

    assert len(log.pairs()) == 3
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_a_pass_whose_sources_are_gone_reads_nothing_wrong() -> None:
    log = superseded_log()
    stale = log.plan()
    log.clean()

    with pytest.raises(SegmentRemoved):
        log.execute(stale)

    assert len(log.pairs()) == 3


def test_what_retention_deletes_while_keys_are_mapped_is_left_out_of_the_pass() -> None:
    """Else a log that also loses old segments might never see a pass through."""
    log = superseded_log()
    log.clean()
    log.append_segment((b"a", b"3"))
    log.append_segment((b"a", b"4"), (b"c", b"2"))
    log.roll()
    plan = log.plan()
    assert len(plan.view.segments) == 3
    log.log.delete_records(5)

    report = log.execute(plan)

    assert report.segments_before + report.segments_untouched == 2
    assert log.pairs() == [(6, b"a", b"4"), (7, b"c", b"2")]
    assert (log.log.log_start_offset, log.log.clean_offset) == (5, 8)


def corrupt_log(position: int, data: bytes) -> CompactedLog:
    log = superseded_log()
    path = log.log.segments[1].path(LOG)
    log.fs.overwrite(path, position, data)
    return log


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(65, b"\xff", id="a_record_byte_flipped"),
        pytest.param(16, b"\x01", id="another_magic"),
        pytest.param(8, struct.pack(">i", 0x7FFF_0000), id="a_size_beyond_the_segment"),
        pytest.param(8, struct.pack(">i", 3), id="a_size_below_a_header"),
        pytest.param(8, struct.pack(">i", -1), id="a_negative_size"),
    ],
)
def test_a_damaged_batch_stops_the_pass_and_changes_nothing(position: int, data: bytes) -> None:
    log = corrupt_log(position, data)
    segments = log.log.segments

    with pytest.raises(CorruptBatch):
        log.execute(log.plan())

    assert log.log.segments == segments
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_a_file_shorter_than_its_row_is_corruption_not_the_end_of_the_data() -> None:
    log = superseded_log()
    log.log.segments[2].files.open().truncate(10)

    with pytest.raises(CorruptBatch, match="ends early"):
        log.execute(log.plan())

    assert len(log.log.segments) == 4


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    log = superseded_log()
    log.fs.faults.fail("append to", errno.ENOSPC, path=".cleaned")

    with pytest.raises(NoSpace):
        log.execute(log.plan())

    assert len(log.pairs()) == 5
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    assert log.execute(log.plan()).records_after == 3
