"""Put the keys of a dirty section into the offset map, by parts of the hash space.

A map of any size serves any number of keys: it holds one part after the other. A sample tells how many
parts are needed; a part that does not fit is halved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from cleaner.kernel.kernel import History, OffsetMap, count_keys, map_keys, raise_keys
from cleaner.passes.dirty_section import DirtySection
from protocol.wire.numbers import Offset
from storage.formats.key_sidecar import KeyBlock

SAMPLE_SHARE = 16
"""A sample takes at most this fraction (1/16) of the map"""

SAMPLE_KEYS_MIN = 4096
"""but may always have this many keys."""

PARTS_MAX = 1 << 40
"""Two keys are hardly ever in the same one of so many parts."""

PARTS_MARGIN = 1.1
"""Parts are made a tenth smaller than the sample suggests, so that few must be halved."""


@dataclass(frozen=True, slots=True)
class Part:
    """The hashes that begin with number `number` of `count` equal parts of the hash space."""

    number: int
    count: int

    def halves(self) -> tuple[Part, Part]:
        return Part(2 * self.number, 2 * self.count), Part(2 * self.number + 1, 2 * self.count)


WHOLE = Part(0, 1)


class KeyParts:
    """Puts the keys of a dirty section into one offset map, part by part."""

    __slots__ = (
        "_capacity", "_filled", "_map", "_parts", "_section", "capacity", "history", "keys", "left",
    )  # fmt: skip

    def __init__(
        self, section: DirtySection, offset_map: OffsetMap, history: History | None = None
    ) -> None:
        """
        Args:
            history: which older values stay; None if none do.
        """
        # Constant after construction.
        self._section = section
        self._map = offset_map
        self.history = history
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
            if part != self._filled and not self._fill_and_compare(part, from_offset):
                check_divisible(part)
                to_do += reversed(part.halves())
                continue
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
        for each in self._maps():
            each.clear()
        found = zip(self._maps(), self._entries_max(), strict=False)
        needs = [(each.capacity, entries_max) for each, entries_max in found]
        if all(entries_max <= capacity for capacity, entries_max in needs):
            return [WHOLE]
        samples = max(ceil(most / sample_keys_max(capacity)) for capacity, most in needs)
        while not self._fill_sample(Part(0, samples), from_offset):
            samples *= 2
        return parts_for(max(each.size / each.capacity for each in self._maps()) * samples)

    def _fill_sample(self, part: Part, from_offset: int) -> bool:
        """Fill the maps with a sample. Cells also come from records below the map."""
        has_cells = len(self._maps()) > 1
        return (
            self._fill_and_compare(part, from_offset)
            if has_cells
            else self._fill(part, from_offset)
        )

    def _entries_max(self) -> tuple[int, int]:
        """Returns upper bounds of the number of keys, and of cells."""
        keys_max = self._section.entries_max
        return keys_max, keys_max + sum(each.totals.entries for each in self._section.below)

    def _maps(self) -> list[OffsetMap]:
        """Returns the map of the keys, and that of the cells if there is one."""
        cells = None if self.history is None else self.history.cells
        return [self._map] if cells is None else [self._map, cells]

    def _clear(self, part: Part) -> None:
        """Clear the maps for a part; the whole needs no more slots than there are entries."""
        keys_max, cells_max = self._entries_max() if part.count == 1 else (None, None)
        keys, *cells = self._maps()
        keys.clear(keys_max, part=part.number, parts=part.count)
        for each in cells:
            # Cells are not divided: the hash of one says nothing about its key's part.
            each.clear(cells_max)

    def _fill_and_compare(self, part: Part, from_offset: int) -> bool:
        return self._fill(part, from_offset) and self._look_below(from_offset)

    def _fill(self, part: Part, from_offset: int) -> bool:
        """Clear the map and put a part's keys into it. Returns False if they do not fit."""
        section = self._section
        self._filled = None
        self._clear(part)
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
                    history=self.history,
                )
                if step.is_full:
                    return False
        return True

    def _look_below(self, from_offset: int) -> bool:
        """Compare the records below the map with it: raise entries to those that outrank them, or count
        those that may stay as history. Returns False if these do not fit."""
        section = self._section
        for source in section.below:
            if source.row.end_offset <= from_offset:
                continue
            for block in source.blocks():
                if not self._look_at(block, source.row.base_offset):
                    return False
        return True

    def _look_at(self, block: KeyBlock, base_offset: Offset) -> bool:
        section = self._section
        if self.history is not None:
            return count_keys(
                block.data,
                self._map,
                self.history,
                base_offset=base_offset,
                end_offset=section.map_offset,
                transactions=section.transactions,
            )
        raise_keys(
            block.data,
            self._map,
            base_offset=base_offset,
            start_offset=section.log_start_offset,
            end_offset=section.map_offset,
        )
        return True


def check_divisible(part: Part) -> None:
    """Raise RuntimeError if a part is so small that dividing it further separates no keys."""
    if part.count >= PARTS_MAX:
        raise RuntimeError(
            "the offset map is too small for one key: raise log.cleaner.dedupe.buffer.size"
        )


def parts_for(load: float) -> list[Part]:
    """Returns the parts for keys that would fill a map `load` times, with a margin. Pure."""
    count = max(ceil(load * PARTS_MARGIN), 1)
    return [Part(number, count) for number in range(count)]


def sample_keys_max(capacity: int) -> int:
    """Returns the maximum number of keys in a sample of the hash space. Pure.

    Few, because keys outside the sample are skipped quickly; enough for an error of a few percent.
    """
    return max(capacity // SAMPLE_SHARE, min(capacity, SAMPLE_KEYS_MIN))
