"""Fences: segments with damage, around which a pass cleans the rest of the log. Pure.

    sound      |  fence  |  sound                        |  pass's end
               ^ nothing at or above this offset lets a tombstone or a marker go

A fence is a whole segment in which a pass has met a batch that it cannot read. It stays byte for byte:
it is neither rewritten nor merged, and nothing is concluded from it. Its records may become readable
again (a restored file, a larger bound of inflation), so for each of them a pass assumes the worst:

    it may be the newest of its key       only a readable record supersedes another one. So nothing is
                                          removed because of the fence, and nothing of it
    it may be older than a tombstone      tombstones at and above the first fence stay, as under a hold;
                                          where records have versions all do, because a tombstone may
                                          outrank records above it
    it may be a transaction's marker      data before the fence without a marker there stay undecided:
                                          they supersede nothing, and stay
    it may be data of a transaction       markers at and above the first fence stay; so does the list of
                                          aborted transactions, because the clean offset stays
    it may be a producer's last batch     the log has each producer's last sequence in its state

The clean offset stays at the first fence, or where it was: so a pass that can read the fence again
treats everything since as dirty, the fenced records included. docs/design/fences.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cleaner.rules.hold import Hold
from protocol.wire.errors import DecompressionTooLarge
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.manifest import SegmentRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A damaged segment, and what is wrong with it."""

    base_offset: Offset
    end_offset: Offset
    file_version: int
    size: int
    """Of the segment's file, in bytes."""
    reason: str
    """What is wrong, at which position, in one sentence for people."""
    since_ms: int
    """When a pass of this process first met it."""

    @property
    def name(self) -> tuple[int, int]:
        """Names the segment's file within its log, as `name_of` its row."""
        return self.base_offset, self.file_version

    def __str__(self) -> str:
        return f"the damaged segment with offsets [{self.base_offset}, {self.end_offset})"


def fence_around(row: SegmentRow, error: Exception, since_ms: int) -> Fence:
    """Returns the fence around a segment in which a pass met an error."""
    return Fence(
        base_offset=row.base_offset,
        end_offset=row.end_offset,
        file_version=row.file_version,
        size=row.size,
        reason=reason_of(error),
        since_ms=since_ms,
    )


def name_of(row: SegmentRow) -> tuple[int, int]:
    """Returns base offset and file version, which name a segment's file within its log."""
    return row.base_offset, row.file_version


def as_known(fences: Iterable[Fence], known: Iterable[Fence]) -> tuple[Fence, ...]:
    """Returns the fences that a pass has found; one that is known already keeps its `since_ms`."""
    since_ms = {fence.name: fence.since_ms for fence in known}
    return tuple(
        replace(fence, since_ms=since_ms.get(fence.name, fence.since_ms)) for fence in fences
    )


class Span(Protocol):
    """The offsets of a segment."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def end_offset(self) -> Offset: ...


def standing(fences: Sequence[Fence], rows: Iterable[Span]) -> tuple[Fence, ...]:
    """Returns the fences whose segments are still among a log's."""
    if not fences:
        return ()
    spans = {(row.base_offset, row.end_offset) for row in rows}
    return tuple(each for each in fences if (each.base_offset, each.end_offset) in spans)


def reason_of(error: Exception) -> str:
    """Returns what went wrong, where, and what to do about it, in one line for people."""
    where = [str(error), *getattr(error, "__notes__", ())]
    if isinstance(error, DecompressionTooLarge):
        where.append("raise log.cleaner.decompressed.batch.bytes.max to clean them")
    return "; ".join(where)


def hold_of(hold: Hold, fences: Sequence[Fence], *, has_versions: bool) -> Hold:
    """Returns the hold on a log with fences: theirs, and the one of its groups.

    Args:
        fences: in offset order.
        has_versions: whether a tombstone may outrank records above it.
    """
    if not fences:
        return hold
    offset = Offset(0) if has_versions else fences[0].base_offset
    by = ", ".join(filter(None, (str(fences[0]), hold.by)))
    return Hold(offset=min(offset, hold.offset), by=by)


def clean_offset_max(fences: Sequence[Fence], first_undecided: Offset) -> Offset:
    """Returns how far the clean offset may move, unless it is beyond already.

    Args:
        fences: in offset order.
        first_undecided: the first record whose transaction is undecided because of a fence.
    """
    first = fences[0].base_offset if fences else OFFSET_MAX
    return min(first, first_undecided)
