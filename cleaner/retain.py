"""The retention rule of log compaction: which records a cleaning pass recopies, and as what.

This is the specification of `cleaner/kernel.pyx` and, in the tests, its oracle: plain, slow, pure.

A record is kept while no later record has its key. A tombstone (a key without a value) is kept, in
addition, until its batch's delete horizon, so that a consumer reading from the start sees the
deletion. Offsets are never reassigned.

Records of an aborted transaction go at once, whatever their keys. The marker that ended a
transaction has no key to be judged by: it stays while a batch of the transaction does, an empty one
counts, and then until a delete horizon of its own, so that nobody who has read the batches misses
their end. Transactions that are not decided yet are none of a pass's business: it ends before them.

Of a batch there remains

    VERBATIM  its own bytes: nothing dies in it and nothing is stamped, or it is not ours to judge
    REBUILT   the surviving records in a batch of the same header; if a tombstone is kept for the
              first time, or a marker whose transaction is gone, the delete horizon is stamped into it
              (KIP-534: attribute bit 6, the base timestamp *is* the horizon, the records' deltas are
              rewritten against it)
    EMPTIED   the header alone: it is the last data batch of an active producer, whose sequence
              number must survive, or a marker of one that has no other batch, for its epoch
    DROPPED   nothing

Source: Apache Kafka, Cleaner.java `shouldRetainRecord`, `checkBatchRetention`; MemoryRecords.java
`filterTo`; DefaultRecordBatch.java `writeEmptyHeader`; CleanedTransactionMetadata.java. Kafka
stamps a marker in the pass after the one that removed the last batch; here one pass does both.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from protocol.control_record import ControlType, read_control_type
from protocol.errors import InvalidRecord

INT64_MAX = 2**63 - 1


class Verdict(enum.Enum):
    """Why a record is kept or left behind; each value is a label of the cleaner's metrics."""

    KEPT_LATEST = "kept_latest"
    """No later record has its key."""
    KEPT_UNMAPPED = "kept_unmapped"
    """The map says nothing of it: it lies beyond the map's end."""
    KEPT_TAIL = "kept_tail"
    """It would die, but is the last record below the pass's upper bound: without it a client that
    reads to the end would wait for ever."""
    KEPT_UNKEYED = "kept_unkeyed"
    """It has no key, and its topic keeps such records (`compaction.unkeyed.records`)."""
    KEPT_MARKER = "kept_marker"
    """A control record: the marker of a transaction, which is still needed, or another kind."""
    DROPPED_SUPERSEDED = "dropped_superseded"
    """A later record has its key."""
    DROPPED_TOMBSTONE = "dropped_tombstone"
    """A tombstone whose batch's delete horizon has passed."""
    DROPPED_UNKEYED = "dropped_unkeyed"
    """It has no key, and a compacted log has no use for it."""
    DROPPED_ABORTED = "dropped_aborted"
    """Its transaction was aborted."""
    DROPPED_MARKER = "dropped_marker"
    """The marker of a transaction of which nothing is left, after its delete horizon."""

    @property
    def is_kept(self) -> bool:
        return self.value.startswith("kept")


class Fate(enum.Enum):
    """What a pass leaves of a batch; the module says what each means."""

    VERBATIM = "verbatim"
    REBUILT = "rebuilt"
    EMPTIED = "emptied"
    DROPPED = "dropped"


class KeyOffsets(Protocol):
    """The part of an offset map that the rule reads."""

    @property
    def end_offset(self) -> int: ...
    def get(self, key: bytes, /) -> int | None: ...


class KeyedRecord(Protocol):
    """The part of a record that the rule reads."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class RecordBatch(Protocol):
    """The part of a batch header that the rule reads."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def record_count(self) -> int: ...


