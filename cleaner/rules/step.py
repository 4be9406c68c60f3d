"""The plain values that calls of `cleaner/kernel/kernel.pyx` return."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cleaner.rules.expiry import NEVER
from cleaner.rules.latest import Rank
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.text import count_text
from protocol.wire.numbers import Offset


class KeysDiffer(Exception):
    """A block of a key sidecar does not match its segment, or its counts do not match its size.

    Its checksum is right, so it was wrong when it was written. The reader removes the sidecar; the next
    pass rebuilds it from the segment.
    """


class SpillDamaged(Exception):
    """A block of keys that were written to the disk is not what was written. Make the table again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStep:
    """The result of `KeyIndexer.feed` for one chunk."""

    consumed_bytes: int
    """Bytes of the complete batches that were handled. The next chunk begins there."""
    needed_bytes: int
    """0, or the size of the next batch, which begins at `consumed_bytes` and is cut. The batch's header
    claims it: more than the rest of the segment is corruption."""
    block: bytes | None
    """The sidecar block for the consumed bytes, with its checksum; None if no bytes were consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep:
    """The result of `LiveRecords.find` or `copy` for one chunk."""

    consumed_bytes: int
    """Bytes of the batches that were handled. The next chunk begins there."""
    needed_bytes: int
    """See `IndexStep`."""
    is_end: bool
    """Whether the selection ends before the batch at `consumed_bytes`."""
    output: bytes
    """Whole batches of the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestStep:
    """The result of `LatestFilter.feed` for one chunk."""

    consumed_bytes: int
    """Bytes of the batches that were handled. The next chunk begins there."""
    needed_bytes: int
    """See `IndexStep`."""
    output: bytes | memoryview
    """Whole batches, with the records that are the last ones of their keys. A view of the chunk if most
    of that is such batches."""
    records: int
    """The number of records in `output`."""
    last_kept_offset: int
    """The last offset of the last batch in `output`; -1 if that is empty."""
    is_end: bool
    """Whether the batch at `consumed_bytes` reaches the end offset."""
    is_full: bool
    """Whether the batch at `consumed_bytes` may not fit into the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStep:
    """The result of `map_keys` for one block."""

    entries: int
    """Entries that it read: all, unless the map became full."""
    put: int
    """Entries put into the map: in the range and in the map's part, and not aborted."""
    is_full: bool
    """The map is full and cannot hold this part. Clear it, and start again with half of the part."""


