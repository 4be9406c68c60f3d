"""Key sidecars that are sound and say what is not so: only a look at their segments tells."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from storage.files import FileSystem
from storage.key_sidecar import (
    CHECKSUM_BYTES,
    ENTRY,
    HEAD,
    HEADER_BYTES,
    SPECIAL,
    TOMBSTONE,
    TRAILER_BYTES,
    Head,
    sealed,
)

Change = Callable[[bytearray], None]
"""Lets an entry or a special row say something else."""


def another_hash(entry: bytearray) -> None:
    """It is of a key that nobody has."""
    entry[3] ^= 1


def another_offset(entry: bytearray) -> None:
    """It is of the record before or behind."""
    _set(entry, 16, _get(entry, 16) ^ 1)


def no_tombstone_or_one(entry: bytearray) -> None:
    """A value is a tombstone, a tombstone a value."""
    _set(entry, 16, _get(entry, 16) ^ TOMBSTONE)


def another_size(entry: bytearray) -> None:
    """Nothing that is decided before the record is read depends on it."""
    _set(entry, 20, _get(entry, 20) ^ 1)


def another_producer(row: bytearray) -> None:
    """The batch is not of the producer that it is of."""
    row[15] ^= 1


def another_end(row: bytearray) -> None:
    """The batch ends one offset earlier or later."""
    _set(row, 4, _get(row, 4) ^ 1)


def another_outcome(row: bytearray) -> None:
    """A commit is an abort, an abort a commit; data are a marker."""
    row[18] = {2: 3, 3: 2}.get(row[18], 2)


def other_flags(row: bytearray) -> None:
    """It has a delete horizon, or has none."""
    row[19] ^= 4


LIES_OF_ENTRIES = (another_hash, another_offset, no_tombstone_or_one, another_size)
LIES_OF_ROWS = (another_producer, another_end, another_outcome, other_flags)


def places_of_entries(content: bytes) -> list[tuple[slice, slice]]:
    """Where a sidecar's entries are, each with its block."""
    return _places(content, lambda head: (head.special_rows, head.entries, ENTRY.size))


def places_of_rows(content: bytes) -> list[tuple[slice, slice]]:
    """Where its special rows are."""
    return _places(content, lambda head: (0, head.special_rows, SPECIAL.size))


def _places(
    content: bytes, of: Callable[[Head], tuple[int, int, int]]
) -> list[tuple[slice, slice]]:
    found = []
    at = HEADER_BYTES
    while at < len(content) - TRAILER_BYTES:
        head = Head(*HEAD.unpack_from(content, at))
        passed, count, size = of(head)
        start = at + HEAD.size + passed * SPECIAL.size
        block = slice(at, at + head.block_bytes)
        found += [
            (block, slice(start + number * size, start + (number + 1) * size))
            for number in range(count)
        ]
        at = block.stop
    return found


def tell(content: bytes, block: slice, place: slice, change: Change) -> bytes:
    """The sidecar with a change at a place of a block, under a checksum that is right."""
    lying = bytearray(content)
    said = lying[place]
    change(said)
    lying[place] = said
    lying[block] = sealed(bytes(lying[block.start : block.stop - CHECKSUM_BYTES]))
    return bytes(lying)


def tell_somewhere(fs: FileSystem, path: str, random: Random, change: Change) -> None:
    """Let one entry of a sidecar, if it has any, say something else."""
    content = fs.read_bytes(path)
    places = places_of_entries(content)
    if places:
        fs.write_bytes(path, tell(content, *random.choice(places), change))


def _get(data: bytearray, at: int) -> int:
    (value,) = struct.unpack_from(">I", data, at)
    return int(value)


def _set(data: bytearray, at: int, value: int) -> None:
    struct.pack_into(">I", data, at, value)
