"""The commits of a log: each replaces its manifest, in one atomic step, and then shows what it changed.

    roll        a manifest that lists the sealed segment, in the background
    checkpoint  the end of the active segment's safe part: the recovery point; in the background, too
    cleaning    cleaned segments for their sources, a later clean offset (`storage/log/cleaning.py`)
    undo        the sources again, and the clean offset as it was before the pass
    start       a later log start, and none of the segments below it (`storage/log/log_start.py`)
    truncate    fewer segments, and a new active one
    replace     the segments of a copy (`storage/log/replacement.py`)
    close       a recovery point at the log's end
    source      the source that is known to have had all records

A manifest may list a segment only if all earlier ones are synced, so each commit first syncs and lists
the earlier rolls that are not in it yet. `commit_lock` puts commits in order and is never taken on the
loop.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence

from protocol.wire.numbers import Offset
from storage.files.errors import CutRefused, NoSpace
from storage.files.files import FileSystem, unlink_if_there
from storage.files.paths import LOG, MANIFEST, join, parse_segment_file
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN_OFFSET, Manifest, SegmentRow, encode
from storage.log.log_service import LogService, too_late_for_space
from storage.log.new_files import NewFiles
from storage.log.offsets import LogOffsets
from storage.log.segment_list import Rolled, SegmentList
from storage.log.truncate import Cut, copy_shared, everything_from, make_cut, plan_cut
from storage.recovery.checkpoint import Checkpoint, bytes_behind, is_in, take_checkpoint
from storage.segment.cleaned_segment import discard_staged
from storage.segment.segment import Segment
from storage.state.log_states import LogStates
from storage.threads import any_thread, loop_thread
from storage.undo.kept_passes import KeptPasses
from storage.undo.undo_file import EndReason, KeptPass
from storage.undo.undo_rule import Stack


@any_thread
class LogCommits:
    """The manifest of one log, and the operations that replace it. Its `PartitionLog` owns it."""

    __slots__ = (
        "_clock_ms",
        "_fs",
        "_identity",
        "_list",
        "_new_files",
        "_offsets",
        "_recovery_point",
        "_service",
        "_states",
        "_stopped_at",
        "clean_offset",
        "commit_lock",
        "copied_from",
        "copy_id",
        "has_history",
        "has_unfinished_pass",
        "kept",
        "listed",
    )

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        segment_list: SegmentList,
        states: LogStates,
        offsets: LogOffsets,
        new_files: NewFiles,
        service: LogService,
        *,
        listed: tuple[Segment, ...],
        recovery_point: SegmentRow,
        is_as_stopped: bool,
        has_unfinished_pass: bool,
        has_history: bool,
        copy_id: uuid.UUID | None,
        copied_from: uuid.UUID | None,
        clock_ms: Callable[[], int],
        kept: Stack | None,
    ) -> None:
        """Take the manifest on disk.

        Args:
            listed: the segments that it lists.
            recovery_point: its last row; if the row's end is known, the segment is safe up to there.
            is_as_stopped: whether all files are as after a clean stop.
            has_unfinished_pass, has_history, copy_id, copied_from: as the manifest says.
            clock_ms: returns the wall time in ms.
            kept: the passes that can be undone; None if the manifest says that there is no undo file.
        """
        # Constant after construction
        self._fs = fs
        self._identity = identity
        self._list = segment_list
        self._states = states
        self._offsets = offsets
        self._new_files = new_files
        self._service = service
        self._clock_ms = clock_ms
        self.commit_lock = threading.Lock()
        # State, changed under `commit_lock`: the contents of the manifest.
        self.listed = listed
        """The segments that the manifest lists."""
        self.clean_offset = segment_list.clean_offset
        self.has_unfinished_pass = has_unfinished_pass
        """Whether a cleaning pass has swapped segments since the clean offset last moved."""
        self.has_history = has_history
        """Whether keys may have older values below the clean offset."""
        self.copy_id = copy_id
        """The id of the last copy that has replaced the log's records; None if none has."""
        self.copied_from = copied_from
        """Names the source that is known to have had all records; None if none is."""
        self.kept: KeptPasses | None = None
        """The passes that can be undone; None if nothing of any pass was ever kept."""
        self._recovery_point = recovery_point
        self._stopped_at = segment_list.active.end_offset if is_as_stopped else None
        """The log's end if all files are as after a clean stop while the log ends there."""
        if kept is not None:
            self.passes_to_keep().found(kept)

    # ---------------------------------------------------------------- rolls

    def commit_rolls(self) -> None:
        """Commit a manifest that lists all rolls so far. Raises StorageError."""
        with self.commit_lock:
            # A copy that was dropped may have a successor, with files of the same names.
            if not self._service.is_retired:
                self.list_rolls()

    def list_rolls(self) -> None:
        """Make all rolls so far durable: the sealed segments, then the manifest that lists them.

        The caller holds `commit_lock`. Raises StorageError.
        """
        rolled, segments = self._list.take_rolled()
        if not rolled:
            return
        try:
            self._seal(rolled)
            self.commit(segments)
        except NoSpace:
            # Recovery also finds rolls that no manifest lists, so this can wait for the next commit.
            self._list.put_back(rolled)
            raise
        self._states.remove_old_snapshots()

    def _seal(self, rolled: Sequence[Rolled]) -> None:
        """Make sealed segments durable, with the files that a recovery from their end needs."""
        for segment, _ in rolled:
            with segment.pinned() as file:
                file.free_reserved()
            segment.files.sync()
            segment.write_index()
            segment.drop_index()
        last, producers = rolled[-1]
        self._states.write_snapshot(last.end_offset, producers)

    # ---------------------------------------------------------------- checkpoints

    @property
    def grown_since_checkpoint(self) -> int:
        """The bytes of the active segment that an unclean start would have to scan."""
        return bytes_behind(self._recovery_point, self._list.active)

    @loop_thread
    def take_checkpoint(self) -> Checkpoint:
        """Take a checkpoint of the log, for `commit_checkpoint`."""
        return take_checkpoint(self._list.active, self._states.producers)

    def commit_checkpoint(self, taken: Checkpoint) -> None:
        """Commit the checkpoint unless a newer recovery point exists. Raises StorageError."""
        with self.commit_lock:
            if self._service.offline_reason is not None:
                return
            self.list_rolls()
            # Not the active one: a later roll is not listed, and recovery finds it.
            segment = self.listed[-1]
            if taken.segment is not segment or self._is_past(taken.row):
                return
            self._make_safe(taken)
            self.commit(self.listed, recovery_point=taken.row)
            self._states.remove_old_snapshots()

    def _make_safe(self, taken: Checkpoint) -> None:
        """Make durable what the recovery point covers, except the epochs: its commit writes these."""
        taken.segment.files.sync()
        taken.segment.write_index_up_to(taken.index, taken.index_end)
        self._states.write_snapshot(taken.row.end_offset, taken.producers)

    def _is_past(self, row: SegmentRow) -> bool:
        return is_in(self._recovery_point, self.listed[-1]) and (
            self._recovery_point.size >= row.size
        )

    # ---------------------------------------------------------------- the manifest

    def commit(
        self,
        segments: Sequence[Segment],
        *,
        rows: Sequence[SegmentRow] | None = None,
        recovery_point: SegmentRow | None = None,
        log_start_offset: Offset | None = None,
        clean_offset: Offset | None = None,
        has_unfinished_pass: bool | None = None,
        has_history: bool | None = None,
        truncate_to: Offset = UNKNOWN_OFFSET,
        has_foreign_states: bool = False,
        copy_id: uuid.UUID | None = None,
        copied_from: uuid.UUID | None = None,
    ) -> None:
        """Replace the manifest. The caller holds `commit_lock` and has synced all segments but the last.

        Args:
            rows: the segments' rows, if they differ from what the segments themselves would give.
            recovery_point: the last segment's row, safe up to its end; by default the one that the
                manifest has.
            has_unfinished_pass: with the commits of a cleaning pass, whether others follow.
            has_history: whether keys may have older values below the clean offset; by default as before.
            has_foreign_states: whether the segments are a copy's, and the files of states are not.
            copy_id: of the copy whose segments these are; by default the one that the manifest has.
            copied_from: the source of all records; by default the one that the manifest has, except that
                records of a copy have none.

        Raises:
            StorageError: the old manifest is still valid.
        """
        self._stopped_at = None
        self._new_files.make_safe()
        self._states.write_epochs()
        start_offset = self._offsets.start if log_start_offset is None else log_start_offset
        clean_offset = self.clean_offset if clean_offset is None else clean_offset
        clean_offset = max(clean_offset, start_offset)
        rows = self._rows(segments, recovery_point) if rows is None else rows
        if has_unfinished_pass is None:
            has_unfinished_pass = self.has_unfinished_pass
        has_history = self.has_history if has_history is None else has_history
        copy_id = self.copy_id if copy_id is None else copy_id
        if copied_from is None and not has_foreign_states:
            copied_from = self.copied_from
        manifest = Manifest(
            version=self._list.next_version(),
            generation=self._list.generation,
            topic_id=self._identity.topic_id,
            partition=self._identity.topic_partition.partition,
            log_start_offset=start_offset,
            clean_offset=clean_offset,
            truncate_to=truncate_to,
            has_aborted_file=self._states.has_aborted_file,
            has_unfinished_pass=has_unfinished_pass,
            has_history=has_history,
            has_foreign_states=has_foreign_states,
            # What was kept of a log that is cut or replaced goes with it.
            has_undo_file=self._has_undo_file and truncate_to == UNKNOWN_OFFSET,
            copy_id=copy_id,
            copied_from=copied_from,
            segments=tuple(rows),
        )
        path = join(self._identity.directory, MANIFEST)
        self._fs.replace_durably(path, encode(manifest))
        self.listed = tuple(segments)
        self._recovery_point = rows[-1]
        self.clean_offset = clean_offset
        self.has_unfinished_pass = has_unfinished_pass
        self.has_history = has_history
        self.copy_id = copy_id
        self.copied_from = copied_from

    # ---------------------------------------------------------------- passes that can be undone

    def passes_to_keep(self) -> KeptPasses:
        """Returns the passes that can be undone, for another one. The caller holds `commit_lock`."""
        if self.kept is None:
            self.kept = KeptPasses(
                self._fs, self._identity.directory, self._list.segment_of, self._clock_ms
            )
        return self.kept

    def begun_pass(self) -> KeptPass:
        """Returns the entry of a pass that begins to swap now. The caller holds `commit_lock`."""
        return KeptPass(
            number=self._list.next_version(),
            kept_ms=self._clock_ms(),
            clean_offset=self.clean_offset,
            has_history=self.has_history,
            has_unfinished_pass=self.has_unfinished_pass,
        )

    @property
    def _has_undo_file(self) -> bool:
        return self.kept is not None and self.kept.has_file

    @property
    def cut_offset_min(self) -> Offset:
        """The least offset at which a cut loses no key. See `PartitionLog.cut_offset_min`."""
        clean_offset = self._list.clean_offset
        if not self.has_unfinished_pass:
            return clean_offset
        # No pass sees records of the active segment.
        return max(clean_offset, self._list.active.base_offset)

    def manifest_as_stopped(
        self, rows: tuple[SegmentRow, ...], *, has_aborted_file: bool
    ) -> Manifest:
        """Returns a manifest as after a clean stop, for a copy of the log. The caller holds
        `commit_lock`.

        Args:
            rows: the segments of the copy: those of the log, or the older ones of them.
        """
        end_offset = rows[-1].end_offset
        return Manifest(
            version=self._list.next_version(),
            generation=self._list.generation,
            topic_id=self._identity.topic_id,
            partition=self._identity.topic_partition.partition,
            log_start_offset=min(self._offsets.start, end_offset),
            clean_offset=min(self.clean_offset, end_offset),
            has_aborted_file=has_aborted_file,
            has_unfinished_pass=self.has_unfinished_pass,
            has_history=self.has_history,
            copy_id=self.copy_id,
            copied_from=self.copied_from,
            segments=rows,
        )

    def _rows(
        self, segments: Sequence[Segment], recovery_point: SegmentRow | None
    ) -> list[SegmentRow]:
        """Returns the rows of a log whose last segment is active."""
        *sealed, active = segments
        if recovery_point is None:
            known = self._recovery_point
            recovery_point = known if is_in(known, active) else active.active_row()
        return [*(segment.full_row() for segment in sealed), recovery_point]

    # ---------------------------------------------------------------- whose records they are

    def remember_source(self, copied_from: uuid.UUID) -> None:
        """Commit whose records these are. See `PartitionLog.remember_source`."""
        with self.commit_lock:
            self._service.check_online()
            if copied_from != self.copied_from:
                with self._service.failing_with_the_disk(NoSpace):
                    self.list_rolls()
                    self.commit(self.listed, copied_from=copied_from)

    # ---------------------------------------------------------------- log start

    def advance_start(self, start_offset: Offset) -> tuple[Segment, ...]:
        """Move the log start to `start_offset`, and remove the sealed segments wholly below it.

        The caller holds `commit_lock`. A reader keeps the files of a segment until it is done.
        Returns the removed segments, oldest first.

        Raises:
            NoSpace: the disk is full; nothing has changed.
        """
        self._states.load()
        self.list_rolls()
        gone = tuple(each for each in self.listed[:-1] if each.end_offset <= start_offset)
        self.commit(self.listed[len(gone) :], log_start_offset=start_offset)
        self._list.move_start(start_offset, self.clean_offset, gone=len(gone))
        for segment in gone:
            segment.files.retire()
        if self.kept is not None:
            self.kept.start_moved(start_offset)
        self._states.forget_below(start_offset, self._list.segments[0].base_offset)
        return gone

    # ---------------------------------------------------------------- truncation

    def truncate_to(self, offset: Offset, *, keeps_keys: bool) -> None:
        """Truncate the log so that no batch reaches `offset`. See `PartitionLog.truncate_to`."""
        if offset < self._offsets.start:
            raise ValueError(f"offset {offset} is below the log start {self._offsets.start}")
        with self.commit_lock:
            self._service.check_online()
            if keeps_keys and offset < self.cut_offset_min:
                raise CutRefused(
                    f"{self._identity.topic_partition} cannot be cut at {offset}: it is compacted, by"
                    f" records up to {self.cut_offset_min}"
                )
            if offset < self._offsets.end:
                start_offset = self._offsets.start
                cut = plan_cut(self._list.segments, offset)
                if cut.end_offset < start_offset:
                    # All readable records are in the batch that goes; the log start stays.
                    cut = everything_from(start_offset)
                self._truncate(cut, start_offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything. See `PartitionLog.truncate_fully_and_start_at`."""
        with self.commit_lock:
            self._service.check_online()
            self._truncate(everything_from(offset), offset)

    def _truncate(self, cut: Cut, start_offset: Offset) -> None:
        self._new_files.make()
        with self._service.failing_with_the_disk(NoSpace):
            self.list_rolls()
            for segment in cut.kept[-1:]:
                segment.files.sync()
            directory, version = self._identity.directory, self._list.next_version()
            cut, staged = copy_shared(cut, self._fs, directory, self._list.segment_of, version)
            try:
                new = self._list.new_segment(cut.end_offset, self._list.active.created_ms)
                self._commit_truncation(cut, new, start_offset)
            except NoSpace:
                if staged is not None:
                    discard_staged(self._fs, directory, staged.row.base_offset, version)
                raise
        with self._service.failing_with_the_disk(), too_late_for_space():
            if staged is not None:
                self._fs.rename(staged.staged_path(LOG), staged.final_path(LOG))
                self._fs.sync_directory(directory)
                cut.kept[-1].rebuilt_index()  # Only the records were copied.
            self._finish(cut, new, start_offset)

    def _commit_truncation(self, cut: Cut, new: Segment, start_offset: Offset) -> None:
        self._list.begin_change()
        try:
            self.commit(
                (*cut.kept, new),
                rows=(*cut.rows, new.active_row()),
                log_start_offset=start_offset,
                clean_offset=min(self._list.clean_offset, cut.end_offset),
                has_unfinished_pass=self.has_unfinished_pass and bool(cut.kept),
                truncate_to=cut.end_offset,
            )
        except NoSpace:
            self._list.end_change()
            new.files.remove()
            raise

    def _finish(self, cut: Cut, new: Segment, start_offset: Offset) -> None:
        """Carry out a truncation that the manifest describes, and then commit that it is done."""
        for segment in self._list.truncate((*cut.kept, new), start_offset, cut.end_offset):
            segment.files.remove_at_once()
        if self.kept is not None:
            self.kept.end_with_log(EndReason.TRUNCATED)
        self.remove_unlisted()
        self._states.forget_past(cut.end_offset)
        make_cut(cut)
        self._fs.sync_directory(self._identity.directory)
        self._states.truncate_from_end(cut.kept, cut.end_offset, start_offset=start_offset)
        self.commit(self._list.segments)
        self._list.end_change()

    def remove_unlisted(self) -> None:
        """Remove segment files that the manifest does not list. The caller holds `commit_lock`.

        These are files that swaps have retired and readers still use; their descriptors are enough.

        Readers that finish, and a pass that is aborted, may remove them at the same time. If such a file
        stayed, recovery could take it for a continuation of the truncated log.
        """
        directory = self._identity.directory
        listed = {(segment.base_offset, segment.file_version) for segment in self.listed}
        for name in self._fs.list(directory):
            file = parse_segment_file(name)
            if file is not None and (file.base_offset, file.version) not in listed:
                unlink_if_there(self._fs, join(directory, name))

    # ---------------------------------------------------------------- the end

    def close_when_unused(self) -> None:
        """Close every file as soon as no one uses it, because the log is deleted. A worker thread."""
        # A running commit may list other segments when it ends; there is no later commit.
        with self.commit_lock:
            kept = () if self.kept is None else self.kept.segments()
            segments = {*self._list.segments, *self.listed, *kept}
        for segment in segments:
            segment.files.close_when_unused()

    def close(self) -> None:
        """Write everything that the next start would otherwise have to recover, and close the files."""
        with self.commit_lock:
            if self._service.offline_reason is None and not self._is_as_stopped():
                self._write_everything()
            self._service.go_offline("it is closed")
        for segment in self._list.segments:
            segment.files.close()
        for segment in () if self.kept is None else self.kept.segments():
            segment.files.close()

    def _is_as_stopped(self) -> bool:
        active = self._list.active
        return active is self.listed[-1] and active.end_offset == self._stopped_at

    def _write_everything(self) -> None:
        active = self._list.active
        self.list_rolls()
        self._list.sync()
        active.write_index()
        self._states.write_snapshot(active.end_offset, self._states.producers)
        self.commit(self._list.segments, recovery_point=active.full_row())
        self._states.remove_old_snapshots()
