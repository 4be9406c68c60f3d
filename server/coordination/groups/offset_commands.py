"""Commits, deletes and expires offsets: check, append, and apply once durable.

Fetches only return durable commits; a commit in a transaction waits for the marker. A group without
members may commit, too (a consumer that assigns partitions to itself, or a tool); its first commit
creates the group.

Offsets of groups that hold tombstones are slots (`holds.py`): they do not expire, a change that holds
more than before is answered once no running swap can contradict it, and a live link's cannot be deleted.

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

from protocol.internal_topics.group_records import GroupRecord, OffsetCommitKey
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import PreparedBatch, ProducerRefused, RecordsTooLarge
from server.coordination.groups.classic.group import Group
from server.coordination.groups.committed_offsets import (
    CommittedOffsets,
    place_of,
    tombstone_batches,
)
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.group_entry import AnyGroup, GroupEntry
from server.coordination.groups.holds import LINK_GROUP_PREFIX, invalidation
from server.coordination.groups.offset_checks import (
    OUTSIDE,
    Claim,
    commit_error,
    fetch_error,
    is_empty,
    offset_delete_error,
    offset_expiry,
    subscribed_among,
    transactional_commit_error,
)
from server.coordination.producer import NO_PRODUCER, Producer
from server.runtime.executors import Executor
from server.runtime.tasks import guarded, spawn
from server.runtime.turns import Pace, Turns
from server.topics.alteration import wait_for_commits
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")

GROUPS_PER_SLICE = 100
"""Groups handled between two yields to the event loop."""

SLOTS_AT_ONCE = 1_000
"""Slots that are invalidated by one batch."""


_ErrorOf = Callable[[AnyGroup, Claim, Iterable[tuple[str, int]]], ErrorCode]


@dataclass(slots=True)
class _WriteResult:
    """The result of writing a group's offset records."""

    error_code: ErrorCode = ErrorCode.NONE


