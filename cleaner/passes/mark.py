"""Mark superseded records: one bit for each keyed record of the log, by parts of the hash space.

For each part of the hash space the sidecars of the dirty section are scanned into the offset map, then
the sidecars of all segments: a record below the map's offset for its key gets a mark. So a map of any
size serves any number of keys. A sample tells how many parts are needed; a part that does not fit is
halved. Marks exist only for one window of segments at a time, oldest first, so that they take at most an
eighth of the memory: each window is marked and rewritten before the next one.

Where records have versions (`compaction.strategy`), a clean record may outrank a dirty one, and a record
may be superseded by one at a lower offset. So the map's entries are raised to clean records that outrank
them, and all segments are one window (docs/design/strategies.md).

The outcomes of the dirty section's transactions are known before: aborted records are never in the map,
and a pass ends before the first transaction that is not decided.

Source: Apache Kafka, Cleaner.java `buildOffsetMap`. There a full map ends a pass early and further
passes follow (KAFKA-3894); here it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from cleaner.kernel.kernel import OffsetMap, Transactions, map_keys, mark_keys, raise_keys
from cleaner.pacing.settings import (
    MAP_BYTES_MIN,
    MAP_ENTRY_BYTES,
    MAP_SLOTS_MIN,
    VERSION_BYTES,
    CleanerSettings,
)
from cleaner.passes.verify_pass import PassVerifier
from cleaner.rules.step import MarkStep, Outranked
from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy
from storage.formats.key_sidecar import KeyBlock, blocks_bytes
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow

SAMPLE_SHARE = 16
"""A sample takes at most this fraction (1/16) of the map"""

SAMPLE_KEYS_MIN = 4096
"""but may always have this many keys."""

PARTS_MARGIN = 1.1
"""Parts are made a tenth smaller than the sample suggests, so that few must be halved."""

EXAMPLES_A_SEGMENT_MAX = 3
"""So many outranked records are named for each segment."""


class KeySource(Protocol):
    """A segment whose keys can be read repeatedly, in blocks."""

    @property
    def row(self) -> SegmentRow: ...
    @property
    def totals(self) -> KeyTotals: ...
    def blocks(self) -> Iterator[KeyBlock]: ...


@dataclass(frozen=True, slots=True)
class Part:
    """The hashes that begin with number `number` of `count` equal parts of the hash space."""

    number: int
    count: int

    def halves(self) -> tuple[Part, Part]:
        return Part(2 * self.number, 2 * self.count), Part(2 * self.number + 1, 2 * self.count)


WHOLE = Part(0, 1)


@dataclass(slots=True)
class Marked:
    """The superseded records of one segment: bit i of `marks` is set if its entry i is superseded."""

    marks: bytearray
    superseded: int = 0
    winners: bytearray | None = None
    """Bit i is set if entry i is the map's record of its key; None where records have no versions."""
    outranked: int = 0
    """Superseded records after the one that outranks them."""
    examples: list[Outranked] = field(default_factory=list)
    """Some of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtySection:
    """The mapped section: the offsets [map_offset, end_offset), and the segments that hold them."""

    sources: Sequence[KeySource]
    start_offset: Offset
    """Where the dirty section begins: the outcomes of transactions are known from here on."""
    end_offset: Offset
    """Where the pass ends: all transactions below it are decided."""
    transactions: Transactions | None
    """The outcomes of its transactions; None if it has none."""
    strategy: CompactionStrategy = BY_OFFSET
    """How the records of a key are ranked."""
    below: Sequence[KeySource] = ()
    """The segments with records below `map_offset` that may outrank those of the map."""
    log_start_offset: int = 0
    """Records below it neither win nor lose; 0 unless records have versions."""

    @property
    def map_offset(self) -> int:
        """The first offset whose record gets into the map."""
        return max(self.start_offset, self.log_start_offset)

    @property
    def entries_max(self) -> int:
        """An upper bound of the number of distinct keys."""
        return sum(source.totals.entries for source in self.sources)

    @property
    def scan_bytes(self) -> int:
        """The bytes that filling the map with one part reads."""
        return scan_bytes([*self.sources, *self.below], self.strategy)


def dirty_section(
    sources: Sequence[KeySource],
    *,
    start_offset: Offset,
    end_offset: Offset,
    strategy: CompactionStrategy = BY_OFFSET,
    log_start_offset: int = 0,
) -> DirtySection:
    """Returns the dirty section; the outcomes of its transactions determine where the pass ends."""
    has_versions = strategy.has_versions
    below = [each for each in sources if has_versions and each.row.base_offset < start_offset]
    dirty = [
        source
        for source in sources
        if source.row.end_offset > start_offset and source.row.base_offset < end_offset
    ]
    transactions = None
    if any(source.totals.special_rows for source in dirty):
        transactions = Transactions(start_offset=start_offset, end_offset=end_offset)
        _walk(transactions, dirty)
    return DirtySection(
        sources=dirty,
        start_offset=start_offset,
        end_offset=transactions.end_offset if transactions else end_offset,
        transactions=transactions,
        strategy=strategy,
        below=below,
        log_start_offset=log_start_offset if has_versions else 0,
    )


def _walk(transactions: Transactions, sources: Iterable[KeySource]) -> None:
    for source in sources:
        for block in source.blocks():
            if not transactions.walk(block.data, base_offset=source.row.base_offset):
                return


class KeyParts:
    """Puts the keys of a dirty section into one offset map, part by part."""

    __slots__ = ("_capacity", "_filled", "_map", "_parts", "_section", "capacity", "keys", "left")

    def __init__(self, section: DirtySection, offset_map: OffsetMap) -> None:
        # Constant after construction.
        self._section = section
        self._map = offset_map
        self._capacity = offset_map.capacity
        """Keys that fit in the memory; a map that is cleared for fewer keys uses less of it."""
        # State: the known parts of the hash space, and the part that is in the map.
        self._parts: list[Part] = []
        self._filled: Part | None = None
        self.keys = 0
        """Distinct keys in the parts seen so far, each counted once."""
        self.capacity = 0
        """Number of keys that the map could have held in these parts."""
        self.left = 0
        """Known parts that are still to come in the current round."""

    @property
    def count(self) -> int:
        """Number of parts of the hash space; 0 while it is not known."""
        return len(self._parts)

    def fill_each(self, from_offset: int) -> Iterator[OffsetMap]:
        """Yields the map filled with one part after the other, until it has held every key once.

        Args:
            from_offset: segments that end at or before it are left out: their records supersede nothing
                in the window, and their files may already have been replaced.
        """
        is_first = not self._parts
        to_do = list(reversed(self._parts or self._first_parts(from_offset)))
        done: list[Part] = []
        while to_do:
            part = to_do.pop()
            if part != self._filled:
                if not self._fill(part, from_offset):
                    to_do += reversed(part.halves())
                    continue
                self._raise()
            self._filled = part
            self.left = len(to_do)
            done.append(part)
            if is_first:
                self.keys += self._map.size
                self.capacity += self._capacity
            yield self._map
        self._parts = done

    def fill_any(self, choose: Callable[[int], int]) -> OffsetMap:
        """Returns the map filled with one part, made small enough to fit.

        Args:
            choose: returns a number below its argument.
        """
        count = len(self._first_parts(0))
        part = Part(choose(count), count)
        while not self._fill(part, 0):
            part = part.halves()[choose(2)]
        self._parts = [part] * part.count
        return self._map

    def _first_parts(self, from_offset: int) -> list[Part]:
        """Returns as many parts as the keys need, estimated from a sample of the hash space."""
        self._map.clear()
        if self._section.entries_max <= self._map.capacity:
            return [WHOLE]
        samples = ceil(self._section.entries_max / sample_keys_max(self._map.capacity))
        while not self._fill(Part(0, samples), from_offset):
            samples *= 2
        keys = self._map.size * samples
        count = max(ceil(keys * PARTS_MARGIN / self._map.capacity), 1)
        return [Part(number, count) for number in range(count)]

    def _fill(self, part: Part, from_offset: int) -> bool:
        """Clear the map and put a part's keys into it. Returns False if they do not fit."""
        section = self._section
        self._filled = None
        keys_max = section.entries_max if part.count == 1 else None
        self._map.clear(keys_max, part=part.number, parts=part.count)
        for source in section.sources:
            if source.row.end_offset <= from_offset:
                continue
            for block in source.blocks():
                step = map_keys(
                    block.data,
                    self._map,
                    base_offset=source.row.base_offset,
                    start_offset=section.map_offset,
                    end_offset=section.end_offset,
                    transactions=section.transactions,
                )
                if step.is_full:
                    return False
        return True

    def _raise(self) -> None:
        """Raise the map's entries to records below it that outrank them."""
        for source in self._section.below:
            for block in source.blocks():
                raise_keys(
                    block.data,
                    self._map,
                    base_offset=source.row.base_offset,
                    start_offset=self._section.log_start_offset,
                    end_offset=self._section.map_offset,
                )


