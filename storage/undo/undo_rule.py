"""Decides which passes of a log can be undone, and what goes first. Pure.

    pass 7    A B -> D                      kept: A B
    pass 9        D C -> E                  kept: D C
    the log   E F G(active)                 undo 9: D C F G, then undo 7: A B C F G

Passes form a stack. Only the newest one can be undone: a later pass may have removed a tombstone that
covers what an earlier one has removed, even if it touched none of its segments. So a pass that goes
takes those below it along, never those above it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from protocol.wire.numbers import Offset
from storage.formats.manifest import SegmentRow
from storage.segment.segment import Segment
from storage.undo.undo_file import EndedPass, EndReason, KeptPass

Name = tuple[int, int]
"""Base offset and file version of a segment: the name of its files."""

KEPT_MAX = 200
"""So many passes of a log are kept at most: the answer to a request lists them all."""
NAMED_MAX = 5
"""Of more passes, a refusal names the newest."""
ENDED_MAX = 16
"""So many passes that can no longer be undone are remembered with the reason."""

REASONS = {
    EndReason.UNDONE: "it was undone",
    EndReason.EXPIRED: "its time is over (compaction.undo.ms)",
    EndReason.BYTES: "what was kept went beyond compaction.undo.bytes",
    EndReason.DISK: "the disk was nearly full, and what was kept had to go",
    EndReason.OFF: "compaction.undo.ms or compaction.undo.bytes was set to 0",
    EndReason.LATER_PASS: "a later pass kept nothing of what it replaced",
    EndReason.TRUNCATED: "the log was truncated",
    EndReason.RETENTION: "retention or DeleteRecords removed a part of it",
    EndReason.ERASED: "what was kept was erased on request",
    EndReason.REPLACED: "a resync replaced the log",
    EndReason.LOST: "what was kept is no longer on the disk",
    EndReason.COUNT: f"at most {KEPT_MAX} passes of a partition are kept, and later ones came",
}


def name_of(row: SegmentRow) -> Name:
    """Returns the name of a segment's files."""
    return row.base_offset, row.file_version


def name_of_segment(segment: Segment) -> Name:
    """Returns the name of a segment's files."""
    return segment.base_offset, segment.file_version


@dataclass(frozen=True, slots=True)
class Stack:
    """The passes of a log that can be undone, the newest last, and the last ones that no longer can."""

    kept: tuple[KeptPass, ...] = ()
    ended: tuple[EndedPass, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of all kept segments."""
        return sum(each.size_bytes for each in self.kept)

    def end(self, count: int, reason: EndReason, now_ms: int) -> Stack:
        """Returns the stack after its oldest `count` passes have ended."""
        ended = [EndedPass(each.number, now_ms, reason) for each in self.kept[:count]]
        return Stack(self.kept[count:], (*self.ended, *ended)[-ENDED_MAX:])

    def end_newest(self, reason: EndReason, now_ms: int) -> Stack:
        """Returns the stack after its newest pass has ended."""
        newest = EndedPass(self.kept[-1].number, now_ms, reason)
        return Stack(self.kept[:-1], (*self.ended, newest)[-ENDED_MAX:])

    def with_newest(self, newest: KeptPass) -> Stack:
        """Returns the stack with this pass on top, in place of one with the same number."""
        is_there = bool(self.kept) and self.kept[-1].number == newest.number
        return replace(self, kept=(*self.kept[: len(self.kept) - is_there], newest))


def within_bytes(stack: Stack, bytes_max: int, now_ms: int) -> Stack:
    """Returns the stack after passes have ended, oldest first, until at most `bytes_max` are kept."""
    count, left = 0, stack.size_bytes
    while left > bytes_max:
        left -= stack.kept[count].size_bytes
        count += 1
    return stack.end(count, EndReason.BYTES, now_ms)


def within_count(stack: Stack, now_ms: int) -> Stack:
    """Returns the stack after passes have ended, oldest first, until at most `KEPT_MAX` are kept."""
    return stack.end(max(len(stack.kept) - KEPT_MAX, 0), EndReason.COUNT, now_ms)


def expired(stack: Stack, undo_ms: int, now_ms: int) -> Stack:
    """Returns the stack without the passes whose time is over, and without all passes below these."""
    over = [at for at, each in enumerate(stack.kept, 1) if each.kept_ms + undo_ms <= now_ms]
    return stack.end(max(over, default=0), EndReason.EXPIRED, now_ms)


def with_start_at(stack: Stack, start_offset: Offset, now_ms: int) -> Stack:
    """Returns the stack after the log start has moved.

    A pass ends if its undo would list a segment that is wholly below the log start, or if a segment that
    would have to go is no longer there. So nothing comes back that retention or DeleteRecords removed.
    """
    hurt = [
        at
        for at, each in enumerate(stack.kept, 1)
        if any(row.end_offset <= start_offset for row in (*each.sources, *each.outputs))
    ]
    return stack.end(max(hurt, default=0), EndReason.RETENTION, now_ms)


def as_found(
    stack: Stack, listed: Collection[Name], start_offset: Offset, now_ms: int = 0
) -> Stack:
    """Returns the passes of an undo file that are true for a manifest which lists these segments.

    The file is written before the manifest of each swap and after the one of an undo. So its newest
    swaps may not have happened, or may be undone: then the manifest lists their sources. Anything else
    that does not fit ends a pass and those below it.
    """
    names = set(listed)
    kept: list[KeptPass] = []
    lost = 0
    for at in range(len(stack.kept), 0, -1):
        each = stack.kept[at - 1]
        swaps = list(each.swaps)
        while not kept and swaps and names.issuperset(map(name_of, swaps[-1].sources)):
            swaps.pop()
        found = replace(each, swaps=tuple(swaps))
        before = _listed_before(found, names)
        if before is None:
            lost = at
            break
        names = before
        if swaps:
            kept.insert(0, found)
    fits = Stack((*stack.kept[:lost], *kept), stack.ended).end(lost, EndReason.LOST, now_ms)
    return with_start_at(fits, start_offset, now_ms)


def _listed_before(each: KeptPass, names: set[Name]) -> set[Name] | None:
    """Returns which segments were listed before a pass, by those after it; None if that does not fit."""
    before = set(names)
    for swap in reversed(each.swaps):
        outputs, sources = set(map(name_of, swap.outputs)), set(map(name_of, swap.sources))
        if not outputs <= before or sources & before:
            return None
        before = before - outputs | sources
    return before


def refusal(stack: Stack, number: int) -> str | None:
    """Returns why a pass cannot be undone, as a clause for people; None if it can be."""
    numbers = [each.number for each in stack.kept]
    if numbers and numbers[-1] == number:
        return None
    if number in numbers:
        later = _newest_first(numbers[numbers.index(number) + 1 :])
        return f"later passes have to be undone before it, in this order: {later}"
    for each in stack.ended:
        if each.number == number:
            return REASONS[each.reason]
    known = (
        f"those that can be undone are {_newest_first(numbers)}"
        if numbers
        else ("no pass of the partition can be undone now")
    )
    return f"nothing is kept of a pass with this number; {known}"


def _newest_first(numbers: Sequence[int]) -> str:
    """Returns the numbers of passes as text, the newest first; of many, how many others there are."""
    named = ", ".join(map(str, numbers[: -NAMED_MAX - 1 : -1]))
    others = len(numbers) - NAMED_MAX
    return named if others <= 0 else f"{named}, and {others:,} older"
