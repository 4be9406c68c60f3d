"""Mapping the dirty section: which keys, up to where, and what a hint that lies may do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.kernel import OffsetMap
from cleaner.map import DirtySection, MapTooSmall, map_dirty_section
from storage.cleaning_view import CleanableSegment
from tests.harness.compacted_log import HASH_KEY, CompactedLog, meter_of


def fill(log: CompactedLog, section: DirtySection, offset_map: OffsetMap) -> int:
    return map_dirty_section(
        section,
        offset_map,
        decompressed_bytes_max=1 << 20,
        chunk_bytes=1 << 20,
        meter=meter_of(log.log, log.log.generation),
    ).end_offset


def log_of(keys_count: int) -> CompactedLog:
    """A log with two keys a batch, four batches a segment."""
    log = CompactedLog()
    for number in range(0, keys_count, 2):
        log.append((b"%03d" % number, b"1"), (b"%03d" % (number + 1), b"1"))
        if number % 8 == 6:
            log.roll()
    log.roll()
    return log


def section_of(
    log: CompactedLog, start_offset: int, end_offset: int, *, record_count: int | None = None
) -> DirtySection:
    segments = tuple(
        segment
        if record_count is None
        else CleanableSegment(replace(segment.row, record_count=record_count), segment.segment)
        for segment in log.log.cleaning_view().segments
    )
    return DirtySection(segments=segments, start_offset=start_offset, end_offset=end_offset)


def test_the_keys_of_the_section_are_mapped_and_no_others() -> None:
    log, offset_map = log_of(40), OffsetMap(24 * 1000, HASH_KEY)

    end = fill(log, section_of(log, 10, 20), offset_map)

    assert end == offset_map.end_offset == 20
    mapped = [number for number in range(40) if offset_map.get(b"%03d" % number) is not None]
    assert mapped == list(range(10, 20))


def test_a_full_map_ends_at_the_batch_that_did_not_fit() -> None:
    log, offset_map = log_of(40), OffsetMap(24 * 20, HASH_KEY)

    end = fill(log, section_of(log, 0, 40), offset_map)

    assert 0 < end < 40
    assert end % 2 == 0
    assert len(offset_map) == end


@pytest.mark.parametrize("record_count", [0, 1, 2, -1])
def test_a_count_of_records_that_lies_does_not_end_the_map_early(record_count: int) -> None:
    log, offset_map = log_of(40), OffsetMap(24 * 1000, HASH_KEY)

    end = fill(log, section_of(log, 0, 40, record_count=record_count), offset_map)

    assert (end, len(offset_map)) == (40, 40)


def test_one_batch_with_more_keys_than_the_map_takes_is_said_so() -> None:
    log, offset_map = CompactedLog(), OffsetMap(24 * 16, HASH_KEY)
    log.append(*[(b"%d" % number, b"1") for number in range(offset_map.capacity + 1)])
    log.roll()

    with pytest.raises(MapTooSmall, match="fewer than one batch has records"):
        fill(log, section_of(log, 0, log.log.log_end_offset), offset_map)


def test_a_map_is_emptied_before_it_is_filled() -> None:
    log, offset_map = log_of(8), OffsetMap(24 * 1000, HASH_KEY)
    offset_map.put(b"from another log", 5)

    fill(log, section_of(log, 0, 8), offset_map)

    assert offset_map.get(b"from another log") is None
