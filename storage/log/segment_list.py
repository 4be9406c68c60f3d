"""The list of a log's segments: in memory, where appends roll them, and in its manifest.

    roll        a new active segment at once; then, in the background, a commit that lists it
    checkpoint  the end of the active segment's safe part: the recovery point; in the background, too
    swap        cleaned segments for their sources; or a later clean offset alone
    advance     a later log start, and none of the segments below it
    truncate    fewer segments, and a new active one
    close       a recovery point at the log's end

A commit promises that everything below the last listed segment's base is synced, so each commit first
lists the earlier rolls that no manifest lists yet. `state_lock` guards the few lines that change state
shared by the loop's thread and workers, and is never held while waiting for the disk; `commit_lock`
puts commits in order and is never taken on the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.files.errors import DiskError, NoSpace, SwapRefused
from storage.files.files import FileSystem, unlink_if_there
from storage.files.paths import MANIFEST, join, parse_segment_file
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, encode
from storage.log.new_files import NewFiles
from storage.log.service import LogService
from storage.log.swap import check_swap, place_files, swapped
from storage.log.syncs import LogSyncs
from storage.log.truncate import Cut, make_cut
from storage.recovery.checkpoint import Checkpoint, bytes_behind, is_in, take_checkpoint
from storage.segment.cleaned_segment import CleanedSegment, discard_staged
from storage.segment.segment import Segment
from storage.state.aborted_transactions import AbortedTransactions
from storage.state.leader_epochs import LeaderEpochs
from storage.state.log_states import LogStates
from storage.state.producer_state import ProducerStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """The state from which a log starts, as recovery found it."""

    segments: tuple[Segment, ...]
    """In offset order; the last one is active."""
    version: int
    generation: int
    log_start_offset: int
    clean_offset: int
    recovery_point: SegmentRow
    """The manifest's last row; if its end is known, the active segment is safe up to there."""
    is_as_stopped: bool
    """Whether all files are as after a clean stop."""
    is_new: bool
    """Whether a crash may still lose the whole log, because its names were never synced."""
    new_files: NewFiles | None
    """The files of a log that was just planned; None if they exist."""
    epochs: LeaderEpochs | None
    producers: ProducerStates | None
    aborted: AbortedTransactions | None
    """None: read from its file, which is as after a clean stop, when it is needed."""
    has_aborted_file: bool = False
    """Whether the manifest says that the file of aborted transactions exists."""
    postponed: tuple[tuple[Segment, ProducerStates], ...] | None = None
    """The rolls that no manifest lists, if the recovery committed nothing; None if all is committed."""


