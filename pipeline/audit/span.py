"""The options of an audit, and the offsets of two logs that it compares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.formats.compaction_strategy import CompactionStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The spans of two logs to compare."""

    common: Mapping[int, Span]
    """The common offsets of each common partition."""
    faults: tuple[str, ...]
    """Messages about whole ranges that the cleaned log lacks."""
    notes: tuple[str, ...]
    """Messages about ranges that are not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of an audit."""

    delete_retention_ms: int | None = None
    """None: the cleaned topic's setting, else Kafka's default."""
    strategy: CompactionStrategy | None = None
    """None: the cleaned topic's or its sidecars', else the original's, else by offset."""
    may_end_early: bool = False
    differences_max: int = 100


def common_spans(
    original: Mapping[int, Span], cleaned: Mapping[int, Span], *, may_end_early: bool
) -> Spans:
    """Returns the spans of two logs that can be compared.

    A cleaned log may continue beyond its original, and may start later (retention, DeleteRecords).

    Args:
        may_end_early: it may also end before its original, because it is older.
    """
    common: dict[int, Span] = {}
    faults: list[str] = []
    notes: list[str] = []
    for partition, span in sorted(original.items()):
        other = cleaned.get(partition)
        if other is None:
            faults.append(f"the cleaned log has no partition {partition}")
            continue
        start = max(span.start, other.start)
        common[partition] = Span(start=start, end=max(min(span.end, other.end), start))
        if other.end < span.end:
            (notes if may_end_early else faults).append(
                f"partition {partition} of the cleaned log ends at offset {other.end},"
                f" the original at {span.end}"
            )
        if other.start > span.start:
            notes.append(
                f"partition {partition} of the cleaned log starts at offset {other.start},"
                f" the original at {span.start}: what is below it is not compared"
            )
    notes += [
        f"partition {partition} is only in the cleaned log: it is not compared"
        for partition in sorted(cleaned.keys() - original.keys())
    ]
    return Spans(common=common, faults=tuple(faults), notes=tuple(notes))
