"""What a cleaning pass may know of a log: one frozen picture, and a way to read its segments."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from storage.errors import DamagedSidecar, MissingFile, StorageError
from storage.files import unlink_if_there
from storage.key_sidecar import KeySidecar
from storage.key_sidecar_writer import KeySidecarWriter
from storage.log_config import LogConfig
from storage.manifest import UNKNOWN, SegmentRow
from storage.paths import CLEANED, KEYS
from storage.segment import Segment
from storage.topic_partition import TopicPartition

READ_AHEAD_BYTES = 4 << 20
"""The disk is asked for so much at a time, one such window ahead of who reads."""

_log = logging.getLogger("storage.cleaning_view")


@dataclass(frozen=True, slots=True)
class CleanableSegment:
    """A sealed segment of the picture."""

    row: SegmentRow
    segment: Segment

    def read_at(self, position: int, size: int) -> bytes:
        """Read bytes of the segment's file; fewer only at its end.

        Who reads on finds the next ones in the page cache: the disk reads them meanwhile.

        Raises:
            SegmentRemoved: the log was truncated or deleted since: abort the pass.
        """
        with self.segment.pinned() as file:
            data = file.read_at(position, min(size, max(0, self.row.size - position)))
            ahead = window_ahead(position, position + len(data))
            if ahead is not None:
                file.read_ahead(ahead, READ_AHEAD_BYTES)
            return data

    def open_key_sidecar(self, hash_key: bytes) -> KeySidecar:
        """The segment's key sidecar, for who changes nothing. Raises as `KeySidecar.open`."""
        return KeySidecar.open(self.segment.fs, self.segment.path(KEYS), self.row, hash_key)

    def key_sidecar(self, hash_key: bytes) -> KeySidecar | None:
        """The segment's key sidecar; None if there is none. One that is no good is removed.

        Raises:
            NoSpace: no descriptor is left.
            DiskError: a damaged one cannot be removed.
        """
        try:
            sidecar = self.open_key_sidecar(hash_key)
        except MissingFile:
            self.segment.key_sidecar_size = 0
            return None
        except DamagedSidecar as error:
            _log.info("it will be made anew: %s", error)
            self.drop_key_sidecar()
            return None
        self.segment.key_sidecar_size = sidecar.size
        return sidecar

    def new_key_sidecar(self, hash_key: bytes) -> KeySidecarWriter:
        """Begin the segment's key sidecar; one at a time. It has its name once it is finished.

        Raises:
            SegmentRemoved: the log was truncated or deleted since: abort the pass.
            NoSpace, DiskError: nothing was made.
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
                placed_as=files.path(KEYS),
                on_end=files.unpin,
            )
        except StorageError:
            files.unpin()
            raise

    def take_key_sidecar(self, path: str, hash_key: bytes) -> None:
        """Take over the sidecar of this segment that another process has made, on the same disk.

        Raises:
            SegmentRemoved: the log was truncated or deleted since: abort the pass.
            DamagedSidecar: it is none of this segment, or no file of its own.
            DiskError: it is not there, or cannot be had.
        """
        files, fs = self.segment.files, self.segment.fs
        files.pin()
        try:
            KeySidecar.open(fs, path, self.row, hash_key)
            if not fs.is_plain_file(path):
                raise DamagedSidecar(path, "it is not a file of its own")
            fs.rename(path, files.path(KEYS))
        finally:
            files.unpin()

    def drop_key_sidecar(self) -> None:
        """Remove the segment's key sidecar, if there is one."""
        unlink_if_there(self.segment.fs, self.segment.path(KEYS))
        self.segment.key_sidecar_size = 0


def window_ahead(position: int, end: int) -> int | None:
    """Where the window begins that is to be read ahead of who reads from `position` to `end`. Pure.

    None where the reads before have asked for it: a window that is in the page cache already costs a
    look at each of its pages.
    """
    window = (end - 1) // READ_AHEAD_BYTES
    was_asked_for = (position - 1) // READ_AHEAD_BYTES >= window
    return None if was_asked_for else (window + 1) * READ_AHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningView:
    """A log at one moment, as a pass plans by it."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: tuple[CleanableSegment, ...]
    """All segments but the active one, in offset order; with it, as if it had rolled, on request."""
    generation: int
    """The log's; -1 while it is truncated: then a pass ends at its first look."""
    clean_offset: int
    active_row: SegmentRow
    """The active segment as it was, with its end and size."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    producer_last_offsets: tuple[int, ...]
    """The last offset of each active producer's last batch: the batch must stay, if empty."""
    producer_marker_epochs: Mapping[int, int]
    """Producer id to epoch, of active producers without a data batch: their markers must stay."""
    hash_key: bytes
    """The secret of the log directory that keys are hashed with; never shown."""

    @property
    def sealed_rows(self) -> tuple[SegmentRow, ...]:
        """The rows of the sealed segments."""
        return tuple(segment.row for segment in self.segments)


def empty_row(base_offset: int) -> SegmentRow:
    """An active segment that nothing was appended to."""
    return SegmentRow(base_offset=base_offset, file_version=UNKNOWN, end_offset=base_offset, size=0)
