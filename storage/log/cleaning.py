"""What a cleaning pass does to a log: it writes segments beside the log, and swaps them in.

    cleaned files written, synced, named *.cleaned
    undo file written, if sources are kept (`compaction.undo.ms`; storage/undo/kept_passes.py)
    manifest committed            <- from here on the cleaned segments are the log
    files renamed, directory synced
    sources retired, or kept

and how a pass is undone, while its sources are kept:

    aborted transactions written that the log has forgotten with the pass
    manifest committed            <- from here on the sources are the log again
    undo file written, cleaned segments retired

If the broker crashes before the commit, recovery removes the files; if it crashes later, recovery
finishes the renames (docs/reference/on-disk.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, NoSpace, SwapRefused, UndoRefused
from storage.files.files import FileSystem
from storage.files.paths import KEYS, SEGMENT_KINDS
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.log_config import LogConfig
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import SegmentRow
from storage.log.commits import LogCommits
from storage.log.log_service import LogService, too_late_for_space
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList, check_swap, restored, swapped
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter, discard_staged
from storage.segment.segment import Segment
from storage.segment.taken_segment import take_segment
from storage.state.log_states import LogStates
from storage.threads import any_thread
from storage.undo.undo_file import EndReason, KeptPass, KeptSwap
from storage.undo.undo_rule import Name, name_of, name_of_segment

NOTHING_KEPT = (
    "nothing is kept of any pass of the partition: compaction.undo.ms says for how long the segments are"
    " kept that later passes replace"
)


class Configured(Protocol):
    """The log's configuration, which may change until the commit lock is held."""

    @property
    def config(self) -> LogConfig: ...


@dataclass(frozen=True, slots=True)
class Undone:
    """An undo of a pass."""

    number: int
    segments_removed: int
    """The cleaned segments that are no longer in the log."""
    segments_restored: int
    bytes_restored: int
    clean_offset: Offset
    sources: tuple[SegmentRow, ...] = ()
    """The rows of the segments that the pass had replaced."""
    outputs: tuple[SegmentRow, ...] = ()
    """The rows of all segments that the pass had written."""


