"""The compiled kernel, case by case; what it leaves of any log is compared with the rule in
tests/properties/test_kernel_against_retain.py."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from aiokafka.record import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from cleaner.kernel import (
    BatchFilter,
    KeyIndexer,
    OffsetMap,
    Transactions,
    map_keys,
    mark_keys,
)
from cleaner.retain import Verdict
from cleaner.step import FilterStep, IndexStep, KeysDiffer, MapStep, MapTally, MarkStep
from protocol.compression import Codec, compress
from protocol.control_record import ControlType
from protocol.errors import CorruptBatch, DecompressionTooLarge
from storage.key_totals import KeyTotals
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    LogBatch,
    LogRecord,
    encode,
    encode_record,
    log_batch,
    marker_batch,
    seal,
)
from tests.cleaner.kernel_steps import assert_blocks_hold, index_log, mark_log, walk_log

NOW_MS = 50_000
ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT = 21, 27, 35, 57


def index_chunk(
    chunk: bytes, *, position: int = 0, decompressed_bytes_max: int = INFLATED_BYTES_MAX
) -> IndexStep:
    indexer = KeyIndexer(HASH_KEY, base_offset=0, decompressed_bytes_max=decompressed_bytes_max)
    return indexer.feed(chunk, position=position)


def filter_of(
    *,
    end_offset: int = 1_000,
    tail_offset: int = -1,
    now_ms: int = NOW_MS,
    producers: tuple[int, ...] = (),
    segment_bytes_max: int = 2**31 - 1,
    index_interval_bytes: int = 4096,
    decompressed_bytes_max: int = INFLATED_BYTES_MAX,
    marks: bytes = bytes(1_000),
) -> BatchFilter:
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=end_offset,
        tail_offset=tail_offset,
        now_ms=now_ms,
        delete_retention_ms=1_000,
        decompressed_bytes_max=decompressed_bytes_max,
        producer_last_offsets=producers,
        segment_bytes_max=segment_bytes_max,
        index_interval_bytes=index_interval_bytes,
        is_verified=True,
    )
    batch_filter.start_source(0, marks)
    batch_filter.start_segment(0)
    return batch_filter


def block_of(data: bytes) -> bytes:
    """The one key block of a segment at offset 0."""
    (block,) = index_log(data, chunk_bytes=1 << 24).blocks
    return block


def fed(data: bytes | memoryview, batch_filter: BatchFilter | None = None) -> FilterStep:
    """Filter the first bytes of a segment."""
    return (batch_filter or filter_of()).feed(data, block_of(bytes(data)))


def marks_of(*batches: LogBatch) -> bytes:
    """Which entries of a log at offset 0 are superseded in it."""
    return bytes(mark_log(index_log(b"".join(map(encode, batches))), end_offset=1_000).marks)


def int_at(data: memoryview | bytes, position: int, letter: str) -> int:
    (value,) = struct.unpack_from(">" + letter, data, position)
    assert isinstance(value, int)
    return value


def read_by_a_client(data: memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What the consumer of aiokafka makes of the bytes."""
    found, batches = [], MemoryRecords(bytes(data))
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    return found


# ----------------------------------------------------------------------------------- indexing


def test_indexing_says_how_many_bytes_a_cut_batch_needs() -> None:
    data = encode(log_batch(0, (b"a", b"1")))

    for cut in range(1, len(data)):
        assert index_chunk(data[:cut]) == IndexStep(
            consumed_bytes=0, needed_bytes=61 if cut < 17 else len(data), block=None
        )


def test_a_block_speaks_for_the_whole_batches_of_a_chunk() -> None:
    batches = [
        log_batch(0, (b"a", b"1"), (b"b", None), (None, b"3")),
        replace(log_batch(3, (b"c", b"")), is_transactional=True, producer_id=8),
        marker_batch(4, 8, ControlType.COMMIT),
        replace(log_batch(5, (b"a", b"1")), records=()),
    ]
    data = b"".join(map(encode, batches))
    indexed = index_log(data)

    assert len(indexed.blocks) == 1
    assert_blocks_hold(indexed)
    assert index_chunk(data + b"cut").consumed_bytes == len(data)


