"""Recovers a log after a crash: finds out what it holds, makes that durable, and continues from there.

Everything below the recovery point (the end offset in the manifest's last row if it is known, else the
base offset) was synced before the manifest was written. So recovery
    1. finishes the renames of a committed swap;
    2. treats a listed segment that is missing, or ends before the recovery point, as corruption: the log
       goes offline, and none of its files is removed;
    3. finishes a truncation or a replacement that has begun; removes files that the manifest does not
       list if a listed segment covers them or the cleaner was still writing them;
    4. scans the last listed segment from the recovery point, and then every unlisted one that
       continues it, because a crash between a roll and its commit must not lose that segment;
    5. ends the log at the first unsound batch, and keeps the bytes after it in a `cut` file;
    6. syncs what it found before anyone may read it, and commits it if another recovery might not find
       the same. Usually it would, so that a start after a crash writes nothing to most logs: their next
       commit follows a roll, a checkpoint or a stop. On a full disk every commit waits for space.
It does not read batches below the recovery point, and never cuts anything there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from protocol.records.batch_tally import BatchTally
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.batches.scan import scan_file
from storage.files.errors import CorruptLog, NoSpace
from storage.files.files import FileSystem
from storage.files.paths import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    MANIFEST,
    SegmentFile,
    join,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, UNKNOWN_OFFSET, Manifest, SegmentRow, encode
from storage.recovery import interrupted_replacement
from storage.recovery.checkpoint import CHECKPOINT_BYTES_MIN, bytes_behind, is_in
from storage.recovery.cut_files import CutFiles
from storage.recovery.progress import RecoveryProgress
from storage.recovery.segment_sweep import SegmentSweep, segment_files
from storage.segment.files import Background
from storage.segment.segment import Segment
from storage.state.aborted_recovery import load_aborted, write_aborted
from storage.state.aborted_transactions import AbortedTransactions
from storage.state.epoch_recovery import load_epochs
from storage.state.leader_epochs import LeaderEpochs
from storage.state.producer_recovery import (
    ProducerReplay,
    newest_snapshot,
    remove_snapshots_past,
    replay_of,
    snapshot_offsets,
    write_snapshot,
)
from storage.state.producer_state import ProducerStates

_log = logging.getLogger("storage.recovery.recovery")


class Recovery:
    """The recovery of one log. After `run` the attributes hold the log's state on disk."""

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
        kept_names: Collection[tuple[int, int]] = (),
    ) -> None:
        """
        Args:
            is_rebuilt: the manifest was rebuilt from the segments and is not committed yet.
            kept_names: base offsets and versions of the segments that are kept for an undo.
        """
        # Constant after construction
        self._fs = fs
        self._name = identity.topic_partition
        self._directory = identity.directory
        self._background = background
        self._now_ms = now_ms
        self._index_interval_bytes = index_interval_bytes
        self._is_rebuilt = is_rebuilt
        self._progress = progress
        self._kept_names = kept_names
        self._cut_files = CutFiles(fs, identity, progress)
        # State
        self.manifest = manifest
        self.segments: list[Segment] = []
        self.epochs = LeaderEpochs()
        self.producers = ProducerReplay(Offset(0), ProducerStates())
        self.aborted = AbortedTransactions()
        self._last_epoch_start = -1
        """Of the epochs in the checkpoint, also of one whose records are lost."""
        self.is_as_stopped = False
        """Whether the log is as a clean stop leaves it; then epochs and producers were not read."""
        self.is_commit_postponed = False
        """Whether the manifest on disk is the old one: a commit was not needed, or found no space."""
        self.rolled: list[tuple[Segment, ProducerStates]] = []
        """If the commit was postponed: the unlisted sealed segments, with the producers at the end of
        the last one."""

    def run(self) -> None:
        """Find what the log holds, make it durable, and commit it.

        A log without appends since its recovery point, which a clean stop or a checkpoint set, is left
        unchanged.

        Raises:
            CorruptLog, MissingFile: it cannot be repaired; none of its files was removed.
            FormatFromTheFuture: a later release wrote one of its files.
            DiskError: the disk failed.
        """
        if self.manifest.has_foreign_states:
            interrupted_replacement.finish(self._fs, self._directory)
            self.manifest = replace(self.manifest, has_aborted_file=False)
        sweep = SegmentSweep(
            self._fs, self._directory, self.manifest, self._cut_files, self._kept_names
        )
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
        is_whole = self._recover_tail(unlisted)
        needs_commit = not (is_in_order and is_whole and self._will_be_found_again())
        self._reconcile_states()
        if needs_commit:
            try:
                self._commit()
            except NoSpace as error:
                self._postpone_commit(error)
        else:
            self._keep_manifest()

    def _will_be_found_again(self) -> bool:
        """Returns whether a recovery that begins at the same manifest, now or after more appends, finds
        this state, and finds it quickly. The files are those that the manifest lists."""
        before, tail = self.manifest.segments[-1], self.segments[-1]
        end_offset = tail.end_offset
        snapshots = snapshot_offsets(self._fs, self._directory)
        return (
            not self._is_rebuilt
            and bytes_behind(before, tail) < CHECKPOINT_BYTES_MIN
            and max(snapshots, default=0) <= end_offset
            # An epoch whose records are lost must not stay in the checkpoint: the same epoch may begin
            # again, at another offset.
            and self._last_epoch_start < end_offset
            and self.manifest.sound_clean_offset(end_offset) == self.manifest.clean_offset
        )

    def _keep_manifest(self) -> None:
        """Continue with the manifest that is there; only its name may still have to be synced."""
        self._fs.sync_directory(self._directory)
        self.is_commit_postponed = True
        self._progress.recovered()

    def _postpone_commit(self, error: NoSpace) -> None:
        """Continue with the old manifest: another recovery would find the same, and later appends.

        Raises:
            NoSpace: another recovery might not find the same, so the log cannot be opened.
        """
        if self._is_rebuilt or self.manifest.truncate_to != UNKNOWN:
            raise error
        _log.warning("%s: recovered, but the result could not be committed: %s", self._name, error)
        versions = [file.version for file in segment_files(self._fs, self._directory)]
        self.manifest = replace(self.manifest, version=max([self.manifest.version, *versions]))
        self.is_commit_postponed = True
        rolled = self.segments[len(self.manifest.segments) - 1 : -1]
        if rolled:
            # Replay again: a snapshot may have been written before the manifest did not fit.
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
        """Rewrite the index of the segment that a truncation has cut."""
        if self.manifest.truncate_to != UNKNOWN:
            for segment in self.segments[-2:-1]:
                segment.write_index()
                segment.drop_index()

    def _load_states(self) -> None:
        """Load epochs and producers up to the recovery point, where the scan continues."""
        tail = self.segments[-1]
        self.epochs = load_epochs(self._fs, self._directory, self.segments)
        self._last_epoch_start = self.epochs.last_start
        self.epochs.truncate_from_end(tail.end_offset, is_empty=False)
        self.epochs.truncate_from_start(self.manifest.log_start_offset)
        is_cut = self.manifest.truncate_to != UNKNOWN
        end_offset = tail.end_offset if is_cut else OFFSET_MAX
        # A log that was truncated to nothing starts over, without known producers.
        is_emptied = is_cut and tail.end_offset == self.manifest.log_start_offset
        known = None if is_emptied else newest_snapshot(self._fs, self._directory, end_offset)
        if known is None:
            # A commit writes a snapshot if there are producers below its recovery point.
            start_offset = Offset(0) if is_cut or self._is_rebuilt else tail.end_offset
            known = ProducerReplay(start_offset, ProducerStates())
        self.aborted = load_aborted(
            self._fs,
            self._directory,
            self.segments,
            must_exist=self.manifest.has_aborted_file,
        )
        self.producers = known
        self.producers.take_segments(self.segments)

    def _recover_tail(self, unlisted: dict[int, SegmentFile]) -> bool:
        """Scan the last listed segment and those that continue it, up to the first unsound batch.

        Returns whether there was nothing to cut.
        """
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
        return is_whole

    def _recover_segment(self, segment: Segment) -> bool:
        """Scan a segment from its recovery point on, and cut it after the last sound batch.

        Returns whether there was nothing to cut.
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
                # The manifest with that log start was written after these bytes were synced.
                raise CorruptLog(
                    segment.path(LOG), end.position, "the segment ends there, below the log start"
                )
            if end.position < size:
                self._cut_files.cut(segment, end.position, size, end.reason)
            if segment.size > start:
                segment.restore_append_times(first_append_ms, self._now_ms)
            file.sync()
        return end.position == size

    def _take(self, segment: Segment, tally: BatchTally) -> None:
        """Add the batches that a scan has found."""
        segment.apply_tally(tally)
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
            _log.warning("%s: cannot write an index, keeping it in memory: %s", self._name, error)
            return
        segment.drop_index()

    # ---------------------------------------------------------------- the commit

    def _reconcile_states(self) -> None:
        """Make producers, aborted transactions and epochs match the batches that are in the log."""
        end_offset = self.segments[-1].end_offset
        remove_snapshots_past(self._fs, self._directory, end_offset)
        clean_offset = self.manifest.sound_clean_offset(end_offset)
        if self.producers.snapshot_offset > end_offset:
            # The snapshot covers batches that are gone: start from an older one.
            self.producers = replay_of(self._fs, self._directory, self.segments, end_offset)
            # The replay has found the aborted transactions after the snapshot, and only those.
        self.aborted.truncate_from_end(self.producers.snapshot_offset)
        self.aborted.extend(self.producers.aborted)
        self.aborted.forget_below(max(clean_offset, self.manifest.log_start_offset))
        self.epochs.truncate_from_end(
            end_offset, is_empty=not any(each.size for each in self.segments)
        )

    def _commit(self) -> None:
        """Write the recovered state, so that the next recovery starts there."""
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
            truncate_to=UNKNOWN_OFFSET,
            has_foreign_states=False,
            has_aborted_file=has_aborted_file,
            segments=(*(each.full_row() for each in self.segments[:-1]), self._recovery_point()),
        )
        self._fs.replace_durably(join(self._directory, MANIFEST), encode(self.manifest))
        self._progress.recovered()

    def _recovery_point(self) -> SegmentRow:
        """Returns the new manifest's last row, so that another start need not repeat a long scan."""
        before, tail = self.manifest.segments[-1], self.segments[-1]
        if bytes_behind(before, tail) >= CHECKPOINT_BYTES_MIN:
            index = tail.index()
            tail.write_index_up_to(index, index.mark)
            return tail.full_row()
        return before if is_in(before, tail) else tail.active_row()
