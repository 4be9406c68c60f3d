"""Looks up the last values of keys in the tables of their logs.

find -> on the loop, one key in a turn: the table has it, and its record is in memory
     -> else in a thread, with the table as of now (`server/lookup/key_tables.py`)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from cleaner.lookup.key_table import KeyTable
from cleaner.lookup.last_records import OutdatedTable, Room, WrongTable, last_records
from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.step import SpillDamaged
from protocol.records.record import Record
from protocol.wire.errors import DecompressionTooLarge
from protocol.wire.numbers import Offset
from server.lookup.key_tables import KeyTables
from server.runtime.turns import Turns
from storage.files.errors import NotCached, SegmentRemoved
from storage.log.log import PartitionLog
from storage.threads import loop_thread

KEYS_AT_ONCE = 1
"""So many keys are looked up in one turn of the loop, if nothing has to wait: it takes 0.03 ms. A thread
would take as much from the loop, because Python code holds the interpreter, and 5 ms in a row."""

KEYS_IN_THREAD = 16
"""So many at once in a thread, which has to wait for the disk or extends the table."""

BATCH_AT_ONCE_MAX = 64 << 10
INFLATED_AT_ONCE_MAX = 256 << 10
"""The loop reads no batch that is larger, or inflates to more."""

NEEDS_A_THREAD = (
    NotCached,
    DecompressionTooLarge,
    OutdatedTable,
    WrongTable,
    SpillDamaged,
    SegmentRemoved,
)
"""After one of these a thread continues: it can wait, or make another table."""

LastRecords: TypeAlias = tuple[Record | None, ...]
"""For each key its last record, which may be a tombstone; None if it is not in the log."""


@loop_thread
class KeyLookups:
    """Lookups of keys."""

    __slots__ = ("_tables", "_turns")

    def __init__(self, tables: Callable[[], Awaitable[KeyTables]], turns: Turns) -> None:
        """
        Args:
            tables: returns the broker's tables, which the first call makes.
        """
        self._tables = tables
        self._turns = turns

    async def find(self, log: PartitionLog, keys: Sequence[bytes], room: Room) -> LastRecords:
        """Returns the last records of some keys of a log, as of its last stable offset.

        Args:
            room: how much the answer may still take.

        Raises:
            TooLarge: the records take more.
            TooManyKeys, LookupEnded, CorruptBatch, DecompressionTooLarge, CorruptLog, StorageError: as
                `KeyTables.use`.
        """
        tables = await self._tables()
        least, records = log.last_stable_offset, list[Record | None]()
        while len(records) < len(keys):
            if len(keys) > KEYS_AT_ONCE:
                await self._turns.next(is_new=not records)
            rest = keys[len(records) :]
            found = _find_at_once(tables, log, rest[:KEYS_AT_ONCE], room, least)
            if found is None:
                found = await _find(tables, log, rest[:KEYS_IN_THREAD], room)
            tables.lookups_total += len(found)
            records += found
        return tuple(records)


def _find_at_once(
    tables: KeyTables, log: PartitionLog, keys: Sequence[bytes], room: Room, least: Offset
) -> LastRecords | None:
    """Returns what a few keys have, if the table has the log up to `least` and the records are in
    memory."""
    table = tables.ready(log, least)
    if table is None:
        return None
    try:
        records = last_records(
            log,
            keys,
            table,
            room,
            decompressed_bytes_max=INFLATED_AT_ONCE_MAX,
            cached_bytes_max=BATCH_AT_ONCE_MAX,
        )
    except NEEDS_A_THREAD:
        return None
    if log.rewrites != table.basis.rewrites:
        return None  # Another thread has truncated or replaced the log meanwhile.
    return records


async def _find(
    tables: KeyTables, log: PartitionLog, keys: Sequence[bytes], room: Room
) -> LastRecords:
    def read(table: KeyTable, settings: CleanerSettings) -> LastRecords:
        return last_records(
            log, keys, table, room, decompressed_bytes_max=settings.decompressed_bytes_max
        )

    return await tables.use(log, read)
