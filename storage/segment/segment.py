"""One segment of a log: a file of record batches, and its indexes, as appends and seals change them.

    created -> active (appends) -> sealed (immutable) -> retired (in no manifest) -> file removed

Readers pin a segment while they send from its file; a retired segment loses its files when the last
pin goes. The segment owns the file, which is opened at the first use.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from protocol.records.batch_tally import BatchTally
from protocol.wire.numbers import Offset, Position, RelativeOffset
from storage.batches.cached_reads import CachedReads, Reads, WaitingReads
from storage.files.errors import DiskError, MissingFile, NotCached
from storage.files.files import Buffer, File, FileSystem
from storage.files.paths import KEYS, LOG, OFFSET_INDEX, TIME_INDEX
from storage.formats.config_property import LONG_MAX
from storage.formats.index_files import read_index_files, write_index_files
from storage.formats.manifest import FLAG_CLEANED, UNKNOWN, SegmentRow
from storage.formats.segment_index import EMPTY_MARK, IndexMark, SegmentIndex
from storage.segment.files import Background, SegmentFiles
from storage.segment.lookup import Lookup, boundary_before
from storage.segment.rebuild import rebuild_index
from storage.segment.sealed_index import SealedIndex
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("storage.segment.segment")

REBUILT_INTERVAL_BYTES = 4096
"""The interval between the entries of a rebuilt index."""

_loading = threading.Lock()


@any_thread
class Segment:
    """A segment of a log. Only the log's owner changes it."""

    __slots__ = (
        "_bytes_since_entry",
        "_has_index_files",
        "_index",
        "_kept_entries",
        "_sealed_index",
        "_trusted_index",
        "base_offset",
        "control_count",
        "counted_below",
        "created_ms",
        "end_offset",
        "file_version",
        "files",
        "first_append_ms",
        "flags",
        "fs",
        "is_sealed",
        "key_sidecar_size",
        "last_append_ms",
        "least_delete_horizon_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "record_count",
        "size",
        "tombstone_bytes",
        "tombstone_count",
        "tombstones_due_ms",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        row: SegmentRow,
        *,
        background: Background,
    ) -> None:
        # Constant after construction
        self.fs = fs
        self.files = SegmentFiles(
            fs,
            directory,
            row.base_offset,
            row.file_version,
            background=background,
            is_settled=row.end_offset != UNKNOWN,
        )
        self.base_offset = row.base_offset
        self.file_version = row.file_version
        self.created_ms = row.created_ms
        # State: a sealed segment no longer changes, except for its pins.
        self._index: SegmentIndex | None = None
        self._trusted_index: SegmentIndex | None = None
        """`_index` if it was built from the batches, not read from files, which may be wrong."""
        self._sealed_index: tuple[SealedIndex, SealedIndex] | None = None
        """The index files, for readers that may wait and for readers that must not."""
        self._has_index_files = row.end_offset != UNKNOWN
        self._kept_entries = EMPTY_MARK
        """The entries of `_index` that the index files have, written or read."""
        self._bytes_since_entry = 0
        self.is_sealed = row.end_offset != UNKNOWN
        self.flags = row.flags
        self.end_offset = row.end_offset if self.is_sealed else row.base_offset
        self.size = max(row.size, 0)
        self.max_timestamp = row.max_timestamp
        self.offset_of_max_timestamp = row.offset_of_max_timestamp
        self.first_append_ms = row.first_append_ms
        self.last_append_ms = row.last_append_ms
        self.record_count = max(row.record_count, 0)
        self.control_count = row.control_count if self.record_count else 0
        """See `SegmentRow.control_count`."""
        self.tombstone_count = row.tombstone_count
        self.least_delete_horizon_ms = row.least_delete_horizon_ms
        self.tombstone_bytes = row.tombstone_bytes
        self.tombstones_due_ms = row.tombstones_due_ms
        self.counted_below: tuple[Position, int] | None = None
        """The last batch boundary up to which data records were counted, and their number
        (`storage/counts/segment_counts.py`)."""
        self.key_sidecar_size: int | None = None
        """The size of its key sidecar, 0 if there is none; None if it is not known yet."""

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG)}, [{self.base_offset}, {self.end_offset}), {self.size} B)"

    def row(self) -> SegmentRow:
        """Returns its row in the manifest: complete once sealed, else only what cannot change."""
        return self.full_row() if self.is_sealed else self.active_row()

    def active_row(self) -> SegmentRow:
        """Returns the values that cannot change while it is active; a scan finds its end."""
        return SegmentRow(
            base_offset=self.base_offset,
            file_version=self.file_version,
            flags=self.flags,
            created_ms=self.created_ms,
            first_append_ms=self.first_append_ms,
        )

    def full_row(self) -> SegmentRow:
        """Returns a row with all current values."""
        return SegmentRow(
            base_offset=self.base_offset,
            file_version=self.file_version,
            flags=self.flags,
            end_offset=self.end_offset,
            size=self.size,
            max_timestamp=self.max_timestamp,
            offset_of_max_timestamp=self.offset_of_max_timestamp,
            created_ms=self.created_ms,
            first_append_ms=self.first_append_ms,
            last_append_ms=self.last_append_ms,
            record_count=self.record_count,
            control_count=self.control_count,
            tombstone_count=self.tombstone_count,
            least_delete_horizon_ms=self.least_delete_horizon_ms,
            tombstone_bytes=self.tombstone_bytes,
            tombstones_due_ms=self.tombstones_due_ms,
        )

    # ---------------------------------------------------------------- files

    def path(self, kind: str) -> str:
        """Returns the path of one of the segment's files."""
        return self.files.path(kind)

    def pinned(self) -> AbstractContextManager[File]:
        """Open the segment's file and pin it in the body. Raises SegmentRemoved."""
        return self.files.pinned()

    @contextmanager
    def reading(self, *, cached_only: bool) -> Iterator[Reads]:
        """Pin the segment in the body and yield a way to read it.

        Raises:
            SegmentRemoved: it was retired and not pinned.
            NotCached: `cached_only` is set, and its file is not even open.
        """
        self.files.pin()
        try:
            if not cached_only:
                yield WaitingReads(self.files.open())
            elif self.files.is_open:
                yield CachedReads(self.files.open())
            else:
                raise NotCached(self.path(LOG))
        finally:
            self.files.unpin()

    @property
    def _is_settled(self) -> bool:
        """Whether it is sealed and synced with its indexes: from then on it is only read."""
        return self.is_sealed and self._has_index_files

    # ---------------------------------------------------------------- appending

    @loop_thread
    def append(
        self,
        batch: Buffer,
        *,
        last_offset: Offset,
        record_count: int,
        is_control: bool,
        max_timestamp: int,
        now_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch with this last offset and largest timestamp."""
        assert not self.is_sealed
        if self._bytes_since_entry > index_interval_bytes:
            # After a start this reads the index files. It may fail, so do it before the write.
            self.index()
        position = self.files.append((batch,))
        self.count_batch(
            position,
            len(batch),
            last_offset=last_offset,
            record_count=record_count,
            is_control=is_control,
            max_timestamp=max_timestamp,
            index_interval_bytes=index_interval_bytes,
        )
        self.set_append_time(now_ms)

    @loop_thread
    def append_run(self, batches: Buffer, tally: BatchTally, *, now_ms: int) -> None:
        """Write the batches that `tally` has found to continue the segment (`tally`)."""
        assert not self.is_sealed
        position = self.files.append((batches,))
        assert position == self.size, "a batch begins where the last one ends"
        self.apply_tally(tally)
        self.set_append_time(now_ms)

    def set_append_time(self, now_ms: int) -> None:
        """Record the wall time of an append, from which segment.ms and the lags count."""
        if self.first_append_ms == UNKNOWN:
            self.first_append_ms = now_ms
        self.last_append_ms = now_ms

    def count_batch(
        self,
        position: Position,
        size: int,
        *,
        last_offset: Offset,
        record_count: int,
        is_control: bool,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Update the segment's values with a batch of `size` bytes at `position` in the file."""
        assert position == self.size, "a batch begins where the last one ends"
        # The end offset first: another thread reads the size before the end offset, and must not
        # conclude that this batch ends below its bound.
        self.end_offset = Offset(last_offset + 1)
        self.size = position + size
        self.record_count += record_count
        if is_control and self.control_count != UNKNOWN:
            self.control_count += record_count
        if record_count and max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_entry > index_interval_bytes:
            self._add_entry(last_offset, position)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self._check_end_follows_base()

    def _check_end_follows_base(self) -> None:
        assert self.base_offset <= self.end_offset
        assert self.size >= 0
        assert 0 <= self._bytes_since_entry <= self.size

    def _add_entry(self, last_offset: Offset, position: Position) -> None:
        timestamp_offset = max(self._relative(self.offset_of_max_timestamp), RelativeOffset(0))
        relative = self._relative(last_offset)
        self.index().add(relative, position, self.max_timestamp, timestamp_offset)

    def _relative(self, offset: Offset) -> RelativeOffset:
        return RelativeOffset(offset - self.base_offset)

    # ---------------------------------------------------------------- indexes

    @property
    def index_bytes(self) -> int:
        """The size of the active segment's larger index."""
        return self._index.file_bytes_max if self._index is not None else 0

    def trusts(self, index: Lookup) -> bool:
        """Returns whether the index was built from the batches, so that its entries need no check."""
        return index is self._trusted_index

    def lookup(self) -> Lookup:
        """Returns the index for lookups: entries in memory, or the files of a sealed segment."""
        # Local variables, because another thread may drop the indexes in memory at any time.
        index = self._index
        if index is not None:
            return index
        if not self._has_index_files or not self.is_sealed:
            return self.index()
        sealed = self._sealed_index
        if sealed is None:
            try:
                index_files = SealedIndex(
                    self.fs,
                    self.path(OFFSET_INDEX),
                    self.path(TIME_INDEX),
                    size=self.size,
                    span=self.end_offset - self.base_offset,
                )
            except (ValueError, MissingFile) as error:
                _log.warning("rebuilding an index: %s", error)
                return self.rebuilt_index()
            sealed = self._sealed_index = (index_files, index_files.cached_only())
        return sealed[0]

    def cached_lookup(self) -> Lookup:
        """Returns the same as `lookup`, from memory only. Raises NotCached."""
        index = self._index
        if index is not None:
            return index
        if not self._has_index_files:
            return self.index()
        sealed = self._sealed_index
        if sealed is None:
            raise NotCached(self.path(OFFSET_INDEX))
        return sealed[1]

    def rebuilt_index(self) -> SegmentIndex:
        """Rebuild the indexes from the batches, in memory. Raises DiskError."""
        with self.pinned() as file:
            index = rebuild_index(file, self.size, self.base_offset, REBUILT_INTERVAL_BYTES)
        self._index, self._kept_entries = index, EMPTY_MARK
        self._trusted_index = index
        return index

    def index(self) -> SegmentIndex:
        """Returns the index in memory: loaded from the files or, if they are unusable, rebuilt."""
        index = self._index
        if index is None:
            # The appending thread must not add to one index while a reader's thread loads another.
            with _loading:
                index = self._index
                if index is None:
                    index = self._index = self._first_index()
        return index

    def _first_index(self) -> SegmentIndex:
        if self._has_index_files:
            return self._load_index(may_be_longer=False)
        self._trusted_index = SegmentIndex()
        return self._trusted_index

    def _load_index(self, *, may_be_longer: bool) -> SegmentIndex:
        try:
            index = read_index_files(
                self.fs,
                self._index_paths,
                size=self.size,
                span=self.end_offset - self.base_offset,
                may_be_longer=may_be_longer,
            )
        except (ValueError, MissingFile) as error:
            _log.warning("%s: rebuilding the index: %s", self.path(OFFSET_INDEX), error)
            return self.rebuilt_index()
        self._kept_entries = index.mark
        return index

    @property
    def _index_paths(self) -> tuple[str, str]:
        return self.path(OFFSET_INDEX), self.path(TIME_INDEX)

    def write_index(self) -> None:
        """Write the index files. Their names are durable once the directory is synced."""
        index = self.index()
        self.write_index_up_to(index, index.mark)
        self._has_index_files = True
        self._sealed_index = None

    def write_index_up_to(self, index: SegmentIndex, end: IndexMark) -> None:
        """Write the entries up to `end` of this segment's index, which may grow meanwhile."""
        kept = self._kept_entries if index is self._index else EMPTY_MARK
        write_index_files(self.fs, self._index_paths, index, end, kept=kept)
        if index is self._index:
            self._kept_entries = end

    def remove_index(self) -> None:
        """Remove the files that can be rebuilt on demand: the index files and the key sidecar."""
        self._sealed_index = None
        self.key_sidecar_size = None
        self.files.unlink((OFFSET_INDEX, TIME_INDEX, KEYS))

    def drop_index(self) -> None:
        """Free the memory of the indexes; the next reader loads them again."""
        if self._is_settled:
            self._index = self._trusted_index = None
            self.files.share(is_settled=True)

    def seal(self) -> None:
        """Accept no more appends."""
        self.is_sealed = True

    def reopen(self) -> None:
        """Become the active segment again after a clean stop. Index files are read when needed."""
        self.is_sealed = False
        self.files.share(is_settled=False)
        # An empty one may be new, without index files.
        self._has_index_files = self.size > 0

    def resume(self) -> None:
        """Become the active segment up to its row's end, a recovery point; a scan finds the rest.

        Raises:
            DiskError: the index files, or the batches to rebuild them from, cannot be read.
        """
        self.is_sealed = self._has_index_files = False
        self.files.share(is_settled=False)
        if self.size:
            self._index = self._load_index(may_be_longer=True)
            self._bytes_since_entry = self.size - boundary_before(self, Position(self.size))

    def tally(
        self,
        *,
        index_interval_bytes: int,
        producers_from: int = 0,
        size_max: int = LONG_MAX,
        index_bytes_max: int = LONG_MAX,
        is_checked: bool = False,
    ) -> BatchTally:
        """Returns a tally that continues at the segment's end; `apply_tally` takes it over.

        Args:
            size_max, index_bytes_max: the segment's bounds, if the batches are to be appended to it.
            is_checked: whether their CRCs have been checked.

        Raises:
            DiskError: the index files, or the batches to rebuild them from, cannot be read.
        """
        index = self.index()
        return BatchTally(
            base_offset=self.base_offset,
            position=self.size,
            end_offset=self.end_offset,
            record_count=self.record_count,
            control_count=max(self.control_count, 0),
            max_timestamp=self.max_timestamp,
            offset_of_max_timestamp=self.offset_of_max_timestamp,
            bytes_since_entry=self._bytes_since_entry,
            last_entry_timestamp=index.last_timestamp,
            index_interval_bytes=index_interval_bytes,
            producers_from=producers_from,
            size_max=size_max,
            index_bytes_max=index_bytes_max,
            offset_entries=index.mark.offset_entries,
            time_entries=index.mark.time_entries,
            checks_crc=not is_checked,
            keeps_commits=is_checked,
        )

    def apply_tally(self, tally: BatchTally) -> None:
        """Extend the segment by the batches that `tally` has found after its end."""
        # The end offset first, as in `count_batch`.
        self.end_offset = tally.end_offset
        self.size = tally.position
        self.record_count = tally.record_count
        if self.control_count != UNKNOWN:
            self.control_count = tally.control_count
        self.max_timestamp = tally.max_timestamp
        self.offset_of_max_timestamp = tally.offset_of_max_timestamp
        self._bytes_since_entry = tally.bytes_since_entry
        self.index().extend(tally.index_entries)
        self._check_end_follows_base()

    def restore_append_times(self, first_append_ms: int, now_ms: int) -> None:
        """Set append times that a crash has lost: an early one for rolls, a late one for lags."""
        self.first_append_ms = first_append_ms if first_append_ms != UNKNOWN else self.created_ms
        self.last_append_ms = now_ms

    def cut(
        self, position: Position, end_offset: Offset, *, record_count: int, control_count: int
    ) -> None:
        """Cut off everything from `position` on; the segment then ends at `end_offset`.

        Args:
            record_count, control_count: of the batches that stay, as in its row.
        """
        self.key_sidecar_size = None
        self.files.unlink((KEYS,))
        with self.pinned() as file:
            file.truncate(position)
        index = self.index()
        index.truncate(self._relative(end_offset))
        self._kept_entries = IndexMark(*map(min, self._kept_entries, index.mark))
        self.size = position
        self.end_offset = end_offset
        self.record_count = record_count
        self.control_count = control_count
        if self.offset_of_max_timestamp >= end_offset:
            # An upper bound: no one searches the rest for its largest timestamp.
            self.offset_of_max_timestamp = max(Offset(end_offset - 1), self.base_offset)
        self._bytes_since_entry = position - boundary_before(self, position)
        self._check_end_follows_base()

    def key_sidecar_bytes(self) -> int:
        """Returns the size of its key sidecar, for metrics. Asks the disk once; passes update it."""
        size = self.key_sidecar_size
        if size is None:
            try:
                size = self.fs.size(self.path(KEYS))
            except DiskError:
                size = 0
            if self.key_sidecar_size is None:
                self.key_sidecar_size = size
        return size

    @property
    def is_cleaned(self) -> bool:
        """Whether the cleaner wrote it."""
        return bool(self.flags & FLAG_CLEANED)
