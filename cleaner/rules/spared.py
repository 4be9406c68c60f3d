"""Which segments a pass spares: those in which too small a share of the bytes is superseded. Pure.

A spared segment is neither read nor written, and its superseded records stay below the clean offset
(docs/design/spared-segments.md). So a pass must

    judge all keys again after such a pass, because records without a newer dirty one stay superseded
    spare nothing once a record that was left has waited for max.compaction.lag.ms
    never leave a record before a tombstone of its key: it would come back when the tombstone goes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRecords:
    """The superseded records of one segment."""

    count: int
    deleted: int
    """Those among them that come before a tombstone of their key."""
    bytes: int
    """Their size, uncompressed."""
    bytes_of_all: int
    """The size of all keyed records of the segment, uncompressed."""

    @property
    def ratio(self) -> float:
        """The share of the segment's bytes that is superseded."""
        return self.bytes / self.bytes_of_all if self.bytes_of_all else 0.0


def may_stay(dead: DeadRecords, least_ratio: float) -> bool:
    """Returns whether superseded records are no reason to rewrite their segment.

    Args:
        least_ratio: `min.segment.dead.ratio`.
    """
    return dead.count > 0 and dead.deleted == 0 and dead.ratio < least_ratio


class SparedUntil(NamedTuple):
    """When the superseded records must go that a pass has left."""

    due_ms: int = LONG_MAX
    """LONG_MAX: never."""
    lag_ms: int = LONG_MAX
    """max.compaction.lag.ms at the pass."""


NOT_ASKED = SparedUntil()


def spared_due_ms(has_history: bool, config: LogConfig, last: SparedUntil | None) -> int:
    """Returns when records that passes have left must go; 0: at once; LONG_MAX: never.

    Args:
        has_history: whether keys may have older values below the clean offset.
        last: as the last pass in this process has found; None: there was none, so that only a pass can
            find out what is left.
    """
    lag_ms = config.max_compaction_lag_ms
    if not (has_history and config.spares_segments) or lag_ms == LONG_MAX:
        return LONG_MAX
    if last is None:
        return 0
    if last.due_ms == LONG_MAX:
        # With a lag, nothing was left. Without one, no pass has asked since when it is superseded.
        return 0 if last.lag_ms == LONG_MAX else LONG_MAX
    return max(last.due_ms - last.lag_ms + lag_ms, 0)
