"""The keys of a segment from an offset on: from its key sidecar, or read from its records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from cleaner.kernel.kernel import KeyIndexer
from cleaner.lookup.table_view import TableView
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.index import indexed_blocks
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar, MissingFile
from storage.formats.key_sidecar import KeySidecar
from storage.log.cleaning_view import CleanableSegment
from storage.segment.lookup import position_before


class SegmentKeys:
    """The key blocks of a segment: those of its sidecar, or made while the segment is read."""

    __slots__ = ("_from_offset", "_meter", "_segment", "_settings", "_sidecar", "_view")

    def __init__(
        self,
        segment: CleanableSegment,
        view: TableView,
        settings: CleanerSettings,
        meter: PassMeter,
        *,
        from_offset: Offset,
        trusts_sidecar: bool,
    ) -> None:
        self._segment = segment
        self._view = view
        self._settings = settings
        self._meter = meter
        self._from_offset = from_offset
        self._sidecar = self._opened() if trusts_sidecar else None

    @property
    def base_offset(self) -> Offset:
        return self._segment.row.base_offset

    @property
    def end_offset(self) -> Offset:
        return self._segment.row.end_offset

    @property
    def may_have_transactions(self) -> bool:
        return self._sidecar is None or self._sidecar.totals.special_rows > 0

    def blocks(self) -> Iterator[memoryview | bytes]:
        """Yields the blocks, in order. They may begin before the offset.

        Raises:
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
            DamagedSidecar: a sidecar is damaged.
        """
        return self._made_blocks() if self._sidecar is None else self._stored_blocks(self._sidecar)

    def _opened(self) -> KeySidecar | None:
        with suppress(MissingFile, DamagedSidecar):
            return self._segment.open_key_sidecar(self._view.hash_key, self._view.strategy)
        return None

    def _stored_blocks(self, sidecar: KeySidecar) -> Iterator[memoryview]:
        for block in sidecar.blocks():
            self._meter.read(len(block.data))
            yield block.data

    def _made_blocks(self) -> Iterator[bytes]:
        indexer = KeyIndexer(
            self._view.hash_key,
            base_offset=self.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
            strategy=self._view.strategy,
        )
        start = 0
        if self.base_offset < self._from_offset:
            start = position_before(self._segment.segment, self._from_offset)
        return indexed_blocks(
            self._segment,
            indexer,
            chunk_bytes=self._settings.chunk_bytes,
            meter=self._meter,
            start=start,
        )
