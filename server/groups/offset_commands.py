"""Commit, delete and expire offsets: check, write, and follow once it is durable.

What is fetched is only ever what is durable; what is committed in a transaction waits for its marker.
A group that nobody is a member of may commit, too: a consumer that assigns partitions to itself, or
a tool; its first commit makes the group.

Source: Apache Kafka, OffsetMetadataManager.java, GroupCoordinatorService.java; KIP-98, KIP-211,
KIP-447, KIP-496.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord, OffsetCommitKey
from server.coordinator_topic import ProducerRefused, RecordsTooLarge
from server.groups.committed_offsets import CommittedOffsets, tombstone_batches
from server.groups.coordinator import GroupCoordinator
from server.groups.group import Group
from server.groups.group_checks import (
    OUTSIDE,
    Claim,
    commit_error,
    fetch_error,
    is_empty,
    is_subscribed,
    offset_delete_error,
    offset_expiry,
    transactional_commit_error,
)
from server.groups.group_entry import AnyGroup, GroupEntry
from server.producer import Producer
from server.tasks import guarded, spawn
from storage.errors import StorageError

_log = logging.getLogger("server.groups")

GROUPS_AT_ONCE = 100
"""So many are looked at before the loop may do something else."""


@dataclass(slots=True)
class _Written:
    """Where records of a group's offsets go, and what became of them."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE


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
        self._expiring = spawn(self._expire_for_ever(), "offset expiry")

    async def stop(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.wait([self._expiring])

    # Asked for by clients.

    async def commit(
        self, group_id: str, claim: Claim, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Commit offsets, all or none. With no records it only says whether the claim holds."""
        entry = await self._claimed(group_id, claim, commit_error, records)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            if not records:
                return ErrorCode.NONE
            entry = self._table.create(group_id)
        if isinstance(entry.group, Group):
            entry.group.lives(claim.member_id, now_ms=self._table.now_ms())
        return await self._apply(entry, records)

    async def commit_in_transaction(
        self,
        group_id: str,
        claim: Claim,
        producer: Producer,
        records: Sequence[GroupRecord],
        *,
        may_write: Callable[[int], ErrorCode],
    ) -> ErrorCode:
        """Commit offsets, all or none, as soon as a transaction is committed.

        Args:
            may_write: whether the producer's transaction has this partition of the topic in it.
        """
        entry = await self._claimed(group_id, claim, transactional_commit_error, records)
        if isinstance(entry, ErrorCode):
            return entry
        # Nothing is awaited from here to the append, so what is allowed still is.
        refused = may_write(self._topic.partition_of(group_id))
        if refused is not ErrorCode.NONE or not records:
            return refused
        return await self._append_pending(
            self._table.create(group_id) if entry is None else entry, producer, records
        )

    async def transaction_ended(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """Let hold, or forget, what waited for a transaction whose marker is durable in a partition
        of the topic; once all groups are known."""
        await self._table.loads.loaded()
        for entry in self._table.waited(partition, producer_id):
            entry.offsets.transaction_ended(producer_id, is_commit=is_commit)
            if entry.is_vacant:
                self._table.forget(entry)

    def fetch(self, group_id: str, claim: Claim = OUTSIDE) -> CommittedOffsets | ErrorCode:
        """What a group has committed; nothing for one that does not exist."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return CommittedOffsets()
        refused = fetch_error(entry.group, claim)
        return entry.offsets if refused is ErrorCode.NONE else refused

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
            if is_subscribed(entry.group, key[0])
            else ErrorCode.NONE
            for key in keys
        }
        known = [place for place in entry.offsets.places() if outcome.get(place) is ErrorCode.NONE]
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
            await self._forget(entry, entry.offsets.places_of(topic))

    # Caused by time.

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_ms / 1000)
            with guarded("offset expiry"):
                await self.expire()

    async def expire(self) -> None:
        """Forget the offsets that have expired, and groups of which nothing is left then."""
        async for entry in self._entries():
            with guarded("offset expiry"):
                await self._expire(entry)

    async def _expire(self, entry: GroupEntry) -> None:
        expiry = offset_expiry(entry.group)
        if expiry is None:
            return
        now_ms = self._table.now_ms()
        expired = entry.offsets.expired(expiry, now_ms=now_ms, retention_ms=self._retention_ms)
        await self._forget(entry, expired)
        is_over = is_empty(entry.group) and not entry.offsets
        if is_over and not entry.commits and not entry.writes:
            await self._groups.delete(entry.group.group_id)

    # Both.

    async def _claimed(
        self,
        group_id: str,
        claim: Claim,
        error_of: Callable[[AnyGroup, Claim, Iterable[tuple[str, int]]], ErrorCode],
        records: Sequence[GroupRecord],
    ) -> GroupEntry | ErrorCode | None:
        """The group that a claim to commit is about, if it holds; None: it may make one."""
        try:
            await self._topic.ensure()
        except StorageError as error:
            _log.error("%s", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if claim.generation >= 0 else None
        return error_of(entry.group, claim, _parts(records)) or entry

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
        with self._committing(entry) as written:
            entry.offsets.applied(records, await self._topic.append(written.partition, records))
        return written.error_code

    async def _append_pending(
        self, entry: GroupEntry, producer: Producer, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Write records in a transaction, and let them wait for its end."""
        with self._committing(entry) as written:
            first_offset, durable = self._topic.append_in_transaction(
                written.partition, records, producer
            )
            entry.offsets.appended(producer.id, records, first_offset)
            self._table.wait(entry.group.group_id, producer.id)
            await durable
        return written.error_code

    @contextmanager
    def _committing(self, entry: GroupEntry) -> Iterator[_Written]:
        """Keep a group while records of its offsets are written; tells what went wrong."""
        written = _Written(self._topic.partition_of(entry.group.group_id))
        entry.commits += 1
        try:
            yield written
        except ProducerRefused as error:
            written.error_code = error.error_code
        except RecordsTooLarge:
            written.error_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        except StorageError as error:
            _log.warning("group %r: %s", entry.group.group_id, error)
            written.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            entry.commits -= 1
            if entry.is_vacant:
                self._table.forget(entry)


def _parts(records: Sequence[GroupRecord]) -> list[tuple[str, int]]:
    """The topics and partitions of commits."""
    keys = [record.key for record in records]
    return [(key.topic, key.partition) for key in keys if isinstance(key, OffsetCommitKey)]
