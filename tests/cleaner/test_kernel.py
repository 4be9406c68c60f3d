"""The compiled kernel, case by case; what it leaves of any log is compared with the rule in
tests/properties/test_kernel_against_retain.py."""

from __future__ import annotations

import struct
import sys
import threading
from dataclasses import replace

import pytest
from aiokafka.record import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernel import BatchFilter, OffsetMap, map_batches
from cleaner.retain import Verdict
from cleaner.step import FilterStep, MapStep, MapStop
from protocol.compression import Codec, compress
from protocol.errors import CorruptBatch, DecompressionTooLarge
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    LogBatch,
    LogRecord,
    encode,
    encode_record,
    log_batch,
    seal,
)

NOW_MS = 50_000
ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT = 21, 27, 35, 57


def map_of(*batches: LogBatch, keys_max: int | None = None) -> OffsetMap:
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    offset_map.clear(keys_max)
    map_chunk(b"".join(map(encode, batches)), offset_map)
    return offset_map


def map_chunk(
    chunk: bytes, offset_map: OffsetMap, *, start_offset: int = 0, end_offset: int = 1_000
) -> MapStep:
    return map_batches(
        chunk,
        offset_map,
        start_offset=start_offset,
        end_offset=end_offset,
        decompressed_bytes_max=INFLATED_BYTES_MAX,
    )


def filter_of(
    offset_map: OffsetMap,
    *,
    end_offset: int | None = None,
    tail_offset: int = -1,
    now_ms: int = NOW_MS,
    producers: tuple[int, ...] = (),
    segment_bytes_max: int = 2**31 - 1,
    index_interval_bytes: int = 4096,
    decompressed_bytes_max: int = INFLATED_BYTES_MAX,
) -> BatchFilter:
    batch_filter = BatchFilter(
        offset_map,
        end_offset=offset_map.end_offset if end_offset is None else end_offset,
        tail_offset=tail_offset,
        now_ms=now_ms,
        delete_retention_ms=1_000,
        decompressed_bytes_max=decompressed_bytes_max,
        producer_last_offsets=producers,
        segment_bytes_max=segment_bytes_max,
        index_interval_bytes=index_interval_bytes,
    )
    batch_filter.start_segment(0)
    return batch_filter


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


# ------------------------------------------------------------------------------------ mapping


def test_mapping_says_how_many_bytes_a_cut_batch_needs() -> None:
    data = encode(log_batch(0, (b"a", b"1")))

    for cut in range(1, len(data)):
        step = map_chunk(data[:cut], OffsetMap(1 << 12, HASH_KEY))
        assert (step.stop, step.consumed_bytes) == (MapStop.NEED_MORE, 0)
        assert step.needed_bytes == (61 if cut < 17 else len(data))


def test_mapping_of_a_whole_chunk_needs_nothing_more() -> None:
    data = encode(log_batch(0, (b"a", b"1"), (b"b", None), (None, b"3")))

    step = map_chunk(data, OffsetMap(1 << 12, HASH_KEY))

    assert step == MapStep(
        stop=MapStop.NEED_MORE,
        consumed_bytes=len(data),
        needed_bytes=0,
        batches=1,
        records=3,
        tombstones=1,
        unkeyed=1,
    )


def test_mapping_stops_before_a_batch_that_the_map_may_not_hold_whole() -> None:
    first = encode(log_batch(0, (b"a", b"1"), (b"b", b"2")))
    second = encode(log_batch(2, (b"b", b"3"), (b"c", b"4")))
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.clear(3)

    step = map_chunk(first + second, offset_map)

    assert (step.stop, step.consumed_bytes) == (MapStop.FULL, len(first))
    assert (offset_map.end_offset, offset_map.get(b"b"), offset_map.get(b"c")) == (2, 1, None)


def test_mapping_ends_before_a_batch_that_reaches_past_the_end() -> None:
    first, second = encode(log_batch(0, (b"a", b"1"))), encode(log_batch(1, *[(b"b", b"2")] * 2))
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    step = map_chunk(first + second, offset_map, end_offset=2)

    assert (step.stop, step.consumed_bytes, offset_map.end_offset) == (MapStop.END, len(first), 1)
    assert offset_map.get(b"b") is None


