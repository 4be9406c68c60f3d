"""One record is found by its offset, as a reading of the whole batches finds it."""

from __future__ import annotations

import random

import pytest

from protocol.records.batch_header import TimestampType
from protocol.records.record import Record
from protocol.records.record_batch import Codec, build_batch, read_records
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge, ProtocolError
from storage.batches.record_search import find_record
from tests.harness.log_builder import headers_in

PLENTY = 1 << 24
HEADER = 61


def records(*offsets: int) -> list[Record]:
    return [
        Record(
            offset=offset,
            timestamp=1_000 + offset,
            key=b"k%d" % offset if offset % 3 else None,
            value=b"v" * offset if offset % 5 else None,
            headers=(("name", b"\xff"), ("n\udcff", None)) if offset % 2 else (),
        )
        for offset in offsets
    ]


def batches(codec: Codec = Codec.NONE) -> bytes:
    """Returns three batches: offsets 5 to 9, 12 alone, 20 and 22."""
    return b"".join(
        bytes(build_batch(records(*offsets), base_offset=offsets[0], codec=codec))
        for offsets in ([5, 6, 7, 8, 9], [12], [20, 22])
    )


def find(data: bytes, offset: int, **settings: int) -> tuple[Record | None, int]:
    """Returns the record, and how many bytes of the data are needed."""
    chosen = {"position": 0, "decompressed_bytes_max": PLENTY} | settings
    record, needed, skipped = find_record(data, offset, **chosen)
    return record, needed and skipped + needed


@pytest.mark.parametrize("codec", Codec)
def test_each_record_is_found_and_nothing_between(codec: Codec) -> None:
    data = batches(codec)
    by_offset = {each.offset: each for each in records(5, 6, 7, 8, 9, 12, 20, 22)}

    for offset in range(23):
        assert find(data, offset) == (by_offset.get(offset), 0)


def test_behind_the_last_batch_another_header_is_needed() -> None:
    data = batches()

    assert find(data, 23) == (None, len(data) + HEADER)
    assert find(b"", 0) == (None, HEADER)


def test_a_cut_batch_says_how_many_bytes_are_needed() -> None:
    data = batches()
    first, second, _ = headers_in(data)
    ends = [first.size_bytes, first.size_bytes + second.size_bytes, len(data)]
    for size in range(len(data)):
        found, needed = find(data[:size], 22)
        assert found is None
        # The batch's end, once its length is there.
        assert needed == next(end for end in ends if end > size) or size < needed <= size + HEADER
        if size >= first.size_bytes:
            assert find(data[:size], 7)[0] == records(7)[0]


def test_the_brokers_time_counts_where_the_batch_has_it() -> None:
    data = build_batch(
        records(1, 2),
        base_offset=1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=77,
    )

    found, _ = find(bytes(data), 1)
    assert found == read_records(data, 0, decompressed_bytes_max=PLENTY)[0]
    assert found.timestamp == 77


def test_a_control_batch_has_no_records() -> None:
    data = bytes(build_batch(records(4), base_offset=4, is_control=True))

    assert find(data, 4) == (None, 0)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_inflates_to_too_much_is_told_apart_from_a_damaged_one(codec: Codec) -> None:
    large = [Record(offset=0, timestamp=0, key=b"k", value=b"v" * 10_000)]
    data = bytes(build_batch(large, codec=codec))

    with pytest.raises(DecompressionTooLarge):
        find(data, 0, decompressed_bytes_max=5_000)


def test_errors_name_the_position_of_the_batch() -> None:
    data = bytearray(batches())
    data[-1] ^= 1
    position = len(data) - headers_in(batches())[-1].size_bytes

    with pytest.raises(CorruptBatch, match=f"at position {4096 + position}: its CRC differs"):
        find(bytes(data), 22, position=4096)
    assert find(bytes(data), 12)[0] == records(12)[0]


@pytest.mark.parametrize("codec", Codec)
def test_damage_never_finds_another_record(codec: Codec) -> None:
    chance = random.Random(int(codec))
    whole = batches(codec)
    expected = records(7)[0]
    for _ in range(2_000):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            found, _ = find(bytes(data), 7)
        except ProtocolError:
            continue
        # Not the offsets of the batch: these are outside of its CRC.
        assert found is None or (found.key, found.value) in {
            (each.key, each.value) for each in records(5, 6, 7, 8, 9)
        }
        assert found in (None, expected) or found.offset == 7
