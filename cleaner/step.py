"""What one call of the kernel says it did: the plain values that `cleaner/kernel.pyx` returns."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from cleaner.retain import Verdict
from cleaner.text import count_text


class KeysDiffer(Exception):
    """A key sidecar's block does not say what its segment holds, or its counts are not its bytes.

    Its checksum held, so it was wrong when it was written. Whoever reads it removes the sidecar, which
    is made anew from the segment.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStep:
    """What `KeyIndexer.feed` made of one chunk."""

    consumed_bytes: int
    """Bytes of the chunk that hold whole, handled batches. The next chunk begins there."""
    needed_bytes: int
    """0, or how many bytes from `consumed_bytes` on the next batch needs to be whole. It is the
    batch's own claim: more than the segment still has is corruption."""
    block: bytes | None
    """The block that speaks for the consumed bytes, checksum included; None if those are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStep:
    """What `map_keys` did with one block."""

    entries: int
    """Entries that it looked at: all, unless the map became full."""
    put: int
    """Those that are of the range and of the map's part, and not aborted."""
    is_full: bool
    """The map took no more: it cannot hold this part. Clear it for half of the part, and begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkStep:
    """What `mark_keys` found in one block."""

    superseded: int
    """Marks that it set."""
    met: MapTally
    """The map's entries that were met: this record is the last of its key."""
    unknown: int
    """Records whose key the map should know at their offset or a later one, and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptKeys:
    """So many entries, and the sum of the hashes of their key hashes and offsets."""

    count: int = 0
    digest: int = 0
    """Modulo 2^128."""

    def plus(self, other: KeptKeys) -> KeptKeys:
        """Both together."""
        return KeptKeys(
            count=self.count + other.count, digest=(self.digest + other.digest) % 2**128
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """What `BatchFilter.feed` made of one chunk.

    `consumed_bytes == len(chunk)` unless the output segment is full (`segment_full`).
    """

    consumed_bytes: int
    """Bytes of the chunk that hold whole, handled batches. The next chunk begins there."""
    segment_full: bool
    """The next batch does not fit in the output segment: write `output`, begin a segment at
    `next_base_offset` with `start_segment`, and feed again from `consumed_bytes`."""
    next_base_offset: int
    """Base offset of the batch that did not fit; -1 unless `segment_full`."""
    output: memoryview
    """The batches to append to the output segment. Memory of the filter, which it does not touch
    again while this view is held."""
    is_verbatim: bool
    """Whether `output` is what was consumed, to the byte."""
    index_entries: memoryview
    """Native int64s (format `q`), four an entry: last offset, position in the output segment,
    largest timestamp so far, last offset of the batch that has it."""
    key_block: bytes
    """The block of the output segment's sidecar that ends with this step, checksum included; empty
    while it speaks for less than about a chunk. A full segment's last block comes with its step."""
    batches_read: int
    batches_kept: int
    records_read: int
    records_kept: int
    first_base_offset: int
    """Base offset of the first batch in `output`; -1 if that is empty."""
    last_offset: int
    """Last offset of the last batch in `output`; -1 if that is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """What a manifest row says of the output segment that a filter is writing."""

    base_offset: int
    size_bytes: int
    end_offset: int
    """Last offset of its last batch + 1; `base_offset` while it is empty."""
    batches: int
    records: int
    tombstones: int
    delete_horizon_ms_min: int
    """Least delete horizon of its batches that hold a tombstone or a marker; -1 if none has one."""
    max_timestamp: int
    """Largest timestamp of its batches with records; -1 if there are none."""
    max_timestamp_offset: int
    """Last offset of the first batch that has it; -1 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCount:
    """How many records met one verdict, and their encoded, uncompressed size."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTally:
    """So many entries of an offset map, and the sum of their offsets modulo 2^64."""

    count: int
    offset_sum: int

    def __str__(self) -> str:
        return f"{count_text(self.count, 'entry', 'entries')} with offset sum {self.offset_sum}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAccount:
    """What must remain of a group of segments, told from the source while it was judged.

    All but the counts of records is told only by a filter that `is_verified`.
    """

    digest: int
    """128 bits over what remains; `cleaner/digest.h` says of what."""
    batches: int
    """Batches that remain."""
    rebuilt: bytes
    """A bit for each of them, the lowest first: it was written anew, not copied."""
    rebuilt_records: int
    """Records in the batches that were written anew, as judged."""
    rebuilt_offset_sum: int
    """The sum of their offsets modulo 2^64."""
    copied_tombstones: int
    """Tombstones in the batches that were copied."""
    copied_horizon_ms_min: int
    """The least delete horizon of a copied batch with a tombstone or a marker; -1 if there is none."""
    records_read: int
    records_by_verdict: Mapping[Verdict, int]
    marked: int
    """Records with a mark: those dropped as superseded, and one that was kept for the tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep:
    """What `OutputReader` read of one chunk; the fields are `FilterStep`'s."""

    consumed_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFound:
    """What the output of a group holds; the fields mean what `GroupAccount`'s do."""

    digest: int
    batches: int
    rebuilt_records: int
    rebuilt_offset_sum: int


class Decision(enum.Enum):
    """What became of the transaction that a record belongs to."""

    OPEN = "open"
    """No marker of it was met."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHit:
    """A record of the key that `KeyFinder` looks for."""

    offset: int
    timestamp: int
    size_bytes: int
    """Of the record as it is encoded, uncompressed."""
    value_bytes: int | None
    """None: a tombstone."""
    delete_horizon_ms: int | None
    """Of its batch."""
    producer_id: int | None
    decision: Decision | None
    """None: it belongs to no transaction."""
