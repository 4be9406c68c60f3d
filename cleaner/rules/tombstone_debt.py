"""Tombstones that still have to go: how many, how many bytes, and when. Pure.

Passes count them by segment, in the manifest's rows. "Due" means that a pass may drop a tombstone: its
delete horizon has passed. It stays longer while a group holds it (`hold.py`), or until a pass runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN


class CountedSegment(Protocol):
    """What a pass has counted of a segment; manifest rows and segments have it."""

    @property
    def tombstone_count(self) -> int: ...
    @property
    def tombstone_bytes(self) -> int: ...
    @property
    def least_delete_horizon_ms(self) -> int: ...
    @property
    def tombstones_due_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneDebt:
    """The tombstones of some segments that passes have counted."""

    tombstones: int = 0
    bytes: int | None = 0
    """Their encoded, uncompressed size; None if an earlier release has counted some of them."""
    first_due_ms: int | None = None
    """When the first falls due, or a marker in the same segment; None if none has a date."""
    all_due_ms: int | None = None
    """When all are due; None if there is none, if one has no date yet, or if it is unknown."""


def tombstone_debt(segments: Iterable[CountedSegment]) -> TombstoneDebt:
    """Returns the tombstones of segments. Those that no pass has met yet are not counted."""
    counted = [each for each in segments if each.tombstone_count > 0]
    sizes = [each.tombstone_bytes for each in counted]
    firsts = [each.least_delete_horizon_ms for each in counted]
    lasts = [each.tombstones_due_ms for each in counted]
    is_dated = UNKNOWN not in lasts and LONG_MAX not in lasts
    return TombstoneDebt(
        tombstones=sum(each.tombstone_count for each in counted),
        bytes=None if UNKNOWN in sizes else sum(sizes),
        first_due_ms=min((each for each in firsts if each != UNKNOWN), default=None),
        all_due_ms=max(lasts, default=None) if is_dated else None,
    )


def total_debt(debts: Iterable[TombstoneDebt]) -> TombstoneDebt:
    """Returns the debts of several logs together."""
    owed = [each for each in debts if each.tombstones]
    sizes = [each.bytes for each in owed if each.bytes is not None]
    firsts = [each.first_due_ms for each in owed if each.first_due_ms is not None]
    lasts = [each.all_due_ms for each in owed if each.all_due_ms is not None]
    return TombstoneDebt(
        tombstones=sum(each.tombstones for each in owed),
        bytes=sum(sizes) if len(sizes) == len(owed) else None,
        first_due_ms=min(firsts, default=None),
        all_due_ms=max(lasts, default=None) if len(lasts) == len(owed) else None,
    )
