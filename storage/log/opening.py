"""Creates a log, or opens an existing one.

After a clean stop the manifest says everything, and no other file is opened. Otherwise the log is
recovered (`storage/recovery/recovery.py`); a damaged manifest is rebuilt first
(`storage/segment/rebuild.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import DamagedFile, MissingFile, StorageError
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, join
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, decode, encode
from storage.log.commits import LogCommits
from storage.log.log import PartitionLog
from storage.log.log_service import LogService
from storage.log.new_files import NewFiles
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.recovery import interrupted_replacement
from storage.recovery.progress import RecoveryProgress
from storage.recovery.recovery import Recovery
from storage.segment.files import Background
from storage.segment.rebuild import rebuild_manifest
from storage.segment.segment import Segment
from storage.state.log_states import PRODUCER_EXPIRATION_MS, LogStates
from storage.undo.kept_passes import kept_names, read_stack
from storage.undo.undo_rule import Stack

_log = logging.getLogger("storage.log.opening")


def time_ms() -> int:
    """Returns the wall time in ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOpening:
    """The settings with which the logs of a directory are opened; only identity and config differ."""

    leader_epoch: Epoch
    background: Background
    on_failure: Callable[[StorageError], None]
    now_ms: int
    is_clean: bool
    """Whether the directory's last stop was clean."""
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    progress: RecoveryProgress = field(default_factory=RecoveryProgress)
    """Receives the counts of the recovery."""
    clock_ms: Callable[[], int] = time_ms
    """Returns the wall time in ms: passes can be undone for a while."""

    def service_of(self, identity: LogIdentity) -> LogService:
        """Returns the service state of a log that is about to be opened."""
        name = str(identity.topic_partition)
        return LogService(name, background=self.background, on_failure=self.on_failure)


def create_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
) -> PartitionLog:
    """Create an empty log that starts at offset 0, with its files, but without a sync.

    Raises:
        DiskError: the disk failed, or the directory already has a log.
    """
    log = plan_log(fs, identity, config, opening, jitter)
    log.new_files.make()
    return log


def plan_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
    *,
    start_offset: Offset = Offset(0),  # noqa: B008 - an immutable number
    check_directory: Callable[[], None] = lambda: None,
) -> PartitionLog:
    """Returns an empty log that starts at `start_offset` and has no files yet; its first write creates
    them.

    Its files look as after a clean stop. The log's first sync makes its names durable.

    Args:
        check_directory: called before the files are created; raises StorageError if they must not be.
    """
    row = SegmentRow(
        base_offset=start_offset,
        file_version=1,
        end_offset=start_offset,
        size=0,
        created_ms=opening.now_ms,
    )
    segment = Segment(fs, identity.directory, row, background=opening.background)
    segment.reopen()
    manifest = _manifest(identity, (row,))
    reserved_bytes = config.reserved_segment_bytes

    def create() -> None:
        check_directory()
        _create_files(fs, segment.path(LOG), manifest, reserved_bytes)

    service = opening.service_of(identity)
    new_files = NewFiles(fs, identity.directory, service, create=create)
    segment.files.make = new_files.make
    return _open(fs, identity, config, opening, jitter, manifest, (segment,), service, new_files)


def _create_files(fs: FileSystem, path: str, manifest: Manifest, reserved_bytes: int) -> None:
    """Create the first segment's file and then the manifest, in a new directory."""
    directory = path.rpartition("/")[0]
    fs.make_directory(directory)
    file = fs.open(path, create=True)
    try:
        if reserved_bytes:
            file.reserve(reserved_bytes)
    finally:
        file.close()
    file = fs.open(join(directory, MANIFEST), create=True)
    try:
        file.append((encode(manifest),))
    finally:
        file.close()


