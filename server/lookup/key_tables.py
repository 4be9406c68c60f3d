"""The tables of the logs whose keys are looked up: owns them, their memory, and the order of their use.

    use -> wait for the log's turn -> take a view on the loop -> in a thread: extend or make the table,
           work with it -> the log is still the one that was read?

Works on one log take turns, because its table is for one thread at a time. All tables together take at
most `bytes_max`: if one more does not fit, those go that were not used for the longest time. A table
that would not fit alone takes a part of it, and the disk (`cleaner/lookup/spilled_keys.py`).

After a pass the notes of a table are renewed in the background, in slices between the works.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cleaner.lookup.key_table import KeyTable, SpillPlace, TableTooSmall, first_table_bytes
from cleaner.lookup.last_records import OutdatedTable, TooLarge, WrongTable, made_table
from cleaner.lookup.table_view import TableView, table_view
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.rules.step import SpillDamaged
from cleaner.rules.text import size_text
from metrics.facts import KeyLookupFacts
from protocol.wire.numbers import Offset
from server.runtime.executors import Executor
from server.runtime.tasks import spawn, to_its_end
from storage.files.errors import DamagedSidecar, SegmentRemoved
from storage.files.files import FileSystem
from storage.files.paths import join
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

ATTEMPTS = 10
"""How often a work begins again because the log has changed under it."""

NOTHING = Offset(0)

SPILLING_SHARE = 2
SPILLING_BYTES_MIN = 1 << 20
"""A table whose keys do not fit into memory takes half of what all may take; at least this."""

SPILLED_NAME = "lookup.tmp"
"""In a log's directory, for a moment. What a crash may leave of it is empty; the next one removes it."""

ENDED_SECONDS = 10.0
"""So often a lookup looks for tables of logs that are gone, which may hold space on the disk."""

SLICE_SECONDS = 0.002
"""So long a work waits at most, beside one block of keys, for the renewal of the table's notes."""

_log = logging.getLogger("server.lookup.key_tables")

T = TypeVar("T")

Work = Callable[[KeyTable, CleanerSettings], T]
"""What is done with a table, in a thread. It may raise WrongTable and OutdatedTable."""


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


@dataclass(slots=True, eq=False)
class _Entry:
    """The table of one log, or the place of one."""

    lock: asyncio.Lock
    """Held while a thread uses the table."""
    table: KeyTable | None = None
    bytes_granted: int = 0
    """The memory that the table takes, or may take while it is made."""
    trusts_sidecars: bool = True
    spills: bool = False
    """Whether the keys do not fit into memory."""
    is_renewed: bool = False
    """Whether the table's notes are being renewed."""
    is_in_slice: bool = False
    """Whether a slice of that holds the lock. The table may go nevertheless; its memory does a little
    later."""


