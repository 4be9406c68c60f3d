"""Carries out what the steps of groups decide: schedules, writes, and answers once that is durable.

A step is a method of a group that takes an event and returns an `Outcome`: records, answers, a deadline.
Answers wait until all that the group has written is durable (`group_entry.py`). When a deadline passes
(a session, a rebalance), `_on_deadline` calls the group's `expire`: `classic/group.py`,
`consumer/group.py`.

Source: Apache Kafka, GroupCoordinatorService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.coordination.coordinator_topic import (
    CoordinatorTopic,
    PreparedBatch,
    RecordsTooLarge,
)
from server.coordination.deadlines import Deadlines
from server.coordination.groups.classic.group import Group
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.group_entry import AnyGroup, GroupEntry, error_answer
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.large_steps import LargeStep, LargeSteps
from server.coordination.groups.outcome import (
    Answer,
    HeartbeatAnswer,
    Joined,
    Left,
    Outcome,
    Synced,
)
from server.coordination.groups.protocol_changes import DOWNGRADES, downgrade, may_downgrade
from server.runtime.executors import Executor
from server.runtime.tasks import raising, report_failure, spawn
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.groups")

RETRY_MS = 5_000
"""Pause before a group with many partitions tries again to expire its members."""

A = TypeVar("A", Joined, Synced, Left, HeartbeatAnswer)


@loop_thread
class GroupSteps:
    """The steps of a coordinator's groups. Sole owner of their deadlines and of the writes under way."""

    __slots__ = ("_deadlines", "_table", "_topic", "_writing", "is_stopping", "large_steps")

    def __init__(self, topic: CoordinatorTopic, table: GroupTable, *, assigning: Executor) -> None:
        """`assigning`: the thread for steps that take long."""
        # Constant after construction
        self._topic = topic
        self._table = table
        self.large_steps = LargeSteps(topic, table, assigning)
        # Calls `_on_deadline` with a group's id once the group's deadline has passed.
        self._deadlines = Deadlines(table.now_ms, self._on_deadline)
        # State
        self._writing: set[asyncio.Task[None]] = set()
        self.is_stopping = False

    def start_sessions(self, entry: GroupEntry) -> None:
        """Start the sessions of a loaded group: `expire` gives one to each member that has none."""
        self.carry_out(entry, entry.group.expire(self._table.now_ms()))

    async def stop(self) -> None:
        """Fail all waiting requests and wait until pending writes are durable."""
        await self.large_steps.stop()
        self._deadlines.stop()
        for entry in self._table.entries():
            self.carry_out(entry, entry.group.abandon(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if self._writing:
            await asyncio.wait(self._writing)

    def find(self, group_id: str) -> GroupEntry | ErrorCode | None:
        """Returns a group's entry; None if there is none, an error if its partition is not served."""
        if self.is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._table.find(group_id)

    def step(
        self, entry: GroupEntry, step: Callable[[object], Outcome], answer_type: type[A]
    ) -> Awaitable[A]:
        """Carry out a step. The result resolves with the step's answer once its records are durable."""
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.carry_out(entry, step(ticket))
        return ticket

    async def large_step(self, entry: GroupEntry, step: Callable[[AnyGroup], Outcome]) -> ErrorCode:
        """Carry out a step of a group with many partitions in a thread. Returns why it had no effect;
        else its answer is sent to the step's ticket once its records are durable.

        Args:
            step: may be called more than once, with copies of the group.
        """

        def begin() -> LargeStep | None:
            if isinstance(entry.group, ConsumerGroup):
                return self.on_copy(entry, entry.group, step)
            self.carry_out(entry, step(entry.group))
            return None

        return await self.large_steps.take(entry, begin)

    def on_copy(
        self, entry: GroupEntry, group: MixedGroup, step: Callable[[MixedGroup], Outcome]
    ) -> LargeStep:
        """Prepare a step of a consumer group for a thread."""
        copy = group.copy()

        def finish(outcome: Outcome, prepared: PreparedBatch | None) -> None:
            copy.replace(group)
            entry.group = copy
            self.carry_out(entry, outcome, prepared)

        return LargeStep(take=lambda: step(copy), finish=finish)

    def _on_deadline(self, group_id: str) -> None:
        entry = self._table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return
        now_ms = self._table.now_ms()
        if isinstance(entry.group, ConsumerGroup) and entry.group.assigns_many():
            spawn(self._expire_many(entry, now_ms), "group deadline", among=self._writing)
        else:
            self.carry_out(entry, entry.group.expire(now_ms))

    async def _expire_many(self, entry: GroupEntry, now_ms: int) -> None:
        if await self.large_step(entry, lambda group: group.expire(now_ms)):
            # Its records do not fit, or its partition is not served: that may be different later.
            self._deadlines.set(entry.group.group_id, now_ms + RETRY_MS)

    def carry_out(
        self, entry: GroupEntry, outcome: Outcome, prepared: PreparedBatch | None = None
    ) -> None:
        """Carry out a step's outcome: schedule, write, and answer when durable.

        Args:
            prepared: the outcome's records, if they are encoded already.
        """
        taken = outcome
        outcome = self._with_downgrade(entry, outcome)
        if outcome is not taken:
            prepared = None
        for note in outcome.notes:
            # It contains text from clients.
            shown = note if note.isprintable() else repr(note)
            _log.info("group %r %s", entry.group.group_id, shown)
        self._deadlines.set(entry.group.group_id, outcome.deadline_ms)
        entry.held += outcome.answers
        if outcome.records:
            self.write(entry, outcome.records, prepared)
        if not entry.writes:
            self._send_held_answers(entry)

    def _with_downgrade(self, entry: GroupEntry, outcome: Outcome) -> Outcome:
        """Returns the outcome, extended by a downgrade if only classic members are left."""
        group = entry.group
        policy = self._table.consumer_settings.migration_policy
        if isinstance(group, Group) or not outcome.records or policy not in DOWNGRADES:
            return outcome
        if not may_downgrade(group) or group.members_count > self._table.settings.size_max:
            return outcome
        tombstones = entry.tombstones()
        entry.group = self._table.new_classic_group(group.group_id)
        further = downgrade(group, entry.group, now_ms=self._table.now_ms())
        return Outcome(
            answers=outcome.answers,
            records=(*outcome.records, *tombstones, *further.records),
            deadline_ms=further.deadline_ms,
            notes=(*outcome.notes, *further.notes),
        )

    def write(
        self,
        entry: GroupEntry,
        records: Sequence[GroupRecord],
        prepared: PreparedBatch | None = None,
    ) -> None:
        """Append records of a group; answers wait until they are durable."""
        try:
            if prepared is None:
                appended = self.append(entry, records)
            else:
                appended = self._topic.append_batch(prepared)[1]
        except Exception as error:  # noqa: BLE001 - treated like a failed write
            appended = raising(error)
        entry.writes += 1
        spawn(self._await_write(entry, appended, records), "group write", among=self._writing)

    async def _await_write(
        self, entry: GroupEntry, appended: Awaitable[int], records: Sequence[GroupRecord]
    ) -> None:
        """Wait until the group's own records are durable."""
        try:
            entry.note_stored(records, await appended)
        except StorageError as error:
            is_ours = isinstance(error, RecordsTooLarge)
            code = (
                ErrorCode.UNKNOWN_SERVER_ERROR if is_ours else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            _log.warning("group %r could not be written: %s", entry.group.group_id, error)
            entry.failure = code
        except Exception as error:  # noqa: BLE001 - waiting clients must get an answer
            report_failure("group write", error)
            entry.failure = ErrorCode.UNKNOWN_SERVER_ERROR
        entry.writes -= 1
        if not entry.writes:
            self._send_held_answers(entry)

    def append(self, entry: GroupEntry, records: Sequence[GroupRecord]) -> Awaitable[int]:
        """Append records at once. The returned awaitable raises any error."""
        return self._topic.append(self._topic.partition_of(entry.group.group_id), records)

    def _send_held_answers(self, entry: GroupEntry) -> None:
        """Send the held answers, as errors if a write failed. All of the group's writes have ended."""
        entry.forget_tombstones()
        held, entry.held = entry.held, []
        failure, entry.failure = entry.failure, None
        if failure is None:
            _deliver(held)
        else:
            abandoned = entry.group.abandon(failure)
            _deliver([_as_error(answer, failure) for answer in (*held, *abandoned.answers)])
            entry.group = self._table.as_stored(entry)
            self.start_sessions(entry)
        self.forget_if_vacant(entry)

    def forget_if_vacant(self, entry: GroupEntry) -> None:
        """Forget a group without any state."""
        if entry.is_vacant:
            self._table.forget(entry)


def _deliver(answers: Sequence[Answer]) -> None:
    for answer in answers:
        ticket = answer.ticket
        assert isinstance(ticket, asyncio.Future)
        # The client may have disconnected.
        if not ticket.done():
            ticket.set_result(answer.value)


def _as_error(answer: Answer, error_code: ErrorCode) -> Answer:
    return Answer(ticket=answer.ticket, value=error_answer(answer.value, error_code))