def test_mapping_starts_inside_a_batch() -> None:
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    map_chunk(encode(log_batch(0, (b"a", b"1"), (b"b", b"2"))), offset_map, start_offset=1)

    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (None, 1)


def test_control_records_are_never_in_the_map() -> None:
    special = replace(log_batch(0, (b"a", b"1")), is_control=True)

    offset_map = map_of(special)

    assert (offset_map.size, offset_map.end_offset) == (0, 1)


def test_mapping_stops_at_a_transaction_of_which_nothing_is_known() -> None:
    plain, transactional = log_batch(0, (b"a", b"1")), log_batch(1, (b"a", b"2"))
    data = encode(plain) + encode(replace(transactional, is_transactional=True))
    offset_map = OffsetMap(1 << 12, HASH_KEY)

    step = map_chunk(data, offset_map)

    assert (step.stop, step.consumed_bytes) == (MapStop.TRANSACTION, len(encode(plain)))
    assert (offset_map.get(b"a"), offset_map.end_offset) == (0, 1)


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
    offset_map = map_of(batch, log_batch(7, (b"a", b"3"), (b"b", b"4")))

    output = filter_of(offset_map, producers=(6,)).feed(encode(batch)).output

    head = struct.pack(">qiib", 5, 49, 3, 2)
    checked = struct.pack(">hiqqqhii", 0, 1, -1, 1_001, 77, 2, 9, 0)
    assert bytes(output[:17]) == head
    assert bytes(output[21:]) == checked
    assert bytes(output) == encode(replace(batch, records=(), codec=Codec.NONE, base_timestamp=-1))


@pytest.mark.parametrize("codec", Codec)
def test_a_client_reads_the_survivors_of_a_rebuilt_batch(codec: Codec) -> None:
    batch = replace(log_batch(3, (b"a", b"1"), (b"b", b"2"), (b"c", b"3")), codec=codec)
    offset_map = map_of(batch, log_batch(6, (b"a", b"4"), (b"c", b"5")))

    output = filter_of(offset_map).feed(encode(batch)).output

    assert read_by_a_client(output) == [(4, 1_001, b"b", b"2")]
    assert int_at(output, 23, "i") == 2, "it still ends where the original does"
    assert int_at(output, ATTRIBUTES, "h") == codec
    assert int_at(output, MAX_TIMESTAMP, "q") == 1_001


@pytest.mark.parametrize("codec", Codec)
def test_a_stamped_batch_keeps_its_records_times(codec: Codec) -> None:
    batch = replace(log_batch(0, (b"a", None), (b"b", b"2")), codec=codec)
    batch_filter = filter_of(map_of(batch))

    output = batch_filter.feed(encode(batch)).output

    assert int_at(output, ATTRIBUTES, "h") == codec | 0x40
    assert int_at(output, BASE_TIMESTAMP, "q") == NOW_MS + 1_000
    assert read_by_a_client(output) == [(0, 1_000, b"a", None), (1, 1_001, b"b", b"2")]
    assert batch_filter.segment.delete_horizon_ms_min == NOW_MS + 1_000
    assert batch_filter.segment.tombstones == 1


def test_a_tombstone_lives_from_its_first_clean_to_its_horizon() -> None:
    batch = log_batch(0, (b"a", None), (b"b", b"2"))
    offset_map = map_of(batch)
    stamped = filter_of(offset_map).feed(encode(batch)).output

    kept = filter_of(offset_map, now_ms=NOW_MS + 999).feed(stamped).output
    dropped = filter_of(offset_map, now_ms=NOW_MS + 1_000).feed(stamped).output

    assert kept == stamped
    assert read_by_a_client(dropped) == [(1, 1_001, b"b", b"2")]


def test_an_untouched_compressed_batch_keeps_its_bytes() -> None:
    """Compressed again, they would differ: these were compressed with another level."""
    batch = replace(log_batch(0, *[(b"k%d" % i, b"v" * i) for i in range(50)]), codec=Codec.GZIP)
    import gzip

    plain = b"".join(encode_record(record, batch, 1_000) for record in batch.records)
    data = seal(batch, 1_000, gzip.compress(plain, compresslevel=1))
    assert data != encode(batch)

    offset_map = OffsetMap(1 << 16, HASH_KEY)
    map_chunk(data, offset_map)

    assert filter_of(offset_map).feed(data).output == data


