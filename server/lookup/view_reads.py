"""Reads the views of topics' last values for fetches.

    offset -> on the loop, if the table has the log up to its last stable offset, and nothing from the
              offset on is outranked: these batches, as they are stored
           -> else in a thread: the table up to the last stable offset
                             -> the batches from the offset on, without the records that others outrank
                             -> a filler up to where the log was read, if its last part had nothing

The filler is a control batch, which clients skip, and which moves their position. An empty batch would
do that for most, but kafkajs fetches one at an answer's start again and again. docs/design/views.md has
what each client does with either.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from metrics.facts import ViewFacts
from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.records.record import Record
from protocol.records.record_batch import build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import NotCached
from storage.log.log import PartitionLog
from storage.segment.reader import ReadResult
from storage.threads import any_thread, loop_thread

if TYPE_CHECKING:
    from cleaner.lookup.key_table import KeyTable
    from cleaner.lookup.latest_batches import LatestBatches
    from cleaner.pacing.settings import CleanerSettings
    from server.lookup.key_tables import KeyTables

SPAN_MAX = (1 << 31) - 1
"""The most offsets that one batch covers."""

_FILLER_KEY, _FILLER_VALUE = write_transaction_marker(
    TransactionMarker(type=ControlType.COMMIT, coordinator_epoch=0)
)
"""The marker of no producer's transaction ends nothing."""


