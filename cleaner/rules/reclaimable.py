"""How many bytes a pass over a log would free, measured by counting its keys. Pure.

    N       keyed records of the clean section and of the dirty segments that were counted: exact
    D       distinct keys among them: estimated by sketches (`cleaner/keys/sketch.py`)
    N - D   superseded records, because a pass keeps one of each key
    bytes   (N - D) / N of the segments' bytes

The clean section has each key once, so its D is known: it is its N. A sketch that is 2 % too low for
the clean section is about as much too low for the whole, so the known number corrects the estimate:

    D = whole * (N of clean / clean) ** w,    w = clean / whole,    error = 0.023 * sqrt(1 - w * w) * D

where `clean` and `whole` are estimates of sketches. The errors of two sketches that share the part w of
their keys have the correlation w, and this is the power that leaves the least error. A log without new
keys has no error, and one without a clean section has that of its sketch.

What a pass frees beside superseded records is not counted: tombstones whose time has come, aborted
records, records without a key. docs/design/reclaimable.md says what the estimate promises.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from cleaner.keys.sketch import REGISTERS, STANDARD_ERROR, distinct, new_sketch, union
from cleaner.rules.pick import NOTHING, Assessment, SegmentState
from protocol.wire.numbers import Offset
from storage.formats.key_sidecar import ENTRY
from storage.formats.log_config import LogConfig

PACKED_BYTES_MAX = REGISTERS + 16
"""The most bytes of a sketch at rest; one of few keys, or of very many, takes much less."""


class CountedSegment(SegmentState, Protocol):
    """The properties of a segment that tell whether it is the one that was counted."""

    @property
    def file_version(self) -> int: ...
    @property
    def record_count(self) -> int: ...


class CountedRows(NamedTuple):
    """Which segments were counted: a pass, an undo, retention or a truncation makes others of them."""

    segments: int = 0
    versions: int = 0
    size: int = 0

    def plus(self, row: CountedSegment) -> CountedRows:
        """Returns these rows and one more."""
        return CountedRows(
            self.segments + 1, self.versions + row.file_version, self.size + row.size
        )


NO_ROWS = CountedRows()


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionCount:
    """The keys of adjacent segments, from the start of a section on."""

    end_offset: Offset = NOTHING
    """The end of the last segment that was counted."""
    rows: CountedRows = NO_ROWS
    entries: int = 0
    """Keyed records of the section in these segments."""
    keys: bytes = b""
    """Their sketch, packed; empty: no segment was counted."""


NOT_COUNTED = SectionCount()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCount:
    """The keys of a log's sections, as far as they were counted.

    A segment in which the dirty section begins belongs to both; each counts its own offsets of it.
    """

    first_dirty_offset: Offset
    clean: SectionCount = NOT_COUNTED
    dirty: SectionCount = NOT_COUNTED


class Due(NamedTuple):
    """Which sections have segments that should be counted now."""

    clean: bool
    dirty: bool


NOTHING_DUE = Due(clean=False, dirty=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimable:
    """An estimate of what a pass would free, with its standard error."""

    end_offset: Offset
    """It is about the log below."""
    entries: int
    """Keyed records there."""
    superseded: float
    """The part of them that later ones supersede."""
    superseded_error: float
    counted_bytes: int
    """The size of the counted segments, clean and dirty."""
    dirty_bytes: int
    """The dirty part of it."""

    @property
    def share(self) -> float:
        """The share of these bytes that a pass would free, 0 to 1."""
        return self.superseded / self.entries if self.entries else 0.0

    @property
    def share_error(self) -> float:
        return self.superseded_error / self.entries if self.entries else 0.0

    @property
    def bytes(self) -> int:
        """The bytes that a pass would free, if superseded records are as large as the others."""
        return round(self.share * self.counted_bytes)

    @property
    def bytes_error(self) -> int:
        return round(self.share_error * self.counted_bytes)

    @property
    def gain(self) -> float:
        """The bytes freed as a share of the dirty ones, 0 to 1."""
        return min(self.bytes / self.dirty_bytes, 1.0) if self.dirty_bytes else 0.0


def packed(sketch: bytearray) -> bytes:
    """Returns a sketch as it is kept."""
    return zlib.compress(sketch, 1)


def unpacked(sketch: bytes) -> bytearray:
    """Returns a sketch that can grow; an empty one for `b""`."""
    return bytearray(zlib.decompress(sketch)) if sketch else new_sketch()


Row = TypeVar("Row", bound=CountedSegment)


def clean_rows(rows: Sequence[Row], first_dirty_offset: int) -> Sequence[Row]:
    """Returns the segments with clean records."""
    return rows[: bisect_left(rows, first_dirty_offset, key=lambda row: row.base_offset)]


def dirty_rows(rows: Sequence[Row], first_dirty_offset: int) -> Sequence[Row]:
    """Returns the segments with dirty records."""
    return rows[bisect_right(rows, first_dirty_offset, key=lambda row: row.end_offset) :]


def what_holds(
    count: KeyCount, rows: Sequence[CountedSegment], first_dirty_offset: Offset
) -> KeyCount:
    """Returns the part of a count whose segments are still those of the log."""
    if count.first_dirty_offset != first_dirty_offset:
        return KeyCount(first_dirty_offset=first_dirty_offset)
    clean, dirty = clean_rows(rows, first_dirty_offset), dirty_rows(rows, first_dirty_offset)
    return replace(
        count,
        clean=count.clean if _is_of(count.clean, clean) else NOT_COUNTED,
        dirty=count.dirty if _is_of(count.dirty, dirty) else NOT_COUNTED,
    )


def _is_of(section: SectionCount, rows: Iterable[CountedSegment]) -> bool:
    found = NO_ROWS
    for row in rows:
        if row.end_offset <= section.end_offset:
            found = found.plus(row)
    return section.rows == found


def has_meaning(config: LogConfig, assessment: Assessment) -> bool:
    """Returns whether a pass keeps one record of each key, and has something to do.

    Where older values stay, the number of keys does not tell how many records go; and what damaged
    segments hold back is not known.
    """
    has_work = assessment.cleanable_bytes > 0 and not assessment.known_fences
    return has_work and config.is_compacted and not config.history.keeps_more


def due(count: KeyCount, rows: Sequence[CountedSegment], assessment: Assessment) -> Due:
    """Returns which sections have segments that should be counted now.

    Counting the clean section reads its sidecars, and no pass would have read them now. So it waits
    until they are no larger than the dirty segments: then counting reads no more bytes than were
    appended since the last pass.
    """
    first, end = assessment.bounds.first_dirty_offset, assessment.bounds.first_uncleanable_offset
    clean, dirty = clean_rows(rows, first), dirty_rows(rows, first)
    is_clean_due = not _is_whole(count.clean, clean)
    if is_clean_due:
        sidecar_bytes = sum(row.record_count for row in clean) * ENTRY.size
        is_clean_due = sidecar_bytes <= assessment.cleanable_bytes
    return Due(
        clean=is_clean_due,
        dirty=any(count.dirty.end_offset < row.end_offset <= end for row in dirty),
    )


def _is_whole(clean: SectionCount, rows: Sequence[CountedSegment]) -> bool:
    return clean.rows.segments == len(rows)


def estimate(
    count: KeyCount, rows: Sequence[CountedSegment], *, is_clean_distinct: bool
) -> Reclaimable | None:
    """Returns what a pass would free; None until the clean section and a dirty segment were counted.

    Args:
        rows: the log's sealed segments, to which the count applies.
        is_clean_distinct: whether the clean section has each key once.
    """
    clean, dirty, first = count.clean, count.dirty, count.first_dirty_offset
    in_clean = clean_rows(rows, first)
    if not dirty.keys or not _is_whole(clean, in_clean):
        return None
    entries, clean_keys = clean.entries + dirty.entries, unpacked(clean.keys)
    keys, weight, least = distinct(union(clean_keys, unpacked(dirty.keys))), 0.0, min(entries, 1)
    if clean.entries and is_clean_distinct:
        found, least = distinct(clean_keys), clean.entries
        weight = min(found / keys, 1.0)
        keys *= (clean.entries / found) ** weight
    keys = min(max(keys, least), entries)
    in_both = sum(row.size for row in in_clean if row.end_offset > first)
    return Reclaimable(
        end_offset=dirty.end_offset,
        entries=entries,
        superseded=entries - keys,
        superseded_error=STANDARD_ERROR * (1 - weight * weight) ** 0.5 * keys,
        counted_bytes=clean.rows.size + dirty.rows.size - in_both,
        dirty_bytes=dirty.rows.size,
    )


def total_error(errors: Iterable[int]) -> int:
    """Returns the standard error of a sum of estimates, which are independent of each other."""
    return round(math.hypot(*errors))
