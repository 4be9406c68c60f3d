"""Finds the groups with a committed offset in a partition, among those that a topic's patterns name.

The cleaner asks for each log at each look, and the answer changes only when a group commits there for
the first time or its offset is gone: so it is kept for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.pending_offsets import Place
from storage.threads import loop_thread

PLACES_MAX = 100_000
"""With more, all are forgotten: some may be of topics that were deleted."""


@loop_thread
class HoldersByPlace:
    """The named groups of each topic and partition that was asked for."""

    __slots__ = ("_found", "_table")

    def __init__(self, table: GroupTable) -> None:
        # Constant after construction
        self._table = table
        # State
        self._found: dict[Place, tuple[Sequence[str], tuple[GroupEntry, ...]]] = {}

    def of(self, patterns: Sequence[str], place: Place) -> tuple[GroupEntry, ...]:
        """Returns the groups that names, or prefixes with `*`, mean, and that have an offset in a
        partition. All of them must be loaded. A group that was deleted since may be among them, without
        an offset."""
        known = self._found.get(place)
        if known is not None and known[0] == patterns:
            return known[1]
        if len(self._found) >= PLACES_MAX:
            self._found.clear()
        named = self._table.named(patterns)
        found = tuple(entry for entry in named if entry.offsets.get(*place) is not None)
        self._found[place] = patterns, found
        return found

    def changed(self, place: Place) -> None:
        """Note that a group has an offset in a partition, or no longer has one."""
        self._found.pop(place, None)
