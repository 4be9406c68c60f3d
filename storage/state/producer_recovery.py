"""Recovers the producers of a log from the last readable snapshot and a scan of the batches after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from protocol.records.batch_tally import BatchTally
from protocol.wire.numbers import Offset, ProducerId
from storage.batches.scan import scan_file
from storage.files.errors import CorruptLog, DamagedFile
from storage.files.files import FileSystem
from storage.files.paths import join, parse_snapshot_file, snapshot_file
from storage.formats.config_property import LONG_MAX
from storage.segment.segment import Segment
from storage.state.aborted_transactions import Row
from storage.state.producer_state import AppendedBatch, ProducerStates, decode_producer_states

_log = logging.getLogger("storage.state.producer_recovery")


class ProducerReplay:
    """Rebuilds producer states from a snapshot and the batches after it, in order.

    `snapshot_offset` is the snapshot's offset, 0 without a snapshot. `aborted` lists the transactions
    whose ABORT lies after it.
    """

    __slots__ = ("aborted", "snapshot_offset", "states")

    def __init__(self, snapshot_offset: Offset, states: ProducerStates) -> None:
        self.snapshot_offset = snapshot_offset
        self.states = states
        self.aborted: list[Row] = []

    def take(self, tally: BatchTally, now_ms: int) -> None:
        """Replay the next batches of the log. `tally` has left out the batches below the snapshot."""
        self.aborted += self._with_first_offsets(tally.aborted)
        for batch in tally.last_batches():
            if batch.is_marker:
                self.states.marked(batch.producer_id, batch.producer_epoch, now_ms=now_ms)
                continue
            appended = AppendedBatch(batch.base_sequence, batch.last_sequence, batch.last_offset)
            self.states.remember(batch.producer_id, batch.producer_epoch, appended, now_ms=now_ms)
        for producer_id, first_offset, has_marker, coordinator_epoch in tally.transactions():
            self.states.transacted(
                producer_id,
                first_offset,
                has_marker=has_marker,
                coordinator_epoch=coordinator_epoch,
            )

    def _with_first_offsets(
        self, aborted: Sequence[tuple[ProducerId, Offset, Offset, bool]]
    ) -> Iterator[Row]:
        """Yield rows with first offsets. An ABORT without an open transaction has no row: there is
        nothing to skip. A transaction from before these batches has its first offset in the states."""
        for producer_id, first_offset, marker_offset, is_first in aborted:
            state = self.states.get(producer_id) if is_first else None
            if state is not None and state.current_txn_first_offset >= 0:
                first_offset = state.current_txn_first_offset
            if first_offset >= 0:
                yield producer_id, first_offset, marker_offset

    def take_segments(self, segments: Sequence[Segment]) -> None:
        """Replay whole segments.

        Raises:
            CorruptLog: a segment is damaged.
            DiskError: a segment cannot be read.
        """
        for segment in segments:
            if segment.end_offset > self.snapshot_offset and segment.size > 0:
                _replay(segment, self)


def producers_of(
    fs: FileSystem, directory: str, segments: Sequence[Segment], end_offset: Offset
) -> ProducerStates:
    """Returns the producer states of everything below `end_offset`, which is the segments' end.

    Raises:
        CorruptLog: a segment that the manifest lists is damaged.
        DiskError: a segment cannot be read.
    """
    return replay_of(fs, directory, segments, end_offset).states


def replay_of(
    fs: FileSystem, directory: str, segments: Sequence[Segment], end_offset: Offset
) -> ProducerReplay:
    """Returns the newest snapshot up to `end_offset`, with the segments after it replayed.

    Raises like `producers_of`.
    """
    replay = newest_snapshot(fs, directory, end_offset) or ProducerReplay(
        Offset(0), ProducerStates()
    )
    replay.take_segments(segments)
    return replay


def producers_at_stop(
    fs: FileSystem, directory: str, segments: Sequence[Segment], end_offset: Offset
) -> ProducerStates:
    """Returns the producer states after a clean stop, which writes a snapshot if there are producers."""
    path = join(directory, snapshot_file(end_offset))
    if not fs.exists(path):
        return ProducerStates()
    try:
        return decode_producer_states(fs.read_bytes(path), path)
    except DamagedFile as error:
        _log.warning("%s; reading the segments instead", error)
        return producers_of(fs, directory, segments, end_offset)


def snapshot_offsets(fs: FileSystem, directory: str) -> list[Offset]:
    """Returns the offsets of the log's snapshots, in order."""
    found = (parse_snapshot_file(name) for name in fs.list(directory))
    return sorted(Offset(offset) for offset in found if offset is not None)


def write_snapshot(
    fs: FileSystem, directory: str, offset: Offset, producers: ProducerStates
) -> None:
    """Write the snapshot of the producers of everything below `offset`, which is synced, durably.

    A log that never had a producer gets no snapshot. Otherwise even an empty one is written, because it
    replaces the older ones.
    """
    if len(producers) or snapshot_offsets(fs, directory):
        fs.replace_durably(join(directory, snapshot_file(offset)), producers.encode())


def remove_snapshots_past(fs: FileSystem, directory: str, end_offset: Offset) -> None:
    """Remove snapshots past the log's end, before new records are written at these offsets."""
    for offset in snapshot_offsets(fs, directory):
        if offset > end_offset:
            fs.unlink(join(directory, snapshot_file(offset)))


def newest_snapshot(fs: FileSystem, directory: str, end_offset: Offset) -> ProducerReplay | None:
    """Returns the newest readable snapshot up to `end_offset`; None if there never was a snapshot."""
    offsets = [offset for offset in snapshot_offsets(fs, directory) if offset <= end_offset]
    for offset in reversed(offsets):
        path = join(directory, snapshot_file(offset))
        try:
            return ProducerReplay(offset, decode_producer_states(fs.read_bytes(path), path))
        except DamagedFile as error:
            _log.warning("%s; trying the next older snapshot", error)
    return ProducerReplay(Offset(0), ProducerStates()) if offsets else None


def _replay(segment: Segment, replay: ProducerReplay) -> None:
    now_ms = max(segment.last_append_ms, segment.created_ms)
    tally = BatchTally(
        base_offset=segment.base_offset,
        index_interval_bytes=LONG_MAX,
        producers_from=replay.snapshot_offset,
    )
    with segment.pinned() as file:
        end = scan_file(file, segment.size, tally)
    if end.reason:
        raise CorruptLog(file.path, end.position, end.reason)
    replay.take(tally, now_ms)
