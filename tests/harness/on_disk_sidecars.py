"""Reads key sidecars, and computes the expected ones, from docs/reference/on-disk.md alone, like
`on_disk_reader.py`."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from tests.harness.on_disk_reader import Batch, DecodedRecord, Segment, check

TOTALS = (
    "segment_size",
    "blocks",
    "entries",
    "unstamped_tombstones",
    "unkeyed",
    "special_rows",
    "batches",
    "least_delete_horizon",
)
SpecialRow = tuple[int, int, int, int, int, int]
"""First and last offset, producer id and epoch, kind, flags."""
Entry = tuple[bytes, int, bool, int]
"""Hash, offset, whether it is a tombstone, size."""


@dataclass(frozen=True)
class KeyBlock:
    data_bytes: int
    unkeyed: int
    special_rows: list[SpecialRow]
    entries: list[Entry]


@dataclass(frozen=True)
class KeySidecar:
    base_offset: int
    file_version: int
    blocks: list[KeyBlock]
    totals: dict[str, int]


def read_sidecar(path: Path, hash_key: bytes) -> KeySidecar:
    data = path.read_bytes()
    header = struct.unpack_from(">4sHHHHHHqq8s", checked(data[:48]))
    check(header[:6] == (b"KKEY", 1, 48, 24, 24, 88), "magic, format and sizes")
    check(header[6] in (0, 1), "flags")
    base_offset, file_version, key_check = header[7:]
    check(key_check == hashlib.sha256(hash_key).digest()[:8], "it is under this hash key")
    zeros, *numbers = struct.unpack_from(">16s8q", checked(data[-88:]))
    check(zeros == bytes(16), "the trailer is a block of 0 bytes")
    blocks, at = [], 48
    while at < len(data) - 88:
        data_bytes, row_count, entry_count, unkeyed = struct.unpack_from(">4I", data, at)
        size = 16 + 24 * (row_count + entry_count) + 8
        body = checked(data[at : at + size])[16:]
        rows = struct.iter_unpack(">IIqhBB4x", body[: 24 * row_count])
        entries = struct.iter_unpack(">16sII", body[24 * row_count :])
        blocks.append(
            KeyBlock(
                data_bytes,
                unkeyed,
                [(base_offset + row[0], base_offset + row[1], *row[2:]) for row in rows],
                [
                    (hashed, base_offset + (offset & ~(1 << 31)), bool(offset >> 31), size)
                    for hashed, offset, size in entries
                ],
            )
        )
        at += size
    check(at == len(data) - 88, "the blocks end where the trailer begins")
    return KeySidecar(base_offset, file_version, blocks, dict(zip(TOTALS, numbers, strict=True)))


def checked(data: bytes) -> bytes:
    """Returns the data before the checksum, which must match."""
    check(xxhash.xxh3_128_digest(data[:-8])[8:] == data[-8:], "the checksum fits")
    return data[:-8]


def expected_blocks(
    segment: Segment, hash_of: Callable[[bytes], bytes], ends: list[int]
) -> list[KeyBlock]:
    """Returns the blocks that the text derives from a segment's batches, up to these positions."""
    blocks: list[KeyBlock] = []
    start = 0
    for end in ends:
        batches = [batch for batch in segment.batches if start <= batch.position < end]
        keyed = [
            (record, size)
            for batch in batches
            if not batch.attributes & 32
            for record, size in batch.sized_records()
        ]
        entries = [
            (hash_of(key), offset, value is None, size)
            for (offset, _, key, value, _), size in keyed
            if key is not None
        ]
        rows = [row for batch in batches if (row := special_row(batch)) is not None]
        blocks.append(KeyBlock(end - start, len(keyed) - len(entries), rows, entries))
        start = end
    return blocks


def special_row(batch: Batch) -> SpecialRow | None:
    is_transactional, is_control = bool(batch.attributes & 16), bool(batch.attributes & 32)
    kind = 1 if is_transactional else 0
    if is_control:
        ((_, _, key, _, _),) = batch.records() if batch.record_count else (NO_RECORD,)
        kind = {b"\0\1": 2, b"\0\0": 3}.get((key or b"")[2:4], 4)
    if not batch.record_count:
        kind = 5
    flags = is_transactional | is_control << 1 | bool(batch.attributes & 64) << 2
    producer = batch.producer_id, batch.producer_epoch
    return (batch.base_offset, batch.last_offset, *producer, kind, flags) if kind else None


NO_RECORD: DecodedRecord = (0, 0, None, None, [])


def expected_totals(segment: Segment, blocks: list[KeyBlock]) -> dict[str, int]:
    """Returns the totals that the text derives for a segment with these blocks."""
    unstamped, horizons = 0, []
    for batch in segment.batches:
        is_data = not batch.attributes & 32
        tombstones = sum(
            key is not None and value is None for _, _, key, value, _ in batch.records() if is_data
        )
        row = special_row(batch)
        if batch.delete_horizon is None:
            unstamped += tombstones
        elif tombstones or (row is not None and row[4] in (2, 3)):
            horizons.append(batch.delete_horizon)
    numbers = (
        sum(block.data_bytes for block in blocks),
        len(blocks),
        sum(len(block.entries) for block in blocks),
        unstamped,
        sum(block.unkeyed for block in blocks),
        sum(len(block.special_rows) for block in blocks),
        len(segment.batches),
        min(horizons, default=-1),
    )
    return dict(zip(TOTALS, numbers, strict=True))
