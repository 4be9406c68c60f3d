"""How a pass divides its memory: a bit for each record of a window, and the offset map beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleaner.kernel.kernel import History, OffsetMap
from cleaner.pacing.settings import (
    COUNT_BYTES,
    MAP_BYTES_MIN,
    MAP_ENTRY_BYTES,
    MAP_SLOTS_MIN,
    VERSION_BYTES,
    CleanerSettings,
)
from cleaner.passes.dirty_section import DirtySection, KeySource
from cleaner.rules.history import levels_of
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy


def with_half_the_memory(settings: CleanerSettings) -> CleanerSettings:
    """Returns the settings for map and marks of a pass that compares keys, which take the other half."""
    return replace(settings, dedupe_buffer_size=settings.dedupe_buffer_size // 2)


def marks_bytes(entries: int) -> int:
    """Returns the size of the marks of `entries` entries."""
    return -(-entries // 8)


def windows(
    counts: Sequence[int], bytes_max: int, strategy: CompactionStrategy = BY_OFFSET
) -> list[slice]:
    """Returns windows of segments, given their entry counts, whose marks fit in `bytes_max`. Pure.

    A window has at least one segment, even if its marks are larger. Where records have versions, all
    segments are one window; and where they are thinned, so that marking meets all records of a key
    before the map is filled again.
    """
    if strategy.has_column:
        return [slice(0, len(counts))] if counts else []
    found: list[slice] = []
    size = 0
    for number, count in enumerate(counts):
        size += marks_bytes(count)
        if found and size <= bytes_max:
            found[-1] = slice(found[-1].start, number + 1)
        else:
            found.append(slice(number, number + 1))
            size = marks_bytes(count)
    return found


def map_beside_marks(
    hash_key: bytes,
    sources: Sequence[KeySource],
    spans: Sequence[slice],
    settings: CleanerSettings,
    strategy: CompactionStrategy = BY_OFFSET,
    history: CompactionHistory = LAST_VALUE,
    *,
    counts_records: bool = False,
) -> OffsetMap:
    """Returns a map that takes the memory left by the marks of the largest window.

    If values are thinned, it takes half of that: the other half is for their cells (`history_beside`).

    Args:
        counts_records: whether it also counts the records of each key.
    """
    counts = [[source.totals.entries for source in sources[span]] for span in spans]
    taken = max((sum(map(marks_bytes, each)) for each in counts), default=0)
    slot_bytes = MAP_ENTRY_BYTES + VERSION_BYTES * strategy.has_versions
    slot_bytes += COUNT_BYTES * counts_records
    least = MAP_SLOTS_MIN * slot_bytes
    if strategy.has_column:
        # The bits of winners are as many as the marks. Both have no bound, so half of the memory is for
        # keys in any case: with few, a pass would scan all sidecars very often.
        taken *= 1 + strategy.has_versions
        least = max(least, settings.map_bytes // 2)
    map_bytes = max(settings.map_bytes - taken, least)
    if history.steps:
        map_bytes = max(map_bytes // 2, MAP_SLOTS_MIN * slot_bytes)
    return OffsetMap(
        map_bytes,
        hash_key,
        settings.map_load_factor,
        has_versions=strategy.has_versions,
        has_counts=counts_records,
    )


def history_beside(
    offset_map: OffsetMap, hash_key: bytes, section: DirtySection, settings: CleanerSettings
) -> History | None:
    """Returns the history of a section for the kernel; its cells take as much memory as the map of keys.

    The cells of one key always fit: parts divide keys, so halving them would not help.
    """
    history, load_factor = section.history, settings.map_load_factor
    if not section.counts_records:
        return None
    cells = None
    if history.steps:
        least = (int(history.cells_max / load_factor) + 2) * 2 * MAP_ENTRY_BYTES
        cells = OffsetMap(max(offset_map.memory_bytes, least, MAP_BYTES_MIN), hash_key, load_factor)
    return History(
        versions=history.versions,
        levels=levels_of(history),
        now_ms=section.now_ms,
        cells=cells,
    )
