"""Replaces the records of a log by those of a copy beside it, which a resync has filled.

    1 what is to be put aside: hard links of the segments, the states and a manifest, synced
    2 the copy's segments renamed into the log's directory, *.cleaned, with versions of this log; synced
    3 manifest committed: these segments, `truncate_to` = their end, "foreign states"
                                                        <- from here on they are the log
    4 the log that was put aside gets its name; the segments get theirs
    5 shown to readers: segments, offsets, states
    6 old segments and states removed, states written; manifest without the flag

The copy's directory is left to the one that has begun the copy (`storage/log/copies.py`). After a crash
before 3, recovery removes the staged files; after a crash later, it finishes 4 and 6. A
reader that meets step 5 repeats its read (`storage/log/reader.py`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from storage.files.errors import LinksRefused, NoSpace
from storage.files.files import FileSystem, remove_tree_durably
from storage.files.paths import (
    ABORTED_TRANSACTIONS,
    LOG,
    MANIFEST,
    OFFSET_INDEX,
    TIME_INDEX,
    join,
    unfinished_aside_directory,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import encode
from storage.log.commits import LogCommits
from storage.log.log_service import LogService, too_late_for_space
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.recovery.interrupted_replacement import finish_aside
from storage.segment.cleaned_segment import CleanedSegment
from storage.segment.segment import Segment
from storage.state.log_states import LogStates
from storage.threads import any_thread
from storage.undo.undo_file import EndReason

KINDS = (LOG, OFFSET_INDEX, TIME_INDEX)
"""The files of a segment that are moved or put aside: a key sidecar is built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """What a replacement uses of a log."""

    identity: LogIdentity
    segments: SegmentList
    commits: LogCommits
    states: LogStates
    offsets: LogOffsets
    service: LogService

    def settle(self) -> None:
        """Sync and list everything, and write the index of the active segment, which stays active.

        Raises StorageError.
        """
        self.states.load()
        self.commits.list_rolls()
        self.segments.sync()
        active = self.segments.active
        with active.pinned() as file:
            file.free_reserved()
        index = active.index()
        active.write_index_up_to(index, index.mark)