R = TypeVar("R", bound=KeyedRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A producer's transactional batches in [first_offset, marker_offset): none of them counts."""

    producer_id: int
    first_offset: int
    """Base offset of its first batch in the section that was looked at."""
    marker_offset: int

    def holds(self, header: RecordBatch) -> bool:
        """Whether a batch is data of this transaction."""
        return (
            header.is_transactional
            and not header.is_control
            and header.producer_id == self.producer_id
            and self.first_offset <= header.base_offset < self.marker_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBounds:
    """What one cleaning pass is told of the log and of time.

    0           clean offset        end_offset         tail_offset    log end
    |  clean      |  dirty, mapped      |  not mapped         |  uncleanable  |
    """

    end_offset: int
    """Where the map ends. Batches that reach past it are left alone."""
    tail_offset: int
    """Last offset below the pass's upper bound; -1 for none."""
    now_ms: int
    delete_retention_ms: int
    producer_last_offsets: Collection[int] = ()
    """The last offset of the last data batch of each active producer."""
    keeps_unkeyed: bool = False
    """Whether records without a key stay; they came before the topic was compacted."""
    producer_marker_epochs: Mapping[int, int] = field(default_factory=dict)
    """Producer id to epoch, of each active producer that has no data batch."""
    aborted: Collection[AbortedTransaction] = ()
    """What the dirty section holds of them; a clean section holds none."""
    stamps_markers: bool = False
    """Whether the pass sees all of the log below a marker, so that it knows what is left of its
    transaction."""

    @property
    def new_delete_horizon_ms(self) -> int:
        """The horizon of tombstones that this pass keeps for the first time."""
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains(Generic[R]):
    """What is left of one batch, and why."""

    fate: Fate
    verdicts: tuple[Verdict, ...]
    """One for each record of the batch."""
    survivors: tuple[R, ...] = ()
    """The records of a rebuilt batch, in order."""
    stamped_horizon_ms: int | None = None
    """The delete horizon that a rebuilt batch gets; None leaves its base timestamp alone."""


def judge(
    *,
    key: bytes | None,
    has_value: bool,
    offset: int,
    offset_map: KeyOffsets,
    delete_horizon_ms: int | None,
    now_ms: int,
    keeps_unkeyed: bool = False,
) -> Verdict:
    """Decide one record's fate. Pure: same arguments, same verdict.

    Args:
        offset: absolute offset of the record in its partition.
        delete_horizon_ms: epoch ms from which on the batch's tombstones go; None before the
            batch's first cleaning has set one.
    """
    if offset >= offset_map.end_offset:
        # The map filled up before it reached this record: nothing is known of its key.
        return Verdict.KEPT_UNMAPPED
    if key is None:
        return Verdict.KEPT_UNKEYED if keeps_unkeyed else Verdict.DROPPED_UNKEYED
    latest = offset_map.get(key)
    if latest is not None and offset < latest:
        return Verdict.DROPPED_SUPERSEDED
    if not has_value and delete_horizon_ms is not None and now_ms >= delete_horizon_ms:
        return Verdict.DROPPED_TOMBSTONE
    return Verdict.KEPT_LATEST


def retain_log(
    batches: Iterable[tuple[RecordBatch, Sequence[R]]],
    *,
    offset_map: KeyOffsets,
    bounds: PassBounds,
) -> Iterator[Remains[R]]:
    """Decide what is left of each batch of a log, in order."""
    remaining: set[int] = set()
    for header, records in batches:
        remains = retain_batch(
            header, records, offset_map=offset_map, bounds=bounds, remaining=remaining
        )
        if header.is_control and header.last_offset < bounds.end_offset and is_marker(records):
            remaining.discard(header.producer_id)
        is_data = header.is_transactional and not header.is_control
        if is_data and remains.fate is not Fate.DROPPED:
            remaining.add(header.producer_id)
        yield remains


def retain_batch(
    header: RecordBatch,
    records: Sequence[R],
    *,
    offset_map: KeyOffsets,
    bounds: PassBounds,
    remaining: AbstractSet[int] = frozenset(),
) -> Remains[R]:
    """Decide what is left of one batch. Pure.

    Args:
        records: the batch's records; not looked at if the map does not cover the batch.
        remaining: the producers of whose transaction, since their last marker, something is left.
    """
    if header.last_offset >= bounds.end_offset:
        unmapped = (Verdict.KEPT_UNMAPPED,) * header.record_count
        return Remains(fate=Fate.VERBATIM, verdicts=unmapped)
    if not records:
        return Remains(fate=_fate_of_empty(header, bounds), verdicts=())
    verdicts = _judge_records(header, records, offset_map, bounds, remaining)
    survivors = tuple(
        record for record, verdict in zip(records, verdicts, strict=True) if verdict.is_kept
    )
    if not survivors:
        fate = Fate.EMPTIED if _must_stay(header, bounds) else Fate.DROPPED
        return Remains(fate=fate, verdicts=verdicts)
    stamps = header.delete_horizon_ms is None and _starts_horizon(
        header, survivors, bounds, remaining
    )
    if len(survivors) == len(records) and not stamps:
        return Remains(fate=Fate.VERBATIM, verdicts=verdicts)
    return Remains(
        fate=Fate.REBUILT,
        verdicts=verdicts,
        survivors=survivors,
        stamped_horizon_ms=bounds.new_delete_horizon_ms if stamps else None,
    )


def is_marker(records: Sequence[KeyedRecord]) -> bool:
    """Whether a control batch, which holds one record, ends a transaction."""
    try:
        kind = read_control_type(records[0].key) if records else ControlType.UNKNOWN
    except InvalidRecord:
        return False
    return kind in (ControlType.ABORT, ControlType.COMMIT)


def is_tombstone(record: KeyedRecord) -> bool:
    """Whether the record deletes its key. Without a key there is nothing to delete."""
    return record.key is not None and record.value is None


def _judge_records(
    header: RecordBatch,
    records: Sequence[KeyedRecord],
    offset_map: KeyOffsets,
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> tuple[Verdict, ...]:
    if any(aborted.holds(header) for aborted in bounds.aborted):
        return (Verdict.DROPPED_ABORTED,) * len(records)
    if header.is_control:
        verdicts = [_judge_control(header, records, bounds, remaining)] * len(records)
    else:
        verdicts = [_judge_record(header, record, offset_map, bounds) for record in records]
    if header.last_offset == bounds.tail_offset and not verdicts[-1].is_kept:
        verdicts[-1] = Verdict.KEPT_TAIL
    return tuple(verdicts)


def _judge_record(
    header: RecordBatch, record: KeyedRecord, offset_map: KeyOffsets, bounds: PassBounds
) -> Verdict:
    return judge(
        key=record.key,
        has_value=record.value is not None,
        offset=record.offset,
        offset_map=offset_map,
        delete_horizon_ms=header.delete_horizon_ms,
        now_ms=bounds.now_ms,
        keeps_unkeyed=bounds.keeps_unkeyed,
    )


def _judge_control(
    header: RecordBatch,
    records: Sequence[KeyedRecord],
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> Verdict:
    is_due = header.delete_horizon_ms is not None and bounds.now_ms >= header.delete_horizon_ms
    if is_due and is_marker(records) and header.producer_id not in remaining:
        return Verdict.DROPPED_MARKER
    return Verdict.KEPT_MARKER


def _starts_horizon(
    header: RecordBatch,
    survivors: Sequence[KeyedRecord],
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> bool:
    """Whether something is kept that only time can remove."""
    if header.is_control:
        is_idle = is_marker(survivors) and header.producer_id not in remaining
        return bounds.stamps_markers and is_idle
    return any(map(is_tombstone, survivors))


def _must_stay(header: RecordBatch, bounds: PassBounds) -> bool:
    """Whether the batch is the last that an active producer has: its sequence or its epoch."""
    if header.producer_id < 0:
        return False
    if header.is_control:
        return bounds.producer_marker_epochs.get(header.producer_id) == header.producer_epoch
    return header.last_offset in bounds.producer_last_offsets


def _fate_of_empty(header: RecordBatch, bounds: PassBounds) -> Fate:
    """A batch that an earlier pass emptied stays while its producer or the log's end needs it."""
    if _must_stay(header, bounds) or header.last_offset == bounds.tail_offset:
        return Fate.VERBATIM
    return Fate.DROPPED
