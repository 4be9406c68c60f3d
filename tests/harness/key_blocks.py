"""Key sidecars in plain Python, made from a segment's batches: the oracle of the format.

It shares no code with `storage/formats/key_sidecar.py` or the kernel, so that each is compared with
docs/reference/on-disk.md's drawing, and not with the other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash
from nacl.bindings import crypto_shorthash_siphashx24

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.compression import decompress
from protocol.records.record import Record, read_record
from storage.files.errors import DamagedSidecar
from storage.formats.key_totals import KeyTotals
from storage.log.cleaning_view import CleanableSegment
from storage.segment.key_sidecar_writer import KeySidecarWriter
from tests.harness.log_builder import PLENTY

TIMESTAMP = "timestamp"
"""In place of the name of a header: records are ranked by their timestamps."""


def hash_of(hash_key: bytes, key: bytes) -> bytes:
    """Returns the hash of a key, SipHash-2-4-128."""
    found: bytes = crypto_shorthash_siphashx24(key, hash_key)
    return found


Sized = tuple[Record, int]
"""A record and its size, including its length field."""


@dataclass(frozen=True, kw_only=True)
class BatchKeys:
    """The facts about one batch that a sidecar stores."""

    header: BatchHeader
    kind: int
    """0: it has no special row."""
    keyed: tuple[Sized, ...]
    unkeyed: int
    has_marker: bool

    @property
    def tombstones(self) -> int:
        return sum(record.value is None for record, _ in self.keyed)

    def special_row(self, base_offset: int) -> bytes:
        """Returns its special row; empty if it has none."""
        header = self.header
        flags = header.is_transactional | header.is_control << 1
        flags |= (header.delete_horizon_ms is not None) << 2
        first, last = header.base_offset - base_offset, header.last_offset - base_offset
        producer = header.producer_id, header.producer_epoch
        return struct.pack(">IIqhBBI", first, last, *producer, self.kind, flags, 0)

    def versions(self, ranked_by: str) -> Iterator[bytes]:
        """Yields the versions of its entries: their timestamps, or the last header with that name."""
        for record, _ in self.keyed:
            if ranked_by == TIMESTAMP:
                is_append_time = self.header.attributes & 8
                version = self.header.max_timestamp if is_append_time else record.timestamp
                yield struct.pack(">q", (version + 2**63) % 2**64 - 2**63)
            else:
                values = [value for name, value in record.headers if name == ranked_by] or [None]
                value = values[-1]
                yield value if value is not None and len(value) == 8 else b"\x80" + bytes(7)

    def entries(self, base_offset: int, hash_key: bytes) -> Iterator[bytes]:
        for record, size in self.keyed:
            offset = record.offset - base_offset | (record.value is None) << 31
            assert record.key is not None
            yield hash_of(hash_key, record.key) + struct.pack(">II", offset, size)


def keys_of(data: bytes) -> list[BatchKeys]:
    """Returns the sidecar's facts about the batches of a segment."""
    batches = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        batches.append(_batch_keys(data[position : position + header.size_bytes], header))
        position += header.size_bytes
    return batches


def _batch_keys(batch: bytes, header: BatchHeader) -> BatchKeys:
    records = list(_records(batch, header))
    data = () if header.is_control else tuple(records)
    return BatchKeys(
        header=header,
        kind=_kind(header, records),
        keyed=tuple((record, size) for record, size in data if record.key is not None),
        unkeyed=sum(record.key is None for record, _ in data),
        has_marker=_kind(header, records) in (2, 3),
    )


def _records(batch: bytes, header: BatchHeader) -> Iterator[Sized]:
    if header.record_count == 0:
        return
    plain = memoryview(decompress(header.codec, batch[61:], bytes_max=PLENTY))
    bases = {"base_offset": header.base_offset, "base_timestamp": header.base_timestamp}
    position = 0
    for _ in range(header.record_count):
        record, end = read_record(plain, position, **bases)
        yield record, end - position
        position = end


def _kind(header: BatchHeader, records: Sequence[Sized]) -> int:
    if not records:
        return 5
    if not header.is_control:
        return 1 if header.is_transactional else 0
    key = records[0][0].key
    control_type = struct.unpack_from(">h", key, 2)[0] if key and len(key) >= 4 else -1
    return {1: 2, 0: 3}.get(control_type, 4)


