"""Make sure that every segment of a pass has a key sidecar; only segments without one are read.

A sidecar that is missing, damaged or belongs to another file is rebuilt from its segment, which also
checks every batch. If the broker keeps no sidecars between passes, they are temporary files, removed
after the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from cleaner.kernel.kernel import KeyIndexer
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.scan import ReadableSegment, scan_segment
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.fence import Fence, fence_around, name_of
from cleaner.rules.step import IndexStep
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge, ProtocolError
from storage.files.errors import DamagedSidecar, StorageError
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, KeySidecar
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow
from storage.log.cleaning_view import CleanableSegment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """A segment with its key sidecar."""

    segment: CleanableSegment
    sidecar: KeySidecar
    meter: PassMeter

    @property
    def row(self) -> SegmentRow:
        return self.segment.row

    @property
    def totals(self) -> KeyTotals:
        return self.sidecar.totals

    @property
    def keys_checked(self) -> bool:
        """Whether the sidecar says that its keys were compared with the records'."""
        return self.sidecar.header.keys_checked

    @property
    def recopied_bytes(self) -> int:
        """Bytes that a rewrite reads: the whole segment and its sidecar."""
        return self.row.size + self.sidecar.blocks_bytes

    def read_at(self, position: int, size: int) -> bytes:
        """See `CleanableSegment.read_at`."""
        return self.segment.read_at(position, size)

    def blocks(self) -> Iterator[KeyBlock]:
        """Yields the blocks of the sidecar.

        Raises:
            DamagedSidecar: the sidecar was removed, so that the next attempt rebuilds it.
            CleaningAborted: see `PassMeter`.
        """
        try:
            for block in self.sidecar.blocks():
                self.meter.read(len(block.data))
                yield block
        except DamagedSidecar:
            self.segment.drop_key_sidecar()
            raise


def indexed_blocks(
    segment: ReadableSegment,
    indexer: KeyIndexer,
    *,
    chunk_bytes: int,
    meter: PassMeter,
    start: int = 0,
) -> Iterator[bytes]:
    """Read a segment and yield the blocks of its sidecar.

    Args:
        start: the position of the batch with which it begins.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
    """

    def step(chunk: bytes, position: int) -> IndexStep:
        return indexer.feed(chunk, position=position)

    for indexed in scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter, start=start):
        if indexed.block is not None:
            yield indexed.block


ATTEMPTS = 3
"""How often a pass starts if a sidecar turns out to be damaged while it is read; from the second attempt
on it checks all of them first, because a crash may have torn many."""


