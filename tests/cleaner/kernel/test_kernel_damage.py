"""The compiled kernel with damaged bytes and key blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernel.kernel import (
    OffsetMap,
    Transactions,
)
from cleaner.rules.step import KeysDiffer
from protocol.records.compression import Codec, compress
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.cleaner.kernel_calls import (
    block_of,
    fed,
    filter_of,
    index_chunk,
    map_block,
    mark_block,
)
from tests.cleaner.kernel_log import (
    HASH_KEY,
    encode,
    encode_record,
    log_batch,
    seal,
)

# -------------------------------------------------------------------- a block that differs


TWO = encode(log_batch(0, (b"a", b"1"), (b"b", None))) + encode(
    replace(log_batch(2, (b"c", b"3")), is_transactional=True, producer_id=8)
)
TWO_BLOCK = block_of(TWO)


def with_bytes(position: int, value: bytes) -> bytes:
    """Returns the block of TWO with other bytes at one position."""
    return TWO_BLOCK[:position] + value + TWO_BLOCK[position + len(value) :]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        pytest.param(with_bytes(16, b"\0\0\0\1"), "no special row", id="row_offset"),
        pytest.param(with_bytes(24, b"\1"), "no special row", id="row_producer"),
        pytest.param(with_bytes(34, b"\2"), "no special row", id="row_kind"),
        pytest.param(with_bytes(34, b"\x09"), "no special row", id="row_kind_unknown"),
        pytest.param(with_bytes(35, b"\5"), "no special row", id="row_flags"),
        pytest.param(with_bytes(40, b"?"), "a different key", id="hash"),
        pytest.param(with_bytes(59, b"\2"), "no such entry", id="entry_offset"),
        pytest.param(with_bytes(56, b"\x80"), "no such entry", id="tombstone"),
        pytest.param(with_bytes(63, b"\0"), "no such entry", id="record_size"),
        pytest.param(with_bytes(15, b"\1"), "does not match its bytes", id="unkeyed"),
    ],
)
def test_a_block_that_differs_from_its_segment_is_told(block: bytes, reason: str) -> None:
    assert fed(TWO).output
    with pytest.raises(KeysDiffer, match=reason):
        filter_of().feed(TWO, block)


def test_a_block_that_speaks_of_more_than_its_bytes_is_told() -> None:
    first_batch = encode(log_batch(0, (b"a", b"1"), (b"b", None)))
    block = len(first_batch).to_bytes(4) + TWO_BLOCK[4:]

    with pytest.raises(KeysDiffer, match="does not match its bytes"):
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


# -------------------------------------------------------------------- corruption


def damaged(position: int, value: bytes) -> bytes:
    """Returns a batch with some bytes replaced and a matching CRC."""
    data = bytearray(encode(log_batch(7, (b"key", b"value"), (b"other", None))))
    data[position : position + len(value)] = value
    return resealed(data)


def resealed(data: bytearray) -> bytes:
    from protocol.records.batch_scan import crc32c

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
        pytest.param(damaged(57, b"\x00\x00\x00\x01"), "bytes after", id="fewer_than_there_are"),
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