def sample_keys_max(capacity: int) -> int:
    """Returns the maximum number of keys in a sample of the hash space. Pure.

    Few, because keys outside the sample are skipped quickly; enough for an error of a few percent.
    """
    return max(capacity // SAMPLE_SHARE, min(capacity, SAMPLE_KEYS_MIN))


def mark_window(
    window: Sequence[KeySource],
    section: DirtySection,
    parts: KeyParts,
    verifier: PassVerifier,
    *,
    report_left: Callable[[int, int], None] = lambda _bytes, _parts: None,
) -> list[Marked]:
    """Mark the superseded records of neighbouring segments.

    Args:
        report_left: called for each part with the bytes of sidecars that are still to be read and the
            number of parts after it.

    Raises:
        VerificationFailed: the map does not hold what was put into it, or differs from the sidecars.
    """
    marked = [new_marks(source.totals.entries, section.strategy) for source in window]
    if section.map_offset < section.end_offset and any(its.marks for its in marked):
        to_mark, to_map = scan_bytes(window, section.strategy), section.scan_bytes
        report_left(to_map + to_mark, 0)
        for offset_map in parts.fill_each(window[0].row.base_offset):
            report_left(to_mark + parts.left * (to_map + to_mark), parts.left)
            steps = [
                step
                for source, its in zip(window, marked, strict=True)
                for step in _mark(source, its, section, offset_map)
            ]
            verifier.check_part(offset_map, [source.row for source in window], steps)
    return marked


def new_marks(entries: int, strategy: CompactionStrategy) -> Marked:
    """Returns what a segment with so many entries has before anything of it is marked."""
    size = marks_bytes(entries)
    return Marked(bytearray(size), winners=bytearray(size) if strategy.has_versions else None)


def scan_bytes(sources: Iterable[KeySource], strategy: CompactionStrategy) -> int:
    """Returns the bytes that one scan of these segments' sidecars reads."""
    has_versions = strategy.has_versions
    return sum(blocks_bytes(source.totals, has_versions=has_versions) for source in sources)


def _mark(
    source: KeySource, its: Marked, section: DirtySection, offset_map: OffsetMap
) -> Iterator[MarkStep]:
    """Mark the superseded records of one segment, for the keys in the map."""
    for block in source.blocks():
        step = mark_keys(
            block.data,
            offset_map,
            its.marks,
            base_offset=source.row.base_offset,
            first_entry=block.first_entry,
            start_offset=section.map_offset,
            end_offset=section.end_offset,
            transactions=section.transactions,
            winners=its.winners,
            log_start_offset=section.log_start_offset,
        )
        its.superseded += step.superseded
        its.outranked += step.outranked
        if step.first_outranked is not None and len(its.examples) < EXAMPLES_A_SEGMENT_MAX:
            its.examples.append(step.first_outranked)
        yield step


def marks_bytes(entries: int) -> int:
    """Returns the size of the marks of `entries` entries."""
    return -(-entries // 8)


def windows(
    counts: Sequence[int], bytes_max: int, strategy: CompactionStrategy = BY_OFFSET
) -> list[slice]:
    """Returns windows of segments, given their entry counts, whose marks fit in `bytes_max`. Pure.

    A window has at least one segment, even if its marks are larger. Where records have versions, all
    segments are one window.
    """
    if strategy.has_versions:
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
) -> OffsetMap:
    """Returns a map that takes the memory left by the marks of the largest window."""
    counts = [[source.totals.entries for source in sources[span]] for span in spans]
    taken = max((sum(map(marks_bytes, each)) for each in counts), default=0)
    least = MAP_BYTES_MIN
    if strategy.has_versions:
        # The bits of winners are as many as the marks. Both have no bound, so half of the memory is for
        # keys in any case: with few, a pass would scan all sidecars very often.
        taken *= 2
        least = max(MAP_SLOTS_MIN * (MAP_ENTRY_BYTES + VERSION_BYTES), settings.map_bytes // 2)
    map_bytes = max(settings.map_bytes - taken, least)
    return OffsetMap(
        map_bytes, hash_key, settings.map_load_factor, has_versions=strategy.has_versions
    )
