"""The counts over a log's keys in plain Python: the specification of `cleaner/kernel/key_counts.pyx`.

It reads the batches that are on disk, and keeps all records of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from cleaner.inspect.key_analysis import KeyAnalysis, key_analysis
from cleaner.inspect.rehearsed_segment import rehearsed_view, scratch_files
from protocol.records.control_record import ControlType
from tests.harness.compacted_log import CompactedLog, meter_of
from tests.harness.key_blocks import BatchKeys, keys_of

CLASSES = 464
"""Of numbers of records below 2^32."""


def count_class(records: int) -> int:
    """Returns the class of a number of records: itself up to 32, then sixteen for each doubling."""
    beyond = records - 1
    if beyond < 32:
        return beyond
    doublings = beyond.bit_length() - 1
    return 32 + (doublings - 5) * 16 + (beyond >> (doublings - 4)) % 16


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A record that counts for its key."""

    offset: int
    size: int
    is_tombstone: bool
    version: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.version, self.offset


@dataclass(slots=True)
class KeyModel:
    """All records of each key, and the number of those that count for none."""

    keys: dict[bytes, list[KeyedRecord]] = field(default_factory=dict)
    aborted: int = 0
    undecided: int = 0
    unkeyed: int = 0

    def last(self, records: Iterable[KeyedRecord]) -> KeyedRecord:
        return max(records, key=lambda each: each.rank)

    @property
    def records(self) -> list[KeyedRecord]:
        return [each for records in self.keys.values() for each in records]

    def counts(self) -> dict[str, Any]:
        """Returns what an analysis must say; `counts_of` has the same form."""
        last = [self.last(records) for records in self.keys.values()]
        return {
            "keys": len(self.keys),
            "live": sum(not each.is_tombstone for each in last),
            "deleted": sum(each.is_tombstone for each in last),
            "live_bytes": sum(each.size for each in last if not each.is_tombstone),
            "records": len(self.records),
            "bytes": sum(each.size for each in self.records),
            "superseded": len(self.records) - len(self.keys),
            "tombstones": sum(each.is_tombstone for each in self.records),
            "aborted": self.aborted,
            "undecided": self.undecided,
            "unkeyed": self.unkeyed,
            "by_records": sorted(len(records) for records in self.keys.values()),
        }

    def hottest(self, top: int) -> list[tuple[int, int, int, bytes, bool]]:
        """Returns records, bytes, last offset, key and whether it is deleted, of the hottest keys."""
        hot = []
        for key, records in self.keys.items():
            last = self.last(records)
            size = sum(each.size for each in records)
            hot.append((len(records), size, last.offset, key, last.is_tombstone))
        return sorted(hot, reverse=True)[:top]


def model_of(
    log: CompactedLog,
    outcome_of: Callable[[int], ControlType | None] = lambda _: ControlType.COMMIT,
    version_of: Callable[[int], int] = lambda _: 0,
) -> KeyModel:
    """Returns the model of what is on disk.

    Args:
        outcome_of: of the transaction of the record at an offset; None: it is open.
        version_of: of the record at an offset.
    """
    model = KeyModel()
    batches = _batches(log)
    model.unkeyed = sum(batch.unkeyed for batch in batches)
    for record, size in (each for batch in batches for each in batch.keyed):
        assert record.key is not None
        if record.offset < log.log.log_start_offset:
            continue
        if outcome_of(record.offset) is None:
            model.undecided += 1
        elif outcome_of(record.offset) is ControlType.ABORT:
            model.aborted += 1
        else:
            keyed = KeyedRecord(
                record.offset, size, record.value is None, version_of(record.offset)
            )
            model.keys.setdefault(record.key, []).append(keyed)
    return model


def _batches(log: CompactedLog) -> list[BatchKeys]:
    """Returns the batches of the segments that reach beyond the log start."""
    return [
        batch
        for segment in log.log.segments
        if segment.full_row().end_offset > log.log.log_start_offset
        for batch in keys_of(segment.files.open().read_at(0, segment.size))
    ]


def counts_of(analysis: KeyAnalysis) -> dict[str, Any]:
    """Returns the counts of an analysis in the form of the model's; it has at most 32 records a key."""
    tally = analysis.tally
    sizes = [
        size + 1
        for size, keys in zip(tally.classes[::3], tally.classes[1::3], strict=True)
        for _ in range(keys)
    ]
    return {
        "keys": tally.keys,
        "live": tally.live,
        "deleted": analysis.deleted_keys,
        "live_bytes": tally.live_bytes,
        "records": analysis.records,
        "bytes": analysis.record_bytes,
        "superseded": analysis.superseded,
        "tombstones": analysis.tombstones,
        "aborted": analysis.aborted,
        "undecided": analysis.undecided,
        "unkeyed": analysis.unkeyed,
        "by_records": sizes,
    }


def hottest_of(analysis: KeyAnalysis) -> list[tuple[int, int, int, bytes | None, bool]]:
    """Returns the hot keys of an analysis in the form of the model's."""
    return [
        (
            each.counts.records,
            each.counts.record_bytes,
            each.counts.last_offset,
            each.key,
            each.counts.is_deleted,
        )
        for each in analysis.hot_keys
    ]


def analysis_of(log: CompactedLog, *, top: int = 3, now_ms: int | None = None) -> KeyAnalysis:
    """Returns the cleaner's counts over a log."""
    view = log.log.cleaning_view(as_if_rolled=True)
    with closing(scratch_files(log.log)) as scratch:
        return key_analysis(
            rehearsed_view(view, scratch),
            log.settings,
            meter=meter_of(log.log, view.generation),
            now_ms=log.now_ms if now_ms is None else now_ms,
            top=top,
        )
