"""The operations that change a partition's log: append, roll, sync, clean, delete, truncate.

The loop's thread appends, reads and rolls. Worker threads sync the log, commit manifests, swap in
cleaned segments, and delete. Work that an append causes but need not wait for (sealing a segment,
committing the roll) goes to `background`. `storage/log/segment_list.py` has the segments and their
commits, `storage/state/log_states.py` the producers and epochs, `storage/log/readable_log.py` the
offsets and the reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.records.batch_header import read_header, stamp
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import build_control_batch
from protocol.wire.error_codes import ErrorCode
from storage.batches.gap_batch import gap_batch
from storage.batches.validate import Refused, ValidationRules, ValidBatch
from storage.files.begun_sync import BegunSync
from storage.files.errors import NoSpace, StorageError, SwapRefused
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.log.cleaning_view import CleanableSegment, CleaningView, empty_row
from storage.log.readable_log import ReadableLog
from storage.log.roll import OFFSET_SPAN_MAX, is_old, must_roll
from storage.log.start import DeletedSegment, LogStart
from storage.log.truncate import Cut, plan_cut
from storage.recovery.checkpoint import CHECKPOINT_BYTES_MIN
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.segment.taken_segment import take_segment
from storage.state.producer_state import Duplicate


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch that was appended, or was in the log before (`duplicate`): offsets [base, next)."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class PartitionLog(ReadableLog):
    """One partition's log. The loop's thread changes it; worker threads call the methods that say so."""

    __slots__ = ()

    # ---------------------------------------------------------------- appending

    def validation_rules(self, *, now_ms: int) -> ValidationRules:
        """Returns the rules for `validate_batch`."""
        return ValidationRules(self.topic_partition, self.config, now_ms)

    def append_as_leader(self, batch: ValidBatch, *, now_ms: int) -> Appended | Refused:
        """Stamp the batch with its offsets and the leader epoch, and write it.

        A duplicate of one of its producer's last five batches is not written again; the result has the
        offsets of the first one.

        Raises:
            LogOffline: the log or its directory is out of service.
            DiskError: the write failed, and nothing of the batch is in the log.
        """
        self._service.check_online()
        verdict = self._states.producers.judge(batch.header, batch.marker)
        if isinstance(verdict, Duplicate):
            return Appended(verdict.base_offset, verdict.last_offset + 1, duplicate=True)
        if verdict is not ErrorCode.NONE:
            return self._refuse(batch, verdict)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.header.last_offset - batch.header.base_offset
        stamp(batch.view, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self._states.assign_epoch(self.leader_epoch, base_offset)
        self._write(batch, last_offset, now_ms)
        return Appended(base_offset, last_offset + 1, batch.log_append_time_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Appended | Refused:
        """Write the COMMIT or ABORT that ends a producer's transaction in this partition.

        The marker is written even if the producer has no open transaction here: it raises the epoch.
        A producer epoch below the one in the log is refused with INVALID_PRODUCER_EPOCH, a coordinator
        epoch below that of the producer's last marker with TRANSACTION_COORDINATOR_FENCED.

        Raises like `append_as_leader`.
        """
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        batch = build_control_batch(
            TransactionMarker(type=kind, coordinator_epoch=coordinator_epoch),
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        valid = ValidBatch(read_header(batch), memoryview(batch))
        return self.append_as_leader(valid, now_ms=now_ms)

    def append_as_follower(self, batch: ValidBatch, *, now_ms: int) -> Appended:
        """Write a batch with the offsets and epoch that a leader gave it; gaps are legal.

        Raises:
            ValueError: it begins below the log's end.
            LogOffline, DiskError: like `append_as_leader`.
        """
        self._service.check_online()
        header = batch.header
        if header.base_offset < self.log_end_offset:
            raise ValueError(f"offset {header.base_offset} is below {self.log_end_offset}")
        active = self._list.active
        if active.size == 0 and header.last_offset - active.base_offset > OFFSET_SPAN_MAX:
            # An empty segment never rolls, and its indexes cannot express such a large relative offset.
            # The gap batch gets the epoch of the batch that follows it.
            epoch = header.leader_epoch
            self.advance_end(header.base_offset, now_ms=now_ms, leader_epoch=epoch)
        self._states.assign_epoch(header.leader_epoch, header.base_offset)
        self._write(batch, header.last_offset, now_ms)
        return Appended(header.base_offset, header.next_offset, batch.log_append_time_ms)

    def advance_end(
        self, offset: int, *, now_ms: int = UNKNOWN, leader_epoch: int | None = None
    ) -> None:
        """Move the log's end over a gap, for example if the cleaner has removed the leader's tail.

        Batches without records cover the gap, so that it is as durable as the data before it;
        readers skip them.

        Args:
            leader_epoch: of the gap; None for the log's own, as a leader.

        Raises:
            LogOffline, DiskError: like `append_as_leader`.
        """
        self._service.check_online()
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        while self.log_end_offset < offset:
            last_offset = min(offset - 1, self.log_end_offset + OFFSET_SPAN_MAX)
            empty = memoryview(gap_batch(self.log_end_offset, last_offset, epoch))
            self._states.assign_epoch(epoch, self.log_end_offset)
            self._write(ValidBatch(read_header(empty), empty), last_offset, now_ms)

    def _refuse(self, batch: ValidBatch, error_code: ErrorCode) -> Refused:
        header = batch.header
        text = (
            f"Producer {header.producer_id} epoch {header.producer_epoch} sent sequence"
            f" {header.base_sequence} to {self.topic_partition}: {error_code.message}"
        )
        return Refused(error_code=error_code, message=text, record_count=header.record_count)

    def _write(self, batch: ValidBatch, last_offset: int, now_ms: int) -> None:
        header = batch.header
        self._list.mark_changed()
        if self._must_roll(len(batch.view), last_offset, now_ms):
            self.roll(now_ms)
        self._list.active.append(
            batch.view,
            last_offset=last_offset,
            record_count=header.record_count,
            max_timestamp=header.max_timestamp,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._states.appended(batch, last_offset=last_offset, now_ms=now_ms)
        self.log_end_offset = last_offset + 1
        self._unsynced.appended(now_ms)

    # ---------------------------------------------------------------- rolling

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll the active segment if it has reached its age, with or without appends.

        Called by a timer; it also forgets idle producers. Returns whether it rolled.
        """
        self._states.expire_producers(now_ms)
        if self.offline_reason is not None or not self._is_old(now_ms):
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Start a new active segment and seal the old one in the background. An empty one does not roll.

        Raises:
            LogOffline, NoSpace: nothing has changed.
            DiskError: nothing has changed; the log's directory takes no new names and is offline.
        """
        self._service.check_online()
        if not self._list.active.size:
            return
        reserved_bytes = self.config.reserved_segment_bytes
        with self._service.failing_with_the_disk(NoSpace):
            self._list.roll(self.log_end_offset, now_ms, reserved_bytes=reserved_bytes)

    def _must_roll(self, batch_bytes: int, last_offset: int, now_ms: int) -> bool:
        return must_roll(
            self._list.active,
            self.config,
            batch_bytes=batch_bytes,
            last_offset=last_offset,
            is_old=self._is_old(now_ms),
        )

    def _is_old(self, now_ms: int) -> bool:
        return is_old(self._list.active, self.config, jitter=self._jitter, now_ms=now_ms)

    # ---------------------------------------------------------------- durability

    def sync(self) -> int:
        """Make everything that was appended before durable. Returns the offset it reaches. Any thread.

        Raises:
            StorageError: final; the log's directory is offline.
        """
        self._unsynced.sync_begins()
        try:
            end_offset = self._list.syncs.sync(lambda: self.log_end_offset)
        except StorageError as error:
            if self._service.is_retired:
                return self.high_watermark
            self._service.fail(error)
            raise
        self._unsynced.synced(end_offset)
        return end_offset

    def begin_sync(self) -> BegunSync | None:
        """Start a sync whose fdatasync another thread performs. Runs on the loop's thread.

        Its end makes everything durable that is in the log now; if it fails, the log's directory goes
        offline. Returns None if the log needs more than the fdatasync of one file: then use `sync`.
        """
        self._unsynced.sync_begins()
        try:
            begun = self._list.syncs.begin()
        except StorageError:
            begun = None
        if begun is None:
            return None
        end_offset = self.log_end_offset

        def end(error: int) -> None:
            with self._service.failing_with_the_disk():
                begun.end(error)
            self._unsynced.synced(end_offset)

        return BegunSync(begun.descriptor, end, begun.abandon)

    def is_flush_due(self, now_ms: int = UNKNOWN) -> bool:
        """Returns whether flush.messages or, with a time, flush.ms asks for a sync."""
        return self._unsynced.is_due(self.config, self.log_end_offset, now_ms)

    def checkpoint(
        self, *, grown_bytes_min: int = CHECKPOINT_BYTES_MIN
    ) -> Callable[[], None] | None:
        """Take a checkpoint for a new recovery point. Runs on the loop's thread, called by a timer.

        Returns the function that commits it, for a worker thread. It raises nothing: a full disk
        postpones it, any other failure takes the directory offline. Returns None if the log has grown by
        less than `grown_bytes_min` since its last recovery point, or is out of service.
        """
        segments = self._list
        if self.offline_reason is not None or segments.grown_since_checkpoint < grown_bytes_min:
            return None
        taken = segments.take_checkpoint()
        return self._service.guarded(lambda: segments.commit_checkpoint(taken))

    def advance_high_watermark(self, offset: int) -> None:
        """Advance the high watermark to `offset` (durable end or log end: see flush.on.acks.all)."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))
        self._states.forget_transactions_below(self.high_watermark)

    # ---------------------------------------------------------------- retention

    def retention_is_due(self, now_ms: int) -> bool:
        """Returns whether `retain` has something to delete; rolls an active segment that must go.

        Called by a timer, on the loop. Raises like `roll`.
        """
        self._service.check_online()
        due = self._log_start().due(now_ms)
        if len(due.reasons) == len(self._list.segments):
            self.roll(now_ms)
        return bool(due.reasons)

    def retain(self, now_ms: int) -> tuple[DeletedSegment, ...]:
        """Delete the segments that `storage/log/retention.py` selects. A worker thread.

        The new log start offset is on disk before anyone sees it.

        Raises:
            LogOffline: the log is out of service.
            NoSpace: the disk is full, and the log is unchanged.
            StorageError: the disk failed; the log's directory is offline.
        """
        return self._log_start().retain(now_ms)

    def delete_records(self, offset: int) -> tuple[DeletedSegment, ...] | ErrorCode:
        """Move the log start up to `offset`, and delete the segments below it. A worker thread.

        An offset up to the log start changes nothing; one above the high watermark returns
        OFFSET_OUT_OF_RANGE. Raises like `retain`.
        """
        return self._log_start().delete_records(offset, self.sync)

    def _log_start(self) -> LogStart:
        return LogStart(self, self._list, self._service)

    # ---------------------------------------------------------------- cleaning

    def cleaning_view(self, *, as_if_rolled: bool = False) -> CleaningView:
        """Returns a frozen view by which the cleaner plans. Any thread.

        Its values of the active segment are exact only if called on the loop's thread: elsewhere an
        append may come in between. Those of sealed segments are always exact.

        Args:
            as_if_rolled: return the view that a `roll` now would give. Only on the loop's thread,
                because it reads what appends change.
        """
        producers = self.producers
        with self._list.state_lock:
            segments = self._list.segments
            sealed = tuple(CleanableSegment(each.row(), each) for each in segments[:-1])
            active_row = segments[-1].full_row()
            if as_if_rolled and active_row.size:
                sealed = (*sealed, CleanableSegment(active_row, segments[-1]))
                active_row = empty_row(active_row.end_offset)
            return CleaningView(
                topic_partition=self.topic_partition,
                config=self.config,
                segments=sealed,
                # A pass that is planned in the middle of a truncation must fail.
                generation=UNKNOWN if self._list.is_truncating else self.generation,
                clean_offset=max(self.clean_offset, self.log_start_offset),
                active_row=active_row,
                log_start_offset=self.log_start_offset,
                last_stable_offset=self.last_stable_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                producer_last_offsets=producers.last_data_offsets(),
                producer_marker_epochs=producers.marker_epochs(),
                hash_key=self.identity.hash_key,
            )

    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter:
        """Start a cleaned segment beside the log. Any thread; end it with `finish` or `discard`."""
        self._service.check_online()
        version = self._list.next_version()
        hash_key = self.identity.hash_key
        return CleanedSegmentWriter(self._fs, self.directory, base_offset, version, hash_key)

    def take_cleaned_segment(self, folder: str, row: SegmentRow) -> CleanedSegment:
        """Take over a cleaned segment from a folder on the log's disk. A worker thread.

        Args:
            row: describes its contents; base offset and file version name its files. The log gives it
                a new version.

        Raises:
            LogOffline: the log is out of service.
            CorruptLog, DiskError: its files are missing, cannot be moved, or are links; nothing was
                taken.
        """
        self._service.check_online()
        version = self._list.next_version()
        return take_segment(self._fs, folder, row, self.directory, version)

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None:
        """Replace sources with cleaned segments in one manifest commit. A worker thread.

        Args:
            generation: of the view by which the pass was planned.
            clean_offset: the new first dirty offset, with the last swap of a pass; else None.

        Raises:
            SwapRefused: the log was truncated or deleted or changed its policy since, or a source is
                gone. Nothing has changed; the caller discards the cleaned files.
            NoSpace: the disk is full. The log is unchanged, and the cleaned files are removed.
            StorageError: the disk failed; the log's directory is offline.
        """
        with self._service.failing_with_the_disk(SwapRefused, NoSpace):
            self._list.swap(sources, cleaned, generation=generation, clean_offset=clean_offset)

    def commit_clean_offset(self, clean_offset: int, *, generation: int) -> None:
        """Move the clean offset if no segment has to change for it. A worker thread.

        Raises like `swap`; nothing has changed then.
        """
        with self._service.failing_with_the_disk(SwapRefused, NoSpace):
            self._list.commit_clean_offset(clean_offset, generation=generation)

    # ---------------------------------------------------------------- changing and ending

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration. If it changes which records cleaning keeps (`_kept_records_rules`),
        passes planned before fail.

        A commit that is running may still follow the old configuration; `wait_for_commit` waits for it.
        """
        if _kept_records_rules(config) != _kept_records_rules(self.config):
            self._list.raise_generation()
        self.config = config

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set the idle time after which producers are forgotten (producer.id.expiration.ms)."""
        self._states.expire_producers_after(expiration_ms)

    def wait_for_commit(self) -> None:
        """Wait for the running commit, if any. A worker thread."""
        with self._list.commit_lock:
            return

    def truncate_to(self, offset: int) -> None:
        """Truncate the log so that no batch reaches `offset`. See `storage/log/truncate.py`.

        Runs on a worker thread, while nothing is appended and no sync is running (its result would cover
        bytes that are gone). A batch that spans `offset` goes as a whole, and the log then ends at its
        base offset.

        Raises:
            ValueError: `offset` is below the log start offset.
            LogOffline: the log is out of service.
            StorageError: the disk failed; the log's directory is offline.
        """
        if offset < self.log_start_offset:
            raise ValueError(f"offset {offset} is below the log start {self.log_start_offset}")
        with self._list.commit_lock:
            self._service.check_online()
            if offset < self.log_end_offset:
                cut = plan_cut(self._list.segments, offset)
                if cut.end_offset < self.log_start_offset:
                    # All readable records are in the batch that goes; the log start stays.
                    cut = Cut((), 0, self.log_start_offset)
                self._truncate(cut, start_offset=self.log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and continue at `offset`, which becomes the log's start and end.

        A worker thread, while nothing is appended. Raises like `truncate_to`.
        """
        with self._list.commit_lock:
            self._service.check_online()
            self._truncate(Cut((), 0, offset), start_offset=offset)

    def _truncate(self, cut: Cut, *, start_offset: int) -> None:
        def forget(end_offset: int) -> None:
            self.log_end_offset = end_offset
            self._unsynced.truncated(end_offset)
            self.high_watermark = max(start_offset, min(self.high_watermark, end_offset))

        self.make_files()
        with self._service.failing_with_the_disk():
            self._list.truncate(cut, start_offset=start_offset, forget=forget)

    @property
    def has_files(self) -> bool:
        """Whether a new log's files exist; if not, the first write creates them."""
        return self._list.syncs.new_names.are_made

    def make_files(self) -> None:
        """Create the files of a new log unless they exist. A worker thread.

        Raises:
            LogOffline: the topic was deleted.
            DiskError: the files cannot be created; a later call or the first write tries again.
        """
        self._list.syncs.new_names.make_files()

    def give_up_files(self) -> None:
        """Return when no thread creates files of this log, whose topic was deleted. A worker thread."""
        self._list.syncs.new_names.give_up_files()

    def sync_new_files(self) -> None:
        """Sync the files of a new log, but not the directories above. A worker thread.

        Raises:
            NoSpace: no descriptor is left; nothing has changed.
            StorageError: the disk failed; the log's directory is offline.
        """
        with self._service.failing_with_the_disk(NoSpace):
            self._list.syncs.new_names.sync_files()

    def mark_directories_synced(self) -> None:
        """Record a sync of the directories above a new log after `sync_new_files`, or of its disk."""
        self._list.syncs.new_names.mark_directories_synced()

    def go_offline(self, reason: str) -> None:
        """Take the log out of service until the next start. Nothing on disk changes."""
        self._service.go_offline(reason)

    def close(self) -> None:
        """Write everything that the next start would otherwise have to recover, and close the files.

        A worker thread, after the last append. Raises StorageError; the next start then recovers.
        """
        with self._service.failing_with_the_disk():
            self._list.close()

    def retire(self) -> None:
        """Take the log out of service, because its topic is deleted.

        Deleting the topic's directory removes the names. The disk gets its space back when the last
        descriptor closes, so each file is closed as soon as its last reader is done.
        """
        self._list.raise_generation()
        self._service.retire()
        self._service.remove_in_background(self._list.close_when_unused)


def _kept_records_rules(config: LogConfig) -> tuple[bool, bool, bool]:
    return config.is_compacted, config.is_deleted, config.keeps_unkeyed_records
