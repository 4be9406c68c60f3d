"""Find out what a log holds after a crash, make that safe, and go on from there.

Everything below the recovery point (the manifest's last row says it: its end if that is known, else its
base) was synced before the manifest was written, so
    1. renames that a committed swap still owed are done;
    2. a listed segment that is missing, or ends before the recovery point, is corruption: the log goes
       offline, and nothing of it is removed;
    3. a truncation that has begun is finished; what no manifest lists and a listed segment covers, or
       the cleaner was still writing, is removed;
    4. the last listed segment is scanned from the recovery point, and then every unlisted one that
       continues it: a crash between a roll and its commit must not lose it;
    5. the first batch that is not sound ends the log; the bytes behind it are kept in a `cut` file;
    6. what was found is synced and committed before anybody may read it. On a full disk it is synced
       only, and committed once there is space: until then a recovery finds it once more.
Batches below the recovery point are not looked at, and nothing is ever cut there.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from protocol.batch_tally import BatchTally
from storage.aborted_recovery import load_aborted, write_aborted
from storage.aborted_transactions import AbortedTransactions
from storage.checkpoint import CHECKPOINT_BYTES_MIN, bytes_behind, is_in
from storage.config_property import LONG_MAX
from storage.cut_files import CutFiles
from storage.epoch_recovery import load_epochs
from storage.errors import CorruptLog, NoSpace
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs
from storage.log_identity import LogIdentity
from storage.manifest import UNKNOWN, Manifest, SegmentRow, encode
from storage.paths import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    MANIFEST,
    SegmentFile,
    join,
)
from storage.producer_recovery import (
    ProducerReplay,
    newest_snapshot,
    remove_snapshots_past,
    replay_of,
    snapshot_offsets,
    write_snapshot,
)
from storage.producer_state import ProducerStates
from storage.recovery_progress import RecoveryProgress
from storage.scan import scan_file
from storage.segment import Segment
from storage.segment_files import Background
from storage.segment_sweep import SegmentSweep, segment_files

_log = logging.getLogger("storage.recovery")


class Recovery:
    """One log's recovery; `run` leaves its state as it is on disk."""

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        manifest: Manifest,
        *,
        background: Background,
        now_ms: int,
        index_interval_bytes: int,
        is_rebuilt: bool,
        progress: RecoveryProgress,
    ) -> None:
        """`is_rebuilt`: the manifest was found out from the segments, nobody has committed it."""
        # Constant after construction
        self._fs = fs
        self._name = identity.topic_partition
        self._directory = identity.directory
        self._background = background
        self._now_ms = now_ms
        self._index_interval_bytes = index_interval_bytes
        self._is_rebuilt = is_rebuilt
        self._progress = progress
        self._cut_files = CutFiles(fs, identity, progress)
        # State
        self.manifest = manifest
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerReplay(0, ProducerStates())
        self.aborted = AbortedTransactions()
        self.is_as_stopped = False
        """Whether all is as a clean stop leaves it; then epochs and producers were not read."""
        self.is_put_off = False
        """Whether the disk was too full for the commit: the manifest is as it was."""
        self.rolled: list[tuple[Segment, ProducerStates]] = []
        """Then, the segments that were rolled since, with the producers at the end of the last one."""

    def run(self) -> None:
        """Find what the log holds, make it safe, and commit it.

        A log that nobody has written to since its recovery point, as a clean stop or a checkpoint
        made it, is left as it is.

        Raises:
            CorruptLog, MissingFile: it cannot be made whole; nothing of it was removed.
            FormatFromTheFuture: a later release wrote one of its files.
            DiskError: the disk failed.
        """
        sweep = SegmentSweep(self._fs, self._directory, self.manifest, self._cut_files)
        is_in_order = sweep.is_in_order()
        sweep.finish_renames()
        sweep.check_listed()
        unlisted = sweep.remove_leftovers()
        self.segments = [self._segment_of(row) for row in self.manifest.segments]
        if is_in_order and not self._is_rebuilt and self._ends_at_recovery_point():
            self.is_as_stopped = True
            self.segments[-1].reopen()
            return
        self.segments[-1].resume()
        self._finish_cut()
        self._load_states()
        self._recover_tail(unlisted)
        self._set_states_right()
        try:
            self._commit()
        except NoSpace as error:
            self._put_off(error)

    def _put_off(self, error: NoSpace) -> None:
        """Go on with the old manifest: another recovery finds the same, with what comes behind it.

        Raises:
            NoSpace: another recovery might not.
        """
        if self._is_rebuilt or self.manifest.truncate_to != UNKNOWN:
            raise error
        _log.warning("%s: recovered, but not written down: %s", self._name, error)
        versions = [file.version for file in segment_files(self._fs, self._directory)]
        self.manifest = replace(self.manifest, version=max([self.manifest.version, *versions]))
        self.is_put_off = True
        rolled = self.segments[len(self.manifest.segments) - 1 : -1]
        if rolled:
            # Not those of a snapshot that was written before its manifest did not fit.
            sealed, end_offset = self.segments[:-1], rolled[-1].end_offset
            producers = replay_of(self._fs, self._directory, sealed, end_offset).states
            self.rolled = [(segment, producers) for segment in rolled]
        self._progress.recovered()

    def _ends_at_recovery_point(self) -> bool:
        tail = self.manifest.segments[-1]
        snapshots = snapshot_offsets(self._fs, self._directory)
        return (
            self._fs.size(self.segments[-1].path(LOG)) == tail.size
            and max(snapshots, default=0) <= tail.end_offset
        )

    def _segment_of(self, row: SegmentRow) -> Segment:
        return Segment(self._fs, self._directory, row, background=self._background)

    def _finish_cut(self) -> None:
        """Bring the index of the segment that a truncation has cut in line with what is left."""
        if self.manifest.truncate_to != UNKNOWN:
            for segment in self.segments[-2:-1]:
                segment.write_index()
                segment.drop_index()

    def _load_states(self) -> None:
        """Take epochs and producers up to the recovery point, where the scan goes on."""
        tail = self.segments[-1]
        self.epochs = load_epochs(self._fs, self._directory, self.segments)
        self.epochs.set_back(tail.end_offset, is_empty=False)
        self.epochs.truncate_from_start(self.manifest.log_start_offset)
        is_cut = self.manifest.truncate_to != UNKNOWN
        end_offset = tail.end_offset if is_cut else LONG_MAX
        # What was cut down to nothing is another log than before, of which no producer is known.
        is_emptied = is_cut and tail.end_offset == self.manifest.log_start_offset
        known = None if is_emptied else newest_snapshot(self._fs, self._directory, end_offset)
        if known is None:
            # A commit leaves a snapshot if there are producers below its recovery point.
            start_offset = 0 if is_cut or self._is_rebuilt else tail.end_offset
            known = ProducerReplay(start_offset, ProducerStates())
        self.aborted = load_aborted(
            self._fs,
            self._directory,
            self.segments,
            must_exist=self.manifest.has_aborted_file,
        )
        self.producers = known
        self.producers.take_segments(self.segments)

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
                created_ms=self._now_ms,
            )
            self.segments.append(self._segment_of(row))
        for file in unlisted.values():
            self._cut_files.set_aside(file)

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
        with segment.pinned() as file:
            end = scan_file(file, size, tally)
            self._progress.scanned(tally.position - start)
            self._take(segment, tally)
            if segment.end_offset < self.manifest.log_start_offset:
                # What is below the log start was synced before any manifest said so.
                raise CorruptLog(
                    segment.path(LOG), end.position, "it ends there, below the log start"
                )
            if end.position < size:
                self._cut_files.cut(segment, end.position, size, end.reason)
            if segment.size > start:
                segment.was_appended_to(first_append_ms, self._now_ms)
            file.sync()
        return end.position == size

    def _take(self, segment: Segment, tally: BatchTally) -> None:
        """Take what a scan has found to be in the log."""
        segment.take(tally)
        self.producers.take(tally, self._now_ms)
        for epoch, start_offset in tally.epochs:
            self.epochs.assign(epoch, start_offset)

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        with segment.pinned() as file:
            file.free_reserved()
        try:
            segment.write_index()
        except NoSpace as error:
            _log.warning("%s: an index is kept in memory alone: %s", self._name, error)
            return
        segment.drop_index()

    # ---------------------------------------------------------------- the commit

    def _set_states_right(self) -> None:
        """Let producers, aborted transactions and epochs speak of what is in the log, and only that."""
        end_offset = self.segments[-1].end_offset
        remove_snapshots_past(self._fs, self._directory, end_offset)
        clean_offset = self.manifest.sound_clean_offset(end_offset)
        if self.producers.snapshot_offset > end_offset:
            # It spoke of batches that are gone; what is left is looked at again.
            self.producers = replay_of(self._fs, self._directory, self.segments, end_offset)
        # What lies behind the snapshot was looked at, and only that.
        self.aborted.set_back(self.producers.snapshot_offset)
        self.aborted.extend(self.producers.aborted)
        self.aborted.forget_below(max(clean_offset, self.manifest.log_start_offset))
        self.epochs.set_back(end_offset, is_empty=not any(each.size for each in self.segments))

    def _commit(self) -> None:
        """Write down what was found, so that the next recovery begins there."""
        end_offset = self.segments[-1].end_offset
        clean_offset = self.manifest.sound_clean_offset(end_offset)
        has_aborted_file = write_aborted(
            self._fs,
            self._directory,
            self.aborted,
            must_exist=self.manifest.has_aborted_file,
        )
        write_snapshot(self._fs, self._directory, end_offset, self.producers.states)
        path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
        self._fs.replace_durably(path, self.epochs.encode())
        versions = [file.version for file in segment_files(self._fs, self._directory)]
        self.manifest = replace(
            self.manifest,
            version=max([self.manifest.version, *versions]) + 1,
            clean_offset=clean_offset,
            truncate_to=UNKNOWN,
            has_aborted_file=has_aborted_file,
            segments=(*(each.full_row() for each in self.segments[:-1]), self._recovery_point()),
        )
        self._fs.replace_durably(join(self._directory, MANIFEST), encode(self.manifest))
        self._progress.recovered()

    def _recovery_point(self) -> SegmentRow:
        """The last row of the new manifest: another start need not scan again what took long."""
        before, tail = self.manifest.segments[-1], self.segments[-1]
        if bytes_behind(before, tail) >= CHECKPOINT_BYTES_MIN:
            index = tail.index()
            tail.write_index_up_to(index, index.mark)
            return tail.full_row()
        return before if is_in(before, tail) else tail.active_row()
