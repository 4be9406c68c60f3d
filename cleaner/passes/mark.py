"""Mark superseded records: one bit for each keyed record of the log, by parts of the hash space.

For each part of the hash space the sidecars of the dirty section are scanned into the offset map
(`key_parts.py`), then the sidecars of all segments: a record below the map's offset for its key gets a
mark. Marks exist only for one window of segments at a time, oldest first, so that they take at most an
eighth of the memory (`memory.py`): each window is marked and rewritten before the next one.

Where records have versions (`compaction.strategy`), a clean record may outrank a dirty one, and a record
may be superseded by one at a lower offset. So the map's entries are raised to clean records that outrank
them, and all segments are one window (docs/design/strategies.md).

Where older values stay (`compaction.versions`, `compaction.thinning`), the map also counts the records
of its keys, also in the clean section, so that marking knows how many come after each one
(docs/design/history.md).

Source: Apache Kafka, Cleaner.java `buildOffsetMap`. There a full map ends a pass early and further
passes follow (KAFKA-3894); here it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cleaner.kernel.kernel import History, OffsetMap, mark_keys
from cleaner.passes.dirty_section import DirtySection, KeySource, scan_bytes
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.memory import marks_bytes
from cleaner.passes.verify_pass import PassVerifier
from cleaner.rules.step import MarkStep, Outranked
from storage.formats.compaction_strategy import CompactionStrategy

EXAMPLES_A_SEGMENT_MAX = 3
"""So many outranked records are named for each segment."""


@dataclass(slots=True)
class Marked:
    """The superseded records of one segment: bit i of `marks` is set if its entry i is superseded."""

    marks: bytearray
    superseded: int = 0
    winners: bytearray | None = None
    """Bit i is set if entry i is the map's record of its key; None where records have no versions."""
    deleted: int = 0
    """Superseded records before a tombstone of their key, if records are counted."""
    outranked: int = 0
    """Superseded records after the one that outranks them."""
    examples: list[Outranked] = field(default_factory=list)
    """Some of these."""


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
                for step in _mark(source, its, section, offset_map, parts.history)
            ]
            rows = [source.row for source in window]
            verifier.check_part(offset_map, rows, steps)
            if parts.history is not None:
                is_last = rows[-1].end_offset >= section.end_offset
                verifier.check_history(offset_map, parts.history, rows, steps, is_last=is_last)
    return marked


def new_marks(entries: int, strategy: CompactionStrategy) -> Marked:
    """Returns what a segment with so many entries has before anything of it is marked."""
    size = marks_bytes(entries)
    return Marked(bytearray(size), winners=bytearray(size) if strategy.has_versions else None)


def _mark(
    source: KeySource,
    its: Marked,
    section: DirtySection,
    offset_map: OffsetMap,
    history: History | None,
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
            history=history,
        )
        its.superseded += step.superseded
        its.deleted += step.deleted
        its.outranked += step.outranked
        if step.first_outranked is not None and len(its.examples) < EXAMPLES_A_SEGMENT_MAX:
            its.examples.append(step.first_outranked)
        yield step