@any_thread
class LogCleaning:
    """The cleaning of one log by one pass. Created for each use, so that 10,000 logs do not hold one
    each."""

    __slots__ = (
        "_begun",
        "_commits",
        "_fs",
        "_has_swapped",
        "_identity",
        "_is_kept",
        "_list",
        "_log",
        "_offsets",
        "_service",
        "_states",
    )

    def __init__(
        self,
        log: Configured,
        fs: FileSystem,
        identity: LogIdentity,
        offsets: LogOffsets,
        segment_list: SegmentList,
        commits: LogCommits,
        states: LogStates,
        service: LogService,
    ) -> None:
        # Constant after construction
        self._log = log
        self._fs = fs
        self._identity = identity
        self._offsets = offsets
        self._list = segment_list
        self._commits = commits
        self._states = states
        self._service = service
        # State
        self._begun: KeptPass | None = None
        """The pass as it was before its first swap; None if that did not keep anything."""
        self._has_swapped = False
        self._is_kept = False

    @property
    def kept_number(self) -> int:
        """The number by which the pass can be undone; 0 if it cannot be."""
        return self._begun.number if self._begun is not None and self._is_kept else 0

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
            replaced = self._list.swap(sources, new, clean_offset)
            kept = self._commits.kept
            for segment in replaced if kept is None else kept.keep(replaced):
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
        before = None if self._commits.kept is None else self._commits.kept.stack
        try:
            self._commits.list_rolls()
            self._list.check_generation(generation)
            check_swap(self._list.segments, sources)
            self._keep(sources, cleaned, clean_offset)
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
            if self._is_kept and self._commits.kept is not None:
                self._commits.kept.take_back(before)
            # The old manifest is still valid; on a full disk its unlisted files must go at once.
            for row in (each.row for each in cleaned):
                discard_staged(
                    self._fs, self._identity.directory, row.base_offset, row.file_version
                )
            raise
        return new

    def _keep(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        clean_offset: Offset | None,
    ) -> None:
        """Keep the sources of a swap if the topic wants that. If not, no earlier pass can be undone."""
        commits, config = self._commits, self._log.config
        is_first, self._has_swapped = not self._has_swapped, True
        if is_first and config.keeps_replaced_segments:
            self._begun = commits.begun_pass()
        if self._begun is None or not config.keeps_replaced_segments:
            self._is_kept = False
            if commits.kept is not None:
                commits.kept.end_all(EndReason.LATER_PASS)
            return
        self._is_kept = commits.passes_to_keep().begin_swap(
            self._begun,
            KeptSwap(tuple(sources), tuple(each.row for each in cleaned)),
            () if clean_offset is None else self._states.aborted.below(clean_offset),
            is_first=is_first,
            bytes_max=config.compaction_undo_bytes,
        )

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
            if self._commits.kept is not None:
                self._commits.kept.keep_aborted(self._states.aborted.below(clean_offset))
            self._commits.commit(
                self._commits.listed,
                clean_offset=clean_offset,
                has_unfinished_pass=not is_finished,
                has_history=has_history,
            )
            self._list.move_clean_offset(self._commits.clean_offset)
            self._states.cleaned_up_to(clean_offset)

    # ---------------------------------------------------------------- the undo

    def undo(self, number: int) -> Undone:
        """Put back what a pass has replaced, in one manifest commit. A worker thread.

        See `PartitionLog.undo_pass`.
        """
        commits = self._commits
        with (
            self._service.failing_with_the_disk(UndoRefused, NoSpace, LogOffline),
            commits.commit_lock,
        ):
            self._service.check_online()
            if commits.kept is None:
                raise UndoRefused(NOTHING_KEPT)
            self._states.load()
            commits.list_rolls()
            undone = commits.kept.check_undo(number)
            # Passes that are running have planned with segments that go.
            self._list.raise_generation()
            outputs = {name_of(row) for row in undone.outputs}
            # A segment may be both, if the pass has replaced it a second time.
            sources = commits.kept.segments_of(undone)
            restoring = [each for each in sources if name_of_segment(each) not in outputs]
            removed = self._restore(undone, outputs, restoring)
            commits.kept.undone()
            for segment in (*removed, *(each for each in sources if each not in restoring)):
                segment.files.retire()
        return Undone(
            number,
            segments_removed=len(removed),
            segments_restored=len(restoring),
            bytes_restored=sum(each.size for each in restoring),
            clean_offset=commits.clean_offset,
            sources=undone.sources,
            outputs=undone.outputs,
        )

    def _restore(
        self, undone: KeptPass, outputs: Collection[Name], sources: Sequence[Segment]
    ) -> list[Segment]:
        """Commit the sources of a pass as the log again, and show them. Returns the cleaned segments."""
        # Markers below the log start are gone, and so no reader needs these rows.
        aborted = [row for row in undone.aborted if row[2] >= self._offsets.start]
        self._states.write_aborted_with(aborted)
        self._commits.commit(
            restored(self._commits.listed, outputs, sources),
            clean_offset=undone.clean_offset,
            has_unfinished_pass=undone.has_unfinished_pass,
            has_history=undone.has_history,
        )
        return self._list.restore(
            outputs,
            sources,
            self._commits.clean_offset,
            partial(self._states.restore_aborted, aborted),
        )


def _place_files(fs: FileSystem, directory: str, cleaned: Sequence[CleanedSegment]) -> None:
    """Rename the files of committed segments to their final names, durably."""
    for each in cleaned:
        for kind in SEGMENT_KINDS:
            if kind != KEYS or fs.exists(each.staged_path(KEYS)):
                fs.rename(each.staged_path(kind), each.final_path(kind))
    fs.sync_directory(directory)
