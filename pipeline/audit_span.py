"""How an audit is done, and which offsets of two logs it compares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one partition, [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """What is compared of two logs."""

    common: Mapping[int, Span]
    """What both have, of each partition that both have."""
    faults: tuple[str, ...]
    """What the cleaned log lacks as a whole."""
    notes: tuple[str, ...]
    """What is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How it is done."""

    delete_retention_ms: int | None = None
    """None: what the cleaned topic says, else Kafka's default."""
    may_end_early: bool = False
    differences_max: int = 100


def common_spans(
    original: Mapping[int, Span], cleaned: Mapping[int, Span], *, may_end_early: bool
) -> Spans:
    """What of two logs can be compared.

    A cleaned log may go on beyond its original, and may start later (retention, DeleteRecords).

    Args:
        may_end_early: it may end before its original, too: it is older.
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