def open_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
    *,
    is_new: bool = False,
) -> PartitionLog:
    """Open an existing log, recovering it if its last stop was not clean.

    Args:
        is_new: whether its names may not have been synced since its creation.

    Raises:
        CorruptLog, DamagedFile, MissingFile: it cannot be repaired; no file was removed.
        FormatFromTheFuture: a later release wrote it.
        DiskError: the disk failed.
    """
    service = opening.service_of(identity)
    new_files = NewFiles(fs, identity.directory, service, are_safe=not is_new)
    manifest = _read_manifest(fs, identity)
    if opening.is_clean and manifest is not None and manifest.segments[-1].size != UNKNOWN:
        segments = tuple(
            Segment(fs, identity.directory, row, background=opening.background)
            for row in manifest.segments
        )
        segments[-1].reopen()
        return _open(
            fs,
            identity,
            config,
            opening,
            jitter,
            manifest,
            segments,
            service,
            new_files,
            kept=read_stack(fs, identity.directory, manifest),
        )
    interrupted_replacement.remove_unfinished(fs, identity.directory, manifest)
    kept = Stack() if manifest is None else read_stack(fs, identity.directory, manifest)
    recovery = Recovery(
        fs,
        identity,
        manifest or rebuild_manifest(fs, identity),
        background=opening.background,
        now_ms=opening.now_ms,
        index_interval_bytes=config.index_interval_bytes,
        is_rebuilt=manifest is None,
        progress=opening.progress,
        kept_names=kept_names(kept),
    )
    recovery.run()
    manifest, segments = recovery.manifest, tuple(recovery.segments)
    found = None if recovery.is_as_stopped else recovery
    return _open(
        fs, identity, config, opening, jitter, manifest, segments, service, new_files, found, kept
    )


def _read_manifest(fs: FileSystem, identity: LogIdentity) -> Manifest | None:
    """Returns the manifest; None if it is damaged or missing and must be rebuilt."""
    path = join(identity.directory, MANIFEST)
    try:
        manifest = decode(fs.read_bytes(path), path)
    except (DamagedFile, MissingFile) as error:
        _log.warning("%s: rebuilding the manifest: %s", identity.topic_partition, error)
        return None
    if manifest.topic_id != identity.topic_id or not manifest.segments:
        raise DamagedFile(path, "it belongs to another topic or lists no segment")
    return manifest


def _manifest(identity: LogIdentity, rows: tuple[SegmentRow, ...]) -> Manifest:
    return Manifest(
        version=1,
        generation=0,
        topic_id=identity.topic_id,
        partition=identity.topic_partition.partition,
        log_start_offset=rows[0].base_offset,
        clean_offset=rows[0].base_offset,
        segments=rows,
    )


def _open(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float,
    manifest: Manifest,
    segments: tuple[Segment, ...],
    service: LogService,
    new_files: NewFiles,
    recovery: Recovery | None = None,
    kept: Stack | None = None,
) -> PartitionLog:
    """Returns the log with these segments, of which the last is active, and the parts that it owns.

    Args:
        recovery: found the log's states; None if all files are as after a clean stop.
        kept: the passes that can be undone.
    """
    rolled = () if recovery is None else recovery.rolled
    clean_offset = manifest.sound_clean_offset(segments[-1].end_offset)
    states = _states(fs, identity, opening, manifest, segments, recovery)
    offsets = LogOffsets(states, start=manifest.log_start_offset, end=segments[-1].end_offset)
    segment_list = SegmentList(
        fs,
        identity.directory,
        segments,
        offsets=offsets,
        new_files=new_files,
        background=service.remove_in_background,
        clean_offset=clean_offset,
        generation=manifest.generation,
        version=manifest.version,
        rolled=rolled,
    )
    commits = LogCommits(
        fs,
        identity,
        segment_list,
        states,
        offsets,
        new_files,
        service,
        listed=segments[: len(segments) - len(rolled)],
        recovery_point=manifest.segments[-1],
        is_as_stopped=recovery is None,
        has_unfinished_pass=manifest.has_unfinished_pass,
        has_history=manifest.has_history,
        copy_id=manifest.copy_id,
        copied_from=manifest.copied_from,
        clock_ms=opening.clock_ms,
        kept=kept if manifest.has_undo_file else None,
    )
    return PartitionLog(
        fs,
        identity,
        config,
        offsets,
        segment_list,
        commits,
        states,
        new_files,
        service,
        leader_epoch=opening.leader_epoch,
        jitter=jitter,
    )


def _states(
    fs: FileSystem,
    identity: LogIdentity,
    opening: LogOpening,
    manifest: Manifest,
    segments: Sequence[Segment],
    recovery: Recovery | None,
) -> LogStates:
    """Returns the states that a recovery found; else those that the log's files have."""
    return LogStates(
        fs,
        identity.directory,
        segments,
        log_start_offset=manifest.log_start_offset,
        clean_offset=manifest.sound_clean_offset(segments[-1].end_offset),
        epochs=None if recovery is None else recovery.epochs,
        producers=None if recovery is None else recovery.producers.states,
        aborted=None if recovery is None else recovery.aborted,
        producer_expiration_ms=opening.producer_expiration_ms,
        has_aborted_file=manifest.has_aborted_file,
        is_written=recovery is None or not recovery.is_commit_postponed,
    )