def test_a_batch_of_another_segment_is_corruption() -> None:
    far, near = log_batch(2**31, (b"a", b"1")), log_batch(4, (b"a", b"1"))
    indexer = KeyIndexer(HASH_KEY, base_offset=5, decompressed_bytes_max=0)

    for batch in (near, replace(far, base_offset=2**31 + 5, last_offset=2**31 + 5)):
        with pytest.raises(CorruptBatch, match="out of order, or of another segment"):
            indexer.feed(encode(batch))


def test_an_indexer_wants_a_sixteen_byte_key_and_an_offset() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        KeyIndexer(b"short", base_offset=0, decompressed_bytes_max=0)
    with pytest.raises(ValueError, match="negative"):
        KeyIndexer(HASH_KEY, base_offset=-1, decompressed_bytes_max=0)


# -------------------------------------------------------------------------- mapping and marking


def map_block(
    block: bytes,
    offset_map: OffsetMap,
    *,
    base_offset: int = 0,
    start_offset: int = 0,
    end_offset: int = 1_000,
) -> MapStep:
    return map_keys(
        block,
        offset_map,
        base_offset=base_offset,
        start_offset=start_offset,
        end_offset=end_offset,
    )


def mark_block(
    block: bytes,
    offset_map: OffsetMap,
    marks: Buffer,
    *,
    first_entry: int = 0,
    start_offset: int = 0,
    end_offset: int = 1_000,
) -> MarkStep:
    return mark_keys(
        block,
        offset_map,
        marks,
        base_offset=0,
        first_entry=first_entry,
        start_offset=start_offset,
        end_offset=end_offset,
    )


ABC = block_of(encode(log_batch(0, (b"a", b"1"), (b"b", None), (None, b"3"), (b"a", b"4"))))


def test_mapping_counts_what_it_put() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    assert map_block(ABC, offset_map) == MapStep(entries=3, put=3, is_full=False)
    assert (offset_map.get(b"a"), offset_map.get(b"b"), offset_map.size) == (3, 1, 2)


def test_a_segments_base_offset_is_added() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    map_block(ABC, offset_map, base_offset=2**40, end_offset=2**41)

    assert offset_map.get(b"a") == 2**40 + 3


def test_mapping_takes_only_the_range() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    assert map_block(ABC, offset_map, start_offset=1, end_offset=3).put == 1
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (None, 1)


def test_a_map_that_is_full_says_so_and_half_the_part_fits() -> None:
    keys = [b"%d" % number for number in range(100)]
    block = block_of(encode(log_batch(0, *((key, b"v") for key in keys))))
    offset_map = OffsetMap(24 * 200, HASH_KEY)
    offset_map.clear(70)
    assert map_block(block, offset_map).is_full

    for part in range(2):
        offset_map.clear(70, part=part, parts=2)
        assert not map_block(block, offset_map).is_full
        assert 0 < offset_map.size < 70


def test_a_full_map_still_takes_later_records_of_its_keys() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.clear(2)

    assert not map_block(ABC, offset_map).is_full
    assert not map_block(ABC, offset_map, base_offset=10).is_full
    assert offset_map.get(b"a") == 13


def test_marking_sets_the_bits_of_superseded_records_behind_the_first_entry() -> None:
    offset_map, marks = OffsetMap(1 << 12, HASH_KEY), bytearray(3)
    map_block(ABC, offset_map)

    step = mark_block(ABC, offset_map, marks, first_entry=7)

    assert step == MarkStep(superseded=1, met=MapTally(count=2, offset_sum=4), unknown=0)
    assert marks == bytes([1 << 7, 0, 0])


def test_a_record_that_the_map_should_know_is_counted_as_unknown() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.put(b"a", 1)

    step = mark_block(ABC, offset_map, bytearray(1), start_offset=2)

    # b at 1 lies before the map; a at 3 is later than what the map says.
    assert (step.superseded, step.unknown) == (1, 1)


def test_what_is_past_the_end_gets_no_mark() -> None:
    offset_map, marks = OffsetMap(1 << 12, HASH_KEY), bytearray(1)
    offset_map.put(b"a", 500)
    offset_map.put(b"b", 500)

    assert mark_block(ABC, offset_map, marks, end_offset=1).superseded == 1
    assert marks == b"\x01"