@any_thread
class Replacement:
    """One replacement of a log by a copy. The caller has both logs for itself."""

    __slots__ = ("_active", "_copy", "_fs", "_log", "_moved", "_staged")

    def __init__(self, fs: FileSystem, log: LogParts, copy: LogParts) -> None:
        # Constant after construction
        self._fs = fs
        self._log = log
        self._copy = copy
        # State
        self._moved: list[tuple[str, str]] = []
        """The files that step 2 has renamed: old and new path."""
        self._staged: list[CleanedSegment] = []
        self._active: Segment | None = None

    def run(
        self, copy_id: uuid.UUID | None, copied_from: uuid.UUID | None, *, puts_aside: bool
    ) -> str | None:
        """Replace the log. See `PartitionLog.replace_with`."""
        log, copy = self._log, self._copy
        with log.commits.commit_lock, copy.commits.commit_lock:
            log.service.check_online()
            copy.service.check_online()
            with log.service.failing_with_the_disk(NoSpace, LinksRefused):
                segments = self._prepare(copy_id, copied_from, puts_aside=puts_aside)
            with log.service.failing_with_the_disk(), too_late_for_space():
                return self._finish(segments)

    def _prepare(
        self, copy_id: uuid.UUID | None, copied_from: uuid.UUID | None, *, puts_aside: bool
    ) -> tuple[Segment, ...]:
        """Do steps 1 to 3. Returns the new segments, of which the last is active.

        Raises:
            NoSpace, LinksRefused: nothing has changed.
        """
        try:
            self._log.settle()
            self._copy.settle()
            if puts_aside:
                self._put_aside()
            self._stage()
            return self._commit(copy_id, copied_from)
        except (NoSpace, LinksRefused):
            self._log.segments.end_change()
            try:
                self._undo()
            except NoSpace as error:
                # The log is as it was, but the copy may have lost files.
                self._copy.service.go_offline(f"its files cannot be moved back: {error}")
            raise

    def _undo(self) -> None:
        """Give the copy its files back, and remove the others."""
        for source, target in reversed(self._moved):
            self._fs.rename(target, source)
        if self._active is not None:
            self._active.files.remove()
        remove_tree_durably(self._fs, unfinished_aside_directory(self._log.identity.directory))

    # ---------------------------------------------------------------- before the commit

    def _put_aside(self) -> None:
        """Make a whole log of what is there, under the name that says that it is not finished."""
        directory = self._log.identity.directory
        aside = unfinished_aside_directory(directory)
        self._fs.remove_tree(aside)
        self._fs.make_directory(aside)
        segments = self._log.segments.segments
        for segment in segments:
            for kind in KINDS:
                path = segment.path(kind)
                if kind == LOG or self._fs.exists(path):
                    self._fs.link(path, join(aside, path.rpartition("/")[2]))
        states = self._log.states
        files = states.files_at(segments[-1].end_offset, states.producers)
        for name, data in files.items():
            self._fs.write_bytes(join(aside, name), data)
        manifest = self._log.commits.manifest_as_stopped(
            tuple(segment.full_row() for segment in segments),
            has_aborted_file=ABORTED_TRANSACTIONS in files,
        )
        self._fs.write_bytes(join(aside, MANIFEST), encode(manifest))
        self._fs.sync_directory(aside)
        self._fs.sync_directory(directory.rpartition("/")[0])

    def _stage(self) -> None:
        """Move the copy's segments, which are synced, into the log's directory."""
        log = self._log
        for segment in self._copy.segments.segments:
            if segment.size:
                row = replace(segment.full_row(), file_version=log.segments.next_version())
                staged = CleanedSegment(row, log.identity.directory, self._fs)
                self._staged.append(staged)
                for kind in KINDS:
                    self._move(segment.path(kind), staged.staged_path(kind))
        active = self._copy.segments.active
        self._active = log.segments.new_segment(active.end_offset, active.created_ms)
        self._fs.sync_directory(log.identity.directory)

    def _move(self, source: str, target: str) -> None:
        self._fs.rename(source, target)
        self._moved.append((source, target))

    def _commit(
        self, copy_id: uuid.UUID | None, copied_from: uuid.UUID | None
    ) -> tuple[Segment, ...]:
        """Commit the manifest that makes the staged segments the log. Returns them."""
        log, active, start_offset = self._log, self._active, self._copy.offsets.start
        assert active is not None
        rows = [each.row for each in self._staged]
        segments = (*(log.segments.segment_of(row) for row in rows), active)
        log.segments.begin_change()
        log.commits.commit(
            segments,
            rows=(*rows, active.active_row()),
            log_start_offset=start_offset,
            clean_offset=start_offset,
            has_unfinished_pass=False,
            has_history=False,
            truncate_to=active.end_offset,
            has_foreign_states=True,
            copy_id=copy_id,
            copied_from=copied_from,
        )
        return segments

    # ---------------------------------------------------------------- after the commit

    def _finish(self, segments: tuple[Segment, ...]) -> str | None:
        """Do steps 4 to 6. Returns the directory of the log that was put aside."""
        log = self._log
        aside = finish_aside(self._fs, log.identity.directory)
        for staged in self._staged:
            for kind in KINDS:
                self._fs.rename(staged.staged_path(kind), staged.final_path(kind))
        self._fs.sync_directory(log.identity.directory)
        take_states = log.states.replacement_by(self._copy.states)
        gone = log.segments.replace(segments, self._copy.offsets.start, take_states)
        for segment in gone:
            segment.files.remove_at_once()
        if log.commits.kept is not None:
            log.commits.kept.end_with_log(EndReason.REPLACED)
        log.commits.remove_unlisted()
        log.states.write_replaced(segments[-1].end_offset)
        self._fs.sync_directory(log.identity.directory)
        log.commits.commit(segments)
        log.segments.end_change()
        return aside
