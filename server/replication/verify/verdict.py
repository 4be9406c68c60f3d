"""Whether a mirror equals its source: pure, from what was compared."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cleaner.rules.log_comparison import Comparison, Difference, DifferenceKind, SideSum
from cleaner.rules.text import count_text, duration_text

LISTED_MAX = 10
"""The most differences that are listed."""
_DIGESTS = 1 << 128
_KINDS = {
    DifferenceKind.MISSING: "missing in the mirror",
    DifferenceKind.EXTRA: "only in the mirror",
    DifferenceKind.OTHER_OFFSET: "last values at different offsets",
    DifferenceKind.OTHER_CONTENT: "other content at the same offset",
}


class Verdict(enum.StrEnum):
    """The outcome for one partition."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict, and the reason unless it is `equal`."""

    verdict: Verdict
    reason: str = ""


NOTHING = Comparison(
    sides=(SideSum(count=0, digest=0), SideSum(count=0, digest=0)),
    rewritten=0,
    counts=(0,) * len(DifferenceKind),
    first_offset=-1,
    last_offset=-1,
    listed=(),
)
"""Before anything was compared."""


def together(one: Comparison, other: Comparison) -> Comparison:
    """Returns the comparison of two parts of the keys, or of two ranges of offsets."""
    firsts = [each.first_offset for each in (one, other) if each.first_offset >= 0]
    listed = sorted((*one.listed, *other.listed), key=_first_offset)
    return Comparison(
        sides=(_sum(one.sides[0], other.sides[0]), _sum(one.sides[1], other.sides[1])),
        rewritten=one.rewritten + other.rewritten,
        counts=tuple(a + b for a, b in zip(one.counts, other.counts, strict=True)),
        first_offset=min(firsts, default=-1),
        last_offset=max(one.last_offset, other.last_offset),
        listed=tuple(listed[:LISTED_MAX]),
    )


def _first_offset(difference: Difference) -> int:
    return difference.first_offset


def _sum(one: SideSum, other: SideSum) -> SideSum:
    return SideSum(count=one.count + other.count, digest=(one.digest + other.digest) % _DIGESTS)


def judge(
    found: Comparison, *, by_key: bool, slowest_part_ms: int, delete_retention_ms: int
) -> Judged:
    """Returns the verdict.

    Records at one offset with different contents are a difference in any case. For all other ones the
    tombstones that were written while the logs were read must still be there: with a tombstone, its key
    also loses the older values, and a side that has neither looks as if it had lost the key.

    Args:
        by_key: whether last values were compared; else all records.
        slowest_part_ms: how long it took to read both sides, of the part that took longest.
        delete_retention_ms: how long both sides keep tombstones.
    """
    different = sum(found.counts)
    if different:
        certain = found.counts[DifferenceKind.OTHER_CONTENT] if by_key else different
        if not certain and slowest_part_ms >= delete_retention_ms:
            return _unsure(different, slowest_part_ms, delete_retention_ms)
        return Judged(verdict=Verdict.DIFFERENT, reason=_difference_text(found, by_key=by_key))
    compared = found.sides[0].count
    if found.rewritten and not compared:
        return Judged(
            verdict=Verdict.UNKNOWN,
            reason=f"{_rewritten_text(found.rewritten)} again while the logs were read, so nothing is"
            " left to compare: verify once more while fewer records are written",
        )
    return Judged(verdict=Verdict.EQUAL)


def _unsure(count: int, took_ms: int, retention_ms: int) -> Judged:
    took, kept = duration_text(took_ms / 1000), duration_text(retention_ms / 1000)
    return Judged(
        verdict=Verdict.UNKNOWN,
        reason=f"{count_text(count, 'key')} seemed to differ, but it took {took} to read both sides, and"
        f" their cleaners remove tombstones after {kept} (delete.retention.ms), which may explain it:"
        " verify again with a longer delete.retention.ms",
    )


def _rewritten_text(count: int) -> str:
    return f"{count_text(count, 'key')} {'was' if count == 1 else 'were'} written"


def _difference_text(found: Comparison, *, by_key: bool) -> str:
    what = "key" if by_key else "record"
    kinds = ", ".join(
        f"{count} {_KINDS[kind]}"
        for kind, count in zip(DifferenceKind, found.counts, strict=True)
        if count
    )
    differ = "differs" if sum(found.counts) == 1 else "differ"
    return (
        f"{count_text(sum(found.counts), what)} {differ} between the offsets {found.first_offset} and"
        f" {found.last_offset}: {kinds}"
    )
