"""Commits, fetches and deletes offsets: check, append, and apply once durable (`offset_writes.py`).

Fetches only return durable commits; a commit in a transaction waits for the marker. A group without
members may commit, too (a consumer that assigns partitions to itself, or a tool); its first commit
creates the group.

Offsets of groups that hold tombstones are slots (`holds.py`): a live link's cannot be deleted.

Source: Apache Kafka, OffsetMetadataManager.java, GroupCoordinatorService.java; KIP-98, KIP-447,
KIP-496.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence

from protocol.internal_topics.group_records import GroupRecord, OffsetCommitKey
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group
from server.coordination.groups.committed_offsets import CommittedOffsets, place_of
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.group_entry import AnyGroup, GroupEntry
from server.coordination.groups.holds import LINK_GROUP_PREFIX
from server.coordination.groups.offset_checks import (
    OUTSIDE,
    Claim,
    commit_error,
    fetch_error,
    offset_delete_error,
    subscribed_among,
    transactional_commit_error,
)
from server.coordination.groups.offset_expiry import OffsetExpiry
from server.coordination.groups.offset_writes import OffsetWrites
from server.coordination.producer import Producer
from server.runtime.executors import Executor
from server.runtime.turns import Pace, Turns
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")

_ErrorOf = Callable[[AnyGroup, Claim, Iterable[tuple[str, int]]], ErrorCode]


@loop_thread
class OffsetCommands:
    """Carries out requests for committed offsets; `expiry` removes those that nobody needs."""

    __slots__ = ("_holds", "_table", "_topic", "_turns", "_writes", "expiry")

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
        # Constant after construction
        self._turns = turns
        self._holds = groups.holds
        self._table = groups.table
        self._topic = groups.topic
        self._writes = OffsetWrites(groups, turns=turns, administration=administration)
        self.expiry = OffsetExpiry(
            groups, self._writes, retention_ms=retention_ms, check_interval_ms=check_interval_ms
        )

    def start(self) -> None:
        """Start to check all offsets for expiry periodically."""
        self.expiry.start()

    async def stop(self) -> None:
        await self.expiry.stop()

    async def loaded(self) -> None:
        """Wait until no load of a partition is running."""
        await self._table.loads.loaded()

    def entries(self) -> AsyncIterator[GroupEntry]:
        """Yields all groups that are loaded, in slices."""
        return self._writes.entries()

    async def commit(
        self, group_id: str, claim: Claim, records: Sequence[GroupRecord]
    ) -> ErrorCode:
        """Commit offsets, all or none. Without records it only checks the claim."""
        refused = await self._check_claim(group_id, claim, commit_error, records)
        if refused is not ErrorCode.NONE or not records:
            return refused
        records = await self._dated(group_id, records)
        batch = await self._writes.prepare(group_id, records)
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
        return await self._writes.append(entry, batch, records)

    async def lower(self, group_id: str, records: Sequence[GroupRecord]) -> ErrorCode:
        """Commit offsets in the broker's own name, also of a group that has members."""
        batch = await self._writes.prepare(group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.GROUP_ID_NOT_FOUND
        return await self._writes.append(entry, batch, records)

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
        batch = await self._writes.prepare(group_id, records, producer)
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
        return await self._writes.append_pending(entry, producer, batch, records)

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
        await self._writes.wait_for_swaps(held)

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
        failed = await self._writes.forget(
            entry, [place for place in known if place[0] not in held]
        )
        if failed is not ErrorCode.NONE:
            return failed
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return {
            place: subscribed if place[0] in held else ErrorCode.NONE
            async for place in pace.paced(places)
        }

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

    async def _dated(self, group_id: str, records: Sequence[GroupRecord]) -> Sequence[GroupRecord]:
        """Returns commits whose times say when slots have made progress last."""
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return records
        paced = Pace(self._turns).paced(records)
        return [self._holds.dated(entry, record) async for record in paced]


def _parts(records: Sequence[GroupRecord]) -> Iterator[tuple[str, int]]:
    """Yields the topics and partitions of commits."""
    for record in records:
        if isinstance(record.key, OffsetCommitKey):
            yield record.key.topic, record.key.partition