class SegmentList:
    """The segments of one log and their manifest. Its `PartitionLog` owns it."""

    __slots__ = (
        "_committed_clean_offset",
        "_fs",
        "_identity",
        "_is_as_stopped",
        "_listed",
        "_recovery_point",
        "_rolled",
        "_service",
        "_states",
        "_version",
        "clean_offset",
        "commit_lock",
        "generation",
        "is_truncating",
        "log_start_offset",
        "segments",
        "state_lock",
        "syncs",
    )

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        contents: LogContents,
        states: LogStates,
        service: LogService,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._identity = identity
        self._states = states
        self._service = service
        self.state_lock = threading.Lock()
        self.commit_lock = threading.Lock()
        self.syncs = LogSyncs(
            fs,
            identity.directory,
            contents.segments[-1],
            self.state_lock,
            is_new=contents.is_new,
            new_files=contents.new_files,
        )
        # State, changed under `state_lock`. `segments` is in offset order, the last one active.
        self.segments: tuple[Segment, ...] = contents.segments
        self.generation = contents.generation
        self.is_truncating = False
        """Whether the last kept segment still has bytes that a truncation is removing."""
        self.log_start_offset = contents.log_start_offset
        self.clean_offset = contents.clean_offset
        """Changes with the segments, not with the manifest, so that readers see both or neither."""
        self._version = contents.version
        # Rolls that no manifest lists: the sealed segment, and the producers at its end.
        self._rolled: list[tuple[Segment, ProducerStates]] = list(contents.postponed or ())
        # State, changed under `commit_lock`: the contents of the manifest.
        self._committed_clean_offset = contents.clean_offset
        unlisted = len(self._rolled)
        self._listed: tuple[Segment, ...] = contents.segments[: len(contents.segments) - unlisted]
        self._recovery_point = contents.recovery_point
        self._is_as_stopped = contents.is_as_stopped
        for segment in contents.segments:
            segment.files.background = service.remove_in_background

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self.segments[-1]

    def mark_changed(self) -> None:
        """Record that the active segment is about to change."""
        self._is_as_stopped = False

    def raise_generation(self) -> None:
        """Make swaps that were planned before fail."""
        with self.state_lock:
            self.generation += 1

    def next_version(self) -> int:
        """Returns a new version number for a file or manifest; never returns one twice."""
        with self.state_lock:
            self._version += 1
            return self._version

    # ---------------------------------------------------------------- rolls

    def roll(self, end_offset: int, now_ms: int, *, reserved_bytes: int) -> None:
        """Continue in a new segment at `end_offset`; the old one is sealed in the background.

        Args:
            reserved_bytes: disk space to allocate for the new segment.

        Raises:
            DiskError: the new file cannot be created; nothing has changed.
        """
        new = self._new_segment(end_offset, now_ms, reserved_bytes=reserved_bytes)
        producers = self._states.producers.copy()
        with self.state_lock:
            self.active.seal()
            self._rolled.append((self.active, producers))
            self.segments = (*self.segments, new)
            self.syncs.rolled(new)
        self._service.in_background(self.commit_rolls)

    def commit_rolls(self) -> None:
        """Commit a manifest that lists all rolls so far. Raises StorageError."""
        with self.commit_lock:
            self._commit_unlisted_rolls()

    def _commit_unlisted_rolls(self) -> None:
        """Make all rolls so far durable: the sealed segments, then the manifest that lists them."""
        with self.state_lock:
            rolled, self._rolled = self._rolled, []
            segments = self.segments
        if not rolled:
            return
        try:
            self._seal(rolled)
            self._commit(segments)
        except NoSpace:
            # Recovery also finds rolls that no manifest lists, so this can wait for the next commit.
            with self.state_lock:
                self._rolled[:0] = rolled
            raise
        self._states.remove_old_snapshots()

    def _seal(self, rolled: Sequence[tuple[Segment, ProducerStates]]) -> None:
        """Make sealed segments durable, with the files that a recovery from their end needs."""
        for segment, _ in rolled:
            with segment.pinned() as file:
                file.free_reserved()
            segment.files.sync()
            segment.write_index()
            segment.drop_index()
        last, producers = rolled[-1]
        self._states.write_snapshot(last.end_offset, producers)

    def _new_segment(self, base_offset: int, now_ms: int, *, reserved_bytes: int = 0) -> Segment:
        row = SegmentRow(
            base_offset=base_offset, file_version=self.next_version(), created_ms=now_ms
        )
        segment = self._segment_of(row)
        segment.files.create(reserved_bytes=reserved_bytes)
        return segment

    def _segment_of(self, row: SegmentRow) -> Segment:
        background = self._service.remove_in_background
        return Segment(self._fs, self._identity.directory, row, background=background)

    # ---------------------------------------------------------------- checkpoints

    @property
    def grown_since_checkpoint(self) -> int:
        """The bytes of the active segment that an unclean start would have to scan."""
        return bytes_behind(self._recovery_point, self.active)

    def take_checkpoint(self) -> Checkpoint:
        """Take a checkpoint of the log, for `commit_checkpoint`. Runs on the loop's thread."""
        return take_checkpoint(self.active, self._states.producers)

    def commit_checkpoint(self, taken: Checkpoint) -> None:
        """Commit the checkpoint unless a newer recovery point exists. Raises StorageError."""
        with self.commit_lock:
            if self._service.offline_reason is not None:
                return
            self._commit_unlisted_rolls()
            # Not `self.segments`: a later roll is not listed, and recovery finds it.
            segment = self._listed[-1]
            if taken.segment is not segment or self._is_past(taken.row):
                return
            self._make_safe(taken)
            self._commit(self._listed, recovery_point=taken.row)
            self._states.remove_old_snapshots()

    def _make_safe(self, taken: Checkpoint) -> None:
        """Make durable what the recovery point covers, except the epochs: its commit writes these."""
        taken.segment.files.sync()
        taken.segment.write_index_up_to(taken.index, taken.index_end)
        self._states.write_snapshot(taken.row.end_offset, taken.producers)

    def _is_past(self, row: SegmentRow) -> bool:
        return is_in(self._recovery_point, self._listed[-1]) and (
            self._recovery_point.size >= row.size
        )

    # ---------------------------------------------------------------- commits

    def _commit(
        self,
        segments: Sequence[Segment],
        *,
        rows: Sequence[SegmentRow] | None = None,
        recovery_point: SegmentRow | None = None,
        log_start_offset: int | None = None,
        clean_offset: int | None = None,
        truncate_to: int = UNKNOWN,
    ) -> None:
        """Replace the manifest. All segments except the last must be synced.

        Args:
            rows: the segments' rows, if they differ from what the segments themselves would give.
            recovery_point: the last segment's row, safe up to its end; by default the one that the
                manifest has.
        """
        self._is_as_stopped = False
        self.syncs.new_names.make_safe()
        self._states.write_epochs()
        start_offset = self.log_start_offset if log_start_offset is None else log_start_offset
        clean_offset = self._committed_clean_offset if clean_offset is None else clean_offset
        clean_offset = max(clean_offset, start_offset)
        rows = self._rows(segments, recovery_point) if rows is None else rows
        manifest = Manifest(
            version=self.next_version(),
            generation=self.generation,
            topic_id=self._identity.topic_id,
            partition=self._identity.topic_partition.partition,
            log_start_offset=start_offset,
            clean_offset=clean_offset,
            truncate_to=truncate_to,
            has_aborted_file=self._states.has_aborted_file,
            segments=tuple(rows),
        )
        path = join(self._identity.directory, MANIFEST)
        self._fs.replace_durably(path, encode(manifest))
        self._listed = tuple(segments)
        self._recovery_point = rows[-1]
        self._committed_clean_offset = clean_offset

    def _rows(
        self, segments: Sequence[Segment], recovery_point: SegmentRow | None
    ) -> list[SegmentRow]:
        """Returns the rows of a log whose last segment is active."""
        *sealed, active = segments
        if recovery_point is None:
            known = self._recovery_point
            recovery_point = known if is_in(known, active) else active.active_row()
        return [*(segment.full_row() for segment in sealed), recovery_point]

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None:
        """Replace sources with cleaned segments. See `PartitionLog.swap`."""
        with self.commit_lock:
            self._service.check_online()
            self._states.load()
            try:
                self._commit_unlisted_rolls()
                with self.state_lock:
                    self._check_generation(generation)
                    check_swap(self.segments, sources)
                new = [self._segment_of(each.row) for each in cleaned]
                self._commit(swapped(self._listed, sources, new), clean_offset=clean_offset)
            except NoSpace:
                # The old manifest is still valid; on a full disk its unlisted files must go at once.
                for each in cleaned:
                    discard_staged(
                        self._fs,
                        self._identity.directory,
                        each.row.base_offset,
                        each.row.file_version,
                    )
                raise
            try:
                place_files(self._fs, self._identity.directory, cleaned)
            except NoSpace as error:
                # Cannot wait: the manifest lists these names already.
                raise DiskError(
                    error.action, error.path, error.errno, "after the commit"
                ) from error
            self._show_swap(sources, new)
            self._states.cleaned_up_to(self.clean_offset)

    def commit_clean_offset(self, clean_offset: int, *, generation: int) -> None:
        """Commit only a clean offset. See `PartitionLog.commit_clean_offset`."""
        with self.commit_lock:
            self._service.check_online()
            self._states.load()
            self._commit_unlisted_rolls()
            with self.state_lock:
                self._check_generation(generation)
            self._commit(self._listed, clean_offset=clean_offset)
            with self.state_lock:
                self.clean_offset = self._committed_clean_offset
            self._states.cleaned_up_to(clean_offset)

    def _check_generation(self, generation: int) -> None:
        if self.generation != generation:
            raise SwapRefused("the log was truncated or deleted, or its policy changed")

    def _show_swap(self, sources: Sequence[SegmentRow], new: Sequence[Segment]) -> None:
        """Show the committed segments to readers, and remove the sources after their last reader."""
        with self.state_lock:
            before = self.segments
            self.segments = swapped(before, sources, new)
            self.clean_offset = self._committed_clean_offset
        after = set(self.segments)
        for segment in before:
            if segment not in after:
                segment.files.retire()

    def advance_start(self, start_offset: int) -> tuple[Segment, ...]:
        """Move the log start to `start_offset`, and remove the sealed segments wholly below it.

        The caller holds `commit_lock`. A reader keeps the files of a segment until it is done.
        Returns the removed segments, oldest first.

        Raises:
            NoSpace: the disk is full; nothing has changed.
        """
        self._states.load()
        self._commit_unlisted_rolls()
        gone = tuple(each for each in self._listed[:-1] if each.end_offset <= start_offset)
        self._commit(self._listed[len(gone) :], log_start_offset=start_offset)
        with self.state_lock:
            self.log_start_offset = start_offset
            self.segments = self.segments[len(gone) :]
            self.clean_offset = self._committed_clean_offset
        for segment in gone:
            segment.files.retire()
        self._states.forget_below(start_offset, self.segments[0].base_offset)
        return gone

    def remove_indexes_below(self, start_offset: int) -> None:
        """Make room: remove indexes and key sidecars of sealed segments wholly below an offset."""
        for segment in self.segments[:-1]:
            if segment.end_offset <= start_offset:
                segment.remove_index()

    def truncate(self, cut: Cut, *, start_offset: int, forget: Callable[[int], None]) -> None:
        """Truncate the log. The caller holds `commit_lock` and makes sure that nothing is appended.

        Args:
            forget: called with the log's new end as soon as readers must not read past it.
        """
        self._commit_unlisted_rolls()
        for segment in cut.kept[-1:]:
            segment.files.sync()
        new = self._new_segment(cut.end_offset, self.active.created_ms)
        gone = self._replace((*cut.kept, new), start_offset, cut.end_offset)
        forget(cut.end_offset)
        self._commit(
            self.segments,
            rows=(*cut.rows, new.active_row()),
            clean_offset=self.clean_offset,
            truncate_to=cut.end_offset,
        )
        for segment in gone:
            segment.files.remove_at_once()
        self._remove_unlisted()
        self._states.forget_past(cut.end_offset)
        make_cut(cut)
        self._fs.sync_directory(self._identity.directory)
        self._states.truncate_from_end(cut.kept, cut.end_offset, start_offset=start_offset)
        self._commit(self.segments)
        self.is_truncating = False

    def _remove_unlisted(self) -> None:
        """Remove files that swaps have retired and readers still use; their descriptors are enough.

        Readers that finish, and a pass that is aborted, may remove them at the same time. If such a file
        stayed, recovery could take it for a continuation of the truncated log.
        """
        directory = self._identity.directory
        listed = {(segment.base_offset, segment.file_version) for segment in self._listed}
        for name in self._fs.list(directory):
            file = parse_segment_file(name)
            if file is not None and (file.base_offset, file.version) not in listed:
                unlink_if_there(self._fs, join(directory, name))

    def _replace(
        self, kept: tuple[Segment, ...], start_offset: int, end_offset: int
    ) -> list[Segment]:
        """Continue with other segments. Returns those that are no longer in the log."""
        with self.state_lock:
            gone = [segment for segment in self.segments if segment not in kept]
            self.generation += 1
            self.is_truncating = True
            self.segments = kept
            self.log_start_offset = start_offset
            self.clean_offset = max(start_offset, min(self.clean_offset, end_offset))
            self.syncs.truncated(kept[-1])
        return gone

    def close_when_unused(self) -> None:
        """Close every file as soon as no one uses it, because the log is deleted. A worker thread."""
        # A running commit may list other segments when it ends; there is no later commit.
        with self.commit_lock, self.state_lock:
            segments = {*self.segments, *self._listed}
        for segment in segments:
            segment.files.close_when_unused()

    def close(self) -> None:
        """Write everything that the next start would otherwise have to recover, and close the files."""
        with self.commit_lock:
            if self._service.offline_reason is None and not self._is_as_stopped:
                self._write_everything()
            self._service.go_offline("it is closed")
        for segment in self.segments:
            segment.files.close()

    def _write_everything(self) -> None:
        self._commit_unlisted_rolls()
        self.syncs.sync(lambda: 0)
        self.active.write_index()
        self._states.write_snapshot(self.active.end_offset, self._states.producers)
        self._commit(self.segments, recovery_point=self.active.full_row())
        self._states.remove_old_snapshots()