def run_with_sidecars(
    hash_key: bytes,
    settings: CleanerSettings,
    meter: PassMeter,
    work: Callable[[SegmentIndex], T],
    *,
    strategy: CompactionStrategy = BY_OFFSET,
) -> T:
    """Returns the result of `work`, which is restarted if it meets a damaged sidecar.

    Raises:
        CleaningAborted: the pass was asked to stop, or the log changed, also if another error was only a
            consequence of that.
        What `work` raises.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            with SegmentIndex(
                hash_key, settings, meter, strategy=strategy, is_thorough=attempt > 1
            ) as index:
                return work(index)
        except DamagedSidecar:
            meter.check()
            if attempt == ATTEMPTS:
                raise
        except (ProtocolError, StorageError, VerificationFailed):
            # A file that was truncated or deleted meanwhile looks damaged: check for that first.
            meter.check()
            raise


class SegmentIndex:
    """The sidecars of one pass; a context manager that removes the temporary ones at its end."""

    __slots__ = (
        "_hash_key",
        "_is_thorough",
        "_meter",
        "_settings",
        "_strategy",
        "_temporary",
        "built",
    )  # fmt: skip

    def __init__(
        self,
        hash_key: bytes,
        settings: CleanerSettings,
        meter: PassMeter,
        *,
        strategy: CompactionStrategy = BY_OFFSET,
        is_thorough: bool = False,
    ) -> None:
        """
        Args:
            strategy: how the records of a key are ranked.
            is_thorough: read each sidecar to its end first, instead of block by block when needed.
        """
        # Constant after construction.
        self._hash_key = hash_key
        self._settings = settings
        self._meter = meter
        self._strategy = strategy
        self._is_thorough = is_thorough
        # State.
        self._temporary: list[CleanableSegment] = []
        """Segments whose sidecars are removed at the end."""
        self.built = 0
        """Number of sidecars that were built."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for segment in self._temporary:
            # If this fails, the next recovery removes the file.
            with suppress(StorageError):
                segment.drop_key_sidecar()

    def index_segments(self, segments: Sequence[CleanableSegment]) -> tuple[IndexedSegment, ...]:
        """Returns the segments with their sidecars; builds those that are missing.

        Raises:
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
        """
        return tuple(
            IndexedSegment(segment, its or self._build(segment), self._meter)
            for segment, its in self._found(segments)
        )

    def index_around_damage(
        self, segments: Sequence[CleanableSegment], met: Sequence[Fence], *, now_ms: int
    ) -> tuple[tuple[IndexedSegment, ...], tuple[Fence, ...]]:
        """Returns the sound segments with their sidecars, and a fence around each damaged one, in order.

        A segment with a sidecar counts as sound: it was when the sidecar was made.

        Args:
            met: damaged segments that this pass has met already.
            now_ms: since when fences stand that are found now.

        Raises:
            CleaningAborted, StorageError: see `scan_segment`.
        """
        there = {name_of(each.row) for each in segments}
        fences = [fence for fence in met if fence.name in there]
        names = {fence.name for fence in fences}
        sound: list[IndexedSegment] = []
        rest = [each for each in segments if name_of(each.row) not in names]
        for segment, its in self._found(rest):
            try:
                sidecar = its or self._build(segment)
            except (CorruptBatch, DecompressionTooLarge) as error:
                # A file that was truncated or deleted meanwhile looks damaged: check for that first.
                self._meter.check()
                fences.append(fence_around(segment.row, error, now_ms))
            else:
                sound.append(IndexedSegment(segment, sidecar, self._meter))
        return tuple(sound), tuple(sorted(fences, key=lambda fence: fence.base_offset))

    def _found(
        self, segments: Sequence[CleanableSegment]
    ) -> list[tuple[CleanableSegment, KeySidecar | None]]:
        """Returns the segments with their usable sidecars, and plans to make the others."""
        progress = self._meter.progress
        progress.enter(Phase.INDEX)
        progress.expect_left(Phase.RECOPY, sum(segment.row.size for segment in segments))
        if not self._settings.keeps_key_sidecars:
            self._temporary += segments
        found = [(segment, self._find(segment)) for segment in segments]
        missing = [segment for segment, its in found if its is None]
        progress.expect_left(Phase.INDEX, sum(segment.row.size for segment in missing))
        return found

    def _find(self, segment: CleanableSegment) -> KeySidecar | None:
        """Returns the existing sidecar, if it is usable; a damaged one is removed."""
        sidecar = segment.key_sidecar(self._hash_key, self._strategy)
        if sidecar is not None and self._is_thorough and not self._is_sound(segment, sidecar):
            return None
        return sidecar

    def _is_sound(self, segment: CleanableSegment, sidecar: KeySidecar) -> bool:
        try:
            for _ in IndexedSegment(segment, sidecar, self._meter).blocks():
                pass
        except DamagedSidecar:
            return False
        return True

    def _build(self, segment: CleanableSegment) -> KeySidecar:
        """Read a segment and write its sidecar."""
        indexer = KeyIndexer(
            self._hash_key,
            base_offset=segment.row.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
            strategy=self._strategy,
        )
        writer = segment.new_key_sidecar(self._hash_key, self._strategy)

        try:
            for block in indexed_blocks(
                segment, indexer, chunk_bytes=self._settings.chunk_bytes, meter=self._meter
            ):
                writer.append(block)
                self._meter.wrote(len(block))
            writer.finish(segment.row.size, indexer.totals)
        except BaseException:
            writer.discard()
            raise
        self.built += 1
        sidecar = segment.key_sidecar(self._hash_key, self._strategy)
        if sidecar is None:
            raise DamagedSidecar(str(segment.row), "it disappeared right after it was written")
        return sidecar