class UnreadableView(Exception):
    """The last values of a log cannot be read; the message says why."""

    def __init__(self, log: PartitionLog, error: Exception, error_code: ErrorCode) -> None:
        super().__init__(f"cannot read the last values of {log.topic_partition}: {error}")
        self.error_code = error_code
        """What the client gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRead:
    """What a view has from an offset on."""

    read: ReadResult
    """The offsets of the log before the read; the view ends at the last stable one. Its regions are the
    records, if these are sent as they are stored."""
    records: tuple[bytes | memoryview, ...] = ()
    """Whole batches, in pieces. Without these and without regions it is the view's end, or nothing was
    asked for."""
    work_seconds: float = 0.0
    """The time of a thread that it took."""


@loop_thread
class ViewReads:
    """The reads of a broker's views. Keeps nothing: the tables of the keys are the broker's."""

    __slots__ = ("_filtered_total", "_made", "_scanned_bytes_total", "_tables", "stored_total")

    def __init__(self, tables: Callable[[], Awaitable[KeyTables]]) -> None:
        """
        Args:
            tables: returns the broker's tables, which the first call makes.
        """
        self._tables = tables
        # State
        self._made: KeyTables | None = None
        """The tables, once a view was read in a thread."""
        self.stored_total = 0
        """Reads whose records were sent as they are stored. The shortcut of Fetch counts its own."""
        self._filtered_total = self._scanned_bytes_total = 0

    @any_thread
    def facts(self) -> ViewFacts:
        """Returns what metrics show."""
        return ViewFacts(
            stored_total=self.stored_total,
            filtered_total=self._filtered_total,
            scanned_bytes_total=self._scanned_bytes_total,
        )

    async def read(
        self,
        log: PartitionLog,
        offset: Offset,
        *,
        bytes_max: int,
        whole_first_batch: bool,
        last_fetched_epoch: Epoch,
        with_tombstones: bool = True,
    ) -> ViewRead | ErrorCode:
        """Returns the last values of a log from an offset on, or the error code for the client.

        Args:
            bytes_max: of batches; with `whole_first_batch` the first one may be larger (KIP-74). Without
                it, 0 reads nothing.
            with_tombstones: whether the last records of deleted keys are among them.

        Raises:
            UnreadableView: the log is damaged, has too many keys, or changes too fast.
            StorageError: the log cannot be read.
        """
        before = log.reader.ends(offset, last_fetched_epoch=last_fetched_epoch)
        if isinstance(before, ErrorCode):
            return before
        is_empty = not bytes_max and not whole_first_batch
        is_at_end = offset >= before.last_stable_offset
        if is_empty or is_at_end or before.diverging_epoch is not None:
            return ViewRead(read=before)
        # As it is stored, a part of the log may have tombstones.
        if with_tombstones:
            at_once = self._stored(
                log, offset, before, bytes_max=bytes_max, whole_first_batch=whole_first_batch
            )
            if at_once is not None:
                self.stored_total += 1
                return ViewRead(read=at_once)
        if self._made is not None and offset < log.clean_offset:
            self._made.follow_passes(log)
        found, seconds = await self._latest(
            log,
            offset,
            bytes_max=bytes_max,
            whole_first_batch=whole_first_batch,
            with_tombstones=with_tombstones,
        )
        self._filtered_total += 1
        self._scanned_bytes_total += found.scanned_bytes
        if offset < log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE  # Retention has removed what was to be read.
        end = max(before.last_stable_offset, found.end_offset)
        return ViewRead(
            records=(*found.records, *_filler_behind(found, log)),
            read=replace(before, last_stable_offset=end),
            work_seconds=seconds,
        )

    def read_at_once(
        self, log: PartitionLog, offset: Offset, *, bytes_max: int
    ) -> ReadResult | None:
        """Returns what `read` would, with a whole first batch, if records are sent as they are stored,
        and are in memory; else None.

        Raises:
            StorageError: the log cannot be read.
        """
        before = log.reader.ends(offset)
        if isinstance(before, ErrorCode) or offset >= before.last_stable_offset:
            return None
        return self._stored(log, offset, before, bytes_max=bytes_max, whole_first_batch=True)

    def _stored(
        self,
        log: PartitionLog,
        offset: Offset,
        before: ReadResult,
        *,
        bytes_max: int,
        whole_first_batch: bool,
    ) -> ReadResult | None:
        """Returns the batches from an offset on if they are sent as stored, and are in memory."""
        if self._made is None:
            return None
        table = self._made.ready(log, before.last_stable_offset)
        if table is None or not table.is_current(log):
            return None
        end = table.live_until(offset)
        if end <= offset:
            return None
        try:
            region = log.reader.region_below(
                offset,
                end,
                max_bytes=bytes_max,
                whole_first_batch=whole_first_batch,
                cached_only=True,
            )
        except NotCached:
            return None
        if region is None:
            return None
        # Another thread may have truncated the log meanwhile, or retention removed its start.
        is_same = log.rewrites == table.basis.rewrites and offset >= log.log_start_offset
        is_enough = region.size >= bytes_max // 2 or region.end_offset >= table.end_offset
        if not (is_same and is_enough):
            region.release()
            return None
        return replace(before, regions=(region,))

    async def _latest(
        self,
        log: PartitionLog,
        offset: Offset,
        *,
        bytes_max: int,
        whole_first_batch: bool,
        with_tombstones: bool,
    ) -> tuple[LatestBatches, float]:
        tables = self._made = await self._tables()
        # Imported late, with the tables: not every broker needs them.
        from server.lookup.key_tables import LookupEnded, TooManyKeys

        work = partial(
            _timed,
            log,
            offset,
            bytes_max=bytes_max,
            whole_first_batch=whole_first_batch,
            with_tombstones=with_tombstones,
        )
        try:
            return await tables.use(log, work)
        except TooManyKeys as error:
            raise UnreadableView(log, error, ErrorCode.UNKNOWN_SERVER_ERROR) from error
        except (CorruptBatch, DecompressionTooLarge) as error:
            raise UnreadableView(log, error, ErrorCode.CORRUPT_MESSAGE) from error
        except LookupEnded as error:
            # Clients ask again.
            raise UnreadableView(log, error, ErrorCode.KAFKA_STORAGE_ERROR) from error


@any_thread
def _timed(
    log: PartitionLog,
    offset: Offset,
    table: KeyTable,
    settings: CleanerSettings,
    *,
    bytes_max: int,
    whole_first_batch: bool,
    with_tombstones: bool,
) -> tuple[LatestBatches, float]:
    """Returns the last values, and how many seconds that took."""
    from cleaner.lookup.latest_batches import latest_batches

    began = time.perf_counter()
    found = latest_batches(
        log,
        offset,
        table,
        bytes_max=bytes_max,
        whole_first_batch=whole_first_batch,
        with_tombstones=with_tombstones,
        decompressed_bytes_max=settings.decompressed_bytes_max,
    )
    return found, time.perf_counter() - began


def _filler_behind(found: LatestBatches, log: PartitionLog) -> Iterator[bytes]:
    """Yields the batch that moves a reader over the rest of what was read, if there is a rest."""
    first, end = found.records_end, found.end_offset
    if first < end:
        yield filler(first, Offset(min(end, first + SPAN_MAX)), log.reader.leader_epoch_at(first))


def filler(first: Offset, end: Offset, leader_epoch: Epoch) -> bytes:
    """Returns a batch without records for clients that covers the offsets in [first, end)."""
    return bytes(
        build_batch(
            [Record(offset=end - 1, timestamp=0, key=_FILLER_KEY, value=_FILLER_VALUE)],
            base_offset=first,
            leader_epoch=leader_epoch,
            is_control=True,
        )
    )