class Outranked(NamedTuple):
    """A record that lost, although its offset is higher."""

    offset: Offset
    by: Offset
    """The offset of the record that outranks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTally:
    """The number of some offset map entries, and the sum of their offsets modulo 2^64."""

    count: int
    offset_sum: int

    def __str__(self) -> str:
        return f"{count_text(self.count, 'entry', 'entries')} with offset sum {self.offset_sum}"


NOTHING_COUNTED = MapTally(count=0, offset_sum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkStep:
    """The result of `mark_keys` for one block."""

    superseded: int
    """Number of marks set."""
    met: MapTally
    """The map entries whose own record was read: the record that wins."""
    unknown: int
    """Records whose key the map should have with their rank or a higher one, and lacks."""
    deleted: int = 0
    """Marks of records before a tombstone of their key; only where records are counted."""
    outranked: int = 0
    """Marks of records after the one that outranks them."""
    first_outranked: Outranked | None = None
    """The first of these; None if there is none."""
    met_cells: MapTally = NOTHING_COUNTED
    """The cells whose last record was read (`cleaner/rules/history.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySum:
    """The number of some sidecar entries, and a sum over the hashes of their key hashes and offsets."""

    count: int = 0
    digest: int = 0
    """Modulo 2^128."""

    def plus(self, other: KeySum) -> KeySum:
        """Returns the sum of both."""
        return KeySum(count=self.count + other.count, digest=(self.digest + other.digest) % 2**128)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep:
    """The result of `BatchFilter.feed` for one chunk.

    `consumed_bytes == len(chunk)` unless the output segment is full (`segment_full`).
    """

    consumed_bytes: int
    """Bytes of the complete batches that were handled. The next chunk begins there."""
    segment_full: bool
    """The next batch does not fit in the output segment: write `output`, start a segment at
    `next_base_offset` with `start_segment`, and feed again from `consumed_bytes`."""
    next_base_offset: Offset
    """Base offset of the batch that did not fit; -1 unless `segment_full`."""
    output: memoryview
    """The batches to append to the output segment. The memory is the filter's, which does not reuse it
    while this view exists."""
    is_verbatim: bool
    """Whether `output` is identical to the consumed bytes."""
    index_entries: memoryview
    """Native int64s (format `q`), four per entry: last offset, position in the output segment, largest
    timestamp so far, last offset of the batch with that timestamp."""
    key_block: bytes
    """The block of the output segment's sidecar that ends with this step, with its checksum; empty until
    it covers about a chunk. When a segment is full, its last block comes with the same step."""
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
    """The values for the manifest row of an output segment."""

    base_offset: Offset
    size_bytes: int
    end_offset: int
    """Last offset of its last batch + 1; `base_offset` while it is empty."""
    batches: int
    records: int
    controls: int
    """How many of the records are in control batches."""
    tombstones: int
    tombstone_bytes: int
    """The encoded, uncompressed size of its tombstones."""
    delete_horizon_ms_min: int
    """Earliest delete horizon of its batches with a tombstone or a marker; -1 if none has one."""
    tombstone_horizon_ms_max: int
    """Latest delete horizon of its batches with a tombstone; INT64_MAX if one has none yet; -1 if there
    is no tombstone."""
    max_timestamp: int
    """Largest timestamp of its batches with records; -1 if there are none."""
    max_timestamp_offset: Offset
    """Last offset of the first batch with that timestamp; -1 if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCount:
    """The number of records with one verdict, and their encoded, uncompressed size."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAccount:
    """The account of what must remain of a group of segments, computed while its source was judged.

    A filter that is not `is_verified` fills in only the counts of records.
    """

    digest: int
    """128 bits over what remains; see `cleaner/kernel/digest.h`."""
    batches: int
    """Batches that remain."""
    rebuilt: bytes
    """A bit for each of these batches, lowest bit first: 1 if it was rebuilt, 0 if it was copied."""
    rebuilt_records: int
    """Records in the rebuilt batches, as judged."""
    rebuilt_offset_sum: int
    """The sum of their offsets modulo 2^64."""
    copied_tombstones: int
    """Tombstones in the copied batches."""
    copied_tombstone_bytes: int
    """Their encoded, uncompressed size."""
    copied_horizon_ms_min: int
    """The earliest delete horizon of a copied batch with a tombstone or a marker; -1 if there is
    none."""
    copied_tombstone_horizon_ms_max: int
    """The latest delete horizon of a copied batch with a tombstone; as in `SegmentSummary`."""
    records_read: int
    records_by_verdict: Mapping[Verdict, int]
    marked: int
    """Marked records: those dropped as superseded, and possibly one kept as the tail."""
    expired_offset_max: int
    """The last tombstone or marker that was dropped because its delete horizon had passed; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep:
    """The result of `OutputReader.feed` and `KeyFinder.feed` for one chunk; fields as in `IndexStep`."""

    consumed_bytes: int
    needed_bytes: int


class Expired(NamedTuple):
    """An expired value that `ExpiredKeys` has collected."""

    key: bytes
    offset: int
    version: int
    """0 where records have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """Tombstones of expired values, ready for a batch."""

    records: bytes
    """Encoded, uncompressed, with the offset deltas 0, 1, 2, ..."""
    count: int
    base_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFound:
    """The content of a group's output; the fields are those of `GroupAccount`."""

    digest: int
    batches: int
    rebuilt_records: int
    rebuilt_offset_sum: int


class Decision(enum.Enum):
    """The outcome of the transaction that a record belongs to."""

    OPEN = "open"
    """No marker of it was read."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHit:
    """A record of the key that `KeyFinder` looks for."""

    offset: int
    timestamp: int
    size_bytes: int
    """Encoded, uncompressed size of the record."""
    value_bytes: int | None
    """None: a tombstone."""
    delete_horizon_ms: int | None
    """The delete horizon of its batch."""
    producer_id: int | None
    decision: Decision | None
    """None: it belongs to no transaction."""
    version: int = 0
    """Its version; 0 where records have none."""
    expires_ms: int = NEVER
    """The wall time from which it is expired."""

    @property
    def rank(self) -> Rank:
        """By which it is compared with the others."""
        return Rank(self.version, self.offset)
