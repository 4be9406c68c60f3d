"""Reads a consistent view of a log from its directory, without a lock and without changing anything.

The directory may be a live broker's or a copy. The view follows the rules of recovery (`recovery.py`):
the manifest's rows and the segments that continue the last one, up to the first unsound batch. If the
manifest changes meanwhile, the log is read again: the aborted transactions must belong to the segments,
because a pass forgets the transactions whose records it has removed.

Bytes that a live broker has appended and not synced yet are in the files, so the view includes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.batch_tally import BatchTally
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.batches.scan import scan_file
from storage.files.errors import CorruptLog, DamagedFile, MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LOG,
    MANIFEST,
    join,
    parse_segment_file,
)
from storage.formats.config_property import LONG_MAX
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, decode
from storage.segment.listed_file import open_listed
from storage.state.aborted_transactions import AbortedTransactions, Row, decode_aborted_transactions
from storage.state.producer_recovery import ProducerReplay, newest_snapshot
from storage.state.producer_state import ProducerStates

ATTEMPTS_MAX = 16
"""How often a log is read that changes during each read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOnDisk:
    """The sound part of one segment."""

    base_offset: Offset
    file_version: int
    end_offset: Offset
    size: int
    """The bytes of batches in the file, back to back."""
    max_timestamp: int
    """The largest timestamp of its records in milliseconds; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOnDisk:
    """The contents of a log according to its files."""

    identity: LogIdentity
    log_start_offset: Offset
    clean_offset: Offset
    end_offset: Offset
    last_stable_offset: Offset
    """The first offset of the first transaction without a marker, or the end."""
    segments: tuple[SegmentOnDisk, ...]
    """In offset order; some may lie below the log start offset."""
    aborted: tuple[Row, ...]
    """Producer id, first offset and marker offset of each aborted transaction."""


class LogChanges(Exception):
    """The log's files are replaced faster than they can be read."""


def look_at_log(fs: FileSystem, identity: LogIdentity) -> LogOnDisk | None:
    """Read a log's directory. Returns None if the log's creation was never finished.

    Raises:
        FormatFromTheFuture: a later release wrote one of its files.
        DamagedFile: the manifest, the producer snapshot or the file of transactions is damaged.
        CorruptLog: a segment is damaged below its recovery point, or is shorter than listed.
        DiskError: a file cannot be read; MissingFile: a listed segment is missing.
    """
    for _ in range(ATTEMPTS_MAX):
        before = _manifest_bytes(fs, identity)
        if before is None:
            return None
        try:
            return _read(fs, identity, before)
        except (LogChanges, MissingFile, CorruptLog, DamagedFile):
            # An error counts only if the log has not changed during the read.
            if _manifest_bytes(fs, identity) == before:
                raise
    return _read(fs, identity, _manifest_bytes(fs, identity) or b"")


def _manifest_bytes(fs: FileSystem, identity: LogIdentity) -> bytes | None:
    """Returns the manifest file; None if the log has no manifest, or an empty one, and no other data.

    A running broker that creates a log makes the file first, and then writes to it.
    """
    path = join(identity.directory, MANIFEST)
    try:
        if data := fs.read_bytes(path):
            return data
    except MissingFile:
        if _has_data(fs, identity):
            raise
        return None
    return b"" if _has_data(fs, identity) else None


def _has_data(fs: FileSystem, identity: LogIdentity) -> bool:
    names = fs.list(identity.directory)
    return any(fs.size(join(identity.directory, name)) for name in names)


def _read(
    fs: FileSystem, identity: LogIdentity, manifest_bytes: bytes, snapshots_to: Offset = OFFSET_MAX
) -> LogOnDisk:
    """Read the log once. The result holds if the manifest lists the same segments afterwards."""
    path = join(identity.directory, MANIFEST)
    manifest = decode(manifest_bytes, path)
    if not manifest.segments:
        raise DamagedFile(path, "it lists no segment")
    replay = _known_producers(fs, identity, manifest, snapshots_to)
    aborted = _known_aborted(fs, identity, manifest)
    # The scan finds again what the file lists after the snapshot.
    aborted.truncate_from_end(replay.snapshot_offset)
    segments = _Scan(fs, identity, manifest, replay).segments()
    after = _manifest_bytes(fs, identity)
    if after is None or _listed(decode(after, path)) != _listed(manifest):
        raise LogChanges(f"{identity.directory}: its segments are replaced again and again")
    end_offset = segments[-1].end_offset
    if replay.snapshot_offset > end_offset:
        # The snapshot covers batches that are gone.
        return _read(fs, identity, manifest_bytes, end_offset)
    if end_offset < manifest.log_start_offset:
        raise DamagedFile(path, f"the log ends at {end_offset}, below its start")
    aborted.extend(replay.aborted)
    open_since = (each.first_offset for each in replay.states.open_transactions())
    return LogOnDisk(
        identity=identity,
        log_start_offset=manifest.log_start_offset,
        clean_offset=manifest.sound_clean_offset(end_offset),
        end_offset=end_offset,
        last_stable_offset=max(manifest.log_start_offset, min(open_since, default=end_offset)),
        segments=tuple(segments),
        aborted=tuple(aborted.rows),
    )


