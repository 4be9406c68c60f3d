"""Makes a log of a snapshot: hard links of the log's files, as it was at one moment.

    the segments below the moment, with their indexes and key sidecars    hard links
    an empty active segment behind them, the states, a manifest           new files

The manifest is as after a clean stop, so that opening the log recovers nothing. Passes that replace the
segments meanwhile, or later, leave the files of the snapshot alone: the bytes of a sealed segment never
change, and a truncation cuts a copy (`storage/log/truncate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.numbers import Offset
from storage.files.errors import MissingFile, NoSpace, StorageError
from storage.files.files import FileSystem
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LOG,
    MANIFEST,
    SEGMENT_KINDS,
    join,
    segment_file,
)
from storage.formats.manifest import SegmentRow, encode
from storage.log.replacement import LogParts
from storage.segment.segment import Segment
from storage.state.moment import LogMoment, MomentLost
from storage.threads import any_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedLog:
    """A log of a snapshot. Its records have the offsets in [start, end)."""

    start_offset: Offset
    end_offset: Offset
    last_stable_offset: Offset
    size_bytes: int
    """The size of its segment files."""


@any_thread
def link_log(fs: FileSystem, log: LogParts, moment: LogMoment, directory: str) -> LinkedLog:
    """Make a log as it was at a moment in a new directory. A worker thread.

    The files and names there are durable only after a sync of the whole disk (`FileSystem.sync_all`).

    Raises:
        MomentLost: the log was truncated, replaced or deleted since the moment.
        LinksRefused: the file system has no hard links.
        NoSpace: the disk is full.
        StorageError: the log is out of service, or the disk failed.
    """
    with log.commits.commit_lock:
        _check(log, moment)
        try:
            log.states.load()
            with log.service.failing_with_the_disk(NoSpace):
                log.commits.list_rolls()
            return _link(fs, log, moment, directory)
        except StorageError as error:
            # The files of a deleted topic vanish at any moment.
            if log.service.is_retired:
                raise MomentLost(log.service.name, "was deleted") from error
            raise


def _check(log: LogParts, moment: LogMoment) -> None:
    if log.service.is_retired:
        raise MomentLost(log.service.name, "was deleted")
    log.service.check_online()
    if moment.failure is not None:
        raise moment.failure
    assert moment.is_taken
    if log.segments.rewrites != moment.rewrites or moment.rewrites % 2:
        raise MomentLost(log.service.name, "was truncated or replaced")


def _link(fs: FileSystem, log: LogParts, moment: LogMoment, directory: str) -> LinkedLog:
    end_offset = moment.end_offset
    # All of them are sealed: the log has rolled at the moment, unless nothing was in its active segment.
    segments = [each for each in log.segments.segments[:-1] if each.end_offset <= end_offset]
    fs.make_directory(directory)
    for segment in segments:
        _link_files(fs, segment, directory)
    assert moment.producers is not None
    states = log.states.files_at(end_offset, moment.producers)
    for name, data in states.items():
        _write(fs, join(directory, name), data)
    active = SegmentRow(
        base_offset=end_offset,
        file_version=log.segments.next_version(),
        end_offset=end_offset,
        size=0,
        created_ms=log.segments.active.created_ms,
    )
    _write(fs, join(directory, segment_file(active.base_offset, active.file_version, LOG)), b"")
    rows = (*(segment.full_row() for segment in segments), active)
    manifest = log.commits.manifest_as_stopped(
        rows, has_aborted_file=ABORTED_TRANSACTIONS in states
    )
    _write(fs, join(directory, MANIFEST), encode(manifest))
    return LinkedLog(
        start_offset=manifest.log_start_offset,
        end_offset=end_offset,
        last_stable_offset=max(_first_undecided(moment), manifest.log_start_offset),
        size_bytes=sum(segment.size for segment in segments),
    )


def _first_undecided(moment: LogMoment) -> Offset:
    """Returns the offset at which read_committed consumers of the snapshot stop."""
    assert moment.producers is not None
    undecided = (each.first_offset for each in moment.producers.open_transactions())
    return min(undecided, default=moment.end_offset)


def _link_files(fs: FileSystem, segment: Segment, directory: str) -> None:
    for kind in SEGMENT_KINDS:
        path = segment.path(kind)
        try:
            fs.link(path, join(directory, path.rpartition("/")[2]))
        except MissingFile:
            # A log does without the others, and a pass removes a bad key sidecar at any moment.
            if kind == LOG:
                raise


def _write(fs: FileSystem, path: str, data: bytes) -> None:
    """Write a new file without a sync."""
    file = fs.open(path, create=True)
    try:
        if data:
            file.append((data,))
    finally:
        file.close()
