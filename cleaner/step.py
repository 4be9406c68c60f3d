"""What one call of the kernel says it did: the plain values that `cleaner/kernel.pyx` returns."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from cleaner.retain import Verdict


class MapStop(enum.Enum):
    """Why `map_batches` took no more of its chunk."""

    NEED_MORE = "need_more"
    """The chunk ended; go on with the bytes that follow `consumed_bytes`."""
    END = "end"
    """The next batch reaches to or past `end_offset`: the range is mapped."""
    FULL = "full"
    """The map may not hold all keys of the next batch: the pass ends before that batch."""
    TRANSACTION = "transaction"
    """The next batch belongs to a transaction, of which nothing is known yet: walk from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStep:
    """What `map_batches` read of one chunk."""

    stop: MapStop
    consumed_bytes: int
    """Bytes of the chunk that hold whole, handled batches. The next chunk begins there."""
    needed_bytes: int
    """0, or how many bytes from `consumed_bytes` on the next batch needs to be whole. It is the
    batch's own claim: more than the segment still has is corruption."""
    batches: int
    records: int
    """Records of the batches that were looked into; markers and aborted batches are not."""
    tombstones: int
    unkeyed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkStep:
    """How far `Transactions.walk` came in one chunk."""

    consumed_bytes: int
    """Bytes of the chunk that hold whole, handled batches. The next chunk begins there."""
    needed_bytes: int
    """0, or how many bytes from `consumed_bytes` on the next batch needs to be whole."""
    is_over: bool
    """Whether the next batch reaches past the section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """What `BatchFilter.feed` made of one chunk.

    `consumed_bytes == len(chunk)` unless the chunk ends inside a batch (`needed_bytes > 0`) or the
    output segment is full (`segment_full`).
    """

    consumed_bytes: int
    """Bytes of the chunk that hold whole, handled batches. The next chunk begins there."""
    needed_bytes: int
    """0, or how many bytes from `consumed_bytes` on the next batch needs to be whole. It is the
    batch's own claim: more than the segment still has is corruption."""
    segment_full: bool
    """The next batch does not fit in the output segment: write `output`, begin a segment at
    `next_base_offset` with `start_segment`, and feed again from `consumed_bytes`."""
    next_base_offset: int
    """Base offset of the batch that did not fit; -1 unless `segment_full`."""
    output: memoryview
    """The batches to append to the output segment. Memory of the filter, which it does not touch
    again while this view is held."""
    index_entries: memoryview
    """Native int64s (format `q`), four an entry: last offset, position in the output segment,
    largest timestamp so far, last offset of the batch that has it."""
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
    """-1 if batches beyond the map were copied without a look inside."""
    delete_horizon_ms_min: int
    """Least delete horizon of its batches that hold a tombstone or a marker, or were not looked into;
    -1 if none has one."""
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
        return f"{self.count} entries with offset sum {self.offset_sum}"


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
    """Tombstones in the batches that were looked into and copied."""
    copied_horizon_ms_min: int
    """The least delete horizon that something in a copied batch waits for; -1 if there is none."""
    records_read: int
    records_by_verdict: Mapping[Verdict, int]
    met: MapTally
    """The map's entries that were met as records: survivors, or tombstones whose time had come."""
    unknown: int
    """Records whose key the map should know at their offset or a later one, and does not."""


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
