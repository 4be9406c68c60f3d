"""What a comparison of two copies of a log has found (`cleaner/kernel/log_comparison.pyx`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class DifferenceKind(enum.IntEnum):
    """How a key, or an offset, differs between the two sides. The values are the kernel's."""

    MISSING = 0
    """The second side lacks it."""
    EXTRA = 1
    """The first side lacks it."""
    OTHER_OFFSET = 2
    """Both have a last value, at different offsets."""
    OTHER_CONTENT = 3
    """Both have it at the same offset, with another timestamp, value or header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key, or one offset, that differs."""

    kind: DifferenceKind
    offsets: tuple[int | None, int | None]
    """Where each side has it; None: it has no value there."""

    @property
    def first_offset(self) -> int:
        return min(each for each in self.offsets if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSum:
    """What one side has in the compared range."""

    count: int
    """Last values, or records."""
    digest: int
    """128 bits; the digest of `table_digest.h` over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result for one part of the keys, or one range of offsets."""

    sides: tuple[SideSum, SideSum]
    rewritten: int
    """Keys that were not compared, because a side has a record of theirs at or above the end."""
    counts: tuple[int, ...]
    """Differences by `DifferenceKind`."""
    first_offset: int
    """Of all differences; -1 without one."""
    last_offset: int
    listed: tuple[Difference, ...]
    """The differences with the smallest offsets, in their order."""
