"""Commit, delete and expire offsets: check, write, and follow once it is durable.

What is fetched is only ever what is durable. A group that nobody is a member of may commit, too: a
consumer that assigns partitions to itself, or a tool; its first commit makes the group.

Source: Apache Kafka, OffsetMetadataManager.java, GroupCoordinatorService.java; KIP-211, KIP-496.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord
from server.coordinator_topic import RecordsTooLarge
from server.groups.committed_offsets import CommittedOffsets, tombstone_batches
from server.groups.coordinator import GroupCoordinator
from server.groups.group import GroupState
from server.groups.group_checks import (
    CONSUMER,
    Claim,
    commit_error,
    offset_delete_error,
    offset_expiry,
    subscribed_topics,
)
from server.groups.group_entry import GroupEntry
from storage.errors import StorageError

_log = logging.getLogger("server.groups")

GROUPS_AT_ONCE = 100
"""So many are looked at before the loop may do something else."""


class OffsetCommands:
    """What requests, and time, do to committed offsets. Lives on the event loop."""

    __slots__ = ("_check_interval_ms", "_expiring", "_groups", "_retention_ms", "_table", "_topic")

    def __init__(
        self,
        groups: GroupCoordinator,
        *,
        retention_ms: int,
        check_interval_ms: int,
    ) -> None:
        self._groups = groups
        self._table = groups.table
        self._topic = groups.topic
        self._retention_ms = retention_ms
        self._check_interval_ms = check_interval_ms
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look at all offsets now and then, and forget what has expired."""
        self._expiring = asyncio.get_running_loop().create_task(self._expire_for_ever())

    async def stop(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.wait([self._expiring])

    # Asked for by clients.

    async def commit(
        self, group_id: str, claim: Claim, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Commit offsets, all or none. With no records it only says whether the claim holds."""
        try:
            await self._topic.ensure()
        except StorageError as error:
            _log.error("%s", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            if claim.generation >= 0:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if not records:
                return ErrorCode.NONE
            entry = self._table.create(group_id)
        refused = commit_error(entry.group, claim)
        if refused is not ErrorCode.NONE:
            return refused
        entry.group.lives(claim.member_id, now_ms=self._table.now_ms())
        return await self._apply(entry, records)

    def fetch(self, group_id: str) -> CommittedOffsets | ErrorCode:
        """What a group has committed; nothing for one that does not exist."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        return CommittedOffsets() if entry is None else entry.offsets

    async def delete(
        self, group_id: str, keys: Collection[tuple[str, int]]
    ) -> ErrorCode | dict[tuple[str, int], ErrorCode]:
        """Forget offsets; what became of each, or what is wrong with the group."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        refused = offset_delete_error(entry.group)
        if refused is not ErrorCode.NONE:
            return refused
        outcome = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if _is_subscribed(entry, key[0])
            else ErrorCode.NONE
            for key in keys
        }
        known = [key for key, code in outcome.items() if not code and entry.offsets.get(*key)]
        failed = await self._forget(entry, known)
        return outcome if failed is ErrorCode.NONE else failed

    async def topic_deleted(self, topic: str) -> None:
        """Forget all that was committed for a topic that is gone, once all of it is known."""
        await self._table.loads.loaded()
        async for entry in self._entries():
            try:
                await self._groups.commits_are_durable(entry)
            except StorageError as error:
                _log.warning("group %r keeps its offsets: %s", entry.group.group_id, error)
                continue
            partitions = entry.offsets.by_topic().get(topic, {})
            await self._forget(entry, [(topic, partition) for partition in partitions])

    # Caused by time.

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_ms / 1000)
            try:
                await self.expire()
            except Exception:  # noqa: BLE001 - a mistake in one round must not end them all
                _log.exception("offsets could not be expired")

    async def expire(self) -> None:
        """Forget the offsets that have expired, and groups of which nothing is left then."""
        async for entry in self._entries():
            await self._expire(entry)

    async def _expire(self, entry: GroupEntry) -> None:
        expiry = offset_expiry(entry.group)
        if expiry is None:
            return
        now_ms = self._table.now_ms()
        expired = entry.offsets.expired(expiry, now_ms=now_ms, retention_ms=self._retention_ms)
        await self._forget(entry, expired)
        is_over = entry.group.state is GroupState.EMPTY and not entry.offsets
        if is_over and not entry.commits and not entry.writes:
            await self._groups.delete(entry.group.group_id)

    # Both.

    async def _entries(self) -> AsyncIterator[GroupEntry]:
        for count, entry in enumerate(self._table.entries()):
            if count % GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            yield entry

    async def _forget(self, entry: GroupEntry, keys: Iterable[tuple[str, int]]) -> ErrorCode:
        # A list, because the offsets change while it is written.
        for batch in tombstone_batches(entry.group.group_id, list(keys)):
            failed = await self._apply(entry, batch)
            if failed is not ErrorCode.NONE:
                return failed
        return ErrorCode.NONE

    async def _apply(self, entry: GroupEntry, records: Sequence[GroupRecord]) -> ErrorCode:
        """Write records, and follow them."""
        if not records:
            return ErrorCode.NONE
        entry.commits += 1
        try:
            partition = self._topic.partition_of(entry.group.group_id)
            entry.offsets.applied(records, await self._topic.append(partition, records))
        except RecordsTooLarge:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        except StorageError as error:
            _log.warning("group %r: %s", entry.group.group_id, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            entry.commits -= 1
            if entry.is_vacant:
                self._table.forget(entry)
        return ErrorCode.NONE


def _is_subscribed(entry: GroupEntry, topic: str) -> bool:
    """Whether a member is, or may be, because nobody can read what consumers have said."""
    subscribed = subscribed_topics(entry.group)
    if subscribed is None:
        return entry.group.roster.protocol_type == CONSUMER
    return topic in subscribed
