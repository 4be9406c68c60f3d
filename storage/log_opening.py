"""Make a log, or open it as its last stop left it.

A clean stop: the manifest says everything, and no other file is opened. Otherwise it is recovered
(`storage/recovery.py`); a damaged manifest is rebuilt first (`storage/rebuild.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.aborted_transactions import AbortedTransactions
from storage.errors import DamagedFile, MissingFile, StorageError
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.manifest import UNKNOWN, Manifest, SegmentRow, decode, encode
from storage.paths import MANIFEST, join
from storage.producer_state import ProducerStates
from storage.readable_log import PRODUCER_EXPIRATION_MS
from storage.rebuild import rebuild_manifest
from storage.recovery import Recovery
from storage.recovery_progress import RecoveryProgress
from storage.segment import Segment
from storage.segment_files import Background
from storage.segment_list import LogContents

_log = logging.getLogger("storage.log_opening")


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
    progress: RecoveryProgress = field(default_factory=RecoveryProgress)
    """Told of what is recovered."""


def create_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
) -> PartitionLog:
    """Make an empty log that starts at offset 0, and sync nothing of it.

    Its files are at once as a clean stop would leave them. Its first sync makes its names safe.

    Raises:
        DiskError: the disk failed, or there is a log in the directory.
    """
    fs.make_directory(identity.directory)
    row = SegmentRow(base_offset=0, file_version=1, end_offset=0, size=0, created_ms=opening.now_ms)
    segment = Segment(fs, identity.directory, row, background=opening.background)
    segment.reopen()
    segment.files.create(reserved_bytes=config.reserved_segment_bytes)
    manifest = _manifest(identity, (row,), version=1)
    file = fs.open(join(identity.directory, MANIFEST), create=True)
    try:
        file.append((encode(manifest),))
    finally:
        file.close()
    contents = _contents(manifest, (segment,), is_as_stopped=True, is_new=True)
    return _open(fs, identity, config, opening, jitter, contents)


def open_log(
    fs: FileSystem,
    identity: LogIdentity,
    config: LogConfig,
    opening: LogOpening,
    jitter: float = 0.0,
    *,
    is_new: bool = False,
) -> PartitionLog:
    """Open a log as its last stop left it.

    Args:
        is_new: whether its names may not have been synced since it was made.

    Raises:
        CorruptLog, DamagedFile, MissingFile: it cannot be made whole; nothing of it was removed.
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
        put_off=tuple(recovery.rolled) if recovery.is_put_off else None,
        is_new=is_new,
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
    put_off: tuple[tuple[Segment, ProducerStates], ...] | None = None,
    is_new: bool = False,
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
        epochs=epochs,
        producers=producers,
        aborted=aborted,
        put_off=put_off,
        has_aborted_file=manifest.has_aborted_file,
    )