def test_batches_beyond_the_maps_end_are_copied_unlooked() -> None:
    mapped = log_batch(0, (b"a", b"1"))
    beyond = seal(log_batch(1, (b"a", b"2")), 1_000, b"no records at all")
    batch_filter = filter_of(map_of(mapped))

    assert batch_filter.feed(encode(mapped) + beyond).output == encode(mapped) + beyond
    assert batch_filter.counts[Verdict.KEPT_UNMAPPED].records == 1
    assert batch_filter.segment.tombstones == -1


def test_counts_are_of_records_and_their_encoded_bytes() -> None:
    batch = log_batch(0, (b"a", b"1"), (b"a", b"2"), (None, b"3"))
    batch_filter = filter_of(map_of(batch))

    batch_filter.feed(encode(batch))

    sizes = [len(encode_record(record, batch, 1_000)) for record in batch.records]
    counts = {v: (c.records, c.bytes) for v, c in batch_filter.counts.items() if c.records}
    assert counts == {
        Verdict.DROPPED_SUPERSEDED: (1, sizes[0]),
        Verdict.KEPT_LATEST: (1, sizes[1]),
        Verdict.DROPPED_UNKEYED: (1, sizes[2]),
    }


def test_an_output_view_outlives_the_next_feed() -> None:
    first, second = log_batch(0, (b"a", b"1" * 99)), log_batch(1, (b"b", b"2" * 99_999))
    batch_filter = filter_of(map_of(first, second))

    output = batch_filter.feed(encode(first)).output
    batch_filter.feed(encode(second))

    assert output == encode(first)


def test_a_full_segment_takes_its_next_batch_into_another() -> None:
    batches = [log_batch(i, (b"k%d" % i, b"v")) for i in range(3)]
    data = b"".join(map(encode, batches))
    size = len(data) // 3
    batch_filter = filter_of(map_of(*batches), segment_bytes_max=2 * size)

    step = batch_filter.feed(data)

    assert (step.segment_full, step.next_base_offset, step.consumed_bytes) == (True, 2, 2 * size)
    assert batch_filter.segment.end_offset == 2
    before = batch_filter.counts
    assert batch_filter.feed(data[2 * size :]).consumed_bytes == 0
    assert batch_filter.counts == before, "a batch that found no room counts once, where it goes"

    batch_filter.start_segment(2)
    assert batch_filter.feed(data[2 * size :]).output == data[2 * size :]


def test_an_offset_that_an_index_entry_cannot_hold_begins_a_segment() -> None:
    far = log_batch(2**31, (b"far", b"v"))
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.end_offset = 2**32
    batch_filter = filter_of(offset_map)

    step = batch_filter.feed(encode(far))
    assert (step.segment_full, step.next_base_offset) == (True, 2**31)

    batch_filter.start_segment(2**31)
    assert batch_filter.feed(encode(far)).batches_kept == 1


def test_index_entries_are_an_interval_apart() -> None:
    batches = [
        replace(log_batch(i, (b"k%d" % i, b"v" * 38)), max_timestamp=100 - i) for i in range(10)
    ]
    data = b"".join(map(encode, batches))
    size = len(data) // 10
    batch_filter = filter_of(map_of(*batches), index_interval_bytes=2 * size)

    step = batch_filter.feed(data)

    # One after more than an interval of bytes, as Kafka's LogSegment.append.
    assert step.index_entries.tolist() == [
        *(3, 3 * size, 100, 0),
        *(6, 6 * size, 100, 0),
        *(9, 9 * size, 100, 0),
    ]


