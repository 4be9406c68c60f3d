"""Logs for the kernel's tests: batches as plain values, their bytes, and what a pass leaves of them.

The tests have their own simple, slow encoder, so that the kernel is not compared with itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleaner.rules.history import PastRecord
from cleaner.rules.latest import Rank
from cleaner.rules.record_verdict import (
    AbortedTransaction,
    Fate,
    PassBounds,
    Remains,
    UndecidedTransaction,
    is_marker,
    retain_log,
    timestamp_in,
    version_in,
)
from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec, compress
from protocol.records.control_record import (
    ControlType,
    TransactionMarker,
    read_control_type,
    write_transaction_marker,
)
from protocol.wire.numbers import OFFSET_MAX
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy

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
    headers: tuple[tuple[str, bytes | None], ...] = ()


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
    """Returns a batch of (key, value) pairs at dense offsets, one millisecond apart."""
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
    """Returns the control batch that ends a producer's transaction."""
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
    """Returns the batch's bytes. A delete horizon is stored as the base timestamp."""
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
        body += sized(key.encode()) + sized(value)
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
    """Wraps like a Java long: clients choose timestamps, and their differences may overflow."""
    return (value + 2**63) % 2**64 - 2**63


class PlainOffsetMap:
    """The expected content of the offset map, as a dict; versions are those of its records' offsets."""

    def __init__(
        self,
        offsets: dict[bytes, int],
        end_offset: int,
        versions: Mapping[int, int] | None = None,
        records: Mapping[bytes, Sequence[PastRecord]] | None = None,
    ) -> None:
        self.records = records or {}
        """The records of each key; only needed where older values stay."""
        self.offsets = offsets
        self.end_offset = end_offset
        self.versions = versions or {}

    def rank(self, key: bytes) -> Rank | None:
        offset = self.offsets.get(key)
        return None if offset is None else Rank(self.versions.get(offset, 0), offset)

    def later(self, key: bytes, offset: int) -> Sequence[PastRecord]:
        return [each for each in self.records.get(key, ()) if each.offset > offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTransactions:
    """The expected outcomes of a section's transactions."""

    aborted: tuple[AbortedTransaction, ...]
    end_offset: int
    undecided: tuple[UndecidedTransaction, ...] = ()


def plain_transactions(
    batches: Sequence[LogBatch],
    *,
    start_offset: int,
    end_offset: int,
    fence_offset: int | None = None,
) -> PlainTransactions:
    """Args: fence_offset: where a fence begins, directly before the batch at this offset."""
    undecided: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    before_fence: dict[int, int] | None = None
    fence = OFFSET_MAX if fence_offset is None else fence_offset
    section = [b for b in batches if start_offset <= b.last_offset and b.last_offset < end_offset]
    for batch in section:
        if before_fence is None and batch.base_offset >= fence:
            before_fence, undecided = undecided, {}
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
    if before_fence is None and fence < end_offset:
        before_fence, undecided = undecided, {}
    end = min(undecided.values(), default=end_offset)
    before = [batch for batch in section if batch.last_offset == end - 1 and end != fence]
    if undecided and before and any(each.holds(before[-1]) for each in aborted):
        end = before[-1].base_offset
    left = tuple(
        UndecidedTransaction(producer_id=producer, first_offset=first, fence_offset=fence)
        for producer, first in (before_fence or {}).items()
    )
    return PlainTransactions(
        aborted=tuple(aborted), end_offset=max(end, start_offset), undecided=left
    )


def is_abort(batch: LogBatch) -> bool:
    return read_control_type(batch.records[0].key) is ControlType.ABORT


def plain_map(
    batches: Iterable[LogBatch],
    *,
    start_offset: int,
    end_offset: int,
    aborted: Collection[AbortedTransaction | UndecidedTransaction] = (),
    strategy: CompactionStrategy = BY_OFFSET,
) -> PlainOffsetMap:
    counting = [
        (batch, record)
        for batch in batches
        if batch.last_offset < end_offset
        and not batch.is_control
        and not any(transaction.holds(batch) for transaction in aborted)
        for record in batch.records
        if record.key is not None
    ]
    ranked, past = list[tuple[bytes, tuple[int, int]]](), dict[bytes, list[PastRecord]]()
    for batch, record in counting:
        assert record.key is not None
        ranked.append((record.key, (version_in(batch, record, strategy), record.offset)))
        timestamp, is_tombstone = timestamp_in(batch, record), record.value is None
        past.setdefault(record.key, []).append(PastRecord(record.offset, timestamp, is_tombstone))
    dirty = {key for key, (_, offset) in ranked if offset >= start_offset}
    last = {key: max(rank for each, rank in ranked if each == key) for key in dirty}
    offsets = {key: offset for key, (_, offset) in last.items()}
    return PlainOffsetMap(
        offsets,
        end_offset,
        {offset: version for version, offset in last.values()},
        {key: past[key] for key in dirty},
    )


def remaining_bytes(
    batch: LogBatch, remains: Remains[LogRecord], codec: Codec | None = None
) -> bytes:
    """Returns the bytes that a pass writes for a batch of which `remains` is left."""
    match remains.fate:
        case Fate.VERBATIM:
            return encode(batch)
        case Fate.DROPPED:
            return b""
        case Fate.EMPTIED:
            return encode(emptied(batch))
        case Fate.REBUILT:
            return encode(rebuilt(batch, remains, codec))


def emptied(batch: LogBatch) -> LogBatch:
    """Source: Apache Kafka, DefaultRecordBatch.java `writeEmptyHeader`."""
    return replace(batch, records=(), codec=Codec.NONE, delete_horizon_ms=None, base_timestamp=-1)


def rebuilt(batch: LogBatch, remains: Remains[LogRecord], codec: Codec | None = None) -> LogBatch:
    """Returns a rebuilt batch; `codec` as in `PassBounds`."""
    horizon = remains.stamped_horizon_ms
    latest = max(record.timestamp for record in remains.survivors)
    return replace(
        batch,
        records=remains.survivors,
        codec=batch.codec if codec is None or batch.is_control else codec,
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
        yield batch, remains, remaining_bytes(batch, remains, bounds.codec)
