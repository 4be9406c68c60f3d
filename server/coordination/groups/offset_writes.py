"""Writes a group's committed offsets to the coordinator's topic, and applies them once durable.

A change that holds more tombstones than before returns once no running swap can contradict it
(`holds.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import PreparedBatch, ProducerRefused, RecordsTooLarge
from server.coordination.groups.committed_offsets import place_of, tombstone_batches
from server.coordination.groups.coordinator import GroupCoordinator
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.producer import NO_PRODUCER, Producer
from server.runtime.executors import Executor
from server.runtime.turns import Pace, Turns
from server.topics.alteration import wait_for_commits
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")

GROUPS_PER_SLICE = 100
"""Groups handled between two yields to the event loop."""


@dataclass(slots=True)
class _WriteResult:
    """The result of writing a group's offset records."""

    error_code: ErrorCode = ErrorCode.NONE


@loop_thread
class OffsetWrites:
    """Prepares, appends and applies offset records."""

    __slots__ = ("_administration", "_holds", "_table", "_topic", "turns")

    def __init__(self, groups: GroupCoordinator, *, turns: Turns, administration: Executor) -> None:
        """
        Args:
            administration: the threads that wait for running swaps.
        """
        # Constant after construction
        self.turns = turns
        self._administration = administration
        self._holds = groups.holds
        self._table = groups.table
        self._topic = groups.topic

    async def prepare(
        self, group_id: str, records: Sequence[GroupRecord], producer: Producer = NO_PRODUCER
    ) -> PreparedBatch | ErrorCode:
        """Prepare the batch of a commit, which may have very many records."""
        partition = self._topic.partition_of(group_id)
        try:
            return await self._topic.prepare(partition, records, Pace(self.turns), producer)
        except StorageError as error:
            return _error_code_of(error, group_id)

    async def entries(self) -> AsyncIterator[GroupEntry]:
        """Yields all groups that are loaded, in slices."""
        for count, entry in enumerate(self._table.entries()):
            if count % GROUPS_PER_SLICE == 0:
                await asyncio.sleep(0)
            yield entry

    async def forget(self, entry: GroupEntry, keys: Iterable[tuple[str, int]]) -> ErrorCode:
        """Delete the offsets of these topics and partitions. Returns once that is durable, or failed."""
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
        batch = await self.prepare(entry.group.group_id, records)
        if isinstance(batch, ErrorCode):
            return batch
        return await self.append(entry, batch, records)

    async def append(
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
        async for index, record in Pace(self.turns).paced(enumerate(records)):
            place = place_of(record)
            before = entry.offsets.get(*place)
            entry.offsets.apply((record,), first_offset + index)
            log = self._holds.applied(entry, place, before)
            if log is not None:
                held.add(log)
        await self.wait_for_swaps(held)

    async def wait_for_swaps(self, logs: Collection[PartitionLog]) -> None:
        """Wait until no running swap of these logs can contradict what a group holds."""
        if logs:
            await self._administration.run(wait_for_commits, list(logs))

    async def append_pending(
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
