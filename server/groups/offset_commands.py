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
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord, OffsetCommitKey
from server.coordinator_topic import PreparedBatch, ProducerRefused, RecordsTooLarge
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
from server.producer import NO_PRODUCER, Producer
from server.tasks import guarded, spawn
from server.turns import Pace, Turns
from storage.errors import StorageError

_log = logging.getLogger("server.groups")

GROUPS_AT_ONCE = 100
"""So many are looked at before the loop may do something else."""


_ErrorOf = Callable[[AnyGroup, Claim, Iterable[tuple[str, int]]], ErrorCode]


@dataclass(slots=True)
class _Written:
    """What became of records of a group's offsets."""

    error_code: ErrorCode = ErrorCode.NONE


class OffsetCommands:
    """What requests, and time, do to committed offsets. Lives on the event loop."""

    __slots__ = (
        "_check_interval_ms",
        "_expiring",
        "_groups",
        "_retention_ms",
        "_table",
        "_topic",
        "_turns",
    )

    def __init__(
        self,
        groups: GroupCoordinator,
        *,
        retention_ms: int,
        check_interval_ms: int,
        turns: Turns,
    ) -> None:
        self._turns = turns
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
        refused = await self._refused(group_id, claim, commit_error, records)
        if refused is not ErrorCode.NONE or not records:
            return refused
        batch = await self._prepared(group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        # Nothing is awaited from here to the append, so what is claimed still holds then.
        entry = self._claimed(group_id, claim, commit_error, records)
        if isinstance(entry, ErrorCode):
            return entry
        entry = self._table.create(group_id) if entry is None else entry
        if isinstance(entry.group, Group):
            entry.group.lives(claim.member_id, now_ms=self._table.now_ms())
        return await self._append(entry, batch, records)

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
        error_of = transactional_commit_error
        refused = await self._refused(group_id, claim, error_of, records)
        if refused is not ErrorCode.NONE:
            return refused
        refused = may_write(self._topic.partition_of(group_id))
        if refused is not ErrorCode.NONE or not records:
            return refused
        batch = await self._prepared(group_id, records, producer)
        if isinstance(batch, ErrorCode):
            return batch
        # Nothing is awaited from here to the append, so what is allowed still is.
        entry = self._claimed(group_id, claim, error_of, records)
        if isinstance(entry, ErrorCode):
            return entry
        refused = may_write(batch.partition)
        if refused is not ErrorCode.NONE:
            return refused
        entry = self._table.create(group_id) if entry is None else entry
        return await self._append_pending(entry, producer, batch, records)

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
        pace = Pace(self._turns)
        places = {place async for place in pace.paced(keys)}
        topics = {topic async for topic, _ in pace.paced(places)}
        known = [place async for place in pace.paced(places) if entry.offsets.has(*place)]
        # From here to the append nothing is awaited, so nobody can subscribe before it.
        held = {topic for topic in topics if is_subscribed(entry.group, topic)}
        failed = await self._forget(entry, [place for place in known if place[0] not in held])
        if failed is not ErrorCode.NONE:
            return failed
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {
            place: subscribed if place[0] in held else ErrorCode.NONE
            async for place in pace.paced(places)
        }

    async def topics_deleted(self, topics: AbstractSet[str]) -> None:
        """Forget all that was committed for topics that are gone, once all of it is known."""
        if not topics:
            return
        await self._table.loads.loaded()
        async for entry in self._entries():
            try:
                await self._groups.commits_are_durable(entry)
            except StorageError as error:
                _log.warning("group %r keeps its offsets: %s", entry.group.group_id, error)
                continue
            await self._forget(entry, entry.offsets.places_of(topics))

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

    async def _refused(
        self,
        group_id: str,
        claim: Claim,
        error_of: _ErrorOf,
        records: Sequence[GroupRecord],
    ) -> ErrorCode:
        """Whether a claim to commit does not hold; makes the topic, unless it is there."""
        try:
            await self._topic.ensure()
        except StorageError as error:
            _log.error("%s", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        entry = self._claimed(group_id, claim, error_of, records)
        return entry if isinstance(entry, ErrorCode) else ErrorCode.NONE

    def _claimed(
        self,
        group_id: str,
        claim: Claim,
        error_of: _ErrorOf,
        records: Sequence[GroupRecord],
    ) -> GroupEntry | ErrorCode | None:
        """The group that a claim to commit is about, if it holds; None: it may make one."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if claim.generation >= 0 else None
        return error_of(entry.group, claim, _parts(records)) or entry

    async def _prepared(
        self, group_id: str, records: Sequence[GroupRecord], producer: Producer = NO_PRODUCER
    ) -> PreparedBatch | ErrorCode:
        """The batch of a commit, which may have very many records."""
        partition = self._topic.partition_of(group_id)
        try:
            return await self._topic.prepare(partition, records, Pace(self._turns), producer)
        except StorageError as error:
            return _told(error, group_id)

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
        batch = await self._prepared(entry.group.group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        return await self._append(entry, batch, records)

    async def _append(
        self, entry: GroupEntry, batch: PreparedBatch, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Append what is prepared, now, and follow it once it is durable."""
        with self._committing(entry) as written:
            first_offset, durable = self._topic.append_batch(batch)
            await durable
            await self._follow(entry, records, first_offset)
        return written.error_code

    async def _follow(
        self, entry: GroupEntry, records: Sequence[GroupRecord], first_offset: int
    ) -> None:
        """Take over records that are durable. Others may write the same offsets between two slices:
        what stands later in the log holds."""
        async for index, record in Pace(self._turns).paced(enumerate(records)):
            entry.offsets.applied((record,), first_offset + index)

    async def _append_pending(
        self,
        entry: GroupEntry,
        producer: Producer,
        batch: PreparedBatch,
        records: Sequence[GroupRecord],
    ) -> ErrorCode:
        """Append what is prepared in a transaction, now, and let it wait for its end."""
        with self._committing(entry) as written:
            first_offset, durable = self._topic.append_batch(batch)
            entry.offsets.appended(producer.id, records, first_offset)
            self._table.wait(entry.group.group_id, producer.id)
            await durable
        return written.error_code

    @contextmanager
    def _committing(self, entry: GroupEntry) -> Iterator[_Written]:
        """Keep a group while records of its offsets are written; tells what went wrong."""
        written = _Written()
        entry.commits += 1
        try:
            yield written
        except StorageError as error:
            written.error_code = _told(error, entry.group.group_id)
        finally:
            entry.commits -= 1
            if entry.is_vacant:
                self._table.forget(entry)


def _told(error: StorageError, group_id: str) -> ErrorCode:
    """What a client hears of a commit that could not be written."""
    if isinstance(error, ProducerRefused):
        return error.error_code
    if isinstance(error, RecordsTooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    _log.warning("group %r: %s", group_id, error)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _parts(records: Sequence[GroupRecord]) -> Iterator[tuple[str, int]]:
    """The topics and partitions of commits."""
    for record in records:
        if isinstance(record.key, OffsetCommitKey):
            yield record.key.topic, record.key.partition
