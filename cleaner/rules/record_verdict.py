"""The retention rule of log compaction: which records a cleaning pass keeps, and in which form.

This is the specification of the compiled rule, `cleaner/kernel/judge.pxi` and `filter.pxi` (parts of
`kernel.pyx`), and in the tests their oracle: simple, slow, pure.

A record is kept while no other record of its key outranks it: by default, while no later one has its
key. Where `compaction.strategy` gives records versions, the higher version wins (`latest.py`). Where
`compaction.versions` or `compaction.thinning` is set, older ones stay, too (`history.py`). Offsets are
never reassigned.

Which logs a pass takes, and when it takes one for its tombstones alone, is decided by `pick.py`.

A tombstone (a key without a value) is dropped after its batch's delete horizon, so that a consumer that
reads from the start until then sees the deletion. The first pass that keeps the tombstone sets the
horizon: the time of the pass plus `delete.retention.ms`. A mirror may lag longer than that. So a group
can hold what it has not read: tombstones and markers from its committed offset on stay even after their
delete horizon (docs/design/replication.md). With versions, a tombstone may outrank records at higher
offsets, so it also stays while a pass drops any (docs/design/strategies.md).

Records of an aborted transaction are dropped at once; their keys do not matter. The marker that ended a
transaction has no key. It stays while a batch of the transaction is left, even an empty one, and then
until its own delete horizon, so that a consumer that has read the batches also reads their end.
In the dirty section it stays in any case. The log names an aborted transaction to its readers until the
clean offset is past the marker, and a reader that never meets the marker skips what the producer commits
later. (Only an interrupted pass, or the source of a mirror, leaves a marker with a horizon there.)
A pass ends before the first transaction that is not decided yet. One whose marker may lie in a damaged
segment stays undecided for good: it supersedes nothing, and its batches stay (`fence.py`).

What remains of a batch

    VERBATIM  its own bytes: no record is dropped and no horizon stamped, or the pass does not judge it
    REBUILT   the surviving records in a batch of the same header, but with the codec that the topic
              chooses for rebuilt batches (`compaction.compression.type`); if a tombstone is kept for the
              first time, or a marker whose transaction is gone, the delete horizon is stamped into it
              (KIP-534: attribute bit 6, the base timestamp *is* the horizon, the records' deltas are
              rewritten against it)
    EMPTIED   only the header: it is the last data batch of an active producer, whose sequence number
              must survive, or a marker of a producer without data batches, whose epoch must survive
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

from cleaner.rules.history import PastRecord, stays_as_history
from cleaner.rules.latest import Rank, version_of, wins
from protocol.records.compression import Codec
from protocol.records.control_record import ControlType, read_control_type
from protocol.records.record import Headers
from protocol.wire.errors import InvalidRecord
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy

INT64_MAX = 2**63 - 1


class Verdict(enum.Enum):
    """Why a record is kept or dropped; each value is a label of the cleaner's metrics."""

    KEPT_LATEST = "kept_latest"
    """No other record of its key outranks it, or it stays as an older value."""
    KEPT_UNMAPPED = "kept_unmapped"
    """It lies beyond the map's end, so the map does not know whether it is superseded; or the marker of
    its transaction may lie in a fence (`fence.py`)."""
    KEPT_TAIL = "kept_tail"
    """It would be dropped, but is the last record below the pass's upper bound: without it a client that
    reads to the end would wait for ever."""
    KEPT_UNKEYED = "kept_unkeyed"
    """It has no key, and its topic keeps such records (`compaction.unkeyed.records`)."""
    KEPT_MARKER = "kept_marker"
    """A control record: the marker of a transaction that is still needed, or another kind."""
    KEPT_HELD = "kept_held"
    """A tombstone or marker whose delete horizon has passed, but a group holds its offset
    (`compaction.hold.groups`), or a fence below it may have what it deletes (`fence.py`)."""
    KEPT_CONTESTED = "kept_contested"
    """A tombstone whose delete horizon has passed, but which may outrank a dirty record of its key. It
    goes in a later pass. Only where records have versions."""
    DROPPED_SUPERSEDED = "dropped_superseded"
    """Another record of its key outranks it, and it does not stay as an older value."""
    DROPPED_TOMBSTONE = "dropped_tombstone"
    """A tombstone whose batch's delete horizon has passed."""
    DROPPED_UNKEYED = "dropped_unkeyed"
    """It has no key, and its topic drops such records."""
    DROPPED_ABORTED = "dropped_aborted"
    """Its transaction was aborted."""
    DROPPED_MARKER = "dropped_marker"
    """The marker of a transaction without remaining batches, in the clean section and after the marker's
    delete horizon."""

    @property
    def is_kept(self) -> bool:
        return self.value.startswith("kept")


