"""Removes committed offsets that nobody needs: expired ones, and those of deleted topics.

Slots of groups that hold tombstones do not expire (`holds.py`); one that makes no progress for
`compaction.hold.max.ms` is invalidated.

Source: Apache Kafka, OffsetMetadataManager.java (cleanupExpiredOffsets, onPartitionsDeleted); KIP-211.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set as AbstractSet

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.holds import invalidation
from server.coordination.groups.offset_checks import is_empty, offset_expiry
from server.coordination.groups.offset_writes import OffsetWrites
from server.runtime.tasks import every, guarded, spawn
from server.runtime.turns import Pace
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")

SLOTS_AT_ONCE = 1_000
"""Slots that are invalidated by one batch."""


@loop_thread
class OffsetExpiry:
    """Checks all offsets periodically, from `start` to `stop`."""

    __slots__ = (
        "_check_interval_ms",
        "_expiry_task",
        "_groups",
        "_holds",
        "_retention_ms",
        "_table",
        "_writes",
    )

    def __init__(
        self,
        groups: GroupCoordinator,
        writes: OffsetWrites,
        *,
        retention_ms: int,
        check_interval_ms: int,
    ) -> None:
        # Constant after construction
        self._writes = writes
        self._holds = groups.holds
        self._groups = groups
        self._table = groups.table
        self._retention_ms = retention_ms
        self._check_interval_ms = check_interval_ms
        # State
        self._expiry_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        name = "offset expiry"
        checks = every(self._check_interval_ms / 1000, self.expire, name)
        self._expiry_task = spawn(checks, name)

    async def stop(self) -> None:
        """Cancel the checks, even in the middle of a round."""
        if self._expiry_task is not None:
            self._expiry_task.cancel()
            await asyncio.wait([self._expiry_task])

    async def topics_deleted(self, topics: AbstractSet[str]) -> None:
        """Delete all offsets of deleted topics, once all groups are loaded."""
        if not topics:
            return
        await self._table.loads.loaded()
        async for entry in self._writes.entries():
            try:
                await self._groups.wait_for_commits(entry)
            except StorageError as error:
                _log.warning(
                    "group %r: cannot delete offsets of deleted topics: %s",
                    entry.group.group_id,
                    error,
                )
                continue
            await self._writes.forget(entry, entry.offsets.places_of(topics))

    async def expire(self) -> None:
        """Delete expired offsets, and groups that are then left empty."""
        async for entry in self._writes.entries():
            with guarded("offset expiry"):
                await self._expire(entry)

    async def _expire(self, entry: GroupEntry) -> None:
        await self._end_stalled_slots(entry)
        expiry = offset_expiry(entry.group)
        if expiry is None:
            return
        now_ms = self._table.now_ms()
        expired = entry.offsets.expired(expiry, now_ms=now_ms, retention_ms=self._retention_ms)
        await self._writes.forget(entry, self._holds.without_slots(entry, expired))
        is_over = is_empty(entry.group) and not entry.offsets
        if is_over and not entry.commits and not entry.writes:
            await self._groups.delete(entry.group.group_id)

    async def _end_stalled_slots(self, entry: GroupEntry) -> None:
        """Invalidate the slots that have made no progress for compaction.hold.max.ms."""
        now_ms, group_id = self._table.now_ms(), entry.group.group_id
        stalled = [
            (place, slot)
            async for place, slot in Pace(self._writes.turns).paced(self._holds.slots(entry))
            if self._holds.is_stalled(place, slot, now_ms)
        ]
        for start in range(0, len(stalled), SLOTS_AT_ONCE):
            slots = stalled[start : start + SLOTS_AT_ONCE]
            records = [invalidation(group_id, place, slot) for place, slot in slots]
            batch = await self._writes.prepare(group_id, records)
            has_moved = any(entry.offsets.get(*place) is not slot for place, slot in slots)
            if isinstance(batch, ErrorCode) or entry.commits or has_moved:
                # The next check looks at the slots again.
                return
            with self._holds.ending(entry, slots):
                failed = await self._writes.append(entry, batch, records)
            if failed is not ErrorCode.NONE:
                return
            self._holds.invalidated(entry, records)
