"""Make sure that every segment of a pass has its key sidecar: only what has none is read.

A sidecar that is absent, damaged or not of its segment is made from the segment, which checks every
batch of it. Where the broker keeps none between passes they are made all the same, as staged files
that go when the pass is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from cleaner.kernel import KeyIndexer
from cleaner.meter import PassMeter
from cleaner.progress import Phase
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.settings import CleanerSettings
from cleaner.step import IndexStep
from cleaner.verify_pass import VerificationFailed
from protocol.errors import ProtocolError
from storage.cleaning_view import CleanableSegment
from storage.errors import DamagedSidecar, StorageError
from storage.key_sidecar import KeyBlock, KeySidecar, blocks_bytes
from storage.key_totals import KeyTotals
from storage.manifest import SegmentRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """A segment with what its sidecar says of its records."""

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
    def recopied_bytes(self) -> int:
        """What is read where it is rewritten: all of it, and its sidecar."""
        return self.row.size + blocks_bytes(self.totals)

    def read_at(self, position: int, size: int) -> bytes:
        """See `CleanableSegment.read_at`."""
        return self.segment.read_at(position, size)

    def blocks(self) -> Iterator[KeyBlock]:
        """Read the sidecar, block by block.

        Raises:
            DamagedSidecar: it is removed, so that the next look makes it anew.
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
    segment: ReadableSegment, indexer: KeyIndexer, *, chunk_bytes: int, meter: PassMeter
) -> Iterator[bytes]:
    """Read a segment, and yield the blocks of its sidecar.

    Raises:
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
    """

    def step(chunk: bytes, position: int) -> IndexStep:
        return indexer.feed(chunk, position=position)

    for indexed in scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter):
        if indexed.block is not None:
            yield indexed.block


ATTEMPTS = 3
"""So often a pass begins because a sidecar was not sound where it was read; from the second time on it
looks at all of them first, because a crash may have torn many."""


def over_sidecars(
    hash_key: bytes,
    settings: CleanerSettings,
    meter: PassMeter,
    work: Callable[[SegmentIndex], T],
) -> T:
    """What `work` comes to over sidecars that are sound; it begins anew where one was not.

    Raises:
        CleaningAborted: the meter was told to stop, or the log moved under it; also where that made
            something fail.
        What `work` raises.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            with SegmentIndex(hash_key, settings, meter, is_thorough=attempt > 1) as index:
                return work(index)
        except DamagedSidecar:
            meter.check()
            if attempt == ATTEMPTS:
                raise
        except (ProtocolError, StorageError, VerificationFailed):
            # What was cut off or deleted under it looks damaged.
            meter.check()
            raise


class SegmentIndex:
    """The sidecars of one pass; a context, at whose end those that nobody keeps are removed."""

    __slots__ = (
        "_dropped",
        "_hash_key",
        "_is_thorough",
        "_meter",
        "_settings",
        "built",
    )  # fmt: skip

    def __init__(
        self,
        hash_key: bytes,
        settings: CleanerSettings,
        meter: PassMeter,
        *,
        is_thorough: bool = False,
    ) -> None:
        """`is_thorough`: each sidecar is read to its end now; else a block when it is needed."""
        # Constant after construction.
        self._hash_key = hash_key
        self._settings = settings
        self._meter = meter
        self._is_thorough = is_thorough
        # State.
        self._dropped: list[CleanableSegment] = []
        """Those whose sidecars go at the end."""
        self.built = 0
        """How many sidecars were made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for segment in self._dropped:
            # What cannot be removed now is removed by the next recovery.
            with suppress(StorageError):
                segment.drop_key_sidecar()

    def of(self, segments: Sequence[CleanableSegment]) -> tuple[IndexedSegment, ...]:
        """The segments with their sidecars.

        Raises:
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
        """
        progress = self._meter.progress
        progress.enter(Phase.INDEX)
        progress.expect_left(Phase.RECOPY, sum(segment.row.size for segment in segments))
        if not self._settings.keeps_key_sidecars:
            self._dropped += segments
        found = [self._find(segment) for segment in segments]
        missing = [segment for segment, its in zip(segments, found, strict=True) if its is None]
        progress.expect_left(Phase.INDEX, sum(segment.row.size for segment in missing))
        return tuple(
            IndexedSegment(segment, its or self._build(segment), self._meter)
            for segment, its in zip(segments, found, strict=True)
        )

    def _find(self, segment: CleanableSegment) -> KeySidecar | None:
        """The sidecar that is there; one that is no good is removed."""
        sidecar = segment.key_sidecar(self._hash_key)
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
        """Read a segment, and write its sidecar."""
        indexer = KeyIndexer(
            self._hash_key,
            base_offset=segment.row.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
        )
        writer = segment.new_key_sidecar(self._hash_key)

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
        sidecar = segment.key_sidecar(self._hash_key)
        if sidecar is None:
            raise DamagedSidecar(str(segment.row), "it was gone as soon as it was made")
        return sidecar
