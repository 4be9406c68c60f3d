"""A sweep appends a tombstone for each key of a log whose last value has expired.

    collect    read what may have expired: the candidates, as many as fit into memory
    compare    drop the candidates that a record of the log outranks, by the key sidecars, and by the
               records of the active segment
    append     tombstones for those that are left, batch by batch

Collecting and comparing run in a worker thread, appending on the event loop. A record may come in
between. So each append first compares the records that came since; in the same turn of the loop it
appends, so at that moment no later record of any of its keys is in the log, decided or not. If too many
came, the thread compares them first.

A value goes only behind its tombstone, by an ordinary pass. So nothing that a sweep does can lose a
newer value or bring an older one back; a crash loses tombstones at most, and the next sweep writes them
again.

A candidate that is outranked by a record of a transaction without an outcome is deferred: its range
stays due. docs/design/ttl.md says more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cleaner.kernel.expired_keys import ExpiredKeys
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.index import IndexedSegment, SegmentIndex, run_with_sidecars
from cleaner.passes.scan import scan_segment
from cleaner.rules.due_ranges import DueRange, Ranges, due_at_once, read_again, spans_to_read
from cleaner.rules.expiry_report import ExpiryReport
from cleaner.rules.step import KeysDiffer, ReadStep, Tombstones
from protocol.records.batch_header import TimestampType, read_header
from protocol.records.record_batch import build_batch_around
from protocol.wire.errors import DecompressionTooLarge
from protocol.wire.numbers import Offset
from storage.batches.validate import ValidBatch
from storage.files.errors import DamagedSidecar, NotCached
from storage.files.paths import KEYS
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.log.appender import Appended
from storage.log.cleaning_view import CleanableSegment, CleaningView
from storage.log.log import PartitionLog
from storage.segment.lookup import position_before
from storage.segment.segment import Segment
from storage.threads import any_thread, loop_thread

KEY_MEMORY_BYTES = 128
"""The share of a candidate in the memory of the offset map, more than it takes; its key gets as much."""

TOMBSTONES_PER_BATCH = 1000
BATCH_BYTES = 64 << 10

GAP_BYTES_MAX = 64 << 10
GAP_INFLATED_BYTES_MAX = 256 << 10
"""The loop compares so many bytes of new records in one turn; a thread compares more."""

TRIES_MAX = 20
"""How often a batch is tried while producers append more than one turn may compare; then the next sweep
takes over."""

Append: TypeAlias = Callable[[PartitionLog, ValidBatch], Appended]
"""Appends a batch as a producer without an id would, and lets it become durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The plan of a sweep, made at one moment on the event loop."""

    view: CleaningView
    """The log as it was, `as_if_rolled`."""
    now_ms: int
    """Values that expire up to this wall time are expired."""
    ranges: Ranges = ()
    """What earlier sweeps have found."""
    knowledge: int = 0
    """Which state of the caller's knowledge that is."""