def block_of(
    batches: Sequence[BatchKeys], *, base_offset: int, hash_key: bytes, ranked_by: str = ""
) -> bytes:
    """Returns the block for these batches; `ranked_by` is empty if records have no versions."""
    rows = [batch.special_row(base_offset) for batch in batches if batch.kind]
    entries = [entry for batch in batches for entry in batch.entries(base_offset, hash_key)]
    versions = [each for batch in batches if ranked_by for each in batch.versions(ranked_by)]
    head = struct.pack(
        ">IIII",
        sum(batch.header.size_bytes for batch in batches),
        len(rows),
        len(entries),
        sum(batch.unkeyed for batch in batches),
    )
    return _with_checksum(b"".join((head, *rows, *entries, *versions)))


def blocks_of(
    data: bytes, *, base_offset: int, hash_key: bytes, batches_a_block: int = 2
) -> list[bytes]:
    """Returns the blocks of a segment that contains `data`."""
    batches = keys_of(data)
    starts = range(0, len(batches), batches_a_block)
    groups = (batches[start : start + batches_a_block] for start in starts)
    return [block_of(group, base_offset=base_offset, hash_key=hash_key) for group in groups]


def totals_of(data: bytes, *, batches_a_block: int = 2) -> KeyTotals:
    """Returns the totals of a segment that contains `data`."""
    batches = keys_of(data)
    horizons = [
        batch.header.delete_horizon_ms
        for batch in batches
        if batch.header.delete_horizon_ms is not None and (batch.tombstones or batch.has_marker)
    ]
    return KeyTotals(
        blocks=-(-len(batches) // batches_a_block),
        entries=sum(len(batch.keyed) for batch in batches),
        tombstones=sum(
            batch.tombstones for batch in batches if batch.header.delete_horizon_ms is None
        ),
        unkeyed=sum(batch.unkeyed for batch in batches),
        special_rows=sum(batch.kind != 0 for batch in batches),
        batches=len(batches),
        least_delete_horizon_ms=min(horizons, default=-1),
    )


def sidecar_of(
    data: bytes, *, base_offset: int, version: int, hash_key: bytes, batches_a_block: int = 2
) -> bytes:
    """Returns the whole sidecar of a segment that contains `data`."""
    blocks = blocks_of(
        data, base_offset=base_offset, hash_key=hash_key, batches_a_block=batches_a_block
    )
    totals = dataclasses.astuple(totals_of(data, batches_a_block=batches_a_block))
    header = b"KKEY" + struct.pack(">HHHHHHqq", 1, 48, 24, 24, 88, 0, base_offset, version)
    header += hashlib.sha256(hash_key).digest()[:8]
    trailer = bytes(16) + struct.pack(">8q", len(data), *totals)
    return b"".join((_with_checksum(header), *blocks, _with_checksum(trailer)))


def index(segment: CleanableSegment, hash_key: bytes) -> None:
    """Make a segment's sidecar, like the first pass that needs it."""
    writer = segment.new_key_sidecar(hash_key)
    fill(writer, segment.read_at(0, segment.row.size), segment.row.base_offset, hash_key)


def fill(writer: KeySidecarWriter, data: bytes, base_offset: int, hash_key: bytes) -> None:
    """Write the complete sidecar of a segment that contains `data`."""
    for block in blocks_of(data, base_offset=base_offset, hash_key=hash_key):
        writer.append(block)
    writer.finish(len(data), totals_of(data))


def check_sidecar(segment: CleanableSegment, hash_key: bytes) -> bool:
    """Returns whether a segment has a readable sidecar; asserts that it matches the segment."""
    sidecar = segment.key_sidecar(hash_key)
    try:
        blocks = [bytes(block.data) for block in sidecar.blocks()] if sidecar else None
    except DamagedSidecar:
        segment.drop_key_sidecar()
        return False
    if blocks is None or sidecar is None:
        return False
    data = segment.read_at(0, segment.row.size)
    assert blocks == blocks_of(data, base_offset=segment.row.base_offset, hash_key=hash_key)
    assert sidecar.totals == totals_of(data)
    return True


def _with_checksum(data: bytes) -> bytes:
    return data + xxhash.xxh3_128_digest(data)[8:]
