"""What the next start will read of the coordinators' topics in a log directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleaner.checkpoints.reading import CheckpointReader
from server.coordination.checkpoints import (
    ASSUMED_BYTES_PER_SECOND,
    CheckpointState,
    SegmentRange,
    dirty_part,
)
from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, checkpoint_path, join
from storage.formats.manifest import FLAG_CLEANED, UNKNOWN, Manifest, decode
from storage.segment.listed_file import listed_file


@dataclass(slots=True, kw_only=True)
class CoordinatorLoad:
    """The sums over the partitions of one topic in one directory."""

    topic: str
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    end_offset_max: int = 0
    dirty_bytes: int = 0
    """The bytes after the checkpoints and the clean offsets."""
    replay_ms_max: float = 0.0
    """The longest load of one partition's dirty bytes, at the assumed rate."""


def coordinator_loads(fs: FileSystem, directory: str) -> Iterator[CoordinatorLoad]:
    """Yields the sums for each coordinator's topic that the directory has. Raises StorageError."""
    for name in fs.list(directory):
        for topic in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            if name.startswith(f"{topic}.") and not name.endswith(".deleted"):
                yield _load_of(fs, topic, join(directory, name))


def _load_of(fs: FileSystem, topic: str, path: str) -> CoordinatorLoad:
    load = CoordinatorLoad(topic=topic)
    for partition in fs.list(path):
        if not partition.isdecimal():
            continue
        log = join(path, partition)
        try:
            manifest = decode(fs.read_bytes(join(log, MANIFEST)), log)
        except (MissingFile, DamagedFile):
            continue
        state = _state_of(fs, log)
        if state is not None:
            load.checkpoints += 1
            load.checkpoint_bytes += state.size
            load.end_offset_max = max(load.end_offset_max, state.end_offset)
        segments = list(_segments(fs, log, manifest))
        dirty = dirty_part(segments, state, clean_offset=manifest.clean_offset).bytes
        load.dirty_bytes += dirty
        load.replay_ms_max = max(load.replay_ms_max, dirty / ASSUMED_BYTES_PER_SECOND * 1000)
    return load


def _state_of(fs: FileSystem, log: str) -> CheckpointState | None:
    try:
        with CheckpointReader(fs, checkpoint_path(log)) as reader:
            return CheckpointState(end_offset=reader.header.end_offset, size=reader.size)
    except (MissingFile, DamagedFile, FormatFromTheFuture):
        return None


def _segments(fs: FileSystem, log: str, manifest: Manifest) -> Iterator[SegmentRange]:
    """Yields the listed segments. The end of the last one may be unknown while a broker runs."""
    for row in manifest.segments:
        size, end_offset = row.size, row.end_offset
        if size == UNKNOWN:
            try:
                size = fs.size(listed_file(fs, log, row, LOG))
            except MissingFile:
                size = 0
            end_offset = row.base_offset
        yield SegmentRange(
            base_offset=row.base_offset,
            end_offset=end_offset,
            size=size,
            is_cleaned=bool(row.flags & FLAG_CLEANED),
        )