def _listed(manifest: Manifest) -> list[tuple[int, int]]:
    return [(row.base_offset, row.file_version) for row in manifest.segments]


def _known_producers(
    fs: FileSystem, identity: LogIdentity, manifest: Manifest, snapshots_to: Offset
) -> ProducerReplay:
    """Returns the newest snapshot, from which the scan continues.

    Without a snapshot no producer is known below the recovery point. But a truncation that has begun may
    have removed it; then everything that is left is scanned.
    """
    tail, is_cut = manifest.segments[-1], manifest.truncate_to != UNKNOWN
    recovery_point = tail.base_offset if tail.end_offset == UNKNOWN else tail.end_offset
    if is_cut:
        snapshots_to = min(snapshots_to, recovery_point)
    if manifest.has_foreign_states:
        return ProducerReplay(Offset(0), ProducerStates())
    known = newest_snapshot(fs, identity.directory, snapshots_to)
    return known or ProducerReplay(Offset(0) if is_cut else recovery_point, ProducerStates())


def _known_aborted(
    fs: FileSystem, identity: LogIdentity, manifest: Manifest
) -> AbortedTransactions:
    """Returns the aborted transactions. The snapshot was read first, so this file is at least as new."""
    path = join(identity.directory, ABORTED_TRANSACTIONS)
    if manifest.has_foreign_states or not fs.exists(path):
        return AbortedTransactions()
    return decode_aborted_transactions(fs.read_bytes(path), path)


class _Scan:
    """Finds each segment's end, and replays the producers after a snapshot."""

    def __init__(
        self, fs: FileSystem, identity: LogIdentity, manifest: Manifest, replay: ProducerReplay
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = identity.directory
        self._manifest = manifest
        # State
        self._replay = replay

    def segments(self) -> list[SegmentOnDisk]:
        """Returns all segments that belong to the log."""
        *sealed, tail = self._manifest.segments
        found = [self._sealed(row) for row in sealed]
        while True:
            last, is_whole = self._open_ended(tail)
            found.append(last)
            follower = self._follower(last) if is_whole else None
            if follower is None:
                return found
            tail = follower

    def _sealed(self, row: SegmentRow) -> SegmentOnDisk:
        """Returns a sealed segment; reads it only if the snapshot does not reach its end."""
        if row.end_offset > self._replay.snapshot_offset and row.size > 0:
            file = open_listed(self._fs, self._directory, row, LOG)
            try:
                tally = self._tally(file, row, row.size)
            finally:
                file.close()
            if tally.position < row.size:
                raise CorruptLog(file.path, tally.position, "no sound batch begins there")
        return SegmentOnDisk(
            base_offset=row.base_offset,
            file_version=row.file_version,
            end_offset=row.end_offset,
            size=row.size,
            max_timestamp=row.max_timestamp,
        )

    def _open_ended(self, row: SegmentRow) -> tuple[SegmentOnDisk, bool]:
        """Returns the last segment up to its first unsound batch, and whether its file ends there."""
        file = open_listed(self._fs, self._directory, row, LOG)
        try:
            size = file.size
            tally = self._tally(file, row, size)
        finally:
            file.close()
        if tally.position < row.size:
            reason = "no sound batch begins there, below the recovery point"
            raise CorruptLog(file.path, tally.position, reason)
        found = SegmentOnDisk(
            base_offset=row.base_offset,
            file_version=row.file_version,
            end_offset=tally.end_offset,
            size=tally.position,
            max_timestamp=tally.max_timestamp,
        )
        return found, tally.position == size > 0

    def _tally(self, file: File, row: SegmentRow, size: int) -> BatchTally:
        """Scan a file's sound batches; skip those that the row and the snapshot cover."""
        is_known = 0 <= row.end_offset <= self._replay.snapshot_offset
        tally = BatchTally(
            base_offset=row.base_offset,
            index_interval_bytes=LONG_MAX,
            position=row.size if is_known else 0,
            end_offset=row.end_offset if is_known else None,
            max_timestamp=row.max_timestamp if is_known else UNKNOWN,
            producers_from=self._replay.snapshot_offset,
        )
        scan_file(file, size, tally)
        self._replay.take(tally, 0)
        return tally

    def _follower(self, last: SegmentOnDisk) -> SegmentRow | None:
        """Returns the unlisted segment that continues the log: a roll creates it before its commit."""
        if self._manifest.truncate_to != UNKNOWN:
            return None
        versions = [
            file.version
            for file in map(parse_segment_file, self._fs.list(self._directory))
            if file and file.kind == LOG and not file.is_cleaned
            if file.base_offset == last.end_offset
        ]
        if not versions:
            return None
        return SegmentRow(base_offset=last.end_offset, file_version=max(versions))
