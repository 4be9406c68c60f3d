"""The compiled kernel, case by case: the output of the filter."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from cleaner.kernel.kernel import (
    BatchFilter,
)
from cleaner.rules.record_verdict import Verdict
from protocol.records.compression import Codec
from protocol.records.control_record import ControlType
from storage.formats.key_totals import KeyTotals
from tests.cleaner.kernel_calls import (
    ABC,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    NOW_MS,
    block_of,
    fed,
    filter_of,
    int_at,
    marks_of,
    read_by_a_client,
)
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    encode,
    encode_record,
    log_batch,
    marker_batch,
    seal,
)
from tests.cleaner.kernel_steps import index_log


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
    """They were compressed with another level, so compressing them again would change them."""
    batch = replace(log_batch(0, *[(b"k%d" % i, b"v" * i) for i in range(50)]), codec=Codec.GZIP)
    import gzip

    plain = b"".join(encode_record(record, batch, 1_000) for record in batch.records)
    data = seal(batch, 1_000, gzip.compress(plain, compresslevel=1))
    assert data != encode(batch)

    assert fed(data).output == data


def test_batches_beyond_the_maps_end_are_copied_unlooked() -> None:
    """Their entries are copied to the output's sidecar."""
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

    # An entry follows after more than an interval of bytes, as in Kafka's LogSegment.append.
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
    with pytest.raises(ValueError, match="is not the rest of a block"):
        filter_of().feed(data + b"?", block_of(data))


def test_a_source_has_a_mark_for_each_of_its_entries() -> None:
    data = encode(log_batch(0, *[(b"a", b"1")] * 9))
    with pytest.raises(ValueError, match="too few for the source"):
        fed(data, filter_of(marks=b"\x00"))