def test_the_filter_wants_a_segment_and_a_map_that_reaches_its_end() -> None:
    offset_map = map_of(log_batch(0, (b"a", b"1")))
    with pytest.raises(ValueError, match="ends at 1, before 2"):
        filter_of(offset_map, end_offset=2)
    batch_filter = BatchFilter(
        offset_map,
        end_offset=1,
        tail_offset=-1,
        now_ms=0,
        delete_retention_ms=0,
        decompressed_bytes_max=1,
    )
    with pytest.raises(ValueError, match="start_segment"):
        batch_filter.feed(b"")
    with pytest.raises(ValueError, match="start_segment"):
        _ = batch_filter.segment


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
    with pytest.raises(CorruptBatch, match=f"at position 0, base offset .*{reason}"):
        map_chunk(data, OffsetMap(1 << 12, HASH_KEY))
    offset_map = OffsetMap(1 << 12, HASH_KEY)
    offset_map.end_offset = 100
    with pytest.raises(CorruptBatch, match=f"at position 900, base offset .*{reason}"):
        filter_of(offset_map).feed(data, position=900)


def test_a_batch_out_of_order_is_corruption() -> None:
    second, first = encode(log_batch(4, (b"a", b"1"))), encode(log_batch(4, (b"b", b"1")))
    offset_map = map_of(log_batch(4, (b"a", b"1")))

    with pytest.raises(CorruptBatch, match="base offset 4: it is out of order"):
        filter_of(offset_map).feed(first + second)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_records_that_do_not_inflate_are_corruption(codec: Codec) -> None:
    data = seal(replace(log_batch(0, (b"a", b"1")), codec=codec), 0, b"\xff" * 40)

    with pytest.raises(CorruptBatch, match="at position 0, base offset 0"):
        map_chunk(data, OffsetMap(1 << 12, HASH_KEY))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_records_that_inflate_beyond_the_bound_are_refused(codec: Codec) -> None:
    batch = replace(log_batch(0, (b"a", bytes(200_000))), codec=codec)
    offset_map = map_of(batch)

    with pytest.raises(DecompressionTooLarge) as raised:
        filter_of(offset_map, decompressed_bytes_max=100_000).feed(encode(batch), position=12)

    assert raised.value.__notes__ == ["record batch at position 12, base offset 0"]


def test_a_count_of_compressed_records_that_lies_is_corruption() -> None:
    batch = replace(log_batch(0, (b"a", b"1"), (b"b", b"2")), codec=Codec.ZSTD)
    plain = encode_record(batch.records[0], batch, 1_000)
    data = seal(batch, 1_000, bytes(compress(Codec.ZSTD, plain)))

    with pytest.raises(CorruptBatch, match=r"record 1 is cut off|more records than it has bytes"):
        map_chunk(data, OffsetMap(1 << 12, HASH_KEY))


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

    for run in (feed_to_map, feed_to_filter):
        try:
            step = run(mutated)
        except (CorruptBatch, DecompressionTooLarge):
            continue
        assert step.consumed_bytes <= len(mutated)


def feed_to_map(data: bytes) -> MapStep:
    return map_chunk(data, OffsetMap(1 << 16, HASH_KEY))


def feed_to_filter(data: bytes) -> FilterStep:
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    offset_map.put(b"a", 500)
    offset_map.end_offset = 1_000
    return filter_of(offset_map).feed(data)


# -------------------------------------------------------------------------------------- the GIL


def big_log() -> bytes:
    records = [
        LogRecord(offset=i, timestamp=1_000, key=b"%d" % (i % 999), value=b"v" * 999)
        for i in range(20_000)
    ]
    return encode(LogBatch(base_offset=0, last_offset=19_999, records=tuple(records)))


@pytest.mark.parametrize("step", ["map", "filter"])
def test_other_threads_run_while_the_kernel_works(step: str) -> None:
    """The interpreter switches threads here only where a thread lets go of the GIL itself."""
    log = big_log()
    offset_map = OffsetMap(1 << 20, HASH_KEY)
    map_chunk(log, offset_map, end_offset=10**6)
    entered, done = threading.Event(), list[bool]()

    def work() -> None:
        batch_filter = filter_of(offset_map)
        entered.set()
        if step == "map":
            map_chunk(log, OffsetMap(1 << 20, HASH_KEY), end_offset=10**6)
        else:
            batch_filter.feed(log)
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
