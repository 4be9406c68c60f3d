"""Map the dirty section: for each key in it, the offset of its last record.

Source: Apache Kafka, Cleaner.java `buildOffsetMap`; KAFKA-3894 (a full map ends the pass early),
KAFKA-8764 (offsets that are missing at a segment's end must not be mapped for ever).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.kernel import OffsetMap, map_batches
from cleaner.meter import PassMeter
from cleaner.scan import ReadableSegment, scan_segment
from cleaner.step import MapStep, MapStop


class MapTooSmall(Exception):
    """The offset map cannot hold the keys of one single batch, so cleaning can never go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtySection:
    """What is to be mapped: [start_offset, end_offset) of `segments`, which hold that range."""

    segments: Sequence[ReadableSegment]
    start_offset: int
    end_offset: int

    def keys_max(self) -> int | None:
        """An upper bound of the distinct keys; None if a segment does not know its records."""
        counts = [segment.row.record_count for segment in self.segments]
        return sum(counts) if all(count >= 0 for count in counts) else None


def map_dirty_section(
    section: DirtySection,
    offset_map: OffsetMap,
    *,
    decompressed_bytes_max: int,
    chunk_bytes: int,
    meter: PassMeter,
) -> int:
    """Fill `offset_map` with the keys of a section, as many as it takes.

    Returns:
        Where the map ends: the section's end, or the base of the batch that did not fit any more.

    Raises:
        MapTooSmall: already the first batch has more records than the map takes.
        CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
    """

    def fill(keys_max: int | None) -> MapStop:
        offset_map.clear(keys_max)
        return _fill(section, offset_map, decompressed_bytes_max, chunk_bytes, meter)

    keys_max = section.keys_max()
    stop = fill(keys_max)
    if stop is MapStop.FULL and keys_max is not None and offset_map.capacity == max(keys_max, 1):
        # The counts of records are only a hint: one that is too low must not end the pass early.
        stop = fill(None)
    if stop is not MapStop.FULL:
        # Offsets may be missing before the end: what is not there is mapped.
        offset_map.end_offset = section.end_offset
    elif offset_map.end_offset <= section.start_offset:
        raise MapTooSmall(
            f"the offset map takes {offset_map.capacity} keys, fewer than one batch has records:"
            " raise log.cleaner.dedupe.buffer.size"
        )
    return offset_map.end_offset


def _fill(
    section: DirtySection,
    offset_map: OffsetMap,
    decompressed_bytes_max: int,
    chunk_bytes: int,
    meter: PassMeter,
) -> MapStop:
    stop = MapStop.NEED_MORE

    def step(chunk: bytes, position: int) -> MapStep | None:
        nonlocal stop
        taken = map_batches(
            chunk,
            offset_map,
            start_offset=section.start_offset,
            end_offset=section.end_offset,
            decompressed_bytes_max=decompressed_bytes_max,
            position=position,
        )
        stop = taken.stop
        return taken if stop is MapStop.NEED_MORE else None

    offset_map.end_offset = section.start_offset
    for segment in section.segments:
        if not scan_segment(segment, step, chunk_bytes=chunk_bytes, meter=meter):
            break
        offset_map.end_offset = max(offset_map.end_offset, segment.row.end_offset)
    return stop
