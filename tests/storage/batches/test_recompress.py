"""Storing a batch with another codec: its records, their offsets and its producer stay the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch_header import HEADER_BYTES, read_header
from protocol.records.batch_scan import StopReason, scan_batches
from protocol.records.compression import Codec, decompress
from protocol.records.record_batch import Record, build_batch, read_records
from storage.batches.recompress import recompress
from storage.formats.stored_codec import StoredCodec
from tests.harness.examples import examples

PLENTY = 1 << 24
CODECS = st.sampled_from(list(Codec))
LEVELS: dict[Codec, st.SearchStrategy[int | None]] = {
    Codec.NONE: st.none(),
    Codec.GZIP: st.none() | st.integers(1, 9),
    Codec.SNAPPY: st.none(),
    Codec.LZ4: st.none() | st.integers(1, 17),
    Codec.ZSTD: st.none() | st.integers(-50, 6),
}
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=2).map(tuple)


@st.composite
def batches(draw: st.DrawFn, codec: Codec) -> bytearray:
    """Any batch that a producer may send."""
    contents = draw(
        st.lists(st.tuples(st.integers(-1, 2**41), BYTES, BYTES, HEADERS), min_size=1, max_size=30)
    )
    records = [
        Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=headers)
        for offset, (timestamp, key, value, headers) in enumerate(contents)
    ]
    producer_id = draw(st.sampled_from((-1, 7)))
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_id and 3,
        base_sequence=draw(st.integers(0, 2**31 - 1)),
    )


def recompressed(batch: bytearray, wanted: StoredCodec) -> bytearray:
    packed = memoryview(batch)[HEADER_BYTES:]
    records = decompress(read_header(batch).codec, packed, bytes_max=PLENTY)
    return recompress(memoryview(batch), records, wanted)


@given(CODECS, CODECS, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_records_are_the_same_from_every_codec_to_every_codec(
    source: Codec, target: Codec, data: st.DataObject
) -> None:
    batch = data.draw(batches(source))

    stored = recompressed(batch, StoredCodec(target, data.draw(LEVELS[target])))

    assert scan_batches(stored).stop is StopReason.END
    assert read_records(stored, decompressed_bytes_max=PLENTY) == read_records(
        batch, decompressed_bytes_max=PLENTY
    )
    header = read_header(stored)
    assert header.codec is target
    unchanged = replace(
        read_header(batch),
        size_bytes=header.size_bytes,
        crc=header.crc,
        attributes=header.attributes,
    )
    assert header == unchanged


@pytest.mark.parametrize("target", list(Codec))
def test_other_attributes_stay(target: Codec) -> None:
    record = Record(offset=0, timestamp=5, key=b"k", value=b"v")
    batch = build_batch([record], codec=Codec.ZSTD, is_transactional=True, delete_horizon_ms=9)

    header = read_header(recompressed(batch, StoredCodec(target)))

    assert header.is_transactional
    assert header.delete_horizon_ms == 9
    assert header.codec is target


def test_a_level_that_packs_closer_makes_a_smaller_batch() -> None:
    value = b"".join(b"%d " % (number * number) for number in range(20_000))
    batch = build_batch([Record(offset=0, timestamp=5, key=b"k", value=value)])
    for codec, loose, close in ((Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, 1, 19)):
        sizes = [len(recompressed(batch, StoredCodec(codec, level))) for level in (loose, close)]
        assert sizes[1] < sizes[0] < len(batch)
