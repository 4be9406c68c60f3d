"""Checks that a cleaned section holds each key at most once, with the cleaner's own map and marks.

The map bounds the memory: it takes the hash space in as many parts as needed, and for each part the
section is read twice: to fill the map, and to count superseded records.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cleaner.kernel.kernel import KeyIndexer, OffsetMap, mark_keys
from cleaner.pacing.meter import unpaced_meter
from cleaner.pacing.settings import CHUNK_BYTES_MIN
from cleaner.passes.dirty_section import DirtySection
from cleaner.passes.index import indexed_blocks
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.memory import marks_bytes
from cleaner.rules.text import count_text
from protocol.wire.errors import ProtocolError
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, join
from storage.formats.key_sidecar import KeyBlock, key_blocks
from storage.formats.key_totals import KeyTotals
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, Manifest, SegmentRow, decode
from storage.log.directory_start import HASH_KEY_BYTES
from storage.segment.listed_file import listed_file
from storage.verify.findings import Check, Finding, Findings
from storage.verify.segment import DECOMPRESSED_BYTES_MAX

CHUNK_BYTES = 4 * CHUNK_BYTES_MIN


@dataclass(frozen=True, slots=True)
class SegmentOnDisk:
    """A listed segment; its file is open only while a chunk is read."""

    row: SegmentRow
    fs: FileSystem
    path: str

    def read_at(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes. Raises DiskError."""
        file = self.fs.open(self.path)
        try:
            return file.read_at(position, size)
        finally:
            file.close()


@dataclass(frozen=True, slots=True)
class ScannedKeys:
    """The keys of a segment, scanned again on every use; nothing is written."""

    segment: SegmentOnDisk
    hash_key: bytes

    @property
    def row(self) -> SegmentRow:
        return self.segment.row

    @property
    def totals(self) -> KeyTotals:
        """An upper bound: as many entries as the segment may have records."""
        return KeyTotals(
            entries=max(self.row.record_count, self.row.end_offset - self.row.base_offset)
        )

    def blocks(self) -> Iterator[KeyBlock]:
        """Yields the blocks. Raises CorruptBatch, DecompressionTooLarge, StorageError."""
        indexer = KeyIndexer(
            self.hash_key,
            base_offset=self.row.base_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )
        meter = unpaced_meter()
        yield from key_blocks(
            indexed_blocks(self.segment, indexer, chunk_bytes=CHUNK_BYTES, meter=meter)
        )


def verify_keys(
    fs: FileSystem,
    identity: LogIdentity,
    *,
    map_bytes: int,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[Finding, ...]:
    """Find keys that occur twice below the clean offset.

    `storage.verify.log` reports damaged files; here they are only a note.

    Args:
        map_bytes: memory to use; a log with more keys is read several times.
    """
    findings = Findings()
    path = join(identity.directory, MANIFEST)
    try:
        manifest = decode(fs.read_bytes(path), path)
        if manifest.has_history:
            findings.note(
                Check.KEYS, path, "its keys were not checked: it keeps older values of them"
            )
            return findings.all()
        segments = _cleaned_segments(fs, identity.directory, manifest)
        _find_superseded(segments, manifest, map_bytes, findings, progress)
    except (StorageError, ProtocolError) as error:
        findings.note(Check.KEYS, path, f"its keys were not checked: {error}")
    return findings.all()


def _cleaned_segments(fs: FileSystem, directory: str, manifest: Manifest) -> list[SegmentOnDisk]:
    """Returns the segments that have offsets below the clean offset."""
    return [
        SegmentOnDisk(row, fs, listed_file(fs, directory, row, LOG))
        for row in manifest.segments
        if row.base_offset < manifest.clean_offset and row.size != UNKNOWN
    ]


def _find_superseded(
    segments: Sequence[SegmentOnDisk],
    manifest: Manifest,
    map_bytes: int,
    findings: Findings,
    progress: Callable[[int], None],
) -> None:
    hash_key = os.urandom(HASH_KEY_BYTES)
    sources = [ScannedKeys(segment, hash_key) for segment in segments]
    section = DirtySection(
        sources=sources,
        start_offset=manifest.log_start_offset,
        end_offset=manifest.clean_offset,
        # All transactional records that a pass has left were committed.
        transactions=None,
    )
    parts = KeyParts(section, OffsetMap(map_bytes, hash_key))
    superseded: Counter[ScannedKeys] = Counter()
    first: dict[ScannedKeys, int] = {}
    for offset_map in parts.fill_each(section.start_offset):
        for source in sources:
            for block in source.blocks():
                count = _superseded_in(source, block, section, offset_map)
                superseded[source] += count
                if count:
                    first[source] = min(block.position, first.get(source, block.position))
            progress(source.row.size)
    for source in sources:
        if superseded[source]:
            text = (
                f"{count_text(superseded[source], 'record')} of the cleaned section"
                " superseded by later records in it"
            )
            findings.warn(Check.KEYS, source.segment.path, text, first[source])


def _superseded_in(
    source: ScannedKeys, block: KeyBlock, section: DirtySection, offset_map: OffsetMap
) -> int:
    """Returns how many records of a block have a key that the map has with a later offset."""
    return mark_keys(
        block.data,
        offset_map,
        bytearray(marks_bytes(block.entry_count)),
        base_offset=source.row.base_offset,
        first_entry=0,
        start_offset=section.start_offset,
        end_offset=section.end_offset,
    ).superseded