@pytest.mark.parametrize(("size", "first_entry"), [(0, 0), (1, 6), (9, -1), (9, 2**63 - 1)])
def test_marks_that_are_too_few_are_refused(size: int, first_entry: int) -> None:
    with pytest.raises(ValueError, match="too few"):
        mark_block(ABC, OffsetMap(1 << 12, HASH_KEY), bytearray(size), first_entry=first_entry)


def test_marks_must_be_writable() -> None:
    with pytest.raises((ValueError, BufferError), match=r"read-only|writable"):
        mark_block(ABC, OffsetMap(1 << 12, HASH_KEY), bytes(1))


def test_aborted_records_are_neither_mapped_nor_marked() -> None:
    batches = [
        log_batch(0, (b"a", b"1")),
        replace(log_batch(1, (b"a", b"2"), (b"a", b"3")), is_transactional=True, producer_id=8),
        marker_batch(3, 8, ControlType.ABORT),
    ]
    indexed = index_log(b"".join(map(encode, batches)))
    transactions = walk_log(indexed, start_offset=0, end_offset=4)

    marked = mark_log(indexed, end_offset=4, transactions=transactions)

    assert (marked.superseded, marked.met, marked.unknown) == (0, 1, 0)


# ---------------------------------------------------------------------------------- filtering


def test_an_emptied_batch_is_kafkas_empty_header() -> None:
    """Source: Apache Kafka, DefaultRecordBatch.java `writeEmptyHeader`."""
    batch = replace(
        log_batch(5, (b"a", b"1"), (b"b", b"2")),
        codec=Codec.GZIP,
        producer_id=77,
        producer_epoch=2,
        base_sequence=9,
    )
    marks = marks_of(batch, log_batch(7, (b"a", b"3"), (b"b", b"4")))

    output = fed(encode(batch), filter_of(producers=(6,), marks=marks)).output

    head = struct.pack(">qiib", 5, 49, 3, 2)
    checked = struct.pack(">hiqqqhii", 0, 1, -1, 1_001, 77, 2, 9, 0)
    assert bytes(output[:17]) == head
    assert bytes(output[21:]) == checked
    assert bytes(output) == encode(replace(batch, records=(), codec=Codec.NONE, base_timestamp=-1))


@pytest.mark.parametrize("codec", Codec)
def test_a_client_reads_the_survivors_of_a_rebuilt_batch(codec: Codec) -> None:
    batch = replace(log_batch(3, (b"a", b"1"), (b"b", b"2"), (b"c", b"3")), codec=codec)
    marks = marks_of(batch, log_batch(6, (b"a", b"4"), (b"c", b"5")))

    output = fed(encode(batch), filter_of(marks=marks)).output

    assert read_by_a_client(output) == [(4, 1_001, b"b", b"2")]
    assert int_at(output, 23, "i") == 2, "it still ends where the original does"
    assert int_at(output, ATTRIBUTES, "h") == codec
    assert int_at(output, MAX_TIMESTAMP, "q") == 1_001


@pytest.mark.parametrize("codec", Codec)
def test_a_stamped_batch_keeps_its_records_times(codec: Codec) -> None:
    batch = replace(log_batch(0, (b"a", None), (b"b", b"2")), codec=codec)
    batch_filter = filter_of()

    output = fed(encode(batch), batch_filter).output

    assert int_at(output, ATTRIBUTES, "h") == codec | 0x40
    assert int_at(output, BASE_TIMESTAMP, "q") == NOW_MS + 1_000
    assert read_by_a_client(output) == [(0, 1_000, b"a", None), (1, 1_001, b"b", b"2")]
    assert batch_filter.segment.delete_horizon_ms_min == NOW_MS + 1_000
    assert batch_filter.segment.tombstones == 1


def test_a_tombstone_lives_from_its_first_clean_to_its_horizon() -> None:
    batch = log_batch(0, (b"a", None), (b"b", b"2"))
    stamped = fed(encode(batch)).output

    kept = fed(stamped, filter_of(now_ms=NOW_MS + 999)).output
    dropped = fed(stamped, filter_of(now_ms=NOW_MS + 1_000)).output

    assert kept == stamped
    assert read_by_a_client(dropped) == [(1, 1_001, b"b", b"2")]


