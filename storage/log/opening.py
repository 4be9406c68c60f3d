"""Creates a log, or opens an existing one.

After a clean stop the manifest says everything, and no other file is opened. Otherwise the log is
recovered (`storage/recovery/recovery.py`); a damaged manifest is rebuilt first
(`storage/segment/rebuild.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.files.errors import DamagedFile, MissingFile, StorageError
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, join
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, decode, encode
from storage.log.log import PartitionLog
from storage.log.new_files import NewFiles
from storage.log.readable_log import PRODUCER_EXPIRATION_MS
from storage.log.segment_list import LogContents
from storage.recovery.progress import RecoveryProgress
from storage.recovery.recovery import Recovery
from storage.segment.files import Background
from storage.segment.rebuild import rebuild_manifest
from storage.segment.segment import Segment
from storage.state.aborted_transactions import AbortedTransactions
from storage.state.leader_epochs import LeaderEpochs
from storage.state.producer_state import ProducerStates

_log = logging.getLogger("storage.log.opening")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOpening:
    """The settings with which the logs of a directory are opened; only identity and config differ."""

    leader_epoch: int
    background: Background
    on_failure: Callable[[StorageError], None]
    now_ms: int
    is_clean: bool
    """Whether the directory's last stop was clean."""
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    progress: RecoveryProgress = field(default_factory=RecoveryProgress)
    """Receives the counts of the recovery."""


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
    log.make_files()
    return log


def plan_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
    *,
    check_directory: Callable[[], None] = lambda: None,
) -> PartitionLog:
    """Returns an empty log that starts at offset 0 and has no files yet; its first write creates them.

    Its files look as after a clean stop. The log's first sync makes its names durable.

    Args:
        check_directory: called before the files are created; raises StorageError if they must not be.
    """
    row = SegmentRow(base_offset=0, file_version=1, end_offset=0, size=0, created_ms=opening.now_ms)
    segment = Segment(fs, identity.directory, row, background=opening.background)
    segment.reopen()
    manifest = _manifest(identity, (row,), version=1)
    reserved_bytes = config.reserved_segment_bytes

    def create() -> None:
        check_directory()
        _create_files(fs, segment.path(LOG), manifest, reserved_bytes)

    new_files = NewFiles(fs, identity.directory, create)
    segment.files.make = new_files.make
    contents = _contents(manifest, (segment,), is_as_stopped=True, is_new=True, new_files=new_files)
    return _open(fs, identity, config, opening, jitter, contents)


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
    manifest = _read_manifest(fs, identity)
    if opening.is_clean and manifest is not None and manifest.segments[-1].size != UNKNOWN:
        segments = tuple(
            Segment(fs, identity.directory, row, background=opening.background)
            for row in manifest.segments
        )
        segments[-1].reopen()
        contents = _contents(manifest, segments, is_as_stopped=True, is_new=is_new)
        return _open(fs, identity, config, opening, jitter, contents)
    recovery = Recovery(
        fs,
        identity,
        manifest or rebuild_manifest(fs, identity),
        background=opening.background,
        now_ms=opening.now_ms,
        index_interval_bytes=config.index_interval_bytes,
        is_rebuilt=manifest is None,
        progress=opening.progress,
    )
    recovery.run()
    is_as_stopped = recovery.is_as_stopped
    contents = _contents(
        recovery.manifest,
        tuple(recovery.segments),
        epochs=None if is_as_stopped else recovery.epochs,
        producers=None if is_as_stopped else recovery.producers.states,
        aborted=None if is_as_stopped else recovery.aborted,
        is_as_stopped=is_as_stopped,
        postponed=tuple(recovery.rolled) if recovery.is_commit_postponed else None,
        is_new=is_new,
    )
    return _open(fs, identity, config, opening, jitter, contents)


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
    aborted: AbortedTransactions | None = None,
    is_as_stopped: bool = False,
    postponed: tuple[tuple[Segment, ProducerStates], ...] | None = None,
    is_new: bool = False,
    new_files: NewFiles | None = None,
) -> LogContents:
    return LogContents(
        segments=segments,
        version=manifest.version,
        generation=manifest.generation,
        log_start_offset=manifest.log_start_offset,
        clean_offset=manifest.sound_clean_offset(segments[-1].end_offset),
        recovery_point=manifest.segments[-1],
        is_as_stopped=is_as_stopped,
        is_new=is_new,
        new_files=new_files,
        epochs=epochs,
        producers=producers,
        aborted=aborted,
        postponed=postponed,
        has_aborted_file=manifest.has_aborted_file,
    )
