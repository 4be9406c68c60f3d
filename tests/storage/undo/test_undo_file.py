from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.formats.manifest import SegmentRow
from storage.undo.undo_file import (
    CHECKSUM,
    HEADER,
    ROW_BYTES,
    EndedPass,
    EndReason,
    KeptPass,
    KeptSwap,
    decode,
    encode,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NARROW = ("flags", "control_count")
ROWS = st.builds(
    SegmentRow,
    **{name: INT64 for name in SegmentRow.__dataclass_fields__ if name not in NARROW},
    flags=st.integers(0, 3),
    control_count=st.integers(-1, (1 << 31) - 2),
)
SOME_ROWS = st.lists(ROWS, max_size=3).map(tuple)
KEPT = st.builds(
    KeptPass,
    number=INT64,
    kept_ms=INT64,
    clean_offset=INT64,
    has_history=st.booleans(),
    has_unfinished_pass=st.booleans(),
    swaps=st.lists(st.builds(KeptSwap, SOME_ROWS, SOME_ROWS), max_size=3).map(tuple),
    aborted=st.lists(st.tuples(INT64, INT64, INT64), max_size=3).map(tuple),
)
ENDED = st.builds(EndedPass, INT64, INT64, st.sampled_from(EndReason))

EXAMPLE = KeptPass(
    number=9,
    kept_ms=1_700_000_000_000,
    clean_offset=Offset(3),
    swaps=(
        KeptSwap(
            (SegmentRow(base_offset=Offset(0), file_version=1, end_offset=Offset(5), size=70),),
            (SegmentRow(base_offset=Offset(0), file_version=8, end_offset=Offset(5), size=30),),
        ),
    ),
    aborted=((ProducerId(4), Offset(1), Offset(2)),),
)


def resealed(body: bytes) -> bytes:
    return body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))


@given(st.lists(ENDED, max_size=3).map(tuple), st.lists(KEPT, max_size=3).map(tuple))
def test_a_file_reads_as_it_was_written(
    ended: tuple[EndedPass, ...], kept: tuple[KeptPass, ...]
) -> None:
    assert decode(encode(ended, kept), "undo") == (ended, kept)


def test_the_bytes_are_these() -> None:
    data = encode((EndedPass(7, 5, EndReason.EXPIRED),), (EXAMPLE,))

    expected = struct.pack(">4sHHHHI", b"KUND", 1, 16, 120, 0, 2)
    expected += struct.pack(">IqqqHHII", 36, 7, 5, 0, 2, 0, 0, 0)
    expected += struct.pack(">IqqqHHII", 36 + 8 + 240 + 24, 9, 1_700_000_000_000, 3, 0, 0, 1, 1)
    expected += struct.pack(">II", 1, 1)
    assert data.startswith(expected)
    assert data[-32:-8] == struct.pack(">qqq", 4, 1, 2)
    assert len(data) == len(expected) + 240 + 24 + 8


@given(st.data())
def test_a_flipped_bit_or_a_cut_is_damage(data: st.DataObject) -> None:
    sound = encode((), (EXAMPLE,))
    position = data.draw(st.integers(0, 8 * len(sound) - 1))
    flipped = bytearray(sound)
    flipped[position // 8] ^= 1 << position % 8

    for damaged in (bytes(flipped), sound[: position // 8]):
        with pytest.raises(DamagedFile):
            decode(damaged, "undo")


def test_a_later_format_is_named() -> None:
    body = bytearray(encode((), ())[: -CHECKSUM.size])
    body[5] = 2

    with pytest.raises(FormatFromTheFuture):
        decode(resealed(bytes(body)), "undo")


def test_longer_rows_passes_and_headers_of_a_later_release_are_skipped() -> None:
    header = HEADER.pack(b"KUND", 1, HEADER.size + 4, ROW_BYTES + 8, 0, 1) + b"more"
    data = encode((), (EXAMPLE,))[HEADER.size : -CHECKSUM.size]
    before, rows, after = data[: 4 + 36 + 8], data[48 : 48 + 240], data[48 + 240 :]
    rows = rows[:120] + b"longer.." + rows[120:] + b"longer.."
    entry = before[4:] + rows + after + b"unknown"

    read = decode(resealed(header + struct.pack(">I", len(entry)) + entry), "undo")

    assert read == ((), (EXAMPLE,))


def test_a_reason_of_a_later_release_counts_as_lost() -> None:
    body = bytearray(encode((EndedPass(7, 5, EndReason.LOST),), ())[: -CHECKSUM.size])
    body[HEADER.size + 4 + 24 : HEADER.size + 4 + 26] = struct.pack(">H", 999)

    ended, _ = decode(resealed(bytes(body)), "undo")

    assert ended == (EndedPass(7, 5, EndReason.LOST),)
