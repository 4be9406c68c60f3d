"""The segments of a log in memory: where appends go, what is not synced yet, what no manifest lists yet.

    roll       a new active segment; the old one waits for the commit that lists it
    sync       makes the bytes and names of unsynced segments durable
    swap       cleaned segments for their sources, after a commit
    truncate   fewer segments
    restore    the sources of cleaned segments, when a pass is undone
    replace    the segments of another log

`storage/log/commits.py` commits what is here, in manifests. `state_lock` guards the few lines that
change state shared by the loop's thread and workers, and is never held while waiting for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved, SwapRefused
from storage.files.files import FileSystem
from storage.formats.manifest import SegmentRow
from storage.log.new_files import NewFiles
from storage.log.offsets import LogOffsets
from storage.segment.files import Background
from storage.segment.segment import Segment
from storage.state.moment import LogMoment
from storage.state.producer_state import ProducerStates
from storage.threads import any_thread, loop_thread

Rolled: TypeAlias = tuple[Segment, ProducerStates]
"""A segment that a roll has sealed, and the producers at its end."""


@any_thread
class SegmentList:
    """The segments of one log. Its `PartitionLog` owns it."""

    __slots__ = (
        "_background",
        "_directory",
        "_fs",
        "_names_made",
        "_names_synced",
        "_new_files",
        "_offsets",
        "_rolled",
        "_unsynced",
        "_version",
        "clean_offset",
        "generation",
        "is_changing",
        "moment",
        "replacements",
        "segments",
        "state_lock",
        "swaps",
        "truncations",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segments: tuple[Segment, ...],
        *,
        offsets: LogOffsets,
        new_files: NewFiles,
        background: Background,
        clean_offset: Offset,
        generation: int,
        version: int,
        rolled: Sequence[Rolled] = (),
    ) -> None:
        """Take the segments of a log, in offset order; the last one is active.

        Args:
            background: runs the removals of segments' files.
            rolled: the segments that no manifest lists.
        """
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._offsets = offsets
        self._new_files = new_files
        self._background = background
        self.state_lock = threading.Lock()
        # State, changed under `state_lock`.
        self.segments = segments
        """In offset order; the last one is active."""
        self.generation = generation
        """Grows when a cleaning pass that was planned before must not commit."""
        self.is_changing = False
        """Whether a truncation or a replacement is under way, so that no pass may be planned."""
        self.replacements = 0
        """Counts the beginnings and ends of replacements and undos: odd while readers see parts of two
        logs."""
        self.truncations = 0
        """Counts the truncations."""
        self.swaps = 0
        """Counts the swaps of cleaning passes: records that were read before may have been cleaned."""
        self.moment: LogMoment | None = None
        """The moment that a snapshot is keeping; None if no snapshot is being taken."""
        self.clean_offset = clean_offset
        """Changes with the segments, not with the manifest, so that readers see both or neither."""
        self._version = version
        self._rolled = list(rolled)
        # Segments with unsynced bytes; the last one is active.
        self._unsynced = [segments[-1]]
        # The number of names made in the directory, and how many of them are synced.
        self._names_made = 0
        self._names_synced = 0
        for segment in segments:
            segment.files.background = background

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self.segments[-1]

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

    @loop_thread
    def roll(self, producers: ProducerStates, now_ms: int, *, reserved_bytes: int) -> None:
        """Continue in a new segment. A commit must seal the old one, which holds the log's end.

        Args:
            producers: a copy of those at the log's end.
            reserved_bytes: disk space to allocate for the new segment.

        Raises:
            DiskError: the new file cannot be created; nothing has changed.
        """
        new = self.new_segment(self.active.end_offset, now_ms, reserved_bytes=reserved_bytes)
        with self.state_lock:
            self.active.seal()
            self._rolled.append((self.active, producers))
            self.segments = (*self.segments, new)
            self._unsynced.append(new)
            self._names_made += 1
            self._check_active_follows_sealed()

    def take_rolled(self) -> tuple[list[Rolled], tuple[Segment, ...]]:
        """Returns the rolls that no manifest lists, for a commit that lists them, and all segments."""
        with self.state_lock:
            rolled, self._rolled = self._rolled, []
            return rolled, self.segments

    def put_back(self, rolled: Sequence[Rolled]) -> None:
        """Take back rolls whose commit has failed, for the next one."""
        with self.state_lock:
            self._rolled[:0] = rolled

    def new_segment(self, base_offset: Offset, now_ms: int, *, reserved_bytes: int = 0) -> Segment:
        """Create the file of a new active segment. Raises DiskError."""
        row = SegmentRow(
            base_offset=base_offset, file_version=self.next_version(), created_ms=now_ms
        )
        segment = self.segment_of(row)
        segment.files.create(reserved_bytes=reserved_bytes)
        return segment

    def segment_of(self, row: SegmentRow) -> Segment:
        """Returns the log's segment with this row, whose files exist or follow."""
        return Segment(self._fs, self._directory, row, background=self._background)

    # ---------------------------------------------------------------- syncs

    @loop_thread
    def only_unsynced(self) -> Segment | None:
        """Returns the active segment if an fdatasync of its file syncs the whole log; else None."""
        with self.state_lock:
            if len(self._unsynced) > 1 or self._names_synced < self._names_made:
                return None
            return self._unsynced[0] if self._new_files.are_safe else None

    def sync(self) -> Offset:
        """Sync all appended bytes. Returns the log's end from before the sync.

        Raises:
            StorageError: final; the log's directory must go offline.
        """
        with self.state_lock:
            end_offset, unsynced = self._offsets.end, list(self._unsynced)
            # Appends may add to the active one during this sync and then seal it, so it stays listed.
            sealed = unsynced[:-1]
            names_made, names_synced = self._names_made, self._names_synced
        for segment in unsynced:
            try:
                segment.files.sync()
            except SegmentRemoved:
                continue
        self._new_files.make_safe()
        if names_synced < names_made:
            self._fs.sync_directory(self._directory)
        with self.state_lock:
            self._names_synced = max(self._names_synced, names_made)
            self._unsynced = [each for each in self._unsynced if each not in sealed]
            self._check_active_stays_listed()
        return end_offset

    def _check_active_stays_listed(self) -> None:
        assert self._unsynced
        assert self._names_synced <= self._names_made

    # ---------------------------------------------------------------- after a commit

    def check_generation(self, generation: int) -> None:
        """Raise SwapRefused if the generation has changed since a pass was planned."""
        if self.generation != generation:
            raise SwapRefused("the log was truncated, deleted or reconfigured, or is held")

    def swap(
        self, sources: Sequence[SegmentRow], new: Sequence[Segment], clean_offset: Offset
    ) -> list[Segment]:
        """Show cleaned segments to readers. Returns the replaced ones."""
        with self.state_lock:
            before = self.segments
            self.segments = swapped(before, sources, new)
            self.swaps += 1
            self.clean_offset = clean_offset
            self._check_active_follows_sealed()
            after = set(self.segments)
        return [segment for segment in before if segment not in after]

    def restore(
        self,
        outputs: Collection[tuple[int, int]],
        sources: Sequence[Segment],
        clean_offset: Offset,
        show_states: Callable[[], None],
    ) -> list[Segment]:
        """Show the sources of cleaned segments to readers again. Returns the cleaned ones.

        A reader that meets it reads again, as with a replacement: the segments and the aborted
        transactions that it uses must be of the same log.

        Args:
            outputs: the names of the cleaned segments.
            show_states: changes the log's states to those that go with the sources; short, in memory.
        """
        with self.state_lock:
            self.replacements += 1
            before = self.segments
            self.segments = restored(before, outputs, sources)
            self.clean_offset = clean_offset
            show_states()
            self.replacements += 1
            self._check_active_follows_sealed()
            after = set(self.segments)
        return [segment for segment in before if segment not in after]

    def move_clean_offset(self, clean_offset: Offset) -> None:
        """Show a clean offset for which no segment has changed."""
        with self.state_lock:
            self.clean_offset = clean_offset

    def move_start(self, start_offset: Offset, clean_offset: Offset, *, gone: int) -> None:
        """Let readers start at `start_offset`, without the oldest `gone` segments."""
        with self.state_lock:
            self._offsets.start = start_offset
            self.segments = self.segments[gone:]
            self.clean_offset = clean_offset
            self._check_active_follows_sealed()

    def truncate(
        self, kept: tuple[Segment, ...], start_offset: Offset, end_offset: Offset
    ) -> list[Segment]:
        """Continue with other segments, of which all but the active one are synced.

        Returns those that are no longer in the log.
        """
        with self.state_lock:
            gone = [segment for segment in self.segments if segment not in kept]
            self.truncations += 1
            self.segments = kept
            self.clean_offset = max(start_offset, min(self.clean_offset, end_offset))
            self._offsets.truncate(start_offset, end_offset)
            self._unsynced = [kept[-1]]
            self._forget_rolls()
        return gone

    def _forget_rolls(self) -> None:
        """Forget rolls by the clock that came after the last commit. Under `state_lock`.

        What they sealed is cut or removed, and their producers are those of the end before.
        """
        self._rolled = []

    @property
    def rewrites(self) -> int:
        """Grows with each truncation, replacement and undo."""
        return self.truncations + self.replacements

    def begin_change(self) -> None:
        """Make passes fail that were planned before, and those that are planned until the end."""
        with self.state_lock:
            self.generation += 1
            self.is_changing = True

    def end_change(self) -> None:
        """Let passes be planned again."""
        self.is_changing = False

    def replace(
        self,
        segments: tuple[Segment, ...],
        start_offset: Offset,
        show_states: Callable[[], None],
    ) -> list[Segment]:
        """Continue with the synced segments of another log, of which the last is active and empty.

        Args:
            show_states: changes the log's states to those of the other log; short, in memory.

        Returns those that are no longer in the log.
        """
        with self.state_lock:
            self._forget_rolls()
            gone = list(self.segments)
            self.replacements += 1
            self.segments = segments
            self.clean_offset = start_offset
            self._offsets.replace(start_offset, self.active.end_offset)
            self._unsynced = [self.active]
            show_states()
            self.replacements += 1
            self._check_active_follows_sealed()
        return gone

    def wait_for_replacement(self) -> None:
        """Wait until readers see one log again. Short, because it happens in memory."""
        with self.state_lock:
            assert self.replacements % 2 == 0

    def _check_active_follows_sealed(self) -> None:
        """Call it under `state_lock`, which guards the list."""
        assert not self.active.is_sealed
        assert self._offsets.start <= self.active.end_offset
        assert self.segments[0].base_offset <= self.active.base_offset
        if len(self.segments) > 1:
            assert self.segments[-2].is_sealed
            assert self.segments[-2].end_offset <= self.active.base_offset


