"""The retention rule of log compaction: which records a cleaning pass recopies, and as what.

This is the specification of `cleaner/kernel.pyx` and, in the tests, its oracle: plain, slow, pure.

A record is kept while no later record has its key. A tombstone (a key without a value) is kept, in
addition, until its batch's delete horizon, so that a consumer reading from the start sees the
deletion. Offsets are never reassigned.

Of a batch there remains

    VERBATIM  its own bytes: nothing dies in it and nothing is stamped, or it is not ours to judge
    REBUILT   the surviving records in a batch of the same header; if a tombstone is kept for the
              first time, the delete horizon is stamped into it (KIP-534: attribute bit 6, the base
              timestamp *is* the horizon, the records' deltas are rewritten against it)
    EMPTIED   the header alone: it is the last data batch of an active producer, whose sequence
              number must survive
    DROPPED   nothing

Source: Apache Kafka, Cleaner.java `shouldRetainRecord`, `checkBatchRetention`; MemoryRecords.java
`filterTo`; DefaultRecordBatch.java `writeEmptyHeader`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

INT64_MAX = 2**63 - 1


class Verdict(enum.Enum):
    """Why a record is kept or left behind; each value is a label of the cleaner's metrics."""

    KEPT_LATEST = "kept_latest"
    """No later record has its key."""
    KEPT_UNMAPPED = "kept_unmapped"
    """The map says nothing of it: it lies beyond the map's end, or in a control or transactional
    batch."""
    KEPT_TAIL = "kept_tail"
    """It would die, but is the last record below the pass's upper bound: without it a client that
    reads to the end would wait for ever."""
    KEPT_UNKEYED = "kept_unkeyed"
    """It has no key, and its topic keeps such records (`compaction.unkeyed.records`)."""
    DROPPED_SUPERSEDED = "dropped_superseded"
    """A later record has its key."""
    DROPPED_TOMBSTONE = "dropped_tombstone"
    """A tombstone whose batch's delete horizon has passed."""
    DROPPED_UNKEYED = "dropped_unkeyed"
    """It has no key, and a compacted log has no use for it."""

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
    def record_count(self) -> int: ...


R = TypeVar("R", bound=KeyedRecord)


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


def retain_batch(
    header: RecordBatch, records: Sequence[R], *, offset_map: KeyOffsets, bounds: PassBounds
) -> Remains[R]:
    """Decide what is left of one batch. Pure.

    Args:
        records: the batch's records; not looked at if the map does not cover the batch or it is
            a control or transactional one, whose rules are not ours yet.
    """
    if header.last_offset >= bounds.end_offset or header.is_control or header.is_transactional:
        unmapped = (Verdict.KEPT_UNMAPPED,) * header.record_count
        return Remains(fate=Fate.VERBATIM, verdicts=unmapped)
    if not records:
        return Remains(fate=_fate_of_empty(header, bounds), verdicts=())
    verdicts = _judge_records(header, records, offset_map, bounds)
    survivors = tuple(
        record for record, verdict in zip(records, verdicts, strict=True) if verdict.is_kept
    )
    if not survivors:
        is_needed = _is_last_of_producer(header, bounds)
        return Remains(fate=Fate.EMPTIED if is_needed else Fate.DROPPED, verdicts=verdicts)
    # A horizon never restarts, and only a tombstone starts it.
    stamps = header.delete_horizon_ms is None and any(map(is_tombstone, survivors))
    if len(survivors) == len(records) and not stamps:
        return Remains(fate=Fate.VERBATIM, verdicts=verdicts)
    return Remains(
        fate=Fate.REBUILT,
        verdicts=verdicts,
        survivors=survivors,
        stamped_horizon_ms=bounds.new_delete_horizon_ms if stamps else None,
    )


def is_tombstone(record: KeyedRecord) -> bool:
    """Whether the record deletes its key. Without a key there is nothing to delete."""
    return record.key is not None and record.value is None


def _judge_records(
    header: RecordBatch, records: Sequence[KeyedRecord], offset_map: KeyOffsets, bounds: PassBounds
) -> tuple[Verdict, ...]:
    verdicts = [
        judge(
            key=record.key,
            has_value=record.value is not None,
            offset=record.offset,
            offset_map=offset_map,
            delete_horizon_ms=header.delete_horizon_ms,
            now_ms=bounds.now_ms,
            keeps_unkeyed=bounds.keeps_unkeyed,
        )
        for record in records
    ]
    if header.last_offset == bounds.tail_offset and not verdicts[-1].is_kept:
        verdicts[-1] = Verdict.KEPT_TAIL
    return tuple(verdicts)


def _is_last_of_producer(header: RecordBatch, bounds: PassBounds) -> bool:
    return header.producer_id >= 0 and header.last_offset in bounds.producer_last_offsets


def _fate_of_empty(header: RecordBatch, bounds: PassBounds) -> Fate:
    """A batch that an earlier pass emptied stays while its producer or the log's end needs it."""
    if _is_last_of_producer(header, bounds) or header.last_offset == bounds.tail_offset:
        return Fate.VERBATIM
    return Fate.DROPPED
