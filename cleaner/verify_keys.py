"""Whether a cleaned section holds each key at most once: the cleaner's own map and filter say it.

Memory is bounded by the map: it takes the section in as many stretches as it needs, and for each the
filter goes through everything up to the stretch's end and counts what a later record has superseded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cleaner.kernel import BatchFilter, OffsetMap
from cleaner.map import DirtySection, MapTooSmall, map_dirty_section
from cleaner.meter import PassMeter
from cleaner.probe import SilentProbe
from cleaner.retain import Verdict
from cleaner.scan import scan_segment
from cleaner.settings import CHUNK_BYTES_MIN
from cleaner.step import FilterStep
from cleaner.throttle import Throttle
from protocol.errors import ProtocolError
from storage.errors import StorageError
from storage.files import FileSystem
from storage.findings import Check, Finding, Findings
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
    except (StorageError, ProtocolError, MapTooSmall) as error:
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
    offset_map = OffsetMap(map_bytes, os.urandom(HASH_KEY_BYTES))
    start = manifest.log_start_offset
    while start < manifest.clean_offset:
        section = DirtySection(
            segments=[each for each in segments if each.row.end_offset > start],
            start_offset=start,
            end_offset=manifest.clean_offset,
            is_settled=True,
        )
        mapped = map_dirty_section(
            section,
            offset_map,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
            chunk_bytes=CHUNK_BYTES,
            meter=_meter(),
        )
        for segment in segments:
            if segment.row.base_offset < mapped.end_offset:
                _count_superseded(segment, offset_map, mapped.end_offset, findings)
                progress(segment.row.size)
        start = mapped.end_offset


def _count_superseded(
    segment: SegmentOnDisk, offset_map: OffsetMap, end_offset: int, findings: Findings
) -> None:
    """Say how many records of a segment have a key that is in the map at a later offset."""
    batch_filter = BatchFilter(
        offset_map,
        end_offset=end_offset,
        tail_offset=-1,
        now_ms=0,
        delete_retention_ms=0,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    )
    first: int | None = None

    def step(chunk: bytes, position: int) -> FilterStep:
        nonlocal first
        done = batch_filter.feed(chunk, position=position)
        if first is None and batch_filter.counts[Verdict.DROPPED_SUPERSEDED].records:
            first = position
        if done.segment_full:
            batch_filter.start_segment(done.next_base_offset)
        return done

    batch_filter.start_segment(segment.row.base_offset)
    scan_segment(segment, step, chunk_bytes=CHUNK_BYTES, meter=_meter())
    superseded = batch_filter.counts[Verdict.DROPPED_SUPERSEDED].records
    if superseded:
        text = f"{superseded} records of the cleaned section have a later one of their key there"
        findings.warn(Check.KEYS, segment.path, text, first)


def _meter() -> PassMeter:
    return PassMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=lambda seconds: False,
        is_stale=lambda: False,
    )
