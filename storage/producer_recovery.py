"""The producers of a log as its segments have them: the last good snapshot, and a scan of the rest."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from protocol.batch_scan import ScannedBatch
from protocol.record_batch import BatchHeader
from storage.errors import CorruptLog, DamagedFile
from storage.files import FileSystem
from storage.paths import join, parse_snapshot_file, snapshot_file
from storage.producer_state import ProducerStates, decode_producer_states
from storage.scan import scan_file
from storage.segment import Segment

_log = logging.getLogger("storage.producer_recovery")


def producers_of(
    fs: FileSystem, directory: str, segments: Sequence[Segment], end_offset: int
) -> ProducerStates:
    """The producer states of everything below `end_offset`.

    A roll writes a snapshot unless there are no producers, so where a log has no snapshot at all,
    only its last segment can have one's batches.

    Raises:
        CorruptLog: a segment that the manifest lists is damaged.
        DiskError: it cannot be read.
    """
    found = _newest_snapshot(fs, directory, end_offset)
    start_offset, states = found or (segments[-1].base_offset, ProducerStates())
    for segment in segments:
        if segment.end_offset > start_offset and segment.size > 0:
            _replay(segment, start_offset, states)
    return states


def producers_at_stop(
    fs: FileSystem, directory: str, segments: Sequence[Segment], end_offset: int
) -> ProducerStates:
    """The producer states after a clean stop, which left a snapshot unless there were none."""
    path = join(directory, snapshot_file(end_offset))
    if not fs.exists(path):
        return ProducerStates()
    try:
        return decode_producer_states(fs.read_bytes(path), path)
    except DamagedFile as error:
        _log.warning("%s; reading the segments instead", error)
        return producers_of(fs, directory, segments, end_offset)


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    """The offsets of the log's snapshots, in order."""
    found = (parse_snapshot_file(name) for name in fs.list(directory))
    return sorted(offset for offset in found if offset is not None)


def _newest_snapshot(
    fs: FileSystem, directory: str, end_offset: int
) -> tuple[int, ProducerStates] | None:
    """The newest readable snapshot at or below `end_offset`; None if there never was one."""
    offsets = snapshot_offsets(fs, directory)
    for offset in reversed(offsets):
        if offset <= end_offset:
            path = join(directory, snapshot_file(offset))
            try:
                return offset, decode_producer_states(fs.read_bytes(path), path)
            except DamagedFile as error:
                _log.warning("%s; an older one is taken", error)
    return (0, ProducerStates()) if offsets else None


def _replay(segment: Segment, start_offset: int, states: ProducerStates) -> None:
    now_ms = max(segment.last_append_ms, segment.created_ms)

    def take(batch: ScannedBatch, _: int) -> None:
        if batch.producer_id >= 0 and batch.base_offset >= start_offset:
            states.appended(header_of(batch), last_offset=batch.last_offset, now_ms=now_ms)

    with segment.pinned() as file:
        end = scan_file(file, 0, segment.size, take)
    if end.reason:
        raise CorruptLog(file.path, end.position, end.reason)


def header_of(batch: ScannedBatch) -> BatchHeader:
    """A scanned batch's header as everybody else knows it."""
    return BatchHeader(
        size_bytes=batch.size_bytes,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        crc=0,
        attributes=batch.attributes,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=batch.record_count,
    )