def test_an_untouched_compressed_batch_keeps_its_bytes() -> None:
    """Compressed again, they would differ: these were compressed with another level."""
    batch = replace(log_batch(0, *[(b"k%d" % i, b"v" * i) for i in range(50)]), codec=Codec.GZIP)
    import gzip

    plain = b"".join(encode_record(record, batch, 1_000) for record in batch.records)
    data = seal(batch, 1_000, gzip.compress(plain, compresslevel=1))
    assert data != encode(batch)

    assert fed(data).output == data


def test_batches_beyond_the_maps_end_are_copied_unlooked() -> None:
    """Their entries tell what they hold: the sidecar of the output has them, too."""
    mapped, beyond = log_batch(0, (b"a", b"1")), log_batch(1, (b"a", b"2"), (b"b", None))
    data = encode(mapped) + encode(beyond)
    batch_filter = filter_of(end_offset=1, marks=b"\xff")

    batch_filter.start_source(0, b"\x02")
    assert fed(data, batch_filter).output == data
    assert batch_filter.counts[Verdict.KEPT_UNMAPPED].records == 2
    assert batch_filter.segment.tombstones == 1
    assert batch_filter.take_keys() == block_of(data)
    assert batch_filter.key_totals == index_log(data).totals


def test_counts_are_of_records_and_their_encoded_bytes() -> None:
    batch = log_batch(0, (b"a", b"1"), (b"a", b"2"), (None, b"3"))
    batch_filter = filter_of(marks=marks_of(batch))

    fed(encode(batch), batch_filter)

    sizes = [len(encode_record(record, batch, 1_000)) for record in batch.records]
    counts = {v: (c.records, c.bytes) for v, c in batch_filter.counts.items() if c.records}
    assert counts == {
        Verdict.DROPPED_SUPERSEDED: (1, sizes[0]),
        Verdict.KEPT_LATEST: (1, sizes[1]),
        Verdict.DROPPED_UNKEYED: (1, sizes[2]),
    }


def test_an_output_view_outlives_the_next_feed() -> None:
    first, second = log_batch(0, (b"a", b"1" * 99)), log_batch(1, (b"b", b"2" * 99_999))
    batch_filter = filter_of()

    output = fed(encode(first), batch_filter).output
    fed(encode(second), batch_filter)

    assert output == encode(first)


def test_a_full_segment_takes_its_next_batch_into_another() -> None:
    batches = [log_batch(i, (b"k%d" % i, b"v")) for i in range(3)]
    data = b"".join(map(encode, batches))
    size = len(data) // 3
    batch_filter = filter_of(segment_bytes_max=2 * size)
    block = block_of(data)

    step = batch_filter.feed(data, block)

    assert (step.segment_full, step.next_base_offset, step.consumed_bytes) == (True, 2, 2 * size)
    assert batch_filter.segment.end_offset == 2
    before = batch_filter.counts
    assert step.key_block == block_of(data[: 2 * size])
    assert batch_filter.feed(data[2 * size :], block).consumed_bytes == 0
    assert batch_filter.counts == before, "a batch that found no room counts once, where it goes"

    batch_filter.start_segment(2)
    assert batch_filter.feed(data[2 * size :], block).output == data[2 * size :]
    (rest,) = index_log(data[2 * size :], base_offset=2).blocks
    assert batch_filter.take_keys() == rest


def test_an_offset_that_an_index_entry_cannot_hold_begins_a_segment() -> None:
    far = encode(log_batch(2**31, (b"far", b"v")))
    (block,) = index_log(far, base_offset=2**31).blocks
    batch_filter = filter_of(end_offset=2**32)
    batch_filter.start_source(2**31, b"\x00")

    step = batch_filter.feed(far, block)
    assert (step.segment_full, step.next_base_offset) == (True, 2**31)

    batch_filter.start_segment(2**31)
    assert batch_filter.feed(far, block).batches_kept == 1
    assert batch_filter.take_keys() == block


def test_index_entries_are_an_interval_apart() -> None:
    batches = [
        replace(log_batch(i, (b"k%d" % i, b"v" * 38)), max_timestamp=100 - i) for i in range(10)
    ]
    data = b"".join(map(encode, batches))
    size = len(data) // 10
    step = fed(data, filter_of(index_interval_bytes=2 * size))

    # One after more than an interval of bytes, as Kafka's LogSegment.append.
    assert step.index_entries.tolist() == [
        *(3, 3 * size, 100, 0),
        *(6, 6 * size, 100, 0),
        *(9, 9 * size, 100, 0),
    ]


