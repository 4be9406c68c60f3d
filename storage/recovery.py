"""Open a log as a clean stop or a crash left it.

A clean stop: the manifest says everything, and no other file is opened.
A crash: everything below the recovery point (the manifest's last row says it: its end if that is known,
else its base) was synced before the manifest was written, so
    1. renames that a committed swap still owed are done;
    2. a listed segment that is missing, or ends before the recovery point, is corruption: the log goes
       offline, and nothing of it is removed;
    3. a truncation that has begun is finished; what no manifest lists and a listed segment covers, or
       the cleaner was still writing, is removed;
    4. the last listed segment is scanned from the recovery point, and then every unlisted one that
       continues it: a crash between a roll and its commit must not lose it;
    5. the first batch that is not sound ends the log; the bytes behind it are kept in a `cut` file;
    6. what was found is synced and committed before anybody may read it.
Batches below the recovery point are not looked at, and nothing is ever cut there. A damaged manifest
is rebuilt from names and batch headers (`storage/rebuild.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from protocol.batch_tally import BatchTally
from storage.checkpoint import CHECKPOINT_BYTES_MIN, bytes_behind, is_in
from storage.config_property import LONG_MAX
from storage.epoch_recovery import load_epochs
from storage.errors import CorruptLog, DamagedFile, MissingFile, StorageError
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log import PRODUCER_EXPIRATION_MS, PartitionLog
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.manifest import UNKNOWN, Manifest, SegmentRow, decode, encode
from storage.paths import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    MANIFEST,
    SegmentFile,
    cut_file,
    join,
    parse_segment_file,
    segment_file,
    snapshot_file,
)
from storage.producer_recovery import (
    ProducerReplay,
    newest_snapshot,
    producers_of,
    remove_snapshots_past,
    snapshot_offsets,
)
from storage.producer_state import ProducerStates
from storage.rebuild import rebuild_manifest
from storage.scan import CHUNK_BYTES, scan_file
from storage.segment import Background, Segment
from storage.segment_list import LogContents

_log = logging.getLogger("storage.recovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOpening:
    """What a log is opened with; the same for all logs of a directory but for identity and config."""

    leader_epoch: int
    background: Background
    on_failure: Callable[[StorageError], None]
    now_ms: int
    is_clean: bool
    """Whether the directory's last stop was clean."""
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS


def create_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
) -> PartitionLog:
    """Make an empty log that starts at offset 0, durably but for the names above its directory.

    Its files are at once as a clean stop would leave them.

    Raises:
        DiskError: the disk failed, or there is a log in the directory.
    """
    fs.make_directory(identity.directory)
    row = SegmentRow(base_offset=0, file_version=1, end_offset=0, size=0, created_ms=opening.now_ms)
    segment = Segment(fs, identity.directory, row, background=opening.background)
    segment.reopen()
    segment.create()
    manifest = _manifest(identity, (row,), version=1)
    fs.replace_durably(join(identity.directory, MANIFEST), encode(manifest))
    contents = _contents(manifest, (segment,), is_as_stopped=True)
    return _open(fs, identity, config, opening, jitter, contents)


def open_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
) -> PartitionLog:
    """Open a log as its last stop left it.

    Raises:
        CorruptLog, DamagedFile, MissingFile: it cannot be made whole; nothing of it was removed.
        FormatFromTheFuture: a later release wrote it.
        DiskError: the disk failed.
    """
    manifest = _read_manifest(fs, identity)
    if opening.is_clean and manifest is not None and manifest.segments[-1].size != UNKNOWN:
        segments = _segments(fs, identity, opening, manifest.segments)
        segments[-1].reopen()
        contents = _contents(manifest, segments, is_as_stopped=True)
        return _open(fs, identity, config, opening, jitter, contents)
    recovery = _Recovery(
        fs,
        identity,
        opening,
        manifest or rebuild_manifest(fs, identity),
        index_interval_bytes=config.index_interval_bytes,
        is_rebuilt=manifest is None,
    )
    recovery.run()
    contents = _contents(
        recovery.manifest,
        tuple(recovery.segments),
        epochs=recovery.epochs,
        producers=recovery.producers.states,
    )
    return _open(fs, identity, config, opening, jitter, contents)


