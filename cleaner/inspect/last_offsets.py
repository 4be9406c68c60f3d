"""The offsets of the last record of each key of a log, from its files. Changes nothing.

    hold     keep the segments and their key sidecars open (`storage/segment/held_files.py`)
    index    read the segments without a sidecar once
    map      every key of the log, by parts of the hash space -> the offset of its last record

A last record may be a tombstone, and it may be gone: a broker may drop an old tombstone at any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Self

from cleaner.inspect.temporary_keys import TemporaryKeys
from cleaner.kernel.kernel import OffsetMap
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CHUNK_BYTES_MIN
from cleaner.passes.dirty_section import DirtySection, KeySource, dirty_section
from cleaner.passes.key_parts import KeyParts
from storage.files.errors import DamagedSidecar, MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import KEYS, LOG, join, segment_file
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, KeySidecar
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow
from storage.log.directory_start import HASH_KEY_BYTES
from storage.log.on_disk import LogOnDisk
from storage.segment.listed_file import open_listed
from storage.verify.segment import DECOMPRESSED_BYTES_MAX

LOAD_FACTOR = 0.9
CHUNK_BYTES = 4 * CHUNK_BYTES_MIN


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """A segment of a log on disk, which is read through an open file."""

    row: SegmentRow
    file: File

    def read_at(self, position: int, size: int) -> bytes:
        return self.file.read_at(position, min(size, self.row.size - position))


@dataclass(frozen=True, slots=True)
class _StoredKeys:
    """The keys of a segment, in its sidecar."""

    row: SegmentRow
    sidecar: KeySidecar
    meter: PassMeter

    @property
    def totals(self) -> KeyTotals:
        return self.sidecar.totals

    def blocks(self) -> Iterator[KeyBlock]:
        for block in self.sidecar.blocks():
            self.meter.read(len(block.data))
            yield block


class LogKeys:
    """The keys of a log. Use it in a `with` statement, which deletes its temporary files."""

    __slots__ = ("_closing", "_hash_key", "_log", "_strategy", "sources")

    def __init__(
        self, fs: FileSystem, log: LogOnDisk, strategy: CompactionStrategy, meter: PassMeter
    ) -> None:
        """Open the sidecars; read the segments that have none which fits.

        Args:
            fs: opens the files of the log as they were when it was looked at.

        Raises:
            CorruptBatch, DecompressionTooLarge: a batch is damaged.
            StorageError: a file is missing or cannot be read.
            OSError: a temporary file cannot be written.
        """
        self._log = log
        self._strategy = strategy
        # A copy of one topic lacks the key of its directory: no sidecar fits then.
        self._hash_key = log.identity.hash_key or os.urandom(HASH_KEY_BYTES)
        self._closing = ExitStack()
        with ExitStack() as on_error:
            on_error.push(self._closing)
            self.sources: Sequence[KeySource] = [
                self._stored(fs, row, meter) or self._made(fs, row, meter) for row in _rows(log)
            ]
            on_error.pop_all()

    @property
    def has_unkeyed(self) -> bool:
        """Whether a segment has records without a key; they may lie below the log start offset."""
        return any(source.totals.unkeyed for source in self.sources)

    def last_offsets(self, memory_bytes: int) -> Iterator[bytearray]:
        """Yields the offsets of the last records, as int64 in native order, each offset once.

        Those of aborted and undecided transactions do not count; some may be below the log start offset.

        Args:
            memory_bytes: for the offset map. If the keys need more, each part of them takes a scan.

        Raises:
            DamagedSidecar: a sidecar turned out to be damaged.
            OSError, StorageError: reading failed.
        """
        section = self._section()
        offset_map = OffsetMap(
            memory_bytes,
            self._hash_key,
            LOAD_FACTOR,
            has_versions=self._strategy.has_versions,
        )
        for filled in KeyParts(section, offset_map).fill_each(0):
            yield filled.offsets()

    def _section(self) -> DirtySection:
        return dirty_section(
            self.sources,
            start_offset=self._log.clean_offset,
            end_offset=self._log.end_offset,
            strategy=self._strategy,
            log_start_offset=self._log.log_start_offset,
            sweeps=True,
        )

    def _stored(self, fs: FileSystem, row: SegmentRow, meter: PassMeter) -> KeySource | None:
        log = self._log
        path = join(log.identity.directory, segment_file(row.base_offset, row.file_version, KEYS))
        with suppress(MissingFile, DamagedSidecar):
            sidecar = KeySidecar.open(fs, path, row, self._hash_key, self._strategy)
            for _ in sidecar.blocks():
                """Damage shows before anything depends on it."""
            return _StoredKeys(row, sidecar, meter)
        return None

    def _made(self, fs: FileSystem, row: SegmentRow, meter: PassMeter) -> KeySource:
        with closing(open_listed(fs, self._log.identity.directory, row, LOG)) as file:
            keys = TemporaryKeys(
                _ReadSegment(row, file),
                self._hash_key,
                self._strategy,
                meter,
                chunk_bytes=CHUNK_BYTES,
                decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
            )
        return self._closing.enter_context(closing(keys))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _rows(log: LogOnDisk) -> Iterator[SegmentRow]:
    for each in log.segments:
        if each.size:
            yield SegmentRow(
                base_offset=each.base_offset,
                file_version=each.file_version,
                end_offset=each.end_offset,
                size=each.size,
            )