def check_swap(segments: Sequence[Segment], sources: Sequence[SegmentRow]) -> None:
    """Raise SwapRefused unless the sources are adjacent sealed segments of the list."""
    sealed = [_name_of(segment) for segment in segments[:-1]]
    names = [(row.base_offset, row.file_version) for row in sources]
    start = sealed.index(names[0]) if names and names[0] in sealed else -1
    if start < 0 or sealed[start : start + len(names)] != names:
        raise SwapRefused("a source segment is no longer in the log")


def swapped(
    segments: Sequence[Segment], sources: Sequence[SegmentRow], new: Sequence[Segment]
) -> tuple[Segment, ...]:
    """Returns the list of segments with the adjacent sources replaced by `new`."""
    names = {(row.base_offset, row.file_version) for row in sources}
    start = next(at for at, segment in enumerate(segments) if _name_of(segment) in names)
    return (*segments[:start], *new, *segments[start + len(names) :])


def restored(
    segments: Sequence[Segment], outputs: Collection[tuple[int, int]], sources: Sequence[Segment]
) -> tuple[Segment, ...]:
    """Returns the list of segments with the outputs of swaps replaced by their sources."""
    stay = [segment for segment in segments if _name_of(segment) not in outputs]
    return tuple(sorted([*stay, *sources], key=lambda segment: segment.base_offset))


def _name_of(segment: Segment) -> tuple[int, int]:
    return segment.base_offset, segment.file_version