def test_a_key_block_is_given_out_when_it_speaks_for_a_chunk() -> None:
    batches = [log_batch(i, (b"k%d" % i, b"v" * 300_000)) for i in range(5)]
    batch_filter, given = filter_of(), list[bytes]()

    position, entries = 0, 0
    for block in index_log(b"".join(map(encode, batches)), chunk_bytes=1).blocks:
        data = encode(batches[entries])
        given.append(batch_filter.feed(data, block, position=position).key_block)
        position, entries = position + len(data), entries + 1

    assert [bool(block) for block in given] == [False, False, False, True, False]
    assert given[3] == block_of(b"".join(map(encode, batches[:4])))
    assert batch_filter.key_totals.entries == 4
    assert batch_filter.take_keys()
    assert batch_filter.take_keys() == b""
    assert batch_filter.key_totals == KeyTotals(blocks=2, entries=5, batches=5)


def test_a_segment_that_is_skipped_tells_what_remains_of_transactions() -> None:
    data = replace(log_batch(0, (b"a", b"1")), is_transactional=True, producer_id=8)
    commit = marker_batch(1, 8, ControlType.COMMIT)
    (marker_block,) = index_log(encode(commit), base_offset=1).blocks
    stamped = {}
    for skips in (True, False):
        batch_filter = BatchFilter(
            HASH_KEY,
            end_offset=9,
            tail_offset=-1,
            now_ms=NOW_MS,
            delete_retention_ms=1_000,
            decompressed_bytes_max=INFLATED_BYTES_MAX,
            stamps_markers=True,
        )
        if skips:
            batch_filter.skip(block_of(encode(data)), base_offset=0)
        batch_filter.start_source(1, b"")
        batch_filter.start_segment(1)
        stamped[skips] = batch_filter.feed(encode(commit), marker_block).output != encode(commit)

    assert stamped == {True: False, False: True}


def test_the_filter_wants_an_output_segment_and_a_source() -> None:
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=1,
        tail_offset=-1,
        now_ms=0,
        delete_retention_ms=0,
        decompressed_bytes_max=1,
    )
    for call in (
        lambda: batch_filter.feed(b"", ABC),
        batch_filter.take_keys,
        lambda: batch_filter.segment,
        lambda: batch_filter.key_totals,
    ):
        with pytest.raises(ValueError, match="start_segment"):
            call()
    batch_filter.start_segment(0)
    with pytest.raises(ValueError, match="start_source"):
        batch_filter.feed(b"", ABC)


def test_a_chunk_is_what_its_block_speaks_for() -> None:
    data = encode(log_batch(0, (b"a", b"1")))
    with pytest.raises(ValueError, match="is not what is left of a block"):
        filter_of().feed(data + b"?", block_of(data))


def test_a_source_has_a_mark_for_each_of_its_entries() -> None:
    data = encode(log_batch(0, *[(b"a", b"1")] * 9))
    with pytest.raises(ValueError, match="too few for the source"):
        fed(data, filter_of(marks=b"\x00"))


# ----------------------------------------------------------------------- a block that differs

TWO = encode(log_batch(0, (b"a", b"1"), (b"b", None))) + encode(
    replace(log_batch(2, (b"c", b"3")), is_transactional=True, producer_id=8)
)
TWO_BLOCK = block_of(TWO)


def with_bytes(position: int, value: bytes) -> bytes:
    """The block of TWO with other bytes in one place."""
    return TWO_BLOCK[:position] + value + TWO_BLOCK[position + len(value) :]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        pytest.param(with_bytes(16, b"\0\0\0\1"), "no special row", id="row_offset"),
        pytest.param(with_bytes(24, b"\1"), "no special row", id="row_producer"),
        pytest.param(with_bytes(34, b"\2"), "no special row", id="row_kind"),
        pytest.param(with_bytes(34, b"\x09"), "no special row", id="row_kind_unknown"),
        pytest.param(with_bytes(35, b"\5"), "no special row", id="row_flags"),
        pytest.param(with_bytes(40, b"?"), "another key", id="hash"),
        pytest.param(with_bytes(59, b"\2"), "no such entry", id="entry_offset"),
        pytest.param(with_bytes(56, b"\x80"), "no such entry", id="tombstone"),
        pytest.param(with_bytes(63, b"\0"), "no such entry", id="record_size"),
        pytest.param(with_bytes(15, b"\1"), "more or less", id="unkeyed"),
    ],
)
def test_a_block_that_differs_from_its_segment_is_told(block: bytes, reason: str) -> None:
    assert fed(TWO).output
    with pytest.raises(KeysDiffer, match=reason):
        filter_of().feed(TWO, block)


