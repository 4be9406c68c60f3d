"""Makes key sidecars that are valid but inconsistent with their segments; only a comparison reveals
that."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from storage.files.files import FileSystem
from storage.formats.key_sidecar import (
    CHECKSUM_BYTES,
    ENTRY,
    FLAG_KEYS_CHECKED,
    FORMAT_WITH_VERSIONS,
    HEAD,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    SPECIAL,
    TOMBSTONE,
    TRAILER_BYTES,
    VERSIONED_HEADER_BYTES,
    Head,
    sealed,
)

Change = Callable[[bytearray], None]
"""Changes an entry or a special row."""


def another_hash(entry: bytearray) -> None:
    """Change the hash to that of a key that does not exist."""
    entry[3] ^= 1


def another_offset(entry: bytearray) -> None:
    """Change the offset to that of the previous or the next record."""
    _set(entry, 16, _get(entry, 16) ^ 1)


def no_tombstone_or_one(entry: bytearray) -> None:
    """Turn a value into a tombstone, or a tombstone into a value."""
    _set(entry, 16, _get(entry, 16) ^ TOMBSTONE)


def another_size(entry: bytearray) -> None:
    """Change the size, on which no decision depends before the record is read."""
    _set(entry, 20, _get(entry, 20) ^ 1)


def another_producer(row: bytearray) -> None:
    """Assign the batch to another producer."""
    row[15] ^= 1


def another_end(row: bytearray) -> None:
    """End the batch one offset earlier or later."""
    _set(row, 4, _get(row, 4) ^ 1)


def another_outcome(row: bytearray) -> None:
    """Turn a commit into an abort, an abort into a commit, or data into a marker."""
    row[18] = {2: 3, 3: 2}.get(row[18], 2)


def other_flags(row: bytearray) -> None:
    """Add or remove the delete horizon."""
    row[19] ^= 4


LIES_OF_ENTRIES = (another_hash, another_offset, no_tombstone_or_one, another_size)
LIES_OF_ROWS = (another_producer, another_end, another_outcome, other_flags)


def places_of_entries(content: bytes) -> list[tuple[slice, slice]]:
    """Returns the positions of a sidecar's entries, each with its block."""
    return _places(content, lambda head: (head.special_rows, head.entries, ENTRY.size))


def places_of_rows(content: bytes) -> list[tuple[slice, slice]]:
    """Returns the positions of its special rows."""
    return _places(content, lambda head: (0, head.special_rows, SPECIAL.size))


def _places(
    content: bytes, of: Callable[[Head], tuple[int, int, int]]
) -> list[tuple[slice, slice]]:
    found = []
    if len(content) < HEADER_BYTES:
        return []
    (format_,) = struct.unpack_from(">H", content, len(MAGIC))
    has_column = format_ == FORMAT_WITH_VERSIONS
    at = VERSIONED_HEADER_BYTES if has_column else HEADER_BYTES
    while at < len(content) - TRAILER_BYTES:
        head = Head(*HEAD.unpack_from(content, at))
        passed, count, size = of(head)
        start = at + HEAD.size + passed * SPECIAL.size
        block = slice(at, at + head.block_bytes(has_column=has_column))
        if not head.data_bytes or block.stop > len(content) - TRAILER_BYTES:
            break  # A crash has torn it.
        found += [
            (block, slice(start + number * size, start + (number + 1) * size))
            for number in range(count)
        ]
        at = block.stop
    return found


def tell(content: bytes, block: slice, place: slice, change: Change) -> bytes:
    """Returns the sidecar with a change at a place in a block, under a correct checksum.

    It does not say that its keys were checked: a pass that writes this reads the sidecar again first.
    """
    lying = bytearray(unchecked(content))
    said = lying[place]
    change(said)
    lying[place] = said
    lying[block] = sealed(bytes(lying[block.start : block.stop - CHECKSUM_BYTES]))
    return bytes(lying)


def unchecked(content: bytes) -> bytes:
    """Returns the sidecar without the flag that its keys were checked."""
    fields = list(HEADER.unpack_from(content))
    fields[-4] &= ~FLAG_KEYS_CHECKED
    has_column = fields[1] == FORMAT_WITH_VERSIONS
    size = VERSIONED_HEADER_BYTES if has_column else HEADER_BYTES
    rest = content[HEADER.size : size - CHECKSUM_BYTES]
    return sealed(HEADER.pack(*fields) + rest) + content[size:]


def tell_somewhere(fs: FileSystem, path: str, random: Random, change: Change) -> None:
    """Change one entry of a sidecar, if it has any."""
    content = fs.read_bytes(path)
    places = places_of_entries(content)
    if places:
        fs.write_bytes(path, tell(content, *random.choice(places), change))


def _get(data: bytearray, at: int) -> int:
    (value,) = struct.unpack_from(">I", data, at)
    return int(value)


def _set(data: bytearray, at: int, value: int) -> None:
    struct.pack_into(">I", data, at, value)
