"""Frozen views of a log, for a cleaning pass and for others that read segments as it does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar, MissingFile, StorageError
from storage.files.files import unlink_if_there
from storage.files.paths import CLEANED, KEYS
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeySidecar
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.formats.topic_partition import TopicPartition
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.segment.key_sidecar_writer import KeySidecarWriter
from storage.segment.segment import Segment
from storage.state.producer_state import ProducerStates

READ_AHEAD_BYTES = 4 << 20
"""The window of bytes that the disk reads ahead of a reader."""

_log = logging.getLogger("storage.log.cleaning_view")


@dataclass(frozen=True, slots=True)
class CleanableSegment:
    """A sealed segment of a view."""

    row: SegmentRow
    segment: Segment

    def read_at(self, position: int, size: int) -> bytes:
        """Read bytes of the segment's file, fewer only at its end.

        Starts to read the next window from the disk, so that a sequential reader finds it in the cache.

        Raises:
            SegmentRemoved: the log has been truncated or deleted: abort the pass.
        """
        with self.segment.pinned() as file:
            data = file.read_at(position, min(size, max(0, self.row.size - position)))
            ahead = window_ahead(position, position + len(data))
            if ahead is not None:
                file.read_ahead(ahead, READ_AHEAD_BYTES)
            return data

    def open_key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecar:
        """Open the segment's key sidecar without changing anything. Raises like `KeySidecar.open`."""
        path = self.segment.path(KEYS)
        return KeySidecar.open(self.segment.fs, path, self.row, hash_key, strategy)

    def key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecar | None:
        """Open the segment's key sidecar and remove a damaged one. Returns None if there is none.

        Raises:
            NoSpace: no descriptor is left.
            DiskError: a damaged sidecar cannot be removed.
        """
        try:
            sidecar = self.open_key_sidecar(hash_key, strategy)
        except MissingFile:
            self.segment.key_sidecar_size = 0
            return None
        except DamagedSidecar as error:
            _log.info("removing a key sidecar, which will be rebuilt: %s", error)
            self.drop_key_sidecar()
            return None
        self.segment.key_sidecar_size = sidecar.size
        return sidecar

    def new_key_sidecar(
        self, hash_key: bytes, strategy: CompactionStrategy = BY_OFFSET
    ) -> KeySidecarWriter:
        """Start the segment's key sidecar, one at a time. The file gets its name when it is finished.

        Raises:
            SegmentRemoved: the log has been truncated or deleted: abort the pass.
            NoSpace, DiskError: no file was created.
        """
        files = self.segment.files
        files.pin()
        try:
            return KeySidecarWriter(
                self.segment.fs,
                files.path(KEYS) + CLEANED,
                base_offset=self.row.base_offset,
                file_version=self.row.file_version,
                hash_key=hash_key,
                strategy=strategy,
                placed_as=files.path(KEYS),
                on_end=files.unpin,
            )
        except StorageError:
            files.unpin()
            raise

    def take_key_sidecar(self, path: str, hash_key: bytes) -> None:
        """Take over a sidecar of this segment that another process has written on the same disk.

        Raises:
            SegmentRemoved: the log has been truncated or deleted: abort the pass.
            DamagedSidecar: it belongs to another segment, or it is a link or has a second name.
            DiskError: it is missing or cannot be moved.
        """
        files, fs = self.segment.files, self.segment.fs
        files.pin()
        try:
            if KeySidecar.open(fs, path, self.row, hash_key).header.keys_checked:
                raise DamagedSidecar(path, "only a pass of this broker can have checked its keys")
            if not fs.is_plain_file(path):
                raise DamagedSidecar(path, "it is a link, or has a second hard link")
            fs.rename(path, files.path(KEYS))
        finally:
            files.unpin()

    def drop_key_sidecar(self) -> None:
        """Remove the segment's key sidecar, if there is one."""
        unlink_if_there(self.segment.fs, self.segment.path(KEYS))
        self.segment.key_sidecar_size = 0


