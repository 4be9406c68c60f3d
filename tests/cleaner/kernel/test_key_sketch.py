"""The compiled sketch is the one that `cleaner/keys/sketch.py` specifies."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernel.key_sketch import add_keys
from cleaner.keys.sketch import add_key, new_sketch
from cleaner.rules.step import KeysDiffer
from storage.formats.key_sidecar import ENTRY, HEAD, SPECIAL, VERSION, sealed

HASHES = st.binary(min_size=16, max_size=16) | st.sampled_from(
    [bytes(16), b"\xff" * 16, bytes(15) + b"\1"]
)


def block_of(hashes: list[bytes], *, rows: int = 0, has_column: bool = False) -> bytes:
    """Returns a block of a sidecar with these keys at the offsets 0, 2, 4, ...; each third is a
    tombstone."""
    entries = b"".join(
        ENTRY.pack(each, 2 * number | (number % 3 == 0) << 31, 9)
        for number, each in enumerate(hashes)
    )
    body = HEAD.pack(1000, rows, len(hashes), 0) + bytes(SPECIAL.size * rows) + entries
    return sealed(body + bytes(VERSION.size * len(hashes) * has_column))


@given(
    hashes=st.lists(HASHES, max_size=40),
    rows=st.integers(0, 2),
    has_column=st.booleans(),
    base_offset=st.sampled_from([0, 7, 2**62]),
    start=st.integers(-2, 90),
    size=st.integers(-1, 90),
)
def test_a_block_adds_the_keys_of_its_entries_between_two_offsets(
    hashes: list[bytes], rows: int, has_column: bool, base_offset: int, start: int, size: int
) -> None:
    expected, found = new_sketch(), new_sketch()
    between = [each for number, each in enumerate(hashes) if start <= 2 * number < start + size]
    for each in between:
        add_key(expected, each)

    added = add_keys(
        found,
        block_of(hashes, rows=rows, has_column=has_column),
        base_offset=base_offset,
        start_offset=base_offset + start,
        end_offset=base_offset + start + size,
    )

    assert added == len(between)
    assert found == expected


@pytest.mark.parametrize("precision", [4, 11, 16])
def test_the_number_of_registers_is_the_precision(precision: int) -> None:
    hashes = [Random(0).randbytes(16) for _ in range(100)]
    expected, found = bytearray(1 << precision), bytearray(1 << precision)
    for each in hashes:
        add_key(expected, each)

    add_keys(found, block_of(hashes), base_offset=0, start_offset=0, end_offset=1000)

    assert found == expected


@pytest.mark.parametrize("count", [0, 1, 8, 100, 1 << 17])
def test_a_sketch_of_another_size_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="registers"):
        add_keys(bytearray(count), block_of([]), base_offset=0, start_offset=0, end_offset=1)


@pytest.mark.parametrize("size", [0, 23, 24 + 47, 24 + 49])
def test_a_block_whose_counts_differ_from_its_size_adds_nothing(size: int) -> None:
    block = struct.pack(">IIII", 1000, 0, 2, 0)[:size] + bytes(max(size - 16, 0))
    registers = new_sketch()

    with pytest.raises(KeysDiffer):
        add_keys(registers, block, base_offset=0, start_offset=0, end_offset=1000)

    assert registers == new_sketch()
