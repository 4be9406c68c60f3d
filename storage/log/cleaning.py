"""What a cleaning pass does to a log: it writes segments beside the log, and swaps them in.

    cleaned files written, synced, named *.cleaned
    manifest committed            <- from here on the cleaned segments are the log
    files renamed, directory synced
    sources retired

If the broker crashes before the commit, recovery removes the files; if it crashes later, recovery
finishes the renames (docs/reference/on-disk.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire.numbers import Offset
from storage.files.errors import NoSpace, SwapRefused
from storage.files.files import FileSystem
from storage.files.paths import KEYS, SEGMENT_KINDS
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import SegmentRow
from storage.log.commits import LogCommits
from storage.log.log_service import LogService, too_late_for_space
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList, check_swap, swapped
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter, discard_staged
from storage.segment.segment import Segment
from storage.segment.taken_segment import take_segment
from storage.state.log_states import LogStates
from storage.threads import any_thread


@any_thread
class LogCleaning:
    """The cleaning of one log. Created for each use, so that 10,000 logs do not hold one each."""

    __slots__ = ("_commits", "_fs", "_identity", "_list", "_offsets", "_service", "_states")

    def __init__(
        self,
        fs: FileSystem,
        identity: LogIdentity,
        offsets: LogOffsets,
        segment_list: SegmentList,
        commits: LogCommits,
        states: LogStates,
        service: LogService,
    ) -> None:
        self._fs = fs
        self._identity = identity
        self._offsets = offsets
        self._list = segment_list
        self._commits = commits
        self._states = states
        self._service = service

    @property
    def generation(self) -> int:
        """Incremented to invalidate passes that are planned already."""
        return self._list.generation

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that may be read; retention may move it during a pass."""
        return self._offsets.start

    def new_cleaned_segment(
        self, base_offset: Offset, strategy: CompactionStrategy = BY_OFFSET
    ) -> CleanedSegmentWriter:
        """Start a cleaned segment beside the log; end it with `finish` or `discard`.

        Args:
            strategy: how the pass ranks the records of a key.
        """
        self._service.check_online()
        directory, hash_key = self._identity.directory, self._identity.hash_key
        version = self._list.next_version()
        return CleanedSegmentWriter(self._fs, directory, base_offset, version, hash_key, strategy)

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
        return take_segment(self._fs, folder, row, self._identity.directory, version)

    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: Offset | None,
        has_history: bool | None = None,
    ) -> None:
        """Replace sources with cleaned segments in one manifest commit. A worker thread.

        Args:
            generation: of the view by which the pass was planned.
            clean_offset: the new first dirty offset, with the last swap of a pass; else None.
            has_history: whether keys may have older values below the clean offset; by default as before.

        Raises:
            SwapRefused: since the view was taken, the log was truncated, deleted or reconfigured to keep
                other records, or a source was removed. Nothing has changed; the caller discards the
                cleaned files.
            NoSpace: the disk is full. The log is unchanged, and the cleaned files are removed.
            StorageError: the disk failed; the log's directory is offline.
        """
        with self._service.failing_with_the_disk(SwapRefused, NoSpace), self._commits.commit_lock:
            self._service.check_online()
            self._states.load()
            new = self._commit_swap(sources, cleaned, generation, clean_offset, has_history)
            self._place(cleaned)
            clean_offset = self._commits.clean_offset
            for segment in self._list.swap(sources, new, clean_offset):
                # Its files are deleted when the last reader closes them.
                segment.files.retire()
            self._states.cleaned_up_to(clean_offset)

    def _commit_swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        generation: int,
        clean_offset: Offset | None,
        has_history: bool | None,
    ) -> list[Segment]:
        """Commit the manifest, or discard the cleaned files on a full disk. Returns the new segments."""
        try:
            self._commits.list_rolls()
            self._list.check_generation(generation)
            check_swap(self._list.segments, sources)
            new = [self._list.segment_of(each.row) for each in cleaned]
            segments = swapped(self._commits.listed, sources, new)
            is_last = clean_offset is not None
            self._commits.commit(
                segments,
                clean_offset=clean_offset,
                has_unfinished_pass=not is_last,
                has_history=has_history,
            )
        except NoSpace:
            # The old manifest is still valid; on a full disk its unlisted files must go at once.
            for row in (each.row for each in cleaned):
                discard_staged(
                    self._fs, self._identity.directory, row.base_offset, row.file_version
                )
            raise
        return new

    def _place(self, cleaned: Sequence[CleanedSegment]) -> None:
        """Give the files of committed segments their names. Raises DiskError."""
        # The manifest lists these names already.
        with too_late_for_space():
            _place_files(self._fs, self._identity.directory, cleaned)

    def commit_clean_offset(
        self,
        clean_offset: Offset,
        *,
        generation: int,
        is_finished: bool = True,
        has_history: bool | None = None,
    ) -> None:
        """Move the clean offset if no segment has to change for it. A worker thread.

        Args:
            is_finished: False if the pass has removed records because of others at or above the offset:
                until another pass ends, no cut may take these (`PartitionLog.cut_offset_min`).
            has_history: as for `swap`.

        Raises like `swap`; nothing has changed then.
        """
        with self._service.failing_with_the_disk(SwapRefused, NoSpace), self._commits.commit_lock:
            self._service.check_online()
            self._states.load()
            self._commits.list_rolls()
            self._list.check_generation(generation)
            self._commits.commit(
                self._commits.listed,
                clean_offset=clean_offset,
                has_unfinished_pass=not is_finished,
                has_history=has_history,
            )
            self._list.move_clean_offset(self._commits.clean_offset)
            self._states.cleaned_up_to(clean_offset)


def _place_files(fs: FileSystem, directory: str, cleaned: Sequence[CleanedSegment]) -> None:
    """Rename the files of committed segments to their final names, durably."""
    for each in cleaned:
        for kind in SEGMENT_KINDS:
            if kind != KEYS or fs.exists(each.staged_path(KEYS)):
                fs.rename(each.staged_path(kind), each.final_path(kind))
    fs.sync_directory(directory)
