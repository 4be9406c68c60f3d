"""Logs for the kernel's tests: batches as plain values, their bytes, what a pass leaves of them.

The encoder is the tests' own, plain and slow, so that the kernel is not compared with itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash
from typing_extensions import Buffer

from cleaner.kernel import (
    BatchFilter,
    KeyIndexer,
    OffsetMap,
    Transactions,
    map_keys,
    mark_keys,
    siphash128,
)
from cleaner.retain import (
    AbortedTransaction,
    Fate,
    PassBounds,
    Remains,
    is_marker,
    is_tombstone,
    retain_log,
)
from cleaner.step import FilterStep, SegmentSummary
from protocol.batch_scan import crc32c
from protocol.compression import Codec, compress
from protocol.control_record import (
    ControlType,
    TransactionMarker,
    read_control_type,
    write_transaction_marker,
)
from storage.key_totals import KeyTotals

HASH_KEY = bytes(range(16))
INFLATED_BYTES_MAX = 1 << 20
HEADER = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # batch length
    "i"  # leader epoch
    "b"  # magic
    "I"  # CRC
)
CHECKED = struct.Struct(
    ">"
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)
assert HEADER.size + CHECKED.size == 61


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    offset: int
    timestamp: int = 1_000
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    base_offset: int
    last_offset: int
    records: tuple[LogRecord, ...] = ()
    codec: Codec = Codec.NONE
    is_log_append_time: bool = False
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None
    base_timestamp: int = 1_000
    max_timestamp: int = 1_000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = 3
    encoded: bytes = field(default=b"", repr=False)

    @property
    def record_count(self) -> int:
        return len(self.records)

    @property
    def attributes(self) -> int:
        return (
            self.codec
            | self.is_log_append_time << 3
            | self.is_transactional << 4
            | self.is_control << 5
            | (self.delete_horizon_ms is not None) << 6
        )


def log_batch(base_offset: int, *records: tuple[bytes | None, bytes | None]) -> LogBatch:
    """A batch of (key, value) pairs at dense offsets, one millisecond apart."""
    made = tuple(
        LogRecord(offset=base_offset + i, timestamp=1_000 + i, key=key, value=value)
        for i, (key, value) in enumerate(records)
    )
    last_offset = base_offset + len(made) - 1
    return LogBatch(
        base_offset=base_offset,
        last_offset=last_offset,
        records=made,
        max_timestamp=999 + len(made),
    )


def marker_batch(
    offset: int, producer_id: int, kind: ControlType, *, producer_epoch: int = 0
) -> LogBatch:
    """The control batch that ends a producer's transaction."""
    key, value = write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=4))
    return LogBatch(
        base_offset=offset,
        last_offset=offset,
        records=(LogRecord(offset=offset, key=key, value=value),),
        is_transactional=True,
        is_control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode(batch: LogBatch) -> bytes:
    """The batch's bytes. A delete horizon stands in the place of the base timestamp."""
    horizon = batch.delete_horizon_ms
    base_timestamp = batch.base_timestamp if horizon is None else horizon
    plain = b"".join(encode_record(record, batch, base_timestamp) for record in batch.records)
    records = bytes(compress(batch.codec, plain)) if plain else b""
    return seal(batch, base_timestamp, records)


def seal(batch: LogBatch, base_timestamp: int, records: bytes) -> bytes:
    checked = CHECKED.pack(
        batch.attributes,
        batch.last_offset - batch.base_offset,
        base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    crc = crc32c(checked + records)
    size = HEADER.size + CHECKED.size + len(records)
    head = HEADER.pack(batch.base_offset, size - 12, batch.leader_epoch, 2, crc)
    return head + checked + records


def encode_record(record: LogRecord, batch: LogBatch, base_timestamp: int) -> bytes:
    body = b"\x00" + varint(wrap(record.timestamp - base_timestamp))
    body += varint(record.offset - batch.base_offset) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += sized(key) + sized(value)
    return varint(len(body)) + body


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def wrap(value: int) -> int:
    """As a Java long: timestamps are a peer's choice, and their differences may not fit."""
    return (value + 2**63) % 2**64 - 2**63


class PlainOffsetMap:
    """What the offset map should know, as a dict."""

    def __init__(self, offsets: dict[bytes, int], end_offset: int) -> None:
        self.offsets = offsets
        self.end_offset = end_offset

    def get(self, key: bytes) -> int | None:
        return self.offsets.get(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTransactions:
    """What the walk should know of a section's transactions."""

    aborted: tuple[AbortedTransaction, ...]
    end_offset: int


def plain_transactions(
    batches: Sequence[LogBatch], *, start_offset: int, end_offset: int
) -> PlainTransactions:
    undecided: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    section = [b for b in batches if start_offset <= b.last_offset and b.last_offset < end_offset]
    for batch in section:
        if batch.is_control and is_marker(batch.records):
            first_offset = undecided.pop(batch.producer_id, None)
            if first_offset is not None and is_abort(batch):
                transaction = AbortedTransaction(
                    producer_id=batch.producer_id,
                    first_offset=first_offset,
                    marker_offset=batch.base_offset,
                )
                aborted.append(transaction)
        elif batch.is_transactional and not batch.is_control:
            undecided.setdefault(batch.producer_id, batch.base_offset)
    end = min(undecided.values(), default=end_offset)
    before = [batch for batch in section if batch.last_offset == end - 1]
    if undecided and before and any(each.holds(before[-1]) for each in aborted):
        end = before[-1].base_offset
    return PlainTransactions(aborted=tuple(aborted), end_offset=max(end, start_offset))


def is_abort(batch: LogBatch) -> bool:
    return read_control_type(batch.records[0].key) is ControlType.ABORT


def plain_map(
    batches: Iterable[LogBatch],
    *,
    start_offset: int,
    end_offset: int,
    aborted: Collection[AbortedTransaction] = (),
) -> PlainOffsetMap:
    offsets = {
        record.key: record.offset
        for batch in batches
        if batch.last_offset < end_offset
        and not batch.is_control
        and not any(transaction.holds(batch) for transaction in aborted)
        for record in batch.records
        if record.key is not None and record.offset >= start_offset
    }
    return PlainOffsetMap(offsets, end_offset)


def remaining_bytes(batch: LogBatch, remains: Remains[LogRecord]) -> bytes:
    """What a pass writes for a batch of which `remains` is left."""
    match remains.fate:
        case Fate.VERBATIM:
            return encode(batch)
        case Fate.DROPPED:
            return b""
        case Fate.EMPTIED:
            return encode(emptied(batch))
        case Fate.REBUILT:
            return encode(rebuilt(batch, remains))


def emptied(batch: LogBatch) -> LogBatch:
    """Source: Apache Kafka, DefaultRecordBatch.java `writeEmptyHeader`."""
    return replace(batch, records=(), codec=Codec.NONE, delete_horizon_ms=None, base_timestamp=-1)


def rebuilt(batch: LogBatch, remains: Remains[LogRecord]) -> LogBatch:
    horizon = remains.stamped_horizon_ms
    latest = max(record.timestamp for record in remains.survivors)
    return replace(
        batch,
        records=remains.survivors,
        delete_horizon_ms=batch.delete_horizon_ms if horizon is None else horizon,
        max_timestamp=batch.max_timestamp if batch.is_log_append_time else latest,
    )


def expected_outputs(
    batches: Sequence[LogBatch], offset_map: PlainOffsetMap, bounds: PassBounds
) -> Iterator[tuple[LogBatch, Remains[LogRecord], bytes]]:
    judged = retain_log(
        ((batch, batch.records) for batch in batches), offset_map=offset_map, bounds=bounds
    )
    for batch, remains in zip(batches, judged, strict=True):
        yield batch, remains, remaining_bytes(batch, remains)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedLog:
    """A log in one segment, and the blocks of its key sidecar."""

    data: bytes
    base_offset: int
    blocks: tuple[bytes, ...]
    totals: KeyTotals


def index_log(data: bytes, *, base_offset: int = 0, chunk_bytes: int = 1 << 20) -> IndexedLog:
    """Index a log in chunks, each grown to the batch that does not fit."""
    indexer = KeyIndexer(
        HASH_KEY, base_offset=base_offset, decompressed_bytes_max=INFLATED_BYTES_MAX
    )
    position, size, blocks = 0, chunk_bytes, list[bytes]()
    while position < len(data):
        step = indexer.feed(data[position : position + size], position=position)
        blocks += [] if step.block is None else [step.block]
        position += step.consumed_bytes
        size = max(chunk_bytes, step.needed_bytes)
        assert position + step.needed_bytes <= len(data), "the log ends inside a batch"
    return IndexedLog(
        data=data, base_offset=base_offset, blocks=tuple(blocks), totals=indexer.totals
    )


ROW = struct.Struct(
    ">"
    "I"  # first offset - base
    "I"  # last offset - base
    "q"  # producer id
    "h"  # producer epoch
    "B"  # kind
    "B"  # flags
    "I"  # reserved
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockParts:
    """What a segment's blocks hold together."""

    data_bytes: int
    unkeyed: int
    rows: bytes
    entries: bytes


def parts_of(indexed: IndexedLog) -> BlockParts:
    """Take the blocks of a sidecar apart, after a look at each one's checksum and counts."""
    sizes, unkeyed, rows, entries = 0, 0, b"", b""
    for block in indexed.blocks:
        assert block[-8:] == xxhash.xxh3_128_digest(block[:-8])[8:]
        size, row_count, entries_here, unkeyed_here = struct.unpack_from(">IIII", block)
        assert len(block) == 16 + 24 * (row_count + entries_here) + 8
        assert size > 0
        middle = 16 + 24 * row_count
        sizes, unkeyed = sizes + size, unkeyed + unkeyed_here
        rows, entries = rows + block[16:middle], entries + block[middle:-8]
    return BlockParts(data_bytes=sizes, unkeyed=unkeyed, rows=rows, entries=entries)


def assert_blocks_hold(indexed: IndexedLog, batches: Sequence[LogBatch]) -> None:
    """Compare the blocks with what they must say of the batches."""
    parts, data = parts_of(indexed), [batch for batch in batches if not batch.is_control]
    records = [record for batch in data for record in batch.records]
    assert parts.data_bytes == len(indexed.data)
    assert parts.rows == b"".join(plain_row(batch, indexed.base_offset) for batch in batches)
    assert parts.entries == b"".join(
        plain_entry(record, batch, indexed.base_offset)
        for batch in data
        for record in batch.records
        if record.key is not None
    )
    assert parts.unkeyed == sum(record.key is None for record in records)
    assert indexed.totals == KeyTotals(
        blocks=len(indexed.blocks),
        entries=len(parts.entries) // 24,
        tombstones=sum(
            is_tombstone(record)
            for batch in data
            for record in batch.records
            if batch.delete_horizon_ms is None
        ),
        unkeyed=parts.unkeyed,
        special_rows=len(parts.rows) // ROW.size,
        batches=len(batches),
        least_delete_horizon_ms=least_horizon(batches),
    )


def least_horizon(batches: Sequence[LogBatch]) -> int:
    waiting = [
        batch.delete_horizon_ms
        for batch in batches
        if batch.delete_horizon_ms is not None
        and (
            is_marker(batch.records)
            if batch.is_control
            else any(is_tombstone(record) for record in batch.records)
        )
    ]
    return min(waiting, default=-1)


def plain_row(batch: LogBatch, base_offset: int) -> bytes:
    kind = 5 if not batch.records else 1
    if batch.records and batch.is_control:
        kind = (3 if is_abort(batch) else 2) if is_marker(batch.records) else 4
    elif batch.records and not batch.is_transactional:
        return b""
    return ROW.pack(
        batch.base_offset - base_offset,
        batch.last_offset - base_offset,
        batch.producer_id,
        batch.producer_epoch,
        kind,
        batch.is_transactional | batch.is_control << 1 | (batch.delete_horizon_ms is not None) << 2,
        0,
    )


def plain_entry(record: LogRecord, batch: LogBatch, base_offset: int) -> bytes:
    horizon = batch.delete_horizon_ms
    base_timestamp = batch.base_timestamp if horizon is None else horizon
    assert record.key is not None
    return siphash128(HASH_KEY, record.key) + struct.pack(
        ">II",
        (record.value is None) << 31 | record.offset - base_offset,
        len(encode_record(record, batch, base_timestamp)),
    )


def walk_log(indexed: IndexedLog, *, start_offset: int, end_offset: int) -> Transactions:
    """Learn what became of a log's transactions."""
    transactions = Transactions(start_offset=start_offset, end_offset=end_offset)
    for block in indexed.blocks:
        if not transactions.walk(block, base_offset=indexed.base_offset):
            break
    return transactions


def map_log(
    indexed: IndexedLog,
    offset_map: OffsetMap,
    *,
    start_offset: int,
    end_offset: int,
    transactions: Transactions | None = None,
) -> None:
    """Map a log, or its part that the map takes; it must fit."""
    for block in indexed.blocks:
        step = map_keys(
            block,
            offset_map,
            base_offset=indexed.base_offset,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
        )
        assert not step.is_full


@dataclass(slots=True)
class Marked:
    """The marks of a log, and what was counted while they were set."""

    marks: bytearray
    superseded: int = 0
    met: int = 0
    met_offset_sum: int = 0
    unknown: int = 0

    def set_of(self, indexed: IndexedLog, offset_map: OffsetMap, **section: Any) -> None:
        """Mark what the map, of one part of the keys, says."""
        first_entry = 0
        for block in indexed.blocks:
            step = mark_keys(
                block,
                offset_map,
                self.marks,
                base_offset=indexed.base_offset,
                first_entry=first_entry,
                **section,
            )
            first_entry += entry_count(block)
            self.superseded += step.superseded
            self.met += step.met.count
            self.met_offset_sum = (self.met_offset_sum + step.met.offset_sum) % 2**64
            self.unknown += step.unknown


def entry_count(block: bytes) -> int:
    return int.from_bytes(block[8:12])


def data_bytes(block: bytes) -> int:
    return int.from_bytes(block[:4])


def mark_log(
    indexed: IndexedLog,
    *,
    start_offset: int = 0,
    end_offset: int,
    transactions: Transactions | None = None,
    parts: int = 1,
) -> Marked:
    """Map a log part by part, and mark what is superseded in it."""
    marked = Marked(bytearray((indexed.totals.entries + 7) // 8))
    offset_map = OffsetMap(1 << 16, HASH_KEY)
    for part in range(parts):
        offset_map.clear(part=part, parts=parts)
        map_log(
            indexed,
            offset_map,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
        )
        marked.set_of(
            indexed,
            offset_map,
            start_offset=start_offset,
            end_offset=end_offset,
            transactions=transactions,
        )
    return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    summary: SegmentSummary
    data: bytes
    index_entries: tuple[tuple[int, int, int, int], ...]
    blocks: tuple[bytes, ...]
    totals: KeyTotals

    @property
    def as_indexed(self) -> IndexedLog:
        return IndexedLog(
            data=self.data,
            base_offset=self.summary.base_offset,
            blocks=self.blocks,
            totals=self.totals,
        )


def filter_log(
    indexed: IndexedLog, marks: Buffer, batch_filter: BatchFilter
) -> list[CleanedSegment]:
    """Filter a log, block by block, into as many segments as it asks for."""
    segments, steps = list[CleanedSegment](), list[FilterStep]()
    position = 0
    batch_filter.start_source(indexed.base_offset, marks)
    batch_filter.start_segment(indexed.base_offset)
    for block in indexed.blocks:
        end = position + data_bytes(block)
        while position < end:
            step = batch_filter.feed(indexed.data[position:end], block, position=position)
            steps.append(step)
            position += step.consumed_bytes
            if step.segment_full:
                segments.append(cleaned_segment(batch_filter, steps))
                batch_filter.start_segment(step.next_base_offset)
                steps = []
    segments.append(cleaned_segment(batch_filter, steps))
    return segments


def cleaned_segment(batch_filter: BatchFilter, steps: list[FilterStep]) -> CleanedSegment:
    numbers = [number for step in steps for number in step.index_entries.tolist()]
    entries = tuple(zip(numbers[0::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True))
    blocks = [*(step.key_block for step in steps), batch_filter.take_keys()]
    return CleanedSegment(
        summary=batch_filter.segment,
        data=b"".join(step.output for step in steps),
        index_entries=entries,
        blocks=tuple(block for block in blocks if block),
        totals=batch_filter.key_totals,
    )