def test_a_block_that_speaks_of_more_than_its_bytes_is_told() -> None:
    first_batch = encode(log_batch(0, (b"a", b"1"), (b"b", None)))
    block = len(first_batch).to_bytes(4) + TWO_BLOCK[4:]

    with pytest.raises(KeysDiffer, match="more or less"):
        filter_of().feed(first_batch, block)


def test_a_block_that_ends_inside_a_batch_is_told() -> None:
    block = (len(TWO) - 1).to_bytes(4) + TWO_BLOCK[4:]

    with pytest.raises(KeysDiffer, match="ends inside a batch"):
        filter_of().feed(TWO[:-1], block)


@pytest.mark.parametrize(
    "block",
    [b"", bytes(23), TWO_BLOCK[:-1], with_bytes(4, b"\xff" * 8), with_bytes(11, b"\0")],
    ids=["nothing", "no_header", "cut", "countless", "too_few"],
)
def test_counts_that_do_not_fit_a_blocks_bytes_are_told(block: bytes) -> None:
    for read in (
        lambda: filter_of().feed(TWO, block),
        lambda: filter_of().skip(block, base_offset=0),
        lambda: map_block(block, OffsetMap(1 << 12, HASH_KEY)),
        lambda: mark_block(block, OffsetMap(1 << 12, HASH_KEY), bytearray(9)),
        lambda: Transactions(start_offset=0, end_offset=9).walk(block, base_offset=0),
    ):
        with pytest.raises(KeysDiffer, match="a key block of"):
            read()


# --------------------------------------------------------------------------------- corruption


def damaged(position: int, value: bytes) -> bytes:
    """A sound batch with some bytes replaced, and a CRC that covers for it."""
    data = bytearray(encode(log_batch(7, (b"key", b"value"), (b"other", None))))
    data[position : position + len(value)] = value
    return resealed(data)


def resealed(data: bytearray) -> bytes:
    from protocol.batch_scan import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(damaged(16, b"\x01"), "message format", id="magic"),
        pytest.param(damaged(8, (48).to_bytes(4)), "length is less", id="length"),
        pytest.param(damaged(8, b"\xff\xff\xff\xff"), "length is less", id="negative_length"),
        pytest.param(damaged(21, b"\x00\x05"), "compression type", id="codec"),
        pytest.param(damaged(57, b"\xff\xff\xff\xff"), "record count", id="negative_count"),
        pytest.param(damaged(57, b"\x00\x00\x00\x03"), "record count", id="more_than_offsets"),
        pytest.param(damaged(0, b"\xff"), "offsets", id="negative_base_offset"),
        pytest.param(damaged(57, b"\x00\x00\x00\x01"), "bytes behind", id="fewer_than_there_are"),
        pytest.param(damaged(61, b"\x7e"), "record 0 is cut off", id="record_length"),
        pytest.param(damaged(64, b"\x03"), "record 0 has an offset", id="negative_offset_delta"),
        pytest.param(damaged(64, b"\x04"), "record 0 has an offset", id="offset_beyond_the_batch"),
        pytest.param(damaged(65, b"\x7e"), "record 0 has a key", id="key_length"),
        pytest.param(b"\x00" * 61, "message format", id="zeroes"),
        pytest.param(encode(log_batch(7, (b"a", b"1")))[:-1] + b"?", "CRC differs", id="crc"),
    ],
)
def test_a_damaged_batch_is_reported_with_its_position(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=f"at position 700, base offset .*{reason}"):
        index_chunk(data, position=700)
    block = block_of(damaged(0, b""))
    own = len(data).to_bytes(4) + block[4:]
    with pytest.raises(CorruptBatch, match=f"at position 900, base offset .*{reason}"):
        filter_of().feed(data, own, position=900)