def window_ahead(position: int, end: int) -> int | None:
    """Returns the start of the next window to read ahead after a read of [position, end). Pure.

    None if an earlier read has already asked for that window: asking again for a window that is in the
    page cache costs a lookup of each of its pages.
    """
    window = (end - 1) // READ_AHEAD_BYTES
    was_requested = (position - 1) // READ_AHEAD_BYTES >= window
    return None if was_requested else (window + 1) * READ_AHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningView:
    """A log at one moment, by which a pass plans."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: tuple[CleanableSegment, ...]
    """All segments without the active one, in offset order; on request with it, as if it had rolled."""
    generation: int
    """The log's generation; -1 during a truncation or a replacement, so that a pass fails early."""
    clean_offset: Offset
    has_history: bool
    """Whether keys may have older values below the clean offset."""
    has_unfinished_pass: bool = False
    """Whether a pass has swapped segments since the clean offset last moved: records below that may be
    gone because of records above it."""
    active_row: SegmentRow
    """The active segment at that moment, with its end and size."""
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    producer_last_offsets: tuple[Offset, ...]
    """The last offset of each active producer's last batch: that batch must stay, even if empty."""
    producer_marker_epochs: Mapping[int, int]
    """Producer id to epoch, for active producers without a data batch: their markers must stay."""
    hash_key: bytes
    """The log directory's secret with which keys are hashed; never shown."""

    @property
    def sealed_rows(self) -> tuple[SegmentRow, ...]:
        """The manifest rows of the sealed segments."""
        return tuple(segment.row for segment in self.segments)


def cleaning_view(
    identity: LogIdentity,
    config: LogConfig,
    segment_list: SegmentList,
    offsets: LogOffsets,
    producers: ProducerStates,
    *,
    as_if_rolled: bool,
    has_history: bool,
    has_unfinished_pass: bool,
) -> CleaningView:
    """Returns the view of a log. See `PartitionLog.cleaning_view`."""
    with segment_list.state_lock:
        segments, last_stable = segment_list.segments, offsets.last_stable
        moment = segment_list.moment
        if moment is not None and moment.is_taken and not as_if_rolled:
            # A pass is planned while a snapshot is being taken (`storage/state/moment.py`).
            last_stable = min(last_stable, moment.last_stable_offset)
        sealed = tuple(CleanableSegment(each.row(), each) for each in segments[:-1])
        active_row = segments[-1].full_row()
        if as_if_rolled and active_row.size:
            sealed = (*sealed, CleanableSegment(active_row, segments[-1]))
            active_row = empty_row(active_row.end_offset)
        return CleaningView(
            topic_partition=identity.topic_partition,
            config=config,
            segments=sealed,
            # A pass that is planned in the middle of one of these must fail.
            generation=UNKNOWN if segment_list.is_changing else segment_list.generation,
            clean_offset=max(segment_list.clean_offset, offsets.start),
            has_history=has_history,
            has_unfinished_pass=has_unfinished_pass,
            active_row=active_row,
            log_start_offset=offsets.start,
            last_stable_offset=last_stable,
            high_watermark=offsets.high_watermark,
            log_end_offset=offsets.end,
            producer_last_offsets=producers.last_data_offsets(),
            producer_marker_epochs=producers.marker_epochs(),
            hash_key=identity.hash_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TailView:
    """The end of a log at one moment: from the segment of some offset on."""

    segments: tuple[CleanableSegment, ...]
    """In offset order; the active one is the last, as if it had rolled."""
    clean_offset: Offset
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    rewrites: int
    swaps: int
    """See `PartitionLog` for both."""


def tail_view(segment_list: SegmentList, offsets: LogOffsets, from_offset: Offset) -> TailView:
    """Returns the view of a log's end. See `PartitionLog.tail_view`."""
    with segment_list.state_lock:
        tail: list[CleanableSegment] = []
        # From the end, because there may be thousands of segments.
        for each in reversed(segment_list.segments):
            if each.end_offset <= from_offset:
                break
            tail.append(CleanableSegment(each.full_row(), each))
        return TailView(
            segments=tuple(reversed(tail)),
            clean_offset=segment_list.clean_offset,
            log_start_offset=offsets.start,
            last_stable_offset=offsets.last_stable,
            high_watermark=offsets.high_watermark,
            rewrites=segment_list.rewrites,
            swaps=segment_list.swaps,
        )


def empty_row(base_offset: Offset) -> SegmentRow:
    """Returns the row of an active segment without appends."""
    return SegmentRow(base_offset=base_offset, file_version=UNKNOWN, end_offset=base_offset, size=0)
