"""Codecs against independent ones, and against bytes that nobody should send."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable

import cramjam
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.compression import Buffer, Codec, compress, decompress
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from tests.harness.examples import examples

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that importlib deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
EACH_CODEC = pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)
PLENTY = 1 << 24
TEXT = b"".join(b"record %d of a batch that compresses; " % n for n in range(20_000))
NOISE = os.urandom(200_000)

ARROW_NAMES = {Codec.GZIP: "gzip", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
# kafka-python is an oracle of the framing; its LZ4 entry points differ by message format.
KAFKA_ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: kafka.codec.gzip_encode,
    Codec.SNAPPY: kafka.codec.snappy_encode,
    Codec.LZ4: kafka.codec.lz4_encode,
    Codec.ZSTD: kafka.codec.zstd_encode,
}
KAFKA_DECODERS: dict[Codec, Callable[[bytes], Buffer]] = {
    Codec.GZIP: kafka.codec.gzip_decode,
    Codec.SNAPPY: kafka.codec.snappy_decode,
    Codec.LZ4: kafka.codec.lz4_decode,
    Codec.ZSTD: kafka.codec.zstd_decode,
}


def inflated(codec: Codec, data: Buffer, bytes_max: int = PLENTY) -> bytes:
    return bytes(decompress(codec, data, bytes_max=bytes_max))


@given(st.sampled_from(Codec), st.binary(max_size=5000), st.integers(1, 60))
@settings(max_examples=examples(100), deadline=None)
def test_what_is_compressed_decompresses_to_the_same(
    codec: Codec, piece: bytes, repeats: int
) -> None:
    data = piece * repeats
    assert inflated(codec, compress(codec, data), bytes_max=len(data)) == data


@EACH_CODEC
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_goes_through(
    codec: Codec, data: bytes, kind: Callable[[bytes], Buffer]
) -> None:
    packed = bytes(compress(codec, kind(data)))
    assert inflated(codec, kind(packed)) == data


@EACH_CODEC
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE], ids=["byte", "text", "noise"])
def test_kafka_python_reads_what_we_compress_and_the_other_way_round(
    codec: Codec, data: bytes
) -> None:
    assert bytes(KAFKA_DECODERS[codec](bytes(compress(codec, data)))) == data
    assert inflated(codec, KAFKA_ENCODERS[codec](data)) == data


@pytest.mark.parametrize("codec", ARROW_NAMES, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE], ids=["byte", "text", "noise"])
def test_arrow_reads_what_we_compress_and_the_other_way_round(codec: Codec, data: bytes) -> None:
    name = ARROW_NAMES[codec]
    packed = bytes(compress(codec, data))
    assert pa.decompress(packed, decompressed_size=len(data), codec=name, asbytes=True) == data
    assert inflated(codec, pa.compress(data, codec=name, asbytes=True)) == data


def test_nothing_is_done_to_records_without_compression() -> None:
    data = memoryview(TEXT)
    assert compress(Codec.NONE, data) is data
    assert decompress(Codec.NONE, data, bytes_max=1) is data


# ---------------------------------------------------------------------- framing


def java_framed(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\x00" + bytes.fromhex("00000001 00000001")
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return header + b"".join(len(block).to_bytes(4) + block for block in packed)


def test_snappy_is_framed_as_the_java_client_frames_it() -> None:
    data = TEXT[:70_000]
    expected = java_framed(data[:32768], data[32768:65536], data[65536:])
    assert compress(Codec.SNAPPY, data) == expected


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(bytes(cramjam.snappy.compress_raw(b"one two three")), id="raw"),
        pytest.param(java_framed(b"one two three"), id="one_block"),
        pytest.param(java_framed(b"one ", b"", b"two three"), id="many_blocks"),
        pytest.param(java_framed(b"one ") + java_framed(b"two three"), id="joined_streams"),
        pytest.param(java_framed() + java_framed(b"one two three"), id="empty_stream_first"),
    ],
)
def test_snappy_is_read_raw_and_framed(packed: bytes) -> None:
    assert inflated(Codec.SNAPPY, packed, bytes_max=13) == b"one two three"
    with pytest.raises(DecompressionTooLarge):
        decompress(Codec.SNAPPY, packed, bytes_max=12)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x82SNAPPY\x00\x00\x00", id="cut_in_the_header"),
        pytest.param(java_framed(b"abc") + b"\x00\x00", id="cut_in_a_size"),
        pytest.param(java_framed(b"abc") + b"\x00\x00\x00\x00", id="block_of_no_bytes"),
        pytest.param(java_framed(b"abc") + b"\xff\xff\xff\xff\x00", id="size_beyond_the_end"),
        pytest.param(java_framed(b"abc")[:-1], id="cut_in_a_block"),
        pytest.param(b"\xff\xff\xff\xff\x0f\x00", id="raw_block_that_announces_4_GiB"),
    ],
)
def test_broken_snappy_framing_is_a_corrupt_batch(packed: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, packed, bytes_max=PLENTY)


def test_lz4_frames_have_independent_blocks_and_a_right_header_checksum() -> None:
    """The Java client: "Dependent block stream is unsupported" (Lz4BlockInputStream.java)."""
    packed = bytes(compress(Codec.LZ4, TEXT))
    magic, flags, header_checksum = packed[:4], packed[4], packed[6]
    assert magic == bytes.fromhex("04224d18")
    assert flags == 0b01_1_0_0_0_0_0  # version 1, independent blocks, and no option
    assert header_checksum == xxhash.xxh32_intdigest(packed[4:6]) >> 8 & 0xFF
    assert packed[-4:] == bytes(4)


def test_lz4_blocks_that_do_not_shrink_are_stored() -> None:
    packed = compress(Codec.LZ4, NOISE)
    blocks = -(-len(NOISE) // 65536)
    assert len(packed) == 7 + 4 * blocks + len(NOISE) + 4


LEVELS = [
    *((Codec.GZIP, level) for level in (1, 6, 9)),
    *((Codec.LZ4, level) for level in (1, 2, 3, 8, 9, 12, 17)),
    *((Codec.ZSTD, level) for level in (-131072, -5, 1, 3, 19, 22)),
]


@pytest.mark.parametrize(("codec", "level"), LEVELS, ids=str)
@pytest.mark.parametrize("data", [b"", b"x", TEXT[:150_000], NOISE], ids=len)
def test_every_level_gives_what_kafka_python_and_we_read(
    codec: Codec, level: int, data: bytes
) -> None:
    packed = bytes(compress(codec, data, level=level))
    assert inflated(codec, packed, bytes_max=len(data)) == data
    if data:
        assert bytes(KAFKA_DECODERS[codec](packed)) == data


@pytest.mark.parametrize(
    ("codec", "fast", "small"),
    [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, 1, 19)],
    ids=str,
)
def test_levels_trade_time_for_size(codec: Codec, fast: int, small: int) -> None:
    """lz4's 9 is Kafka's default and means the fast compressor (Lz4BlockOutputStream.java)."""
    text = b"".join(b"%d " % (n * n) for n in range(20_000))
    assert len(compress(codec, text, level=small)) < len(compress(codec, text, level=fast))


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 6), (Codec.LZ4, 9), (Codec.ZSTD, 3)], ids=str
)
def test_the_clients_default_level_is_ours(codec: Codec, level: int) -> None:
    assert bytes(compress(codec, TEXT)) == bytes(compress(codec, TEXT, level=level))


def test_lz4_blocks_of_a_level_are_independent_too() -> None:
    """The library's own frames are not; the Java client refuses those."""
    data = TEXT[:150_000]
    packed = bytes(compress(Codec.LZ4, data, level=12))
    assert packed[:7] == bytes(compress(Codec.LZ4, data))[:7]
    position, plain = 7, b""
    while size := int.from_bytes(packed[position : position + 4], "little"):
        block = packed[position + 4 : position + 4 + size]
        size_plain = min(1 << 16, len(data) - len(plain))
        plain += bytes(cramjam.lz4.decompress_block(block, output_len=size_plain))
        position += 4 + size
    assert plain == data
    assert packed[position:] == bytes(4)


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(bytes(cramjam.lz4.compress(TEXT)), id="dependent_blocks_and_checksum"),
        pytest.param(pa.compress(TEXT, codec="lz4", asbytes=True), id="arrow"),
    ],
)
def test_lz4_frames_of_other_shapes_are_read(packed: bytes) -> None:
    assert inflated(Codec.LZ4, packed) == TEXT


