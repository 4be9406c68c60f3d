"""What keeps the tombstones and markers of a log beyond their delete horizons.

A copy of a log by offsets (a mirror) that lags longer than `delete.retention.ms` would miss deletions
and keep deleted keys for ever. So a group can hold them: `compaction.hold.groups` names such groups, and
their committed offsets say what they have read. The server knows these
(`server/coordination/groups/holds.py`); the cleaner asks for a log's hold when it looks at the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The hold on one log at one moment."""

    offset: Offset
    """Tombstones and markers at and above it stay."""
    by: str
    """Who holds them, for people; empty if no one does."""


NO_HOLD = Hold(offset=OFFSET_MAX, by="")


class HeldLog(Protocol):
    """The properties of a log that its hold depends on; a log and a `CleaningView` have them."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def config(self) -> LogConfig: ...


HoldOf: TypeAlias = Callable[[HeldLog], Hold]
"""Returns the current hold on a log; called on the event loop."""


def no_hold(_log: HeldLog) -> Hold:
    """Returns that nothing is held, for logs without groups."""
    return NO_HOLD
