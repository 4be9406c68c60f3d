"""The compiled search for one key, against records read one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.kernel.find_key import KeyFinder
from cleaner.rules.step import Decision, KeyHit
from protocol.records.batch_scan import crc32c
from protocol.records.control_record import ControlType
from protocol.records.record_batch import Codec, build_batch, read_records
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.harness.log_builder import KeyValue, batch_of, marker_of

PLENTY = 1 << 20
ATTRIBUTES_LOW_BYTE = 22
CRC = slice(17, 21)
KEYS = st.sampled_from([b"", b"a", b"b", b"ab", None])
VALUES = st.sampled_from([b"", b"1", b"2" * 300, None])
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
        st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY]),
    ),
    max_size=8,
)


def finder(key: bytes = b"a", hits_max: int = 100) -> KeyFinder:
    return KeyFinder(key, decompressed_bytes_max=PLENTY, hits_max=hits_max)


@settings(max_examples=150, deadline=None)
@given(
    BATCHES, st.sampled_from([b"", b"a", b"ab", b"none"]), st.integers(1, 5), st.integers(0, 200)
)
def test_it_finds_what_reading_every_record_finds(
    batches: list[tuple[list[KeyValue], Codec]], key: bytes, hits_max: int, cut: int
) -> None:
    data, offset, expected = bytearray(), 0, []
    for pairs, codec in batches:
        batch = batch_of(pairs, base_offset=offset, codec=codec)
        for record in read_records(batch, decompressed_bytes_max=PLENTY):
            if record.key == key:
                size = None if record.value is None else len(record.value)
                expected.append((record.offset, record.timestamp, size))
        offset += len(pairs)
        data += batch
    found = finder(key, hits_max)

    # Of a chunk that ends inside a batch, only the bytes before that batch are consumed.
    first = found.feed(bytes(data[: len(data) - cut]) if cut < len(data) else b"")
    rest = found.feed(bytes(data[first.consumed_bytes :]))

    assert first.consumed_bytes + rest.consumed_bytes == len(data)
    assert found.count == len(expected)
    hits = [(hit.offset, hit.timestamp, hit.value_bytes) for hit in found.hits]
    assert hits == expected[-hits_max:]


def test_a_hit_says_its_size_and_its_batchs_horizon() -> None:
    found = finder()
    batch = batch_of([(b"a", None)], timestamps=[5])
    found.feed(bytes(batch))

    (hit,) = found.hits
    assert hit == KeyHit(
        offset=0,
        timestamp=5,
        size_bytes=len(batch) - 61,
        value_bytes=None,
        delete_horizon_ms=None,
        producer_id=None,
        decision=None,
    )

    records = read_records(batch, decompressed_bytes_max=PLENTY)
    found.feed(bytes(build_batch(records, delete_horizon_ms=1000)))
    assert found.hits[-1].delete_horizon_ms == 1000
    assert found.hits[-1].timestamp == 5


def test_markers_decide_the_hits_of_their_producer_alone() -> None:
    found = finder()
    for producer_id in (1, 2, 3):
        batch = batch_of(
            [(b"a", b"1")],
            base_offset=producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        found.feed(bytes(batch))
    found.feed(bytes(marker_of(ControlType.ABORT, 2)))
    found.feed(bytes(marker_of(ControlType.COMMIT, 3)))

    decisions = [hit.decision for hit in found.hits]
    assert decisions == [Decision.OPEN, Decision.ABORTED, Decision.COMMITTED]


def test_a_flipped_bit_is_damage() -> None:
    batch = batch_of([(b"a", b"1")])
    batch[-1] ^= 1

    with pytest.raises(CorruptBatch, match="position 7: its CRC"):
        finder().feed(bytes(batch), position=7)


def test_a_codec_that_nobody_knows_is_damage() -> None:
    batch = batch_of([(b"a", b"1")])
    batch[ATTRIBUTES_LOW_BYTE] |= 5
    batch[CRC] = crc32c(batch[CRC.stop :]).to_bytes(4)

    with pytest.raises(CorruptBatch, match="position 7: its compression type"):
        finder().feed(bytes(batch), position=7)


def test_a_bomb_is_refused() -> None:
    batch = batch_of([(b"a", bytes(PLENTY))], codec=Codec.ZSTD)

    with pytest.raises(DecompressionTooLarge):
        finder().feed(bytes(batch))


def test_it_keeps_at_least_one_hit() -> None:
    with pytest.raises(ValueError, match="hits_max is 0"):
        finder(hits_max=0)