@any_thread
class Sweep:
    """One sweep. The thread calls `next_round` and `prepare`, the loop `append`, never at once."""

    __slots__ = (
        "_active", "_batch", "_collecting", "_count", "_keys", "_log", "_meter", "_now_ms", "_place",
        "_plan", "_read", "_settings", "_waiting", "appended",
    )  # fmt: skip

    def __init__(
        self,
        log: PartitionLog,
        plan: SweepPlan,
        settings: CleanerSettings,
        *,
        meter: PassMeter,
        now_ms: Callable[[], int],
    ) -> None:
        """Call it in the thread. `now_ms` is the wall clock, for the tombstones' timestamps."""
        # Constant after construction.
        view = plan.view
        self._log = log
        self._plan = plan
        self._settings = settings
        self._meter = meter
        self._now_ms = now_ms
        self._keys = ExpiredKeys(
            view.hash_key,
            now_ms=plan.now_ms,
            start_offset=view.log_start_offset,
            stable_offset=view.last_stable_offset,
            ttl=view.config.ttl,
            strategy=view.config.strategy.by_rank(),
            aborted=log.aborted_transactions,
            decompressed_bytes_max=settings.decompressed_bytes_max,
            keys_max=settings.map_bytes // (2 * KEY_MEMORY_BYTES),
            key_bytes_max=settings.map_bytes // 2,
        )
        has_active = view.active_row.file_version == UNKNOWN
        self._active = view.segments[-1] if has_active else None
        # State.
        self._collecting = self._collect()
        self._read: list[DueRange] = []
        self._waiting: list[int] = []
        """The offsets of candidates that later sweeps have to look at."""
        self._place = self._view_end()
        """The base offset of the segment, and the position in it, up to which all was compared."""
        self._batch: ValidBatch | None = None
        self._count = 0
        self.appended = 0
        """Tombstones."""

    # ---------------------------------------------------------------- in the thread

    def next_round(self) -> bool:
        """Collect candidates, and drop those that the log outranks. Returns False if none was left to
        collect.

        Raises:
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        """
        if next(self._collecting, None) is None:
            return False
        self._place = self._view_end()
        self._compare_view()
        return True

    def prepare(self) -> bool:
        """Compare what was appended meanwhile, and write the next batch of tombstones. Returns False if
        no candidate is left. Raises as `next_round`."""
        self._meter.check()
        self._compare_on()
        tombstones = self._keys.write_tombstones(
            now_ms=self._now_ms(), count_max=TOMBSTONES_PER_BATCH, bytes_max=BATCH_BYTES
        )
        if tombstones is None:
            self._batch = None
            self._waiting += self._keys.deferred_offsets()
            return False
        self._batch, self._count = batch_of(tombstones, self._plan.view.config), tombstones.count
        return True

    def give_up(self) -> None:
        """Leave the candidates of this round to the next sweep."""
        self._keys.retract()
        self._waiting += self._keys.deferred_offsets()

    def report(self, seconds: float) -> ExpiryReport:
        """Returns what a sweep has done that has ended."""
        view, plan = self._plan.view, self._plan
        ranges = read_again(plan.ranges, self._read, start=view.log_start_offset)
        ranges = due_at_once(ranges, self._waiting)
        return ExpiryReport(
            topic=view.topic_partition.topic,
            partition=view.topic_partition.partition,
            end_offset=view.last_stable_offset,
            expired=self._keys.expired,
            tombstones=self.appended,
            deferred=len(self._waiting),
            unreadable=self._keys.unreadable,
            bytes_read=self._meter.bytes_read,
            seconds=seconds,
            throttled_seconds=self._meter.throttled_seconds,
            ranges=ranges,
        )

    def _collect(self) -> Iterator[bool]:
        """Collect candidates, and yield whenever there is no room for more, or at the end."""
        view, progress = self._plan.view, self._meter.progress
        spans = [
            *spans_to_read(
                self._plan.ranges,
                start=view.log_start_offset,
                end=view.last_stable_offset,
                now_ms=self._plan.now_ms,
            )
        ]
        progress.enter(Phase.SEARCH)
        self._keys.begin()
        for start, end in spans:
            self._keys.collect_between(start, end)
            for segment in view.segments:
                if segment.row.base_offset < end and segment.row.end_offset > start:
                    yield from self._collect_in(segment, start, end)
            self._note_read(start, end, 0)
        if self._keys.candidates_left:
            yield True

    def _collect_in(self, segment: CleanableSegment, start: int, end: int) -> Iterator[bool]:
        fed = b"", 0

        def step(chunk: bytes, position: int) -> ReadStep:
            nonlocal fed
            fed = chunk, position
            return self._keys.collect(chunk, position=position)

        first = 0
        if segment.row.base_offset < start:
            first = position_before(segment.segment, Offset(start))
        for advance in scan_segment(
            segment, step, chunk_bytes=self._settings.chunk_bytes, meter=self._meter, start=first
        ):
            while self._keys.is_full:
                yield True
                self._keys.begin()
                self._keys.collect(fed[0], position=fed[1])
            self._note_read(start, min(self._keys.collected_end, end), advance.consumed_bytes)
            if self._keys.collected_end >= end:
                return

    def _note_read(self, start: int, end: int, size: int) -> None:
        """Note that the values of a span that begins at `start` were collected up to `end`."""
        if self._read:
            start = max(start, self._read[-1].end)
        if start < end:
            self._read.append(DueRange(start, end, self._keys.take_least_later_ms(), size))

    # ---------------------------------------------------------------- comparing

    def _view_end(self) -> tuple[int, int]:
        if self._active is not None:
            return self._active.row.base_offset, self._active.row.size
        return self._plan.view.active_row.base_offset, 0

    def _compare_view(self) -> None:
        """Compare the candidates with the log as it was when the sweep was planned."""
        view = self._plan.view
        lowest = 0 if view.config.strategy.has_versions else self._keys.least_offset
        sealed = [
            each
            for each in view.segments
            if each is not self._active and each.row.end_offset > lowest
        ]
        run_with_sidecars(
            view.hash_key,
            self._settings,
            self._meter,
            lambda index: self._compare_sealed(sealed, index),
            strategy=view.config.strategy,
        )
        if self._active is not None:
            self._compare_records(self._active, 0)
        self._keys.note_compared(view.active_row.base_offset)

    def _compare_sealed(self, sealed: list[CleanableSegment], index: SegmentIndex) -> None:
        indexed = index.index_segments(sealed)
        self._meter.progress.expect_left(Phase.RECOPY, 0)
        self._meter.progress.enter(Phase.MARK)
        for segment in indexed:
            if self._keys.candidates_left:
                self._compare_segment(segment)

    def _compare_segment(self, indexed: IndexedSegment) -> None:
        base_offset = indexed.row.base_offset
        try:
            for block in indexed.blocks():
                self._keys.compare_keys(block.data, base_offset=base_offset)
        except KeysDiffer as error:
            indexed.segment.drop_key_sidecar()
            raise DamagedSidecar(indexed.segment.segment.path(KEYS), str(error)) from error

    def _compare_on(self) -> None:
        """Compare the candidates with what was appended since."""
        for segment, position in self._since():
            row = segment.full_row()
            if row.size > position:
                self._compare_records(CleanableSegment(row, segment), position)
            self._place = segment.base_offset, row.size

    def _compare_records(self, segment: CleanableSegment, start: int) -> None:
        def step(chunk: bytes, position: int) -> ReadStep:
            return self._keys.compare(chunk, position=position)

        for _ in scan_segment(
            segment, step, chunk_bytes=self._settings.chunk_bytes, meter=self._meter, start=start
        ):
            pass

    def _since(self) -> list[tuple[Segment, int]]:
        """Returns the segments from the place on up to which all was compared, and where to begin in
        each."""
        (base_offset, position), found = self._place, list[tuple[Segment, int]]()
        # From the end, because the loop asks for this, and there may be thousands.
        for each in reversed(self._log.segments):
            if each.base_offset < base_offset:
                break
            found.append((each, position if each.base_offset == base_offset else 0))
        return found[::-1]

    # ---------------------------------------------------------------- on the loop

    @loop_thread
    def append(self, append: Append) -> bool:
        """Append the batch that `prepare` has written, if none of its values has a later record now.

        Returns False if it was not appended: call `prepare` again.

        Raises:
            CleaningAborted: the log was truncated, deleted or reconfigured.
            StorageError: the log takes no appends now.
        """
        assert self._batch is not None
        self._check_unchanged()
        self._keys.drop_below(self._log.log_start_offset)
        if not self._close_gap() or self._keys.is_stale:
            self._keys.retract()
            return False
        end = self._log.log_end_offset
        assert self._keys.compared_end == end, "a record was not compared"
        appended = append(self._log, self._batch)
        assert appended.base_offset == end, "something was appended between proof and tombstones"
        self._keys.appended()
        self._keys.note_compared(appended.next_offset)
        active = self._log.segments[-1]
        self._place = active.base_offset, active.size
        self.appended += self._count
        self._batch = None
        return True

    def _check_unchanged(self) -> None:
        view, config = self._plan.view, self._log.config
        is_same = (
            config.expires_values
            and config.ttl == view.config.ttl
            and config.strategy == view.config.strategy
        )
        if self._log.generation != view.generation or not is_same:
            raise CleaningAborted("the log was truncated, deleted or reconfigured, or is held")

    def _close_gap(self) -> bool:
        """Compare what was appended since `prepare`. Returns False if that would take too long."""
        gap = [(each, position, each.size - position) for each, position in self._since()]
        if sum(size for *_, size in gap) > GAP_BYTES_MAX:
            return False
        try:
            for segment, position, size in gap:
                if size:
                    self._compare_cached(segment, position, size)
                self._place = segment.base_offset, position + size
        except (NotCached, DecompressionTooLarge):
            return False
        return True

    def _compare_cached(self, segment: Segment, position: int, size: int) -> None:
        with segment.reading(cached_only=True) as reads:
            data = reads.read_at(position, size)
        step = self._keys.compare(
            data, position=position, decompressed_bytes_max=GAP_INFLATED_BYTES_MAX
        )
        assert step.consumed_bytes == size, "an append writes whole batches"


def batch_of(tombstones: Tombstones, config: LogConfig) -> ValidBatch:
    """Returns the batch with these tombstones. Pure."""
    kind = TimestampType.CREATE_TIME
    if config.is_log_append_time:
        kind = TimestampType.LOG_APPEND_TIME
    view = memoryview(
        build_batch_around(
            tombstones.records,
            record_count=tombstones.count,
            timestamp=tombstones.base_timestamp,
            max_timestamp=tombstones.max_timestamp,
            timestamp_type=kind,
        )
    )
    return ValidBatch(read_header(view), view)