@loop_thread
class OffsetCommands:
    """Carries out requests for committed offsets, and their expiry."""

    __slots__ = (
        "_administration",
        "_check_interval_ms",
        "_expiry_task",
        "_groups",
        "_holds",
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
        administration: Executor,
    ) -> None:
        """
        Args:
            administration: the threads that wait for running swaps.
        """
        self._turns = turns
        self._administration = administration
        self._holds = groups.holds
        self._groups = groups
        self._table = groups.table
        self._topic = groups.topic
        self._retention_ms = retention_ms
        self._check_interval_ms = check_interval_ms
        self._expiry_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to check all offsets for expiry periodically."""
        self._expiry_task = spawn(self._expire_periodically(), "offset expiry")

    async def stop(self) -> None:
        if self._expiry_task is not None:
            self._expiry_task.cancel()
            await asyncio.wait([self._expiry_task])

    # Requests.

    async def commit(
        self, group_id: str, claim: Claim, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Commit offsets, all or none. Without records it only checks the claim."""
        refused = await self._check_claim(group_id, claim, commit_error, records)
        if refused is not ErrorCode.NONE or not records:
            return refused
        records = await self._dated(group_id, records)
        batch = await self._prepare(group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        # No await from here to the append, so the claim that is checked now still holds then.
        entry = self._claimed_group(group_id, claim, commit_error, records)
        if isinstance(entry, ErrorCode):
            return entry
        if self.refused_slots(group_id, records):
            # They were invalidated while the batch was prepared.
            return ErrorCode.OFFSET_OUT_OF_RANGE
        entry = self._table.create(group_id) if entry is None else entry
        entry.committed_ms = self._table.now_ms()
        if isinstance(entry.group, Group):
            entry.group.renew_session(claim.member_id, now_ms=self._table.now_ms())
        return await self._append(entry, batch, records)

    async def lower(self, group_id: str, records: Sequence[GroupRecord]) -> ErrorCode:
        """Commit offsets in the broker's own name, also of a group that has members."""
        batch = await self._prepare(group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.GROUP_ID_NOT_FOUND
        return await self._append(entry, batch, records)

    def refused_slots(self, group_id: str, records: Iterable[GroupRecord]) -> set[tuple[str, int]]:
        """Returns the topics and partitions whose commits are refused with OFFSET_OUT_OF_RANGE: a link's
        slots that were invalidated, unless the link starts over. Of other groups none are."""
        if not group_id.startswith(LINK_GROUP_PREFIX):
            return set()
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return set()
        return {place_of(each) for each in records if self._holds.is_refused(entry, each)}

    async def commit_in_transaction(
        self,
        group_id: str,
        claim: Claim,
        producer: Producer,
        records: Sequence[GroupRecord],
        *,
        may_write: Callable[[int], ErrorCode],
    ) -> ErrorCode:
        """Commit offsets, all or none, as part of a transaction.

        Args:
            may_write: checks that the producer's transaction includes this partition of the topic.
        """
        error_of = transactional_commit_error
        refused = await self._check_claim(group_id, claim, error_of, records)
        if refused is not ErrorCode.NONE:
            return refused
        refused = may_write(self._topic.partition_of(group_id))
        if refused is not ErrorCode.NONE or not records:
            return refused
        batch = await self._prepare(group_id, records, producer)
        if isinstance(batch, ErrorCode):
            return batch
        # No await from here to the append, so what is allowed now still is then.
        entry = self._claimed_group(group_id, claim, error_of, records)
        if isinstance(entry, ErrorCode):
            return entry
        refused = may_write(batch.partition)
        if refused is not ErrorCode.NONE:
            return refused
        entry = self._table.create(group_id) if entry is None else entry
        return await self._append_pending(entry, producer, batch, records)

    async def transaction_ended(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop pending offsets after a transaction's marker became durable in a partition of
        the topic. Waits until all groups are loaded."""
        await self._table.loads.loaded()
        held: set[PartitionLog] = set()
        for entry in self._table.take_waiting(partition, producer_id):
            places = entry.offsets.pending_places(producer_id)
            before = {place: entry.offsets.get(*place) for place in places}
            entry.offsets.end_transaction(producer_id, is_commit=is_commit)
            held |= {
                log for each in places if (log := self._holds.applied(entry, each, before[each]))
            }
            if entry.is_vacant:
                self._table.forget(entry)
        await self._wait_for_swaps(held)

    def fetch(self, group_id: str, claim: Claim = OUTSIDE) -> CommittedOffsets | ErrorCode:
        """Returns a group's committed offsets; none if the group does not exist."""
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
        """Delete offsets. Returns an error code for each, or one for the group."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        refused = offset_delete_error(entry.group)
        if refused is not ErrorCode.NONE:
            return refused
        is_live_link = self._holds.is_live_link(entry, self._table.now_ms())
        pace = Pace(self._turns)
        places = {place async for place in pace.paced(keys)}
        topics = {topic async for topic, _ in pace.paced(places)}
        known = [place async for place in pace.paced(places) if entry.offsets.has(*place)]
        # No await from here to the append, so that no member can subscribe in between.
        held = set(subscribed_among(entry.group, topics))
        if is_live_link:
            held |= {topic for topic in topics if self._holds.is_slot(group_id, topic)}
        failed = await self._forget(entry, [place for place in known if place[0] not in held])
        if failed is not ErrorCode.NONE:
            return failed
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {
            place: subscribed if place[0] in held else ErrorCode.NONE
            async for place in pace.paced(places)
        }

    async def topics_deleted(self, topics: AbstractSet[str]) -> None:
        """Delete all offsets of deleted topics, once all groups are loaded."""
        if not topics:
            return
        await self._table.loads.loaded()
        async for entry in self.entries():
            try:
                await self._groups.wait_for_commits(entry)
            except StorageError as error:
                _log.warning(
                    "group %r: cannot delete offsets of deleted topics: %s",
                    entry.group.group_id,
                    error,
                )
                continue
            await self._forget(entry, entry.offsets.places_of(topics))

    # Expiry.

    async def _expire_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_ms / 1000)
            with guarded("offset expiry"):
                await self.expire()

    async def expire(self) -> None:
        """Delete expired offsets, and groups that are then left empty."""
        async for entry in self.entries():
            with guarded("offset expiry"):
                await self._expire(entry)

    async def _expire(self, entry: GroupEntry) -> None:
        await self._end_stalled_slots(entry)
        expiry = offset_expiry(entry.group)
        if expiry is None:
            return
        now_ms = self._table.now_ms()
        expired = entry.offsets.expired(expiry, now_ms=now_ms, retention_ms=self._retention_ms)
        await self._forget(entry, self._holds.without_slots(entry, expired))
        is_over = is_empty(entry.group) and not entry.offsets
        if is_over and not entry.commits and not entry.writes:
            await self._groups.delete(entry.group.group_id)

    async def _end_stalled_slots(self, entry: GroupEntry) -> None:
        """Invalidate the slots that have made no progress for compaction.hold.max.ms."""
        now_ms, group_id = self._table.now_ms(), entry.group.group_id
        stalled = [
            (place, slot)
            async for place, slot in Pace(self._turns).paced(self._holds.slots(entry))
            if self._holds.is_stalled(place, slot, now_ms)
        ]
        for start in range(0, len(stalled), SLOTS_AT_ONCE):
            slots = stalled[start : start + SLOTS_AT_ONCE]
            records = [invalidation(group_id, place, slot) for place, slot in slots]
            batch = await self._prepare(group_id, records)
            has_moved = any(entry.offsets.get(*place) is not slot for place, slot in slots)
            if isinstance(batch, ErrorCode) or entry.commits or has_moved:
                # The next check looks at the slots again.
                return
            with self._holds.ending(entry, slots):
                failed = await self._append(entry, batch, records)
            if failed is not ErrorCode.NONE:
                return
            self._holds.invalidated(entry, records)

    # Shared by both.

    async def _check_claim(
        self,
        group_id: str,
        claim: Claim,
        error_of: _ErrorOf,
        records: Sequence[GroupRecord],
    ) -> ErrorCode:
        """Returns an error if the claim does not hold. Creates the topic if it is missing."""
        try:
            await self._topic.ensure()
        except StorageError as error:
            _log.error("%s", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        entry = self._claimed_group(group_id, claim, error_of, records)
        return entry if isinstance(entry, ErrorCode) else ErrorCode.NONE

    def _claimed_group(
        self,
        group_id: str,
        claim: Claim,
        error_of: _ErrorOf,
        records: Sequence[GroupRecord],
    ) -> GroupEntry | ErrorCode | None:
        """Returns the group of a valid claim, or an error; None: the commit may create the group."""
        entry = self._table.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if claim.generation >= 0 else None
        return error_of(entry.group, claim, _parts(records)) or entry

    async def _prepare(
        self, group_id: str, records: Sequence[GroupRecord], producer: Producer = NO_PRODUCER
    ) -> PreparedBatch | ErrorCode:
        """Prepare the batch of a commit, which may have very many records."""
        partition = self._topic.partition_of(group_id)
        try:
            return await self._topic.prepare(partition, records, Pace(self._turns), producer)
        except StorageError as error:
            return _error_code_of(error, group_id)

    async def loaded(self) -> None:
        """Wait until no load of a partition is running."""
        await self._table.loads.loaded()

    async def entries(self) -> AsyncIterator[GroupEntry]:
        """Yields all groups that are loaded, in slices."""
        for count, entry in enumerate(self._table.entries()):
            if count % GROUPS_PER_SLICE == 0:
                await asyncio.sleep(0)
            yield entry

    async def _forget(self, entry: GroupEntry, keys: Iterable[tuple[str, int]]) -> ErrorCode:
        # A list, because the offsets change while the tombstones are written.
        for batch in tombstone_batches(entry.group.group_id, list(keys)):
            failed = await self._apply(entry, batch)
            if failed is not ErrorCode.NONE:
                return failed
        return ErrorCode.NONE

    async def _apply(self, entry: GroupEntry, records: Sequence[GroupRecord]) -> ErrorCode:
        """Write records and apply them."""
        if not records:
            return ErrorCode.NONE
        batch = await self._prepare(entry.group.group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        return await self._append(entry, batch, records)

    async def _append(
        self, entry: GroupEntry, batch: PreparedBatch, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Append a prepared batch at once, and apply it when it is durable."""
        with self._committing(entry) as written:
            first_offset, durable = self._topic.append_batch(batch)
            await durable
            await self._apply_durable(entry, records, first_offset)
        return written.error_code

    async def _apply_durable(
        self, entry: GroupEntry, records: Sequence[GroupRecord], first_offset: int
    ) -> None:
        """Apply durable records in slices. Other commits may interleave; the highest offset wins.

        Returns once no running swap contradicts what the group holds.
        """
        held: set[PartitionLog] = set()
        async for index, record in Pace(self._turns).paced(enumerate(records)):
            place = place_of(record)
            before = entry.offsets.get(*place)
            entry.offsets.apply((record,), first_offset + index)
            log = self._holds.applied(entry, place, before)
            if log is not None:
                held.add(log)
        await self._wait_for_swaps(held)

    async def _wait_for_swaps(self, logs: Collection[PartitionLog]) -> None:
        if logs:
            await self._administration.run(wait_for_commits, list(logs))

    async def _dated(self, group_id: str, records: Sequence[GroupRecord]) -> Sequence[GroupRecord]:
        """Returns commits whose times say when slots have made progress last."""
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return records
        paced = Pace(self._turns).paced(records)
        return [self._holds.dated(entry, record) async for record in paced]

    async def _append_pending(
        self,
        entry: GroupEntry,
        producer: Producer,
        batch: PreparedBatch,
        records: Sequence[GroupRecord],
    ) -> ErrorCode:
        """Append a prepared batch of a transaction at once, and keep its offsets pending."""
        with self._committing(entry) as written:
            first_offset, durable = self._topic.append_batch(batch)
            entry.offsets.add_pending(producer.id, records, first_offset)
            self._table.add_waiting(entry.group.group_id, producer.id)
            await durable
        return written.error_code

    @contextmanager
    def _committing(self, entry: GroupEntry) -> Iterator[_WriteResult]:
        """Keep the group in the table during a write, and collect the write's error."""
        written = _WriteResult()
        entry.commits += 1
        try:
            yield written
        except StorageError as error:
            written.error_code = _error_code_of(error, entry.group.group_id)
        finally:
            entry.commits -= 1
            if entry.is_vacant:
                self._table.forget(entry)


def _error_code_of(error: StorageError, group_id: str) -> ErrorCode:
    """Returns the error code for a commit that could not be written."""
    if isinstance(error, ProducerRefused):
        return error.error_code
    if isinstance(error, RecordsTooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    _log.warning("group %r: %s", group_id, error)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _parts(records: Sequence[GroupRecord]) -> Iterator[tuple[str, int]]:
    """Yields the topics and partitions of commits."""
    for record in records:
        if isinstance(record.key, OffsetCommitKey):
            yield record.key.topic, record.key.partition
