"""What a pass counts of a segment's tombstones: their bytes, and when all of them are due."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.rules.tombstone_debt import tombstone_debt
from protocol.records.compression import Codec
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.segment.segment import Segment
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.on_disk_reader import batches_of
from tests.harness.transactional_producer import TransactionalProducer

CODECS = st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD])


def cleaned_of(log: CompactedLog) -> list[Segment]:
    return [segment for segment in log.log.segments if segment.flags]


def counted_again(segment: Segment) -> tuple[int, int, int]:
    """Returns count, bytes and latest horizon of a segment's tombstones, as an independent reader finds
    them."""
    data = segment.files.open().read_at(0, segment.size)
    count = size = 0
    due_ms = -1
    for batch in batches_of(data, segment.base_offset, segment.size):
        sizes = [
            bytes_count
            for (_, _, key, value, _), bytes_count in batch.sized_records()
            if key is not None and value is None and not batch.attributes & 32
        ]
        if sizes:
            count, size = count + len(sizes), size + sum(sizes)
            due_ms = max(due_ms, LONG_MAX if batch.delete_horizon is None else batch.delete_horizon)
    return count, size, due_ms


def said_by(row: SegmentRow | Segment) -> tuple[int, int, int]:
    return row.tombstone_count, row.tombstone_bytes, row.tombstones_due_ms


PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c" * 70, None]), st.none() | st.binary(max_size=9)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(
    segments=st.lists(
        st.lists(st.tuples(PAIRS, CODECS), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    passes=st.lists(st.integers(0, 700), min_size=1, max_size=3),
    segment_bytes=st.sampled_from([150, 1 << 20]),
    unkeyed=st.sampled_from(["drop", "keep"]),
)
def test_each_row_says_what_its_segment_holds(
    segments: list[list[tuple[list[tuple[bytes | None, bytes | None]], Codec]]],
    passes: list[int],
    segment_bytes: int,
    unkeyed: str,
) -> None:
    log = CompactedLog(
        replace(CONFIG, segment_bytes=segment_bytes, compaction_unkeyed_records=unkeyed)
    )
    for after_ms in passes:
        for batches in segments:
            for pairs, codec in batches:
                log.append(*pairs, codec=codec)
            log.roll()
        log.now_ms += after_ms
        log.clean()
        assert [said_by(each) for each in cleaned_of(log)] == [
            counted_again(each) for each in cleaned_of(log)
        ]


def test_a_tombstone_above_the_end_of_a_pass_has_no_date_until_the_next_pass() -> None:
    log = CompactedLog()
    log.append((b"a", None), (b"b", b"1"))
    producer = TransactionalProducer(log, 7)
    producer.send((b"c", b"1"))
    log.append((b"d", None))
    log.clean()
    (before,) = cleaned_of(log)
    producer.commit()
    log.clean()

    assert said_by(before)[::2] == (2, LONG_MAX)
    assert tombstone_debt([before]).all_due_ms is None
    debt = tombstone_debt(log.log.segments)
    assert (debt.tombstones, debt.all_due_ms) == (2, log.now_ms + 1000)


def test_segments_without_tombstones_say_so() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.clean()

    assert [said_by(each) for each in cleaned_of(log)] == [(0, 0, -1)]


def test_what_was_counted_outlasts_a_restart() -> None:
    log = CompactedLog()
    log.append_segment((b"a", None), (b"b", b"1"))
    log.clean()
    counted = [said_by(each) for each in cleaned_of(log)]

    for is_clean in (True, False):
        log.reopen(is_clean=is_clean)
        assert [said_by(each) for each in cleaned_of(log)] == counted
    assert counted[0][0] == 1


def test_a_segment_of_an_earlier_release_is_counted_by_the_pass_that_rewrites_it() -> None:
    log = CompactedLog()
    log.append_segment((b"a", None), (b"b", b"1"))
    log.clean()
    (old,) = cleaned_of(log)
    old.tombstone_bytes = old.tombstones_due_ms = UNKNOWN
    assert tombstone_debt([old]).bytes is None

    log.append((b"b", b"2"))
    log.clean()

    debt = tombstone_debt(log.log.segments)
    assert (debt.tombstones, debt.bytes) == (1, sum(s.tombstone_bytes for s in cleaned_of(log)))