def test_a_batch_out_of_order_is_corruption() -> None:
    batch = encode(log_batch(4, (b"a", b"1")))
    batch_filter = filter_of()
    fed(batch, batch_filter)

    with pytest.raises(CorruptBatch, match="base offset 4: it is out of order"):
        fed(batch, batch_filter)
    with pytest.raises(CorruptBatch, match="base offset 4: it is out of order"):
        index_chunk(batch + batch)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_records_that_do_not_inflate_are_corruption(codec: Codec) -> None:
    data = seal(replace(log_batch(0, (b"a", b"1")), codec=codec), 0, b"\xff" * 40)

    with pytest.raises(CorruptBatch, match="at position 0, base offset 0"):
        index_chunk(data)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_records_that_inflate_beyond_the_bound_are_refused(codec: Codec) -> None:
    data = encode(replace(log_batch(0, (b"a", bytes(200_000))), codec=codec))
    batch_filter = filter_of(decompressed_bytes_max=100_000)

    for read in (
        lambda: batch_filter.feed(data, block_of(data), position=12),
        lambda: index_chunk(data, position=12, decompressed_bytes_max=100_000),
    ):
        with pytest.raises(DecompressionTooLarge) as raised:
            read()
        assert raised.value.__notes__ == ["record batch at position 12, base offset 0"]


def test_a_count_of_compressed_records_that_lies_is_corruption() -> None:
    batch = replace(log_batch(0, (b"a", b"1"), (b"b", b"2")), codec=Codec.ZSTD)
    plain = encode_record(batch.records[0], batch, 1_000)
    data = seal(batch, 1_000, bytes(compress(Codec.ZSTD, plain)))

    with pytest.raises(CorruptBatch, match=r"record 1 is cut off|more records than it has bytes"):
        index_chunk(data)


SOUND = tuple(
    replace(
        log_batch(i * 10, (b"a", b"1" * 70), (b"b", None), (None, b"3"), (b"c" * 20, b"4")),
        codec=codec,
    )
    for i, codec in enumerate(Codec)
)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(SOUND) - 1),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
    st.booleans(),
)
def test_mutated_bytes_give_a_result_or_a_named_error(
    index: int, changes: list[tuple[int, int]], reseal: bool
) -> None:
    data = bytearray(encode(SOUND[index]))
    for position, value in changes:
        data[position % len(data)] = value
    mutated = resealed(data) if reseal else bytes(data)

    block = len(mutated).to_bytes(4) + block_of(encode(SOUND[index]))[4:]
    for run in (
        lambda: index_chunk(mutated),
        lambda: filter_of(marks=b"\xaa" * 9).feed(mutated, block),
    ):
        try:
            step = run()
        except (CorruptBatch, DecompressionTooLarge, KeysDiffer):
            continue
        assert step.consumed_bytes <= len(mutated)


# -------------------------------------------------------------------------------------- the GIL


def big_log() -> bytes:
    records = [
        LogRecord(offset=i, timestamp=1_000, key=b"%d" % (i % 999), value=b"v" * 999)
        for i in range(20_000)
    ]
    return encode(LogBatch(base_offset=0, last_offset=19_999, records=tuple(records)))


@pytest.mark.parametrize("step", ["index", "map", "mark", "filter"])
def test_other_threads_run_while_the_kernel_works(step: str) -> None:
    """The interpreter switches threads here only where a thread lets go of the GIL itself."""
    log = big_log()
    block, offset_map = block_of(log), OffsetMap(1 << 20, HASH_KEY)
    runs: dict[str, Callable[[], object]] = {
        "index": lambda: index_chunk(log, decompressed_bytes_max=1 << 30),
        "map": lambda: map_block(block, offset_map, end_offset=10**6),
        "mark": lambda: mark_block(block, offset_map, bytearray(2_500)),
        "filter": lambda: filter_of(marks=bytes(2_500)).feed(log, block),
    }
    entered, done = threading.Event(), list[bool]()

    def work() -> None:
        entered.set()
        runs[step]()
        done.append(True)

    def other_thread_ran_meanwhile() -> bool:
        entered.clear()
        done.clear()
        worker = threading.Thread(target=work)
        worker.start()
        entered.wait()
        ran_meanwhile = not done
        worker.join()
        return ran_meanwhile

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        # A busy machine may wake this thread late; a kernel that kept the GIL never lets it in.
        assert any(other_thread_ran_meanwhile() for _ in range(10))
    finally:
        sys.setswitchinterval(interval)