def _read_manifest(fs: FileSystem, identity: LogIdentity) -> Manifest | None:
    """The manifest; None if it is damaged or gone and must be rebuilt."""
    path = join(identity.directory, MANIFEST)
    try:
        manifest = decode(fs.read_bytes(path), path)
    except (DamagedFile, MissingFile) as error:
        _log.warning("%s: rebuilding its manifest: %s", identity.topic_partition, error)
        return None
    if manifest.topic_id != identity.topic_id or not manifest.segments:
        raise DamagedFile(path, "it belongs to another topic or lists no segment")
    return manifest


def _manifest(identity: LogIdentity, rows: tuple[SegmentRow, ...], *, version: int) -> Manifest:
    return Manifest(
        version=version,
        generation=0,
        topic_id=identity.topic_id,
        partition=identity.topic_partition.partition,
        log_start_offset=rows[0].base_offset,
        clean_offset=rows[0].base_offset,
        segments=rows,
    )


def _segments(
    fs: FileSystem, identity: LogIdentity, opening: LogOpening, rows: tuple[SegmentRow, ...]
) -> tuple[Segment, ...]:
    return tuple(
        Segment(fs, identity.directory, row, background=opening.background) for row in rows
    )


def _open(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float,
    contents: LogContents,
) -> PartitionLog:
    return PartitionLog(
        fs,
        identity,
        contents,
        config,
        leader_epoch=opening.leader_epoch,
        background=opening.background,
        on_failure=opening.on_failure,
        jitter=jitter,
        producer_expiration_ms=opening.producer_expiration_ms,
    )


def _contents(
    manifest: Manifest,
    segments: tuple[Segment, ...],
    *,
    epochs: LeaderEpochs | None = None,
    producers: ProducerStates | None = None,
    is_as_stopped: bool = False,
) -> LogContents:
    return LogContents(
        segments=segments,
        version=manifest.version,
        generation=manifest.generation,
        log_start_offset=manifest.log_start_offset,
        clean_offset=manifest.clean_offset,
        recovery_point=manifest.segments[-1],
        is_as_stopped=is_as_stopped,
        epochs=epochs,
        producers=producers,
    )


