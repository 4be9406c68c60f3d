"""The compiled scan, against slower oracles and against bytes that nobody should send."""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import fields

import crc32c as crc32c_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.batch_scan import (
    ScannedBatch,
    StopReason,
    _crc32c_portable,
    crc32c,
    scan_batches,
)
from protocol.records.record_batch import Codec, Record, build_batch, build_empty_batch
from protocol.wire.numbers import Offset

HEADER_BYTES = 61
NOISE = b"".join(crc32c_oracle.crc32c(bytes([n % 251]) * 9, n).to_bytes(4) for n in range(20_000))
# Around each border of the sum's lanes (3 x 256 and 3 x 4096 bytes), of words, and of the GIL.
LANES = (0, 1, 7, 8, 9, 767, 768, 769, 1024, 1025, 12_287, 12_288, 12_289, 13_063, 50_000)


def batch_of(*keys: bytes | None, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    records = [
        Record(offset=base_offset + index, timestamp=1000 + index, key=key, value=b"value")
        for index, key in enumerate(keys)
    ]
    return bytes(build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=4))


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC that its bytes should have."""
    crc: int = crc32c_oracle.crc32c(batch[21:])
    return bytes(batch[:17] + crc.to_bytes(4) + batch[21:])


# ---------------------------------------------------------------------- crc32c


def test_crc32c_of_the_check_string() -> None:
    """The check value of CRC-32/ISCSI, RFC 3720."""
    assert crc32c(b"123456789") == _crc32c_portable(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", LANES)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_crc32c_is_right_on_both_sides_of_every_border(size: int, start: int) -> None:
    data = memoryview(NOISE)[start : start + size]
    expected = crc32c_oracle.crc32c(data, 0x12345678)
    assert crc32c(data, 0x12345678) == expected
    assert _crc32c_portable(data, 0x12345678) == expected


@given(st.binary(max_size=4000), st.integers(0, 30), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_crc32c_is_the_crc32c_packages(piece: bytes, repeats: int, value: int) -> None:
    data = piece * repeats
    assert crc32c(data, value) == crc32c_oracle.crc32c(data, value)
    assert _crc32c_portable(data, value) == crc32c_oracle.crc32c(data, value)


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_crc32c_continues_from_the_crc_of_what_precedes(data: bytes, cut: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


def test_crc32c_takes_every_kind_of_buffer() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(NOISE)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            sums = {crc32c(mapped), crc32c(bytearray(NOISE)), crc32c(memoryview(NOISE))}
    assert sums == {crc32c_oracle.crc32c(NOISE)}


@pytest.mark.parametrize("value", [-1, 2**32])
def test_crc32c_refuses_a_value_that_is_no_crc(value: int) -> None:
    with pytest.raises(OverflowError):
        crc32c(b"abc", value)


# ---------------------------------------------------------------- scan_batches


def test_scan_finds_each_batch_with_its_header() -> None:
    batches = [
        batch_of(b"a", b"b", base_offset=10),
        batch_of(*[b"key"] * 50, base_offset=20, codec=Codec.ZSTD),
        bytes(build_empty_batch(read_header(batch_of(b"x", b"y", base_offset=90)))),
    ]
    log = b"".join(batches)

    scan = scan_batches(log)

    assert (scan.stop, scan.end_position) == (StopReason.END, len(log))
    positions = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [found.position for found in scan.batches] == positions
    for found in scan.batches:
        header = read_header(log, found.position)
        assert found.next_offset == header.next_offset
        for name in (field.name for field in fields(BatchHeader) if field.name != "crc"):
            assert getattr(found, name) == getattr(header, name), name


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 512, 1000])
def test_scan_finds_any_number_of_batches(count: int) -> None:
    batch = batch_of(b"k")
    scan = scan_batches(batch * count)
    assert [found.position for found in scan.batches] == [n * len(batch) for n in range(count)]
    assert (scan.stop, scan.end_position) == (StopReason.END, count * len(batch))


def test_scan_looks_at_its_range_only() -> None:
    batch = batch_of(b"k")
    log = b"junk" + batch * 3 + b"junk"

    scan = scan_batches(log, 4, 4 + 2 * len(batch))

    assert [found.position for found in scan.batches] == [4, 4 + len(batch)]
    assert (scan.stop, scan.end_position) == (StopReason.END, 4 + 2 * len(batch))


@pytest.mark.parametrize(("position", "end"), [(-1, 3), (2, 1), (0, 4), (4, 4)])
def test_scan_refuses_a_range_outside_its_buffer(position: int, end: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        scan_batches(b"abc", position, end)


def test_scan_stops_before_a_batch_cut_anywhere() -> None:
    first, last = batch_of(b"first"), batch_of(b"last", base_offset=1)
    for size in range(1, len(last)):
        scan = scan_batches(first + last[:size])
        assert (scan.stop, scan.end_position) == (StopReason.TRUNCATED, len(first)), size
        assert len(scan.batches) == 1
        assert f"{size} are left" in scan.detail


def test_scan_stops_before_any_flipped_bit_that_the_crc_covers() -> None:
    first, last = batch_of(b"first"), batch_of(b"last", base_offset=1)
    for bit in range(8 * 17, 8 * len(last)):
        broken = bytearray(last)
        broken[bit // 8] ^= 1 << bit % 8
        scan = scan_batches(first + broken)
        assert (scan.stop, scan.end_position) == (StopReason.BAD_CRC, len(first)), bit


def damaged(position: int, field: bytes, *, seal: bool = False) -> bytes:
    batch = bytearray(batch_of(b"a", b"b"))
    batch[position : position + len(field)] = field
    return resealed(bytes(batch)) if seal else bytes(batch)


@pytest.mark.parametrize(
    ("batch", "stop", "detail"),
    [
        pytest.param(damaged(16, b"\x01"), StopReason.BAD_MAGIC, "message format 1", id="magic_1"),
        pytest.param(
            damaged(16, b"\xff"), StopReason.BAD_MAGIC, "message format -1", id="magic_-1"
        ),
        pytest.param(bytes(61), StopReason.BAD_MAGIC, "message format 0", id="zeros"),
        pytest.param(
            damaged(8, (48).to_bytes(4)), StopReason.BAD_LENGTH, "smaller", id="short_length"
        ),
        pytest.param(
            damaged(8, b"\xff" * 4), StopReason.BAD_LENGTH, "smaller", id="negative_length"
        ),
        pytest.param(
            damaged(8, b"\x7f\xff\xff\xff"), StopReason.TRUNCATED, "2147483659", id="2_GiB_length"
        ),
        pytest.param(damaged(17, bytes(4)), StopReason.BAD_CRC, "carries CRC 00000000", id="crc"),
        pytest.param(
            damaged(57, b"\xff" * 4, seal=True), StopReason.BAD_HEADER, "-1 records", id="count_-1"
        ),
        pytest.param(
            damaged(57, (3).to_bytes(4), seal=True),
            StopReason.BAD_HEADER,
            "3 records in offsets 0-1",
            id="more_records_than_offsets",
        ),
        pytest.param(
            damaged(23, b"\xff" * 4, seal=True), StopReason.BAD_HEADER, "", id="negative_delta"
        ),
        pytest.param(
            damaged(0, b"\x7f" + b"\xff" * 7), StopReason.BAD_HEADER, "", id="offset_overflow"
        ),
    ],
)
def test_scan_says_why_it_stopped(batch: bytes, stop: StopReason, detail: str) -> None:
    good = batch_of(b"good")
    scan = scan_batches(good + batch + good)
    assert (scan.stop, scan.end_position, len(scan.batches)) == (stop, len(good), 1)
    assert f"position {len(good)}" in scan.detail
    assert detail in scan.detail


@given(st.binary(max_size=400), st.booleans())
def test_scan_of_random_bytes_only_ever_stops(noise: bytes, magic_2: bool) -> None:
    data = noise[:16] + b"\x02" + noise[17:] if magic_2 else noise
    scan = scan_batches(data)
    assert scan.batches == []
    assert scan.end_position == 0
    assert (scan.stop is StopReason.END) == (data == b"")


def test_scanned_batches_cannot_be_changed() -> None:
    found = scan_batches(batch_of(b"k")).batches[0]
    assert isinstance(found, ScannedBatch)
    with pytest.raises(AttributeError):
        found.base_offset = Offset(7)  # type: ignore[misc]
