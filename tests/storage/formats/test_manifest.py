from __future__ import annotations

import struct
import uuid
from dataclasses import replace

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.formats.manifest import (
    CHECKSUM,
    COPIED_FROM,
    COPY_ID,
    FLAG_CLEANED,
    HEADER,
    Manifest,
    SegmentRow,
)
from storage.formats.manifest import decode as decode_manifest
from storage.formats.manifest import encode as encode_manifest

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

NARROW = ("flags", "control_count")
ROWS = st.builds(
    SegmentRow,
    **{name: INT64 for name in SegmentRow.__dataclass_fields__ if name not in NARROW},
    flags=st.integers(0, 3),
    control_count=st.integers(-1, (1 << 31) - 2),
)
MANIFESTS = st.builds(
    Manifest,
    version=INT64,
    generation=INT64,
    topic_id=st.uuids(),
    partition=st.integers(0, (1 << 31) - 1),
    log_start_offset=INT64,
    clean_offset=INT64,
    truncate_to=INT64,
    has_aborted_file=st.booleans(),
    has_unfinished_pass=st.booleans(),
    has_history=st.booleans(),
    has_foreign_states=st.booleans(),
    has_undo_file=st.booleans(),
    copy_id=st.none() | st.uuids().filter(lambda each: each.int != 0),
    copied_from=st.none() | st.uuids().filter(lambda each: each.int != 0),
    segments=st.lists(ROWS, max_size=4).map(tuple),
)

EXAMPLE = Manifest(
    version=7,
    generation=2,
    topic_id=uuid.UUID(int=5),
    partition=3,
    log_start_offset=Offset(10),
    clean_offset=Offset(20),
    segments=(
        SegmentRow(
            base_offset=Offset(0),
            file_version=6,
            flags=FLAG_CLEANED,
            end_offset=Offset(20),
            size=100,
        ),
        SegmentRow(base_offset=Offset(20), file_version=4),
    ),
)


@given(MANIFESTS)
def test_every_manifest_is_read_back(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest), "m") == manifest


def test_bytes_on_disk_are_these() -> None:
    """Formats are final: later releases read the bytes in this test."""
    data = encode_manifest(EXAMPLE)
    assert len(data) == 76 + 2 * 104 + 8
    assert data[:12] == b"KMAN" + struct.pack(">HHHH", 1, 76, 104, 0)
    assert data[12:76] == struct.pack(">qq16siiqqq", 7, 2, uuid.UUID(int=5).bytes, 3, 2, 10, 20, -1)
    assert data[76:180] == struct.pack(">qqiiqq8q", 0, 6, 1, 0, 20, 100, *[-1] * 8)
    assert data[-8:] == struct.pack(">Q", xxhash.xxh3_64_intdigest(data[:-8]))


def test_states_of_another_log_are_a_format_of_its_own() -> None:
    """A release that does not know the flag must not read the states of the old log as its own."""
    foreign = replace(EXAMPLE, has_foreign_states=True)
    data = encode_manifest(foreign)
    assert data[4:12] == struct.pack(">HHHH", 2, 76, 104, 4)
    assert decode_manifest(data, "m") == foreign


def test_id_of_a_copy_lengthens_the_header() -> None:
    """An earlier release skips it, and one that knows it reads the shorter header, too."""
    copied = replace(EXAMPLE, copy_id=uuid.UUID(int=9))
    data = encode_manifest(copied)
    assert data[4:12] == struct.pack(">HHHH", 1, 92, 104, 0)
    assert data[76:92] == uuid.UUID(int=9).bytes
    assert data[92:-8] == encode_manifest(EXAMPLE)[76:-8]
    assert decode_manifest(data, "m") == copied


def test_source_of_the_records_follows_the_id_of_a_copy() -> None:
    """An earlier release skips it, and its next commit drops it."""
    known = replace(EXAMPLE, copied_from=uuid.UUID(int=11))
    data = encode_manifest(known)
    assert data[4:12] == struct.pack(">HHHH", 1, 108, 104, 0)
    assert data[76:108] == bytes(16) + uuid.UUID(int=11).bytes
    assert data[108:-8] == encode_manifest(EXAMPLE)[76:-8]
    assert decode_manifest(data, "m") == known


def test_any_flipped_bit_and_any_cut_is_damage() -> None:
    data = encode_manifest(EXAMPLE)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        with pytest.raises(DamagedFile):
            decode_manifest(bytes(flipped), "m")
        with pytest.raises(DamagedFile):
            decode_manifest(data[:position], "m")


def test_records_of_control_batches_are_stored_plus_one() -> None:
    """The zero of an earlier release says that they were not counted."""
    known = replace(EXAMPLE, segments=(replace(EXAMPLE.segments[0], control_count=5),))
    data = encode_manifest(known)
    assert data[92:100] == struct.pack(">ii", 1, 6)
    assert decode_manifest(data, "m") == known
    assert decode_manifest(encode_manifest(EXAMPLE), "m").segments[0].control_count == -1


COUNTED = replace(
    EXAMPLE,
    segments=(
        replace(EXAMPLE.segments[0], tombstone_count=3, tombstone_bytes=40, tombstones_due_ms=9),
        EXAMPLE.segments[1],
    ),
)


def test_bytes_of_tombstones_lengthen_the_rows() -> None:
    """An earlier release skips them, and this one reads its shorter rows, too."""
    data = encode_manifest(COUNTED)
    assert data[4:12] == struct.pack(">HHHH", 1, 76, 120, 0)
    assert data[180:196] == struct.pack(">qq", 40, 9)
    assert data[300:316] == struct.pack(">qq", -1, -1)
    assert data[196:300] == encode_manifest(EXAMPLE)[180:284]
    assert decode_manifest(data, "m") == COUNTED


@pytest.mark.parametrize("example", [EXAMPLE, COUNTED])
def test_longer_header_and_rows_of_a_later_release_are_read(example: Manifest) -> None:
    known = encode_manifest(example)
    header = bytearray(known[: HEADER.size])
    ids = COPY_ID.pack(b"") + COPIED_FROM.pack(b"")
    (row_size,) = struct.unpack_from(">H", known, 8)
    struct.pack_into(">HH", header, 6, HEADER.size + len(ids) + 16, row_size + 8)
    body = bytes(header) + ids + b"h" * 16
    for start in range(HEADER.size, len(known) - CHECKSUM.size, row_size):
        body += known[start : start + row_size] + b"r" * 8
    data = body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))
    assert decode_manifest(data, "m") == example


def test_format_of_a_later_release_is_refused_with_a_sentence() -> None:
    body = bytearray(encode_manifest(EXAMPLE)[: -CHECKSUM.size])
    struct.pack_into(">H", body, 4, 3)
    data = bytes(body) + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))
    with pytest.raises(FormatFromTheFuture, match="later release: its format is 3"):
        decode_manifest(data, "m")


def test_row_count_that_the_length_denies_is_damage() -> None:
    body = bytearray(encode_manifest(EXAMPLE)[: -CHECKSUM.size])
    struct.pack_into(">i", body, 48, 3)
    data = bytes(body) + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))
    with pytest.raises(DamagedFile, match="do not hold 3 segments"):
        decode_manifest(data, "m")


def test_cleaned_row_says_so() -> None:
    row = EXAMPLE.segments[0]
    assert row.is_cleaned
    assert not replace(row, flags=0).is_cleaned
