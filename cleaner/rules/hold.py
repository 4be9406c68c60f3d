"""What keeps the tombstones and markers of a log beyond their delete horizons.

A copy of a log by offsets (a mirror) that lags longer than `delete.retention.ms` would miss deletions
and keep deleted keys for ever. So a group can hold them: `compaction.hold.groups` names such groups, and
their committed offsets say what they have read. The server knows these
(`server/coordination/groups/holds.py`); the cleaner asks for a log's hold when it looks at the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.log.log import PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The hold on one log at one moment."""

    offset: Offset
    """Tombstones and markers at and above it stay."""
    by: str
    """Who holds them, for people; empty if no one does."""


NO_HOLD = Hold(offset=OFFSET_MAX, by="")

HoldOf: TypeAlias = Callable[[PartitionLog], Hold]
"""Returns the current hold on a log; called on the event loop."""


def no_hold(_log: PartitionLog) -> Hold:
    """Returns that nothing is held, for logs without groups."""
    return NO_HOLD