@loop_thread
class KeyTables:
    """The tables of all logs that keys were looked up in."""

    __slots__ = (
        "_bytes_granted", "_bytes_max", "_ended_next_s", "_entries", "_fs", "_monotonic", "_settings",
        "_thread", "is_stopping", "lookups_total", "made_total",
    )  # fmt: skip

    def __init__(
        self,
        thread: Executor,
        fs: FileSystem,
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
        self._fs = fs
        self._settings = settings
        self._bytes_max = bytes_max
        self._monotonic = monotonic
        # State.
        self._entries: OrderedDict[PartitionLog, _Entry] = OrderedDict()
        """In the order of their last use."""
        self._bytes_granted = 0
        """The memory of all tables."""
        self._ended_next_s = 0.0
        """When to look for logs that are gone next, on the monotonic clock."""
        self.is_stopping = False
        self.lookups_total = 0
        """Keys that were looked up in a log. `KeyLookups` counts them."""
        self.made_total = 0
        """Tables that were made."""

    async def stop(self) -> None:
        """End the making of tables within a chunk, and wait until no thread reads a log."""
        self.is_stopping = True
        for entry in list(self._entries.values()):
            async with entry.lock:
                pass

    @any_thread
    def facts(self) -> KeyLookupFacts:
        """Returns what metrics show."""
        found = [
            (each.bytes_granted, table.spilled_bytes)
            for each in list(self._entries.values())
            if (table := each.table) is not None
        ]
        return KeyLookupFacts(
            tables=len(found),
            table_bytes=sum(granted for granted, _ in found),
            spilled_bytes=sum(spilled for _, spilled in found),
            lookups_total=self.lookups_total,
            made_total=self.made_total,
        )

    def ready(self, log: PartitionLog, least: Offset) -> KeyTable | None:
        """Returns the table of a log if it has the log up to `least` and no thread uses it; else None.

        The caller may use it until it waits.
        """
        entry = self._entries.get(log)
        if entry is None or entry.table is None or entry.lock.locked() or self.is_stopping:
            return None
        if not entry.table.reaches(least, log):
            return None
        self._entries.move_to_end(log)
        return entry.table

    async def use(self, log: PartitionLog, work: Work[T]) -> T:
        """Returns the result of a work with the table of a log, as of its last stable offset now.

        The work ends even if the caller is cancelled, who must not release the log while a thread uses
        its table.

        Raises:
            TooManyKeys, LookupEnded: see there.
            CorruptBatch, DecompressionTooLarge, CorruptLog: the log is damaged.
            StorageError: the log cannot be read.
            What `work` raises.
        """
        return await to_its_end(self._use(log, work))

    async def _use(self, log: PartitionLog, work: Work[T]) -> T:
        for _ in range(ATTEMPTS):
            entry = self._entry_of(log)
            async with entry.lock:
                if self.is_stopping:
                    break
                if self._entries.get(log) is not entry:
                    continue  # It has made room for another table meanwhile.
                self._entries.move_to_end(log)
                done = await self._attempt(log, entry, work)
            if done:
                return done[0]
        raise LookupEnded("the broker stops" if self.is_stopping else "the log changes too fast")

    def follow_passes(self, log: PartitionLog) -> None:
        """Let the notes of a log's table follow what passes have removed, if they do not yet.

        That happens in the background. Until it is done, the notes say too much, but miss nothing.
        """
        entry = self._entries.get(log)
        if entry is None or entry.table is None or entry.is_renewed or self.is_stopping:
            return
        if entry.table.notes_lag(log):
            entry.is_renewed = True
            spawn(self._renew_notes(log, entry, entry.table), "renew the notes of a key table")

    async def _renew_notes(self, log: PartitionLog, entry: _Entry, table: KeyTable) -> None:
        try:
            async with entry.lock:
                view = table_view(log, NOTHING)
                if view.basis != table.basis:
                    return
                steps = table.renew_notes(view, self._meter(log, view))
            is_done = False
            while not is_done:
                async with entry.lock:
                    if entry.table is not table or self.is_stopping:
                        return
                    entry.is_in_slice = True
                    is_done = await self._thread.run(self._take_steps, steps)
                    entry.is_in_slice = False
                await asyncio.sleep(0)  # Works that wait for the table come first.
        except CleaningAborted:
            pass  # The table has become useless, or the broker stops.
        finally:
            entry.is_renewed = entry.is_in_slice = False

    @any_thread
    def _take_steps(self, steps: Iterator[None]) -> bool:
        """Take steps for a while. Returns whether they are at the end."""
        end = self._monotonic() + SLICE_SECONDS
        return all(self._monotonic() < end for _ in steps)

    def _entry_of(self, log: PartitionLog) -> _Entry:
        entry = self._entries.get(log)
        if entry is None or self._monotonic() >= self._ended_next_s:
            self._drop_ended()
            entry = self._entries.get(log)
        if entry is None:
            entry = self._entries[log] = _Entry(asyncio.Lock())
        return entry

    async def _attempt(
        self, log: PartitionLog, entry: _Entry, work: Work[T]
    ) -> tuple[T] | tuple[()]:
        """Do the work. Returns its result, or nothing if it has to be repeated."""
        view = self._view(log, entry)
        was_made = entry.table is None
        if not entry.bytes_granted:
            self._grant_or_spill(entry, first_table_bytes(view), is_new=True)
        try:
            result = await self._thread.run(self._work, log, entry, view, work)
        except TableTooSmall as small:
            self._grant_or_spill(entry, small.bytes_needed, is_new=False)
            return ()
        except WrongTable:
            self._forget(entry)
            entry.trusts_sidecars = False
            return ()
        except TooLarge:
            raise
        except SpillDamaged as damage:
            _log.warning("%s: the table of keys is made again: %s", log.topic_partition, damage)
            self._forget(entry)
            return ()
        except (OutdatedTable, DamagedSidecar, SegmentRemoved, CleaningAborted):
            self._forget(entry)
            return ()
        except Exception:
            self._forget(entry)
            if log.rewrites != view.tail.rewrites:
                return ()  # Files that were cut meanwhile look damaged.
            raise
        except BaseException:
            self._forget(entry)
            raise
        if log.rewrites != view.tail.rewrites:
            self._forget(entry)
            return ()
        self.made_total += was_made
        return (result,)

    def _view(self, log: PartitionLog, entry: _Entry) -> TableView:
        """Returns what the log's table lacks; forgets a table that no longer holds."""
        if entry.table is not None:
            view = table_view(log, entry.table.end_offset)
            if view.basis == entry.table.basis:
                return view
            self._forget(entry)
        return table_view(log, NOTHING)

    @any_thread
    def _work(self, log: PartitionLog, entry: _Entry, view: TableView, work: Work[T]) -> T:
        """In the thread: only the holder of the entry's lock gets here."""
        settings, meter = self._settings(), self._meter(log, view)
        if entry.table is None:
            entry.table = made_table(
                view,
                settings,
                meter,
                bytes_max=entry.bytes_granted,
                trusts_sidecars=entry.trusts_sidecars,
                place=self._place_of(log) if entry.spills else None,
            )
        else:
            entry.table.extend(view, meter)
        return work(entry.table, settings)

    @any_thread
    def _place_of(self, log: PartitionLog) -> SpillPlace:
        return SpillPlace(fs=self._fs, path=join(log.directory, SPILLED_NAME))

    @any_thread
    def _meter(self, log: PartitionLog, view: TableView) -> PassMeter:
        return PassMeter(
            throttle=Throttle(clock=self._monotonic),
            probe=SilentProbe(),
            sleep=lambda _: self.is_stopping,
            is_stale=lambda: log.rewrites != view.tail.rewrites,
        )

    # ---------------------------------------------------------------- memory

    def _grant_or_spill(self, entry: _Entry, size: int, *, is_new: bool) -> None:
        """Let a table take so much memory, or, if all is not enough, a part of it and the disk.

        Args:
            is_new: False if a table with less has turned out to be too small.

        Raises:
            TooManyKeys: neither is enough.
        """
        bytes_max = self._bytes_max()
        part = bytes_max // SPILLING_SHARE
        if entry.spills and not is_new:
            self._forget(entry)
            raise TooManyKeys(max(size, 2 * bytes_max), bytes_max)
        entry.spills |= size > bytes_max and part >= SPILLING_BYTES_MIN
        self._grant(entry, part if entry.spills else size)

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
            if each is not entry and (each.is_in_slice or not each.lock.locked()):
                yield log

    def _forget(self, entry: _Entry) -> None:
        self._bytes_granted -= entry.bytes_granted
        if entry.table is not None and entry.table.spilled_bytes:
            # Giving back a large file takes a while.
            spawn(self._thread.run(entry.table.close), "give back spilled keys")
        entry.table, entry.bytes_granted = None, 0

    def _drop(self, log: PartitionLog) -> None:
        self._forget(self._entries.pop(log))

    def _drop_ended(self) -> None:
        """Drop the tables of logs that are gone or out of service."""
        self._ended_next_s = self._monotonic() + ENDED_SECONDS
        for log, entry in list(self._entries.items()):
            is_ended = log.is_retired or log.offline_reason is not None
            if is_ended and not entry.lock.locked():
                self._drop(log)
