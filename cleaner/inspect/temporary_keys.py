"""The keys of a segment without a key sidecar: read once, then kept in an unnamed temporary file.

They are the blocks of a sidecar (`storage/formats/key_sidecar.py`), about 24 bytes a record. The system
deletes the file when the process ends, and nothing is written beside the log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from cleaner.kernel.kernel import KeyIndexer
from cleaner.pacing.meter import PassMeter
from cleaner.passes.index import indexed_blocks
from cleaner.passes.scan import ReadableSegment
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, key_blocks
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow


class TemporaryKeys:
    """The keys of one segment. For one thread."""

    __slots__ = ("_file", "_sizes", "row", "totals")

    def __init__(
        self,
        segment: ReadableSegment,
        hash_key: bytes,
        strategy: CompactionStrategy,
        meter: PassMeter,
        *,
        chunk_bytes: int,
        decompressed_bytes_max: int,
    ) -> None:
        """Read the segment.

        Raises:
            CorruptBatch, DecompressionTooLarge: a batch is damaged.
            StorageError: the segment cannot be read.
            OSError: the temporary file cannot be written.
        """
        indexer = KeyIndexer(
            hash_key,
            base_offset=segment.row.base_offset,
            decompressed_bytes_max=decompressed_bytes_max,
            strategy=strategy,
        )
        self.row: SegmentRow = segment.row
        self._sizes: list[int] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            for block in indexed_blocks(segment, indexer, chunk_bytes=chunk_bytes, meter=meter):
                self._file.write(block)
                self._sizes.append(len(block))
        except BaseException:
            self._file.close()
            raise
        self.totals: KeyTotals = indexer.totals

    def blocks(self) -> Iterator[KeyBlock]:
        """Yields the blocks, in order. Raises OSError."""
        self._file.seek(0)
        yield from key_blocks(self._file.read(size) for size in self._sizes)

    def close(self) -> None:
        """Delete them."""
        self._file.close()
