"""Finds groups by the beginning of their names.

Few prefixes are asked for, and again and again, so the groups of each are kept once it was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from server.coordination.groups.group_entry import GroupEntry
from storage.threads import loop_thread

PREFIXES_MAX = 100
"""With more, all are forgotten: then the next questions look at every group once."""


@loop_thread
class GroupsByPrefix:
    """The groups of a table by the prefixes that were asked for. Owned by the table."""

    __slots__ = ("_entries", "_found")

    def __init__(self, entries: Mapping[str, GroupEntry]) -> None:
        """`entries`: all groups by id; the owner reports what it adds and removes."""
        self._entries = entries
        self._found: dict[str, dict[str, GroupEntry]] = {}

    def matching(self, prefix: str) -> Collection[GroupEntry]:
        """Returns the groups whose names begin with `prefix`."""
        found = self._found.get(prefix)
        if found is None:
            if len(self._found) == PREFIXES_MAX:
                self._found.clear()
            found = {
                name: entry for name, entry in self._entries.items() if name.startswith(prefix)
            }
            self._found[prefix] = found
        return found.values()

    def added(self, group_id: str, entry: GroupEntry) -> None:
        """Note a group that the table has now."""
        for prefix, found in self._found.items():
            if group_id.startswith(prefix):
                found[group_id] = entry

    def removed(self, group_id: str) -> None:
        """Note a group that the table no longer has."""
        for found in self._found.values():
            found.pop(group_id, None)
