"""Whether a cleaned section holds each key at most once: the cleaner's own map and marks say it.

Memory is bounded by the map: it takes the hash space in as many parts as it needs, and for each the
section is read twice: into the map, and to count what a later record has superseded.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cleaner.index import indexed_blocks
from cleaner.kernel import KeyIndexer, OffsetMap, mark_keys
from cleaner.mark import DirtySection, KeyParts, marks_bytes
from cleaner.meter import PassMeter
from cleaner.probe import SilentProbe
from cleaner.settings import CHUNK_BYTES_MIN
from cleaner.text import count_text
from cleaner.throttle import Throttle
from protocol.errors import ProtocolError
from storage.errors import StorageError
from storage.files import FileSystem
from storage.findings import Check, Finding, Findings
from storage.key_sidecar import KeyBlock, key_block
from storage.key_totals import KeyTotals
from storage.log_directory import HASH_KEY_BYTES
from storage.log_identity import LogIdentity
from storage.manifest import UNKNOWN, Manifest, SegmentRow, decode
from storage.paths import LOG, MANIFEST, join, segment_file
from storage.verify_segment import DECOMPRESSED_BYTES_MAX

CHUNK_BYTES = 4 * CHUNK_BYTES_MIN


@dataclass(frozen=True, slots=True)
class SegmentOnDisk:
    """A listed segment; its file is open only while a chunk of it is read."""

    row: SegmentRow
    fs: FileSystem
    path: str

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes. Raises DiskError."""
        file = self.fs.open(self.path)
        try:
            return file.read_at(position, size)
        finally:
            file.close()


@dataclass(frozen=True, slots=True)
class ScannedKeys:
    """The keys of a segment, read from it as often as they are asked for: nothing is written."""

    segment: SegmentOnDisk
    hash_key: bytes

    @property
    def row(self) -> SegmentRow:
        return self.segment.row

    @property
    def totals(self) -> KeyTotals:
        """As many entries as the segment may have records."""
        return KeyTotals(
            entries=max(self.row.record_count, self.row.end_offset - self.row.base_offset)
        )

    def blocks(self) -> Iterator[KeyBlock]:
        """Raises CorruptBatch, DecompressionTooLarge, StorageError: see `scan_segment`."""
        indexer = KeyIndexer(
            self.hash_key,
            base_offset=self.row.base_offset,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )
        position = first_entry = 0
        for data in indexed_blocks(self.segment, indexer, chunk_bytes=CHUNK_BYTES, meter=_meter()):
            block = key_block(data, position=position, first_entry=first_entry)
            position += block.data_bytes
            first_entry += block.entry_count
            yield block


def verify_keys(
    fs: FileSystem,
    identity: LogIdentity,
    *,
    map_bytes: int,
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[Finding, ...]:
    """Look for keys that are twice below the clean offset.

    A log whose files are damaged is left to `storage.verify_log`; here that is only a note.

    Args:
        map_bytes: memory to take; a log with more keys is read several times.
    """
    findings = Findings()
    path = join(identity.directory, MANIFEST)
    try:
        manifest = decode(fs.read_bytes(path), path)
        segments = _cleaned_segments(fs, identity.directory, manifest)
        _look(segments, manifest, map_bytes, findings, progress)
    except (StorageError, ProtocolError) as error:
        findings.note(Check.KEYS, path, f"its keys were not looked at: {error}")
    return findings.all()


def _cleaned_segments(fs: FileSystem, directory: str, manifest: Manifest) -> list[SegmentOnDisk]:
    """The segments that reach below the clean offset."""
    return [
        SegmentOnDisk(
            row, fs, join(directory, segment_file(row.base_offset, row.file_version, LOG))
        )
        for row in manifest.segments
        if row.base_offset < manifest.clean_offset and row.size != UNKNOWN
    ]


def _look(
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
        # What a pass went through and left of transactions was committed.
        transactions=None,
    )
    parts = KeyParts(section, OffsetMap(map_bytes, hash_key))
    superseded: Counter[ScannedKeys] = Counter()
    first: dict[ScannedKeys, int] = {}
    for offset_map in parts.each(section.start_offset):
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
                f"{count_text(superseded[source], 'record')} of the cleaned section,"
                " of whose keys it has a later one"
            )
            findings.warn(Check.KEYS, source.segment.path, text, first[source])


def _superseded_in(
    source: ScannedKeys, block: KeyBlock, section: DirtySection, offset_map: OffsetMap
) -> int:
    """How many records of a block have a key that is in the map at a later offset."""
    return mark_keys(
        block.data,
        offset_map,
        bytearray(marks_bytes(block.entry_count)),
        base_offset=source.row.base_offset,
        first_entry=0,
        start_offset=section.start_offset,
        end_offset=section.end_offset,
    ).superseded


def _meter() -> PassMeter:
    return PassMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=lambda seconds: False,
        is_stale=lambda: False,
    )