def test_lz4_with_kafkas_old_header_checksum_is_refused_in_magic_2() -> None:
    packed = bytearray(compress(Codec.LZ4, b"abc"))
    packed[6] ^= 0x01
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, packed, bytes_max=PLENTY)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda c: c.name)
def test_several_frames_are_read_as_one(codec: Codec) -> None:
    packed = bytes(compress(codec, b"one ")) + bytes(compress(codec, b"two"))
    assert inflated(codec, packed, bytes_max=7) == b"one two"


def test_zstd_without_a_content_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(TEXT)
    packed = bytes(compressor.finish())
    assert packed[4] & 0b1110_0000 == 0, "the frame announces its content size after all"
    assert inflated(Codec.ZSTD, packed) == TEXT


def test_gzip_of_the_standard_library_is_read_and_reads_ours() -> None:
    assert inflated(Codec.GZIP, gzip.compress(TEXT)) == TEXT
    assert zlib.decompress(compress(Codec.GZIP, TEXT), wbits=31) == TEXT


# ---------------------------------------------------------------------- bounds


@EACH_CODEC
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 300_000])
def test_the_bound_is_exact(codec: Codec, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert inflated(codec, packed, bytes_max=size) == bytes(size)
    with pytest.raises(DecompressionTooLarge) as raised:
        decompress(codec, packed, bytes_max=size - 1)
    assert raised.value.size_max == size - 1


BOMB = """
import resource, sys
from protocol.records.compression import Codec, decompress
from protocol.wire.errors import DecompressionTooLarge
packed = sys.stdin.buffer.read()
codec = Codec[sys.argv[1]]
decompress(codec, packed[:int(sys.argv[2])], bytes_max=1 << 24)  # Libraries load before we look.
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, packed[int(sys.argv[2]):], bytes_max=1 << 22)
except DecompressionTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@EACH_CODEC
def test_a_bomb_stops_at_the_bound(codec: Codec) -> None:
    """1 GiB of zeros behind a bound of 4 MiB takes no more memory than about the bound."""
    small = bytes(compress(codec, b"x"))
    mebibyte = bytes(compress(codec, bytes(1 << 20)))
    frames = mebibyte * 1024 if codec is not Codec.SNAPPY else mebibyte[:16] + mebibyte[16:] * 1024
    done = subprocess.run(
        [sys.executable, "-c", BOMB, codec.name, str(len(small))],
        input=small + frames,
        capture_output=True,
        check=True,
        timeout=60,
    )
    grown_kib = int(done.stdout)
    # One attempt's buffer, the one before it, and a codec's window or block.
    assert grown_kib < 20 * 1024


@EACH_CODEC
def test_a_cut_anywhere_is_a_corrupt_batch(codec: Codec) -> None:
    data = TEXT[:3000]
    packed = bytes(compress(codec, data))
    whole = [16] if codec is Codec.SNAPPY else []  # A header alone is a stream of no blocks.
    for size in range(len(packed)):
        if size in whole:
            assert inflated(codec, packed[:size]) == b""
            continue
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size], bytes_max=PLENTY)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=300))
@settings(max_examples=examples(300), deadline=None)
def test_random_bytes_raise_nothing_else(codec: Codec, noise: bytes) -> None:
    with contextlib.suppress(CorruptBatch, DecompressionTooLarge):
        inflated(codec, noise, bytes_max=10_000)


@given(st.sampled_from(COMPRESSING), st.data())
@settings(max_examples=examples(400), deadline=None)
def test_damaged_frames_raise_nothing_else_and_stay_in_bounds(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, TEXT[: data.draw(st.integers(1, 2000))]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch, DecompressionTooLarge):
        assert len(inflated(codec, packed, bytes_max=5000)) <= 5000


def test_codec_libraries_load_with_the_first_compressed_batch() -> None:
    script = "import sys, protocol.records.record_batch; sys.exit('cramjam' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
