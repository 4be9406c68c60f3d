"""Looks up the last values of keys: owns the tables, their memory, and the order of their use.

    find -> on the loop, a few keys in a turn: the table has them, and their records are in memory
         -> else: wait for the log's turn -> take a view on the loop -> in a thread: extend or make the
            table, read the records -> the log is still the one that was read?

Requests about one log take turns, because its table is for one thread at a time. All tables together
take at most `bytes_max`: if one more does not fit, those go that were not used for the longest time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.lookup.key_table import (
    KeyTable,
    TableTooSmall,
    TableView,
    first_table_bytes,
    table_view,
)
from cleaner.lookup.last_records import (
    OutdatedTable,
    Room,
    TooLarge,
    WrongTable,
    last_records,
    made_table,
)
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.rules.text import size_text
from metrics.facts import KeyLookupFacts
from protocol.records.record import Record
from protocol.wire.errors import DecompressionTooLarge
from protocol.wire.numbers import Offset
from server.runtime.executors import Executor
from server.runtime.tasks import to_its_end
from server.runtime.turns import Turns
from storage.files.errors import DamagedSidecar, NotCached, SegmentRemoved
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

ATTEMPTS = 10
"""How often a lookup begins again because the log has changed under it."""

NOTHING = Offset(0)

KEYS_AT_ONCE = 2
"""So many keys are looked up in one turn of the loop, if nothing has to wait: it takes 0.2 ms. A thread
would take as much from the loop, because Python code holds the interpreter, and 5 ms in a row."""

KEYS_IN_THREAD = 16
"""So many at once in a thread, which has to wait for the disk or extends the table."""

BATCH_AT_ONCE_MAX = 64 << 10
INFLATED_AT_ONCE_MAX = 256 << 10
"""The loop reads no batch that is larger, or inflates to more."""


class TooManyKeys(Exception):
    """The table of a log does not fit into the memory for all of them."""

    def __init__(self, bytes_needed: int, bytes_max: int) -> None:
        super().__init__(
            f"a table of {size_text(bytes_needed)}, {size_text(bytes_max)} are allowed"
        )
        self.bytes_needed = bytes_needed
        self.bytes_max = bytes_max


class LookupEnded(Exception):
    """The broker stops, or the log changes too fast to be read."""


LastRecords: TypeAlias = tuple[Record | None, ...]
"""For each key its last record, which may be a tombstone; None if it is not in the log."""


@dataclass(slots=True, eq=False)
class _Entry:
    """The table of one log, or the place of one."""

    lock: asyncio.Lock
    """Held while a thread uses the table."""
    table: KeyTable | None = None
    bytes_granted: int = 0
    """The memory that the table takes, or may take while it is made."""
    trusts_sidecars: bool = True


@loop_thread
class KeyLookups:
    """The tables of all logs that keys were looked up in."""

    __slots__ = (
        "_bytes_granted", "_bytes_max", "_entries", "_is_stopping", "_monotonic", "_settings", "_thread",
        "_turns", "lookups_total", "made_total",
    )  # fmt: skip

    def __init__(
        self,
        thread: Executor,
        turns: Turns,
        *,
        settings: Callable[[], CleanerSettings],
        bytes_max: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        """
        Args:
            settings: returns the cleaner's settings: how segments are read.
            bytes_max: returns the most memory that all tables together may take.
        """
        # Constant after construction.
        self._thread = thread
        self._turns = turns
        self._settings = settings
        self._bytes_max = bytes_max
        self._monotonic = monotonic
        # State.
        self._entries: OrderedDict[PartitionLog, _Entry] = OrderedDict()
        """In the order of their last use."""
        self._bytes_granted = 0
        """The memory of all tables."""
        self._is_stopping = False
        self.lookups_total = 0
        """Keys that were looked up in a log."""
        self.made_total = 0
        """Tables that were made."""

    async def stop(self) -> None:
        """End the making of tables within a chunk, and wait until no thread reads a log."""
        self._is_stopping = True
        for entry in list(self._entries.values()):
            async with entry.lock:
                pass

    @any_thread
    def facts(self) -> KeyLookupFacts:
        """Returns what metrics show."""
        entries = [each for each in list(self._entries.values()) if each.table is not None]
        return KeyLookupFacts(
            tables=len(entries),
            table_bytes=sum(each.bytes_granted for each in entries),
            lookups_total=self.lookups_total,
            made_total=self.made_total,
        )

    async def find(self, log: PartitionLog, keys: Sequence[bytes], room: Room) -> LastRecords:
        """Returns the last records of some keys of a log, as of its last stable offset.

        Args:
            room: how much the answer may still take.

        Raises:
            TooManyKeys, LookupEnded: see there.
            TooLarge: the records take more.
            CorruptBatch, DecompressionTooLarge, CorruptLog: the log is damaged.
            StorageError: the log cannot be read.
        """
        least, records = log.last_stable_offset, list[Record | None]()
        while len(records) < len(keys):
            if records:
                await self._turns.next(is_new=False)
            rest = keys[len(records) :]
            found = self._find_at_once(log, rest[:KEYS_AT_ONCE], room, least)
            if found is None:
                # A cancelled caller must not release the log while a thread uses its table.
                found = await to_its_end(self._find(log, rest[:KEYS_IN_THREAD], room))
            records += found
        return tuple(records)

    def _find_at_once(
        self, log: PartitionLog, keys: Sequence[bytes], room: Room, least: Offset
    ) -> LastRecords | None:
        """Returns what a few keys have, if the table has the log up to `least` and the records are in
        memory."""
        entry = self._entries.get(log)
        if entry is None or entry.table is None or entry.lock.locked() or self._is_stopping:
            return None
        if not entry.table.reaches(least, log):
            return None
        try:
            records = last_records(
                log,
                keys,
                entry.table,
                room,
                decompressed_bytes_max=INFLATED_AT_ONCE_MAX,
                cached_bytes_max=BATCH_AT_ONCE_MAX,
            )
        except (NotCached, DecompressionTooLarge, OutdatedTable, WrongTable, SegmentRemoved):
            return None  # A thread can wait, or make another table.
        if log.rewrites != entry.table.basis.rewrites:
            return None  # Another thread has truncated or replaced the log meanwhile.
        self._entries.move_to_end(log)
        self.lookups_total += len(keys)
        return records

    async def _find(self, log: PartitionLog, keys: Sequence[bytes], room: Room) -> LastRecords:
        for _ in range(ATTEMPTS):
            entry = self._entry_of(log)
            async with entry.lock:
                if self._is_stopping:
                    break
                if self._entries.get(log) is not entry:
                    continue  # It has made room for another table meanwhile.
                self._entries.move_to_end(log)
                found = await self._attempt(log, entry, keys, room)
            if found is not None:
                self.lookups_total += len(keys)
                return found
        raise LookupEnded("the broker stops" if self._is_stopping else "the log changes too fast")

    def _entry_of(self, log: PartitionLog) -> _Entry:
        entry = self._entries.get(log)
        if entry is None:
            self._drop_ended()
            entry = self._entries[log] = _Entry(asyncio.Lock())
        return entry

    async def _attempt(
        self, log: PartitionLog, entry: _Entry, keys: Sequence[bytes], room: Room
    ) -> LastRecords | None:
        """Look the keys up. Returns None if that has to be repeated."""
        view = self._view(log, entry)
        was_made = entry.table is None
        if not entry.bytes_granted:
            self._grant(entry, first_table_bytes(view))
        try:
            found = await self._thread.run(self._look_up, log, entry, view, keys, room)
        except TableTooSmall as small:
            self._grant(entry, small.bytes_needed)
            return None
        except WrongTable:
            self._forget(entry)
            entry.trusts_sidecars = False
            return None
        except TooLarge:
            raise
        except (OutdatedTable, DamagedSidecar, SegmentRemoved, CleaningAborted):
            self._forget(entry)
            return None
        except BaseException:
            self._forget(entry)
            raise
        if log.rewrites != view.tail.rewrites:
            self._forget(entry)
            return None
        self.made_total += was_made
        return found

    def _view(self, log: PartitionLog, entry: _Entry) -> TableView:
        """Returns what the log's table lacks; forgets a table that no longer holds."""
        if entry.table is not None:
            view = table_view(log, entry.table.end_offset)
            if view.basis == entry.table.basis:
                return view
            self._forget(entry)
        return table_view(log, NOTHING)

    @any_thread
    def _look_up(
        self,
        log: PartitionLog,
        entry: _Entry,
        view: TableView,
        keys: Sequence[bytes],
        room: Room,
    ) -> LastRecords:
        """In the thread: only the holder of the entry's lock gets here."""
        settings, meter = self._settings(), self._meter(log, view)
        if entry.table is None:
            entry.table = made_table(
                view,
                settings,
                meter,
                bytes_max=entry.bytes_granted,
                trusts_sidecars=entry.trusts_sidecars,
            )
        else:
            entry.table.extend(view, meter)
        return last_records(
            log, keys, entry.table, room, decompressed_bytes_max=settings.decompressed_bytes_max
        )

    @any_thread
    def _meter(self, log: PartitionLog, view: TableView) -> PassMeter:
        return PassMeter(
            throttle=Throttle(clock=self._monotonic),
            probe=SilentProbe(),
            sleep=lambda _: self._is_stopping,
            is_stale=lambda: log.rewrites != view.tail.rewrites,
        )

    # ---------------------------------------------------------------- memory

    def _grant(self, entry: _Entry, size: int) -> None:
        """Let a table take so much memory; other tables make room. Raises TooManyKeys."""
        bytes_max = self._bytes_max()
        self._forget(entry)
        others = self._in_order_of_use(entry)
        while self._bytes_granted + size > bytes_max:
            idle = next(others, None)
            if idle is None:
                raise TooManyKeys(size, bytes_max)
            self._drop(idle)
        entry.bytes_granted = size
        self._bytes_granted += size

    def _in_order_of_use(self, entry: _Entry) -> Iterator[PartitionLog]:
        """Yields the logs whose tables may go, those first that were not used for the longest time."""
        for log, each in list(self._entries.items()):
            if each is not entry and not each.lock.locked():
                yield log

    def _forget(self, entry: _Entry) -> None:
        self._bytes_granted -= entry.bytes_granted
        entry.table, entry.bytes_granted = None, 0

    def _drop(self, log: PartitionLog) -> None:
        self._forget(self._entries.pop(log))

    def _drop_ended(self) -> None:
        """Drop the tables of logs that are gone or out of service."""
        for log, entry in list(self._entries.items()):
            is_ended = log.is_retired or log.offline_reason is not None
            if is_ended and not entry.lock.locked():
                self._drop(log)
