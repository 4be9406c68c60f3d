"""Count the keys of a log part by part of the hash space, in the memory of an offset map.

A sample tells how many parts are needed; a part that does not fit is halved, as in
`cleaner/passes/key_parts.py`. Each part scans the sidecars of all segments once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from cleaner.kernel.key_counts import KeyCounts
from cleaner.keys.counts import BlockCounts, HotKey, KeyTally
from cleaner.passes.dirty_section import KeySource
from cleaner.passes.key_parts import (
    WHOLE,
    Part,
    check_divisible,
    parts_for,
    sample_keys_max,
)

NOTHING = BlockCounts()


@dataclass(slots=True)
class CountedKeys:
    """What was counted of the parts so far."""

    tally: KeyTally = field(default_factory=KeyTally)
    below: BlockCounts = NOTHING
    """Of the segments of age 0."""
    above: BlockCounts = NOTHING
    """Of the others."""
    hottest: list[HotKey] = field(default_factory=list)
    """The hottest first."""
    parts: int = 0

    @property
    def all(self) -> BlockCounts:
        return self.below.plus(self.above)


class KeyCounting:
    """Counts the keys of a log's segments."""

    __slots__ = ("_ages", "_counts", "_report_left", "_sources", "_top")

    def __init__(
        self,
        sources: Sequence[KeySource],
        counts: KeyCounts,
        *,
        ages: Mapping[int, int],
        top: int,
        report_left: Callable[[int], None] = lambda _: None,
    ) -> None:
        """
        Args:
            sources: in offset order.
            ages: of the keys whose first record is in a segment, by its base offset; 0 if it is missing.
            top: how many hot keys to find.
            report_left: called with the number of scans of all sidecars that are left.
        """
        self._sources = sources
        self._counts = counts
        self._ages = ages
        self._top = top
        self._report_left = report_left

    def run(self) -> CountedKeys:
        """Count all parts.

        Raises:
            DamagedSidecar, CleaningAborted: as `IndexedSegment.blocks`.
        """
        counted = CountedKeys()
        to_do = list(reversed(self._first_parts()))
        while to_do:
            self._report_left(len(to_do))
            part = to_do.pop()
            found = self._count(part)
            if found is None:
                check_divisible(part)
                to_do += reversed(part.halves())
            else:
                self._add(counted, *found)
        return counted

    def _add(self, counted: CountedKeys, below: BlockCounts, above: BlockCounts) -> None:
        """Add the part that is in the table."""
        counted.parts += 1
        counted.below = counted.below.plus(below)
        counted.above = counted.above.plus(above)
        counted.tally = counted.tally.plus(self._counts.tally())
        hottest = (*counted.hottest, *self._counts.hottest(self._top))
        counted.hottest = heapq.nlargest(self._top, hottest)

    @property
    def _entries_max(self) -> int:
        """An upper bound of the number of keys."""
        return sum(source.totals.entries for source in self._sources)

    def _first_parts(self) -> list[Part]:
        """Returns as many parts as the keys need, estimated from a sample of the hash space."""
        self._counts.clear()
        capacity = self._counts.capacity
        if self._entries_max <= capacity:
            return [WHOLE]
        samples = ceil(self._entries_max / sample_keys_max(capacity))
        self._report_left(2)
        while self._count(Part(0, samples)) is None:
            samples *= 2
        return parts_for(self._counts.size / capacity * samples)

    def _count(self, part: Part) -> tuple[BlockCounts, BlockCounts] | None:
        """Count a part. Returns the counts of the segments of age 0 and of the others; None if the keys
        do not fit."""
        keys_max = self._entries_max if part.count == 1 else None
        self._counts.clear(keys_max, part=part.number, parts=part.count)
        below = above = NOTHING
        for source in self._sources:
            age = self._ages.get(source.row.base_offset, 0)
            for block in source.blocks():
                step = self._counts.count(block.data, base_offset=source.row.base_offset, age=age)
                if step.is_full:
                    return None
                if age:
                    above = above.plus(step)
                else:
                    below = below.plus(step)
        return below, above
