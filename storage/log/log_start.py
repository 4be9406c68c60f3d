"""Moves the start of a log, for retention and for DeleteRecords.

    manifest with the new log start, and without the segments below it   <- now it is certain
    readers see the new log start
    segments retired: their files go with the last reader

This order keeps the log start from ever going back: no reader sees one that a crash could undo. If
the broker crashes after the commit, the next recovery removes the files.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, NoSpace
from storage.formats.log_config import LogConfig
from storage.log.commits import LogCommits
from storage.log.log_service import LogService
from storage.log.offsets import LogOffsets
from storage.log.retention import DeletionReason, Retention, decide_retention
from storage.log.segment_list import SegmentList
from storage.segment.segment import Segment
from storage.threads import any_thread

_log = logging.getLogger("storage.log.log_start")


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that was deleted."""

    reason: DeletionReason
    size: int
    """The size of its log file in bytes."""


class Configured(Protocol):
    """The log's configuration, which may change until the commit lock is held."""

    @property
    def config(self) -> LogConfig: ...


class LogStart:
    """Moves the start of one log. Created for each use, so that 10,000 logs do not hold one each."""

    __slots__ = ("_commits", "_list", "_log", "_offsets", "_service")

    def __init__(
        self,
        log: Configured,
        offsets: LogOffsets,
        segment_list: SegmentList,
        commits: LogCommits,
        service: LogService,
    ) -> None:
        self._log = log
        self._offsets = offsets
        self._list = segment_list
        self._commits = commits
        self._service = service

    @any_thread
    def due(self, now_ms: int) -> Retention:
        """Returns what retention would delete now."""
        return decide_retention(
            self._list.segments,
            self._log.config,
            now_ms=now_ms,
            log_start_offset=self._offsets.start,
            high_watermark=self._offsets.high_watermark,
        )

    def retain(self, now_ms: int) -> tuple[DeletedSegment, ...]:
        """Delete the sealed segments that retention does not keep. See `PartitionLog.retain`."""
        with self._commits.commit_lock:
            due = self.due(now_ms)
            # The active segment waits until it is rolled.
            sealed_end = self._list.active.base_offset
            start_offset = max(self._offsets.start, min(due.log_start_offset, sealed_end))
            return self._advance(start_offset, due.reasons) if due.reasons else ()

    def delete_records(
        self, offset: Offset, sync: Callable[[], object]
    ) -> tuple[DeletedSegment, ...] | ErrorCode:
        """Move the log start up to `offset`. See `PartitionLog.delete_records`."""
        with self._commits.commit_lock:
            if not 0 <= offset <= self._offsets.high_watermark:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            if offset <= self._offsets.start:
                return ()
            if offset > self._list.active.base_offset:
                # Without the sync a crash could leave a log that ends before it starts.
                sync()
            return self._advance(offset, itertools.repeat(DeletionReason.LOG_START))

    def _advance(
        self, start_offset: Offset, reasons: Iterable[DeletionReason]
    ) -> tuple[DeletedSegment, ...]:
        """Move the start; `reasons` are those of the deleted segments, in order."""
        with self._service.failing_with_the_disk(LogOffline, NoSpace):
            self._service.check_online()
            gone = self._make_room_and_advance(start_offset)
        deleted = tuple(DeletedSegment(why, each.size) for each, why in zip(gone, reasons))  # noqa: B905
        _log.info(
            "%s: log start is now offset %d: %d segments deleted, %d bytes",
            self._service.name,
            start_offset,
            len(deleted),
            sum(each.size for each in deleted),
        )
        return deleted

    def _make_room_and_advance(self, start_offset: Offset) -> tuple[Segment, ...]:
        try:
            return self._commits.advance_start(start_offset)
        except NoSpace:
            # The manifest needs space, and retention is what frees a full disk: the indexes and key
            # sidecars of the segments that go make room for it.
            for segment in self._list.segments[:-1]:
                if segment.end_offset <= start_offset:
                    segment.remove_index()
            return self._commits.advance_start(start_offset)
