"""Lookups of keys in the log of a test, with a table that lasts, and what a reader finds instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from cleaner.lookup.key_table import KeyTable, SpillPlace, TableTooSmall, first_table_bytes
from cleaner.lookup.last_records import OutdatedTable, Room, last_records, made_table
from cleaner.lookup.table_view import TableView, table_view
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.latest import Rank, version_of
from protocol.records.record import Record
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar
from storage.log.log import PartitionLog
from tests.harness.compacted_log import SETTINGS, CompactedLog, meter_of, records_of
from tests.harness.log_transactions import committed_offsets

ROOM_BYTES = 1 << 30
SPILLING_BYTES = 2 * 16 * 32 + 64
"""A map of 16 slots: it is full with seven keys, or with one at a lower load factor."""

T = TypeVar("T")


class LookedUp:
    """Looks keys up as the broker does, in one thread."""

    def __init__(self, settings: CleanerSettings = SETTINGS, *, spills: bool = False) -> None:
        """
        Args:
            spills: whether hardly a key fits into memory.
        """
        self._settings = settings
        self._spills = spills
        self.spilled = 0
        """Works that keys on the disk were asked for."""
        self._log: PartitionLog | None = None
        self.table: KeyTable | None = None
        self.made = 0
        """Tables that were made."""
        self._renewal: tuple[KeyTable, Iterator[None]] | None = None
        """The steps that are left of a renewal of a table's notes."""

    def find(self, log: PartitionLog, *keys: bytes) -> list[Record | None]:
        """Returns the last record of each key. Raises as the lookups; then the table is gone."""
        return list(
            self.use(
                log,
                lambda table: last_records(
                    log, keys, table, Room(ROOM_BYTES), decompressed_bytes_max=1 << 30
                ),
            )
        )

    def use(self, log: PartitionLog, work: Callable[[KeyTable], T]) -> T:
        """Returns the result of a work with the table, as of now. Raises as `work`."""
        while True:
            try:
                table = self._up_to_date(log)
                self.spilled += table.spilled_bytes > 0
                return work(table)
            except (OutdatedTable, DamagedSidecar):
                self.table = None
            except BaseException:
                self.table = None
                raise

    def renew_notes(self, log: PartitionLog, *, steps: int) -> None:
        """Take some steps of a renewal of the table's notes, which begins after a pass."""
        view = table_view(log, Offset(0))
        if log is not self._log or self.table is None or self.table.basis != view.basis:
            return
        if self._renewal is None or self._renewal[0] is not self.table:
            if not self.table.notes_lag(log):
                return
            meter = meter_of(log, log.generation)
            self._renewal = self.table, self.table.renew_notes(view, meter)
        try:
            if len(list(islice(self._renewal[1], steps))) < steps:
                self._renewal = None
        except CleaningAborted:
            self._renewal = None

    def _up_to_date(self, log: PartitionLog) -> KeyTable:
        if log is not self._log:
            self._log, self.table = log, None
        view = table_view(log, self.table.end_offset if self.table else Offset(0))
        if self.table is None or self.table.basis != view.basis:
            view = table_view(log, Offset(0))
            self.table = self._made(log, view)
        else:
            try:
                self.table.extend(view, meter_of(log, log.generation))
            except TableTooSmall:
                self.table = self._made(log, table_view(log, Offset(0)))
        return self.table

    def _made(self, log: PartitionLog, view: TableView) -> KeyTable:
        self.made += 1
        if self._spills:
            meter = meter_of(log, log.generation)
            return made_table(
                view, self._settings, meter, bytes_max=SPILLING_BYTES, place=place(log)
            )
        size = first_table_bytes(view)
        while True:
            try:
                meter = meter_of(log, log.generation)
                return made_table(view, self._settings, meter, bytes_max=size)
            except TableTooSmall as small:
                size = small.bytes_needed


def place(log: PartitionLog) -> SpillPlace:
    return SpillPlace(fs=log.segments[0].fs, path=f"{log.directory}/lookup.tmp")


def read_last(log: CompactedLog, key: bytes) -> Record | None:
    """Returns the last record of a key by reading the whole log as a read-committed consumer."""
    return read_last_of_all(log).get(key)


def read_last_of_all(log: CompactedLog) -> dict[bytes, Record]:
    """Returns the last record of each key, read in the same way."""
    return last_of_all(log.log)


def last_of_all(log: PartitionLog) -> dict[bytes, Record]:
    """Returns the last record of each key of a log that is read as a whole."""
    committed = set(committed_offsets(log))
    return last_of((each for each in records_of(log) if each.offset in committed), log)


def last_of(records: Iterable[Record], log: PartitionLog) -> dict[bytes, Record]:
    """Returns the last record of each key, by the rule of the log."""
    strategy = log.config.strategy

    def rank(record: Record) -> Rank:
        version = version_of(strategy, timestamp=record.timestamp, headers=record.headers)
        return Rank(version, record.offset)

    last = dict[bytes, Record]()
    for each in sorted(records, key=rank):
        if each.key is not None:
            last[each.key] = each
    return last