class Fate(enum.Enum):
    """The form in which a pass leaves a batch; see the module's docstring."""

    VERBATIM = "verbatim"
    REBUILT = "rebuilt"
    EMPTIED = "emptied"
    DROPPED = "dropped"


class KeyOffsets(Protocol):
    """The properties of an offset map that the rule reads."""

    @property
    def end_offset(self) -> int: ...
    def rank(self, key: bytes, /) -> Rank | None: ...
    def later(self, key: bytes, offset: int, /) -> Sequence[PastRecord]:
        """Returns the records of a key after an offset, if older values may stay."""


class KeyedRecord(Protocol):
    """The properties of a record that the rule reads."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def headers(self) -> Headers: ...


class RecordBatch(Protocol):
    """The properties of a batch header that the rule reads."""

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
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def max_timestamp(self) -> int: ...


R = TypeVar("R", bound=KeyedRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A producer's transactional batches in [first_offset, marker_offset), all of them aborted."""

    producer_id: int
    first_offset: int
    """Base offset of its first batch in the dirty section."""
    marker_offset: int

    def holds(self, header: RecordBatch) -> bool:
        """Returns whether a batch is a data batch of this transaction."""
        return _is_data_of(self.producer_id, header, self.first_offset, self.marker_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedTransaction:
    """A producer's transactional batches in [first_offset, fence_offset), which have no marker there."""

    producer_id: int
    first_offset: int
    fence_offset: int
    """Where a fence begins, which may hold the marker."""

    def holds(self, header: RecordBatch) -> bool:
        """Returns whether a batch is a data batch of this transaction."""
        return _is_data_of(self.producer_id, header, self.first_offset, self.fence_offset)


def _is_data_of(producer_id: int, header: RecordBatch, first_offset: int, end_offset: int) -> bool:
    return (
        header.is_transactional
        and not header.is_control
        and header.producer_id == producer_id
        and first_offset <= header.base_offset < end_offset
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBounds:
    """The parameters of one cleaning pass: offsets, times and active producers.

    0           clean offset        end_offset         tail_offset    log end
    |  clean      |  dirty, mapped      |  not mapped         |  uncleanable  |
    """

    start_offset: int = INT64_MAX
    """Where the dirty section begins; by default there is none."""
    end_offset: int
    """Where the map ends. Batches that reach beyond it are not judged."""
    tail_offset: int
    """The last offset below the pass's upper bound; -1: none."""
    now_ms: int
    delete_retention_ms: int
    producer_last_offsets: Collection[int] = ()
    """The last offset of the last data batch of each active producer."""
    keeps_unkeyed: bool = False
    """Whether records without a key stay; they were written before the topic was compacted."""
    producer_marker_epochs: Mapping[int, int] = field(default_factory=dict)
    """Producer id -> epoch, for each active producer without data batches."""
    aborted: Collection[AbortedTransaction] = ()
    """The aborted transactions of the dirty section; the clean section has none."""
    undecided: Collection[UndecidedTransaction] = ()
    """Those of the dirty section whose markers may lie in a fence."""
    stamps_markers: bool = False
    """Whether the pass sees the whole log below a marker, so that it knows what is left of the
    transaction."""
    hold_offset: int = INT64_MAX
    """Tombstones and markers at and above this offset stay even after their delete horizon."""
    strategy: CompactionStrategy = BY_OFFSET
    """How the records of a key are ranked."""
    history: CompactionHistory = LAST_VALUE
    """Which older values stay."""
    codec: Codec | None = None
    """The codec of the data batches that are rebuilt; None keeps the codec of each."""

    @property
    def new_delete_horizon_ms(self) -> int:
        """The delete horizon of tombstones that this pass keeps for the first time."""
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains(Generic[R]):
    """The remains of one batch, with the reasons."""

    fate: Fate
    verdicts: tuple[Verdict, ...]
    """One for each record of the batch."""
    survivors: tuple[R, ...] = ()
    """The records of a rebuilt batch, in order."""
    stamped_horizon_ms: int | None = None
    """The delete horizon to stamp into a rebuilt batch; None: its base timestamp stays."""


def verdict_of(
    *,
    key: bytes | None,
    has_value: bool,
    offset: int,
    version: int = 0,
    offset_map: KeyOffsets,
    delete_horizon_ms: int | None,
    now_ms: int,
    keeps_unkeyed: bool = False,
    hold_offset: int = INT64_MAX,
    has_versions: bool = False,
    is_history: bool = False,
) -> Verdict:
    """Returns the verdict on one record. Pure.

    Args:
        offset: absolute offset of the record in its partition.
        version: the record's version; 0 where records have none.
        delete_horizon_ms: epoch ms from which the batch's tombstones are dropped; None until the batch's
            first cleaning sets it.
        hold_offset: see `PassBounds`.
        has_versions: whether records have versions.
        is_history: whether the record stays as an older value if another one outranks it.
    """
    if offset >= offset_map.end_offset:
        # The map ends before this record, so it may miss later records of the key.
        return Verdict.KEPT_UNMAPPED
    if key is None:
        return Verdict.KEPT_UNKEYED if keeps_unkeyed else Verdict.DROPPED_UNKEYED
    latest, rank = offset_map.rank(key), Rank(version, offset)
    if latest is not None and wins(latest, over=rank) and not is_history:
        return Verdict.DROPPED_SUPERSEDED
    if not has_value and delete_horizon_ms is not None and now_ms >= delete_horizon_ms:
        if offset >= hold_offset:
            return Verdict.KEPT_HELD
        is_contested = has_versions and latest == rank
        return Verdict.KEPT_CONTESTED if is_contested else Verdict.DROPPED_TOMBSTONE
    return Verdict.KEPT_LATEST


def retain_log(
    batches: Iterable[tuple[RecordBatch, Sequence[R]]],
    *,
    offset_map: KeyOffsets,
    bounds: PassBounds,
) -> Iterator[Remains[R]]:
    """Yields what remains of each batch of a log, in order."""
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
    """Returns what remains of one batch. Pure.

    Args:
        records: the batch's records; not read if the map does not cover the batch.
        remaining: the producers with a remaining transactional batch since their last marker.
    """
    is_undecided = any(transaction.holds(header) for transaction in bounds.undecided)
    if header.last_offset >= bounds.end_offset or is_undecided:
        unmapped = (Verdict.KEPT_UNMAPPED,) * header.record_count
        return Remains(fate=Fate.VERBATIM, verdicts=unmapped)
    if not records:
        return Remains(fate=_fate_of_empty(header, bounds), verdicts=())
    verdicts = _verdicts_of_records(header, records, offset_map, bounds, remaining)
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
    """Returns whether a control batch, which holds one record, ends a transaction."""
    try:
        kind = read_control_type(records[0].key) if records else ControlType.UNKNOWN
    except InvalidRecord:
        return False
    return kind in (ControlType.ABORT, ControlType.COMMIT)


def is_tombstone(record: KeyedRecord) -> bool:
    """Returns whether the record deletes its key. Without a key there is nothing to delete."""
    return record.key is not None and record.value is None


def _verdicts_of_records(
    header: RecordBatch,
    records: Sequence[KeyedRecord],
    offset_map: KeyOffsets,
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> tuple[Verdict, ...]:
    if any(aborted.holds(header) for aborted in bounds.aborted):
        return (Verdict.DROPPED_ABORTED,) * len(records)
    if header.is_control:
        verdicts = [_verdict_of_control(header, records, bounds, remaining)] * len(records)
    else:
        verdicts = [_verdict_of_record(header, record, offset_map, bounds) for record in records]
    would_go = not verdicts[-1].is_kept or verdicts[-1] is Verdict.KEPT_CONTESTED
    if header.last_offset == bounds.tail_offset and would_go:
        verdicts[-1] = Verdict.KEPT_TAIL
    return tuple(verdicts)


def _verdict_of_record(
    header: RecordBatch, record: KeyedRecord, offset_map: KeyOffsets, bounds: PassBounds
) -> Verdict:
    return verdict_of(
        key=record.key,
        has_value=record.value is not None,
        offset=record.offset,
        version=version_in(header, record, bounds.strategy),
        offset_map=offset_map,
        delete_horizon_ms=header.delete_horizon_ms,
        now_ms=bounds.now_ms,
        keeps_unkeyed=bounds.keeps_unkeyed,
        hold_offset=bounds.hold_offset,
        has_versions=bounds.strategy.has_versions,
        is_history=_is_history(header, record, offset_map, bounds),
    )


def _is_history(
    header: RecordBatch, record: KeyedRecord, offset_map: KeyOffsets, bounds: PassBounds
) -> bool:
    if record.key is None or not bounds.history.keeps_more:
        return False
    past = PastRecord(record.offset, timestamp_in(header, record), record.value is None)
    later = offset_map.later(record.key, record.offset)
    return stays_as_history(past, later, bounds.history, bounds.now_ms)


def version_in(header: RecordBatch, record: KeyedRecord, strategy: CompactionStrategy) -> int:
    """Returns the version of a batch's record; 0 if the strategy gives none."""
    timestamp = timestamp_in(header, record)
    return version_of(strategy, timestamp=timestamp, headers=record.headers)


def timestamp_in(header: RecordBatch, record: KeyedRecord) -> int:
    """Returns the timestamp of a batch's record; with LogAppendTime that of the batch."""
    return header.max_timestamp if header.is_log_append_time else record.timestamp


def _verdict_of_control(
    header: RecordBatch,
    records: Sequence[KeyedRecord],
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> Verdict:
    is_due = header.delete_horizon_ms is not None and bounds.now_ms >= header.delete_horizon_ms
    is_needed = header.last_offset >= bounds.start_offset or header.producer_id in remaining
    if is_due and is_marker(records) and not is_needed:
        is_held = header.last_offset >= bounds.hold_offset
        return Verdict.KEPT_HELD if is_held else Verdict.DROPPED_MARKER
    return Verdict.KEPT_MARKER


def _starts_horizon(
    header: RecordBatch,
    survivors: Sequence[KeyedRecord],
    bounds: PassBounds,
    remaining: AbstractSet[int],
) -> bool:
    """Returns whether the batch keeps something that only a delete horizon can remove."""
    if header.is_control:
        is_idle = is_marker(survivors) and header.producer_id not in remaining
        return bounds.stamps_markers and is_idle
    return any(map(is_tombstone, survivors))


def _must_stay(header: RecordBatch, bounds: PassBounds) -> bool:
    """Returns whether the batch is the last one with an active producer's sequence number or epoch."""
    if header.producer_id < 0:
        return False
    if header.is_control:
        return bounds.producer_marker_epochs.get(header.producer_id) == header.producer_epoch
    return header.last_offset in bounds.producer_last_offsets


def _fate_of_empty(header: RecordBatch, bounds: PassBounds) -> Fate:
    """Returns the fate of an empty batch: it stays for its producer's state or as the pass's last."""
    if _must_stay(header, bounds) or header.last_offset == bounds.tail_offset:
        return Fate.VERBATIM
    return Fate.DROPPED