class _Recovery:
    """One log's recovery; `run` leaves its state as it is on disk."""

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        opening: LogOpening,
        manifest: Manifest,
        *,
        index_interval_bytes: int,
        is_rebuilt: bool,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._identity = identity
        self._opening = opening
        self._directory = identity.directory
        self._index_interval_bytes = index_interval_bytes
        self._is_rebuilt = is_rebuilt
        # State
        self.manifest = manifest
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerReplay(0, ProducerStates())

    def run(self) -> None:
        """Find what the log holds, make it safe, and commit it."""
        files = self._files()
        self._finish_renames(files)
        self._check_listed()
        unlisted = self._sweep(self._files())
        self.segments = list(
            _segments(self._fs, self._identity, self._opening, self.manifest.segments)
        )
        self.segments[-1].resume()
        self._load_states()
        self._recover_tail(unlisted)
        self._commit()

    def _load_states(self) -> None:
        """Take epochs and producers up to the recovery point, where the scan goes on."""
        tail = self.segments[-1]
        self.epochs = load_epochs(self._fs, self._directory, self.segments)
        self.epochs.set_back(tail.end_offset, is_empty=False)
        is_cut = self.manifest.truncate_to != UNKNOWN
        end_offset = tail.end_offset if is_cut else LONG_MAX
        known = newest_snapshot(self._fs, self._directory, end_offset)
        if known is None:
            # A commit leaves a snapshot if there are producers below its recovery point.
            start_offset = 0 if is_cut or self._is_rebuilt else tail.end_offset
            known = ProducerReplay(start_offset, ProducerStates())
        self.producers = known
        self.producers.take_segments(self.segments)

    # ---------------------------------------------------------------- what is there

    def _files(self) -> list[SegmentFile]:
        """The segment files in the directory, older versions first."""
        names = self._fs.list(self._directory)
        files = [file for file in map(parse_segment_file, names) if file is not None]
        return sorted(files, key=lambda file: file.version)

    def _listed(self) -> set[tuple[int, int]]:
        return {(row.base_offset, row.file_version) for row in self.manifest.segments}

    def _finish_renames(self, files: list[SegmentFile]) -> None:
        """Do the renames of a swap whose manifest is committed."""
        listed = self._listed()
        owed = [f for f in files if f.is_cleaned and (f.base_offset, f.version) in listed]
        for file in owed:
            staged = segment_file(file.base_offset, file.version, file.kind, cleaned=True)
            final = segment_file(file.base_offset, file.version, file.kind)
            self._fs.rename(join(self._directory, staged), join(self._directory, final))
        if owed:
            self._fs.sync_directory(self._directory)

    def _sweep(self, files: list[SegmentFile]) -> dict[int, SegmentFile]:
        """Remove what is not the log's; the unlisted segments that may continue it, by base."""
        listed = self._listed()
        tail = self.manifest.segments[-1]
        candidates: dict[int, SegmentFile] = {}
        for file in files:
            if not file.is_cleaned and (file.base_offset, file.version) in listed:
                continue
            continues = file.base_offset > tail.base_offset and not file.is_cleaned
            if not continues or self.manifest.truncate_to != UNKNOWN or self._is_empty(file):
                self._remove_if_covered(file)
            else:
                older = candidates.get(file.base_offset)
                candidates[file.base_offset] = file
                if older is not None:
                    self._set_aside(older)
        return candidates

    def _is_empty(self, file: SegmentFile) -> bool:
        """Whether it holds no batches: indexes are made anew, and an empty segment is no loss."""
        name = segment_file(file.base_offset, file.version, file.kind, cleaned=file.is_cleaned)
        return file.kind != LOG or self._fs.size(join(self._directory, name)) == 0

    def _remove_if_covered(self, file: SegmentFile) -> None:
        """Remove a file that a swap or a truncation has made superfluous; leave a riddle alone.

        The manifest is newer than such a file and does not list it, so its batches are dead or are
        in a segment that it lists.
        """
        is_cut = self.manifest.truncate_to != UNKNOWN
        is_dead = file.is_cleaned or is_cut or file.version < self.manifest.version
        if is_dead or self._is_empty(file):
            name = segment_file(file.base_offset, file.version, file.kind, cleaned=file.is_cleaned)
            self._fs.unlink(join(self._directory, name))

    def _check_listed(self) -> None:
        """Segments are as long as the manifest says; a truncation may have to be finished.

        Raises:
            CorruptLog, MissingFile: one is cut short or gone.
        """
        *sealed, tail = self.manifest.segments
        sizes = [self._checked_size(row) for row in sealed]
        self._checked_size(tail)
        if self.manifest.truncate_to == UNKNOWN:
            return
        for row, size in zip(sealed, sizes, strict=True):
            if size > row.size:
                file = self._fs.open(self._log_path(row))
                file.truncate(row.size)
                file.sync()
                file.close()

    def _checked_size(self, row: SegmentRow) -> int:
        path = self._log_path(row)
        size = self._fs.size(path)
        if size < row.size:
            raise CorruptLog(path, size, f"it ends there, and the manifest says {row.size}")
        return size

    def _log_path(self, row: SegmentRow) -> str:
        return join(self._directory, segment_file(row.base_offset, row.file_version, LOG))

    # ---------------------------------------------------------------- the tail

    def _recover_tail(self, unlisted: dict[int, SegmentFile]) -> None:
        """Scan the last listed segment and those that continue it, up to the first unsound batch."""
        while True:
            tail = self.segments[-1]
            is_whole = self._recover_segment(tail)
            following = unlisted.pop(tail.end_offset, None) if tail.size else None
            if not is_whole or following is None:
                break
            self._seal(tail)
            row = SegmentRow(
                base_offset=following.base_offset,
                file_version=following.version,
                created_ms=self._opening.now_ms,
            )
            self.segments += _segments(self._fs, self._identity, self._opening, (row,))
        for file in unlisted.values():
            self._set_aside(file)

    def _recover_segment(self, segment: Segment) -> bool:
        """Find a segment's batches from its recovery point on, and cut it behind the last sound one.

        Whether there was nothing to cut.
        """
        start, first_append_ms = segment.size, segment.first_append_ms
        size = self._fs.size(segment.path(LOG))
        tally = segment.tally(
            index_interval_bytes=self._index_interval_bytes,
            producers_from=self.producers.snapshot_offset,
        )
        end = scan_file(segment.file(), size, tally)
        self._take(segment, tally)
        if end.position < size:
            self._cut(segment, end.position, size, end.reason)
        if segment.size > start:
            segment.was_appended_to(first_append_ms, self._opening.now_ms)
        segment.file().sync()
        return end.position == size

    def _take(self, segment: Segment, tally: BatchTally) -> None:
        """Take what a scan has found to be in the log."""
        segment.take(tally)
        self.producers.take(tally, self._opening.now_ms)
        for epoch, start_offset in tally.epochs:
            self.epochs.assign(epoch, start_offset)

    def _cut(self, segment: Segment, position: int, size: int, reason: str) -> None:
        """End the segment at `position`; what was behind it is kept aside and said."""
        aside = self._free_cut_name(segment.end_offset)
        _log.warning(
            "%s: cutting %d bytes at offset %d, kept in %s: %s",
            self._identity.topic_partition,
            size - position,
            segment.end_offset,
            aside,
            reason,
        )
        kept = self._fs.open(aside, create=True)
        for start in range(position, size, CHUNK_BYTES):
            kept.append((segment.file().read_at(start, min(CHUNK_BYTES, size - start)),))
        kept.sync()
        kept.close()
        self._fs.sync_directory(self._directory)
        segment.file().truncate(position)

    def _set_aside(self, file: SegmentFile) -> None:
        """Keep a segment that lies behind the cut, out of the log's way."""
        name = segment_file(file.base_offset, file.version, LOG)
        _log.warning("%s: %s lies behind the end", self._identity.topic_partition, name)
        aside = self._free_cut_name(file.base_offset)
        self._fs.rename(join(self._directory, name), aside)

    def _free_cut_name(self, offset: int) -> str:
        number = 0
        while self._fs.exists(join(self._directory, cut_file(offset, number))):
            number += 1
        return join(self._directory, cut_file(offset, number))

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        segment.write_index()
        segment.drop_index()

    # ---------------------------------------------------------------- the commit

    def _commit(self) -> None:
        """Write down what was found, so that the next recovery begins there."""
        end_offset = self.segments[-1].end_offset
        remove_snapshots_past(self._fs, self._directory, end_offset)
        if self.producers.snapshot_offset > end_offset:
            # It spoke of batches that are gone; what is left is looked at again.
            self.producers.states = producers_of(
                self._fs, self._directory, self.segments, end_offset
            )
        if len(self.producers.states) or snapshot_offsets(self._fs, self._directory):
            path = join(self._directory, snapshot_file(end_offset))
            self._fs.replace_durably(path, self.producers.states.encode())
        self.epochs.set_back(end_offset, is_empty=not any(each.size for each in self.segments))
        path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
        self._fs.replace_durably(path, self.epochs.encode())
        versions = [file.version for file in self._files()]
        self.manifest = replace(
            self.manifest,
            version=max([self.manifest.version, *versions]) + 1,
            clean_offset=min(self.manifest.clean_offset, end_offset),
            truncate_to=UNKNOWN,
            segments=(*(each.full_row() for each in self.segments[:-1]), self._recovery_point()),
        )
        self._fs.replace_durably(join(self._directory, MANIFEST), encode(self.manifest))

    def _recovery_point(self) -> SegmentRow:
        """The last row of the new manifest: another start need not scan again what took long."""
        before, tail = self.manifest.segments[-1], self.segments[-1]
        if bytes_behind(before, tail) >= CHECKPOINT_BYTES_MIN:
            index = tail.index()
            tail.write_index_up_to(index, index.mark)
            return tail.full_row()
        return before if is_in(before, tail) else tail.active_row()
