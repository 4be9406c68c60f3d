"""Takes steps of consumer groups with many partitions in a thread, on a copy of the group.

To assign 20,000 partitions takes half a second, and almost every part of a step grows with them: the
hash of the topics, the assignment, the records and their encoding. So a large step runs on a copy:

    loop      copy the group ---------------------------------> unchanged? the copy becomes the group
    thread          take the step, encode its records             changed? start again

Meanwhile the loop serves the group as it is. Requests that only renew sessions do not count as changes:
the copy takes over the sessions. If the records do not fit into a batch, the group stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import (
    CoordinatorTopic,
    PreparedBatch,
    Preparing,
    RecordsTooLarge,
)
from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.outcome import Outcome
from server.coordination.producer import NO_PRODUCER
from server.runtime.executors import Executor
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")


Taken = tuple[Outcome, PreparedBatch | None]
"""A step's outcome, and its records in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeStep:
    """A step that is ready to be taken on a copy of its group."""

    take: Callable[[], Outcome]
    """Changes the copy. Runs in a thread."""
    finish: Callable[[Outcome, PreparedBatch | None], None]
    """Puts the copy in the group's place and carries out the outcome, whose records are encoded."""


@loop_thread
class LargeSteps:
    """Takes one large step at a time: the thread has room for one, and two of a group would conflict."""

    __slots__ = ("_assigning", "_is_stopping", "_one", "_table", "_topic")

    def __init__(self, topic: CoordinatorTopic, table: GroupTable, assigning: Executor) -> None:
        # Constant after construction
        self._topic = topic
        self._table = table
        self._assigning = assigning
        # State
        self._one = asyncio.Lock()
        self._is_stopping = False

    async def stop(self) -> None:
        """Let no further step take effect; return when none is running."""
        self._is_stopping = True
        async with self._one:
            pass

    async def take(self, entry: GroupEntry, begin: Callable[[], LargeStep | None]) -> ErrorCode:
        """Take a step. Returns why it had no effect; NONE if it had one.

        Args:
            begin: copies the group for the step, again after each change of the group. None: it has
                taken the step at once.
        """
        async with self._one:
            while (preparing := self._preparing(entry)) is not None:
                before, changes = entry.group, entry.group.changes
                step = begin()
                if step is None:
                    return ErrorCode.NONE
                taken = await self._assigning.run(_take, step.take, preparing)
                if entry.group is before and before.changes == changes:
                    error = self._finish(entry, step, taken)
                    # To free the old values takes long, too.
                    unused: list[object] = [before, step, taken]
                    del before, step, taken
                    await self._assigning.run(unused.clear)
                    return error
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _finish(
        self, entry: GroupEntry, step: LargeStep, taken: Taken | RecordsTooLarge
    ) -> ErrorCode:
        if isinstance(taken, RecordsTooLarge):
            _log.warning("group %r could not be written: %s", entry.group.group_id, taken)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if self._preparing(entry) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        step.finish(*taken)
        return ErrorCode.NONE

    def _preparing(self, entry: GroupEntry) -> Preparing | None:
        """Returns an empty batch for the group's records; None if they could not be written."""
        group_id = entry.group.group_id
        if self._is_stopping or self._table.find(group_id) is not entry:
            return None
        try:
            return Preparing(self._topic, self._topic.partition_of(group_id), NO_PRODUCER)
        except StorageError as error:
            _log.warning("group %r could not be written: %s", group_id, error)
            return None


def _take(take: Callable[[], Outcome], preparing: Preparing) -> Taken | RecordsTooLarge:
    """Take a step in a thread, and encode its records."""
    outcome = take()
    try:
        return outcome, _prepared(preparing, outcome.records)
    except RecordsTooLarge as error:
        return error


def _prepared(preparing: Preparing, records: Sequence[GroupRecord]) -> PreparedBatch | None:
    if not records:
        return None
    for record in records:
        preparing.add(record)
    return preparing.prepared()
