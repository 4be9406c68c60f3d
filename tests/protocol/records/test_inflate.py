"""Inflating in windows: the same bytes as at once, the same refusals, and never more than a window."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.compression import Codec, compress
from protocol.records.inflate import WINDOW_BYTES, inflated
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.harness.examples import examples

PLENTY = 1 << 28
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
EACH_CODEC = pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)
TEXT = b"".join(f"order {n}: paid={n % 3} state=open;".encode() for n in range(9000))
NOISE = random.Random(5).randbytes(300_000)


def joined(codec: Codec, data: bytes | bytearray, bytes_max: int = PLENTY) -> bytes | None:
    """All windows in one; None if they are refused."""
    try:
        return b"".join(bytes(window) for window in inflated(codec, data, bytes_max=bytes_max))
    except CorruptBatch:
        return None


OTHERS = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}
"""Another implementation of each codec. For the Java framing of snappy there is no other strict
implementation."""


def at_once(codec: Codec, data: bytes | bytearray, bytes_max: int = 1 << 20) -> bytes | None:
    """The verdict of another implementation, which inflates all into one buffer."""
    if codec not in OTHERS:
        return joined(codec, data, bytes_max)
    records = bytearray(bytes_max)
    try:
        return bytes(records[: OTHERS[codec].decompress_into(data, records)])
    except cramjam.DecompressionError as error:
        if str(error) == "failed to write whole buffer":
            raise DecompressionTooLarge(bytes_max) from error
        return None


@given(st.sampled_from(Codec), st.binary(max_size=3000), st.integers(1, 100))
@settings(max_examples=examples(150), deadline=None)
def test_windows_join_to_what_was_compressed(codec: Codec, piece: bytes, repeats: int) -> None:
    packed = bytes(compress(codec, piece * repeats))
    assert joined(codec, packed) == piece * repeats


@EACH_CODEC
@pytest.mark.parametrize("data", [TEXT, NOISE, bytes(1 << 20)], ids=["text", "noise", "zeros"])
def test_no_window_is_larger_than_it_may_be(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    sizes = [len(window) for window in inflated(codec, packed, bytes_max=PLENTY)]
    assert sum(sizes) == len(data)
    assert max(sizes) <= WINDOW_BYTES


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def test_snappy_without_framing_is_one_window() -> None:
    data = TEXT * 8
    assert len(data) > 1 << 20
    (window,) = inflated(Codec.SNAPPY, raw_snappy(data), bytes_max=PLENTY)
    assert bytes(window) == data


SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"12345"
BEHIND = [b"", b"\0", b"\0" * 8, b"garbage behind it", b"x", SKIPPABLE, SKIPPABLE[:-1]]


@EACH_CODEC
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("before", [b"", SKIPPABLE])
def test_bytes_around_a_frame_get_the_same_verdict_as_at_once(
    codec: Codec, before: bytes, behind: bytes
) -> None:
    for frames in (1, 2):
        packed = before + bytes(compress(codec, TEXT[:5000])) * frames + behind
        assert joined(codec, packed) == at_once(codec, packed)


@EACH_CODEC
def test_a_cut_anywhere_gets_the_same_verdict_as_at_once(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT[:3000]))
    for size in range(len(packed)):
        assert joined(codec, packed[:size]) == at_once(codec, packed[:size])


@pytest.mark.parametrize(
    "packed",
    [
        zstandard.ZstdCompressor(level=19, write_checksum=True).compress(TEXT),
        zstandard.ZstdCompressor(write_content_size=False).compress(NOISE),
        zstandard.ZstdCompressor().compress(b""),
        zstandard.ZstdCompressor().compress(b"k" * 200),
    ],
    ids=["checksum", "no_content_size", "empty", "single_segment"],
)
def test_zstd_frames_of_every_shape_get_the_same_verdict_as_at_once(packed: bytes) -> None:
    assert joined(Codec.ZSTD, packed) == at_once(Codec.ZSTD, packed) is not None
    for size in range(0, len(packed), max(1, len(packed) // 300)):
        assert joined(Codec.ZSTD, packed[:size]) == at_once(Codec.ZSTD, packed[:size]) is None


@given(st.sampled_from(COMPRESSING), st.data())
@settings(max_examples=examples(600), deadline=None)
def test_damaged_frames_get_the_same_verdict_as_at_once(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[: data.draw(st.integers(1, 2000))]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = at_once(codec, packed, 5000)
    except DecompressionTooLarge:
        # It inflates to more, or is damaged after the bound.
        try:
            assert joined(codec, packed, 5000) is None
        except DecompressionTooLarge:
            return
        return
    assert joined(codec, packed, 5000) == expected


@given(st.sampled_from(COMPRESSING), st.binary(max_size=300))
@settings(max_examples=examples(300), deadline=None)
def test_random_bytes_get_the_same_verdict_as_at_once(codec: Codec, noise: bytes) -> None:
    assert joined(codec, noise) == at_once(codec, noise)


@EACH_CODEC
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 300_000])
def test_the_bound_is_exact(codec: Codec, size: int) -> None:
    packed = bytes(compress(codec, bytes(size)))
    assert joined(codec, packed, size) == bytes(size)
    with pytest.raises(DecompressionTooLarge) as raised:
        joined(codec, packed, size - 1)
    assert raised.value.size_max == size - 1


@EACH_CODEC
@pytest.mark.parametrize(
    "size", [WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 1, 2 * WINDOW_BYTES]
)
@pytest.mark.parametrize("unit", [b"\0", NOISE], ids=["zeros", "noise"])
def test_windows_that_end_with_a_frame_do_not_hide_the_next_one(
    codec: Codec, size: int, unit: bytes
) -> None:
    first = (unit * (size // len(unit) + 1))[:size]
    packed = bytes(compress(codec, first)) + bytes(compress(codec, b"next"))

    windows = []
    for window in inflated(codec, packed, bytes_max=PLENTY):
        windows.append(bytes(window))
        assert len(windows) < 100, "it does not end"
    assert b"".join(windows) == first + b"next"


def cut_to_pieces(codec: Codec, count: int) -> bytes:
    """So many members, frames or blocks of next to nothing."""
    packed = bytes(compress(codec, b"x"))
    return packed * count if codec is not Codec.SNAPPY else packed[:16] + packed[16:] * count


@EACH_CODEC
def test_data_cut_into_more_parts_than_anybody_makes_is_refused(codec: Codec) -> None:
    """Each takes microseconds with the interpreter lock held: a mebibyte of them half a second."""
    assert joined(codec, cut_to_pieces(codec, 1000)) == b"x" * 1000
    packed = cut_to_pieces(codec, 200_000)
    with pytest.raises(CorruptBatch, match="too many parts"):
        for _ in inflated(codec, packed, bytes_max=PLENTY):
            pass


BOMB = """
import resource, sys
from protocol.records.compression import Codec
from protocol.records.inflate import inflated
packed = sys.stdin.buffer.read()
codec, small = Codec[sys.argv[1]], int(sys.argv[2])
size = sum(len(window) for window in inflated(codec, packed[:small], bytes_max=1 << 30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = sum(len(window) for window in inflated(codec, packed[small:], bytes_max=1 << 30))
print(size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@EACH_CODEC
def test_a_batch_of_127_mebibytes_takes_a_few_to_inflate(codec: Codec) -> None:
    small = bytes(compress(codec, TEXT))
    packed = bytes(compress(codec, bytes(127 << 20)))
    done = subprocess.run(
        [sys.executable, "-c", BOMB, codec.name, str(len(small))],
        input=small + packed,
        capture_output=True,
        check=True,
        timeout=60,
    )
    size, grown_kib = map(int, done.stdout.split())
    assert size == 127 << 20
    assert grown_kib < 16 * 1024  # A codec's own window: zstd's is 8 MiB at most at this level.


def test_codec_libraries_load_with_the_first_compressed_batch() -> None:
    names = "{'cramjam', 'lz4', 'zstandard'}"
    script = f"import sys, protocol.records.inflate; sys.exit(bool({names} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
