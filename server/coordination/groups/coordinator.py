"""The asyncio shell around groups: turns requests into steps and carries out their outcomes.

    request -> loaded? -> group.step(event, now) -> outcome: records, answers, deadline
                                                       |        |         |
                              appended to the group's partition |   one timer for all
                              durable ------------------------> answered

Only the event loop touches groups, and a step does not await, so a group handles one event at a time.
Answers wait until all that the group has written is durable (`group_entry.py`). When a deadline passes
(a session, a rebalance), `_on_deadline` calls the group's `expire`: `classic/group.py`,
`consumer/group.py`.

Source: Apache Kafka, GroupCoordinatorService.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.error_codes import ErrorCode
from server.config.group_config import GroupConfig
from server.config.group_overrides import GroupTimes
from server.coordination.coordinator_topic import (
    OFFSETS_TOPIC,
    CoordinatorTopic,
    PreparedBatch,
    RecordsTooLarge,
)
from server.coordination.deadlines import Deadlines
from server.coordination.groups.classic.group import Group, GroupSettings
from server.coordination.groups.committed_offsets import tombstone_batches
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.mixed_group import MixedGroup
from server.coordination.groups.consumer.settings import ConsumerSettings
from server.coordination.groups.events import NO_MEMBER, Join, Leave, LeaveKey, Sync
from server.coordination.groups.group_entry import AnyGroup, GroupEntry, error_answer
from server.coordination.groups.group_table import GroupTable
from server.coordination.groups.holds import TombstoneHolds
from server.coordination.groups.large_steps import LargeStep, LargeSteps
from server.coordination.groups.offset_checks import delete_error
from server.coordination.groups.outcome import (
    Answer,
    HeartbeatAnswer,
    Joined,
    Left,
    Outcome,
    Synced,
)
from server.coordination.groups.protocol_changes import DOWNGRADES, downgrade, may_downgrade
from server.durability.group_commit import GroupCommit
from server.runtime.at_once import at_once
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.tasks import raising, report_failure, spawn
from server.runtime.turns import Pace
from server.topics.topics import Topics
from storage.files.errors import StorageError

_log = logging.getLogger("server.coordination.groups")

RETRY_MS = 5_000
"""Pause before a group with many partitions tries again to expire its members."""

A = TypeVar("A", Joined, Synced, Left, HeartbeatAnswer)


class GroupCoordinator:
    """Handles the requests of clients to groups, except those for offsets."""

    __slots__ = ("_deadlines", "_is_stopping", "_writing", "holds", "large_steps", "table", "topic")

    def __init__(
        self,
        topic: CoordinatorTopic,
        table: GroupTable,
        holds: TombstoneHolds,
        *,
        assigning: Executor,
    ) -> None:
        """Serve the groups of a table.

        Args:
            holds: which tombstones these groups hold.
            assigning: the thread for steps that take long.
        """
        # Constant after construction
        self.topic = topic
        self.table = table
        self.holds = holds
        self.large_steps = LargeSteps(topic, table, assigning)
        # Calls `_on_deadline` with a group's id once the group's deadline has passed.
        self._deadlines = Deadlines(self.table.now_ms, self._on_deadline)
        # State
        self._writing: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Start to load the groups."""
        self.table.start(on_loaded=self._start_sessions)

    async def stop(self) -> None:
        """Fail all waiting requests and wait until pending writes are durable."""
        self._is_stopping = True
        await self.table.loads.stop()
        await self.large_steps.stop()
        self._deadlines.stop()
        for entry in self.table.entries():
            self.carry_out(entry, entry.group.abandon(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if self._writing:
            await asyncio.wait(self._writing)

    # Members.

    async def join(self, group_id: str, join: Join) -> Awaitable[Joined]:
        """Let a member join. The result resolves when the next generation begins."""
        if not await self.has_topic(group_id):
            return at_once(Joined(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        entry = self.find(group_id)
        if entry is None and join.member_id == NO_MEMBER:
            entry = self.table.create(group_id)
        if not isinstance(entry, GroupEntry):
            code = entry or ErrorCode.UNKNOWN_MEMBER_ID
            return at_once(Joined(error_code=code, member_id=join.member_id))
        group, now_ms = self._classic_group_of(entry), self.table.now_ms()
        names = () if join.subscription is None else join.subscription.topic_names
        if isinstance(group, ConsumerGroup) and group.assigns_many(names):
            joined: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
            error = await self.large_step(
                entry, lambda group: group.join(join, joined, now_ms=now_ms)
            )
            return at_once(Joined(error_code=error, member_id=join.member_id)) if error else joined
        return self.step(entry, lambda ticket: group.join(join, ticket, now_ms=now_ms), Joined)

    def _classic_group_of(self, entry: GroupEntry) -> AnyGroup:
        """Returns the group for a classic member. Converts a consumer group without members to the
        classic protocol; it keeps its committed offsets."""
        if isinstance(entry.group, ConsumerGroup) and not entry.group.data.members:
            tombstones = entry.tombstones()
            entry.group = self.table.new_classic_group(entry.group.group_id)
            self._write(entry, tombstones)
        return entry.group

    def sync(self, group_id: str, sync: Sync) -> Awaitable[Synced]:
        """Return a member's assignment. The result resolves once the leader has sent the assignments."""
        entry = self.find(group_id)
        if not isinstance(entry, GroupEntry):
            return at_once(Synced(error_code=entry or ErrorCode.UNKNOWN_MEMBER_ID))
        group, now_ms = entry.group, self.table.now_ms()
        return self.step(entry, lambda ticket: group.sync(sync, ticket, now_ms=now_ms), Synced)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Renew a member's session."""
        entry = self.find(group_id)
        if entry is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The group may exist, so the member must not be made to rejoin.
            return ErrorCode.NONE
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.UNKNOWN_MEMBER_ID
        group, now_ms = entry.group, self.table.now_ms()
        if isinstance(group, Group):
            return group.heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        code, outcome = group.classic_heartbeat(member_id, instance_id, generation, now_ms=now_ms)
        self.carry_out(entry, outcome)
        return code

    async def leave(
        self, group_id: str, leaving: Sequence[Leave], pace: Pace
    ) -> Awaitable[Left] | ErrorCode:
        """Remove members in one step. Returns an error if the whole request fails."""
        entry = self.find(group_id)
        if isinstance(entry, ErrorCode):
            return entry
        members: dict[LeaveKey, Leave] = {}
        if entry is not None:
            async for each in pace.paced(leaving):
                if each.key not in members and entry.group.may_leave(each):
                    members[each.key] = each
        if entry is None or not members or self.find(group_id) is not entry:
            return _leave_answer(at_once(Left(error_codes=())), leaving, {}, pace)
        group, now_ms = entry.group, self.table.now_ms()
        if isinstance(group, ConsumerGroup) and group.assigns_many():
            gone: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
            error = await self.large_step(
                entry, lambda group: group.leave(members.values(), gone, now_ms=now_ms)
            )
            if error:
                return error
            left: Awaitable[Left] = gone
        else:
            left = self.step(
                entry, lambda ticket: group.leave(members.values(), ticket, now_ms=now_ms), Left
            )
        return _leave_answer(
            left, leaving, members, pace, is_consumer=isinstance(group, ConsumerGroup)
        )

    # Groups.

    async def has_topic(self, group_id: str) -> bool:
        """Create `__consumer_offsets` if it is missing. Returns whether it exists."""
        try:
            await self.topic.ensure()
        except StorageError as error:
            _log.warning("group %r: %s", group_id, error)
            return False
        return True

    async def has_room(self, group_id: str, size: int) -> bool:
        """Returns whether a group's record of `size` bytes fits into a batch; True if that is unknown.
        Callers ask before they build the record, which takes long."""
        try:
            await self.topic.ensure()
            log = self.topic.log_of(self.topic.partition_of(group_id))
        except StorageError:
            return True
        return size <= log.config.max_message_bytes

    def describe(self, group_id: str) -> AnyGroup | ErrorCode | None:
        """Returns a group in its current state; None if it does not exist."""
        entry = self.find(group_id)
        return entry.group if isinstance(entry, GroupEntry) else entry

    def groups(self) -> list[AnyGroup] | ErrorCode:
        """Returns all groups, or an error while some partitions are still loading."""
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.table.loads.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [entry.group for entry in self.table.entries()]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and all its committed offsets."""
        entry = self.find(group_id)
        if not isinstance(entry, GroupEntry):
            return entry or ErrorCode.GROUP_ID_NOT_FOUND
        try:
            # Commits in flight must also be deleted.
            await self.wait_for_commits(entry)
            error = delete_error(entry.group)
            if self.holds.is_live_link(entry, self.table.now_ms()):
                error = ErrorCode.NON_EMPTY_GROUP
            if error is ErrorCode.NONE:
                await self._write_tombstones(entry)
        except StorageError as error_of_disk:
            _log.warning("group %r could not be deleted: %s", group_id, error_of_disk)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if entry.is_vacant:
            self.table.forget(entry)
        return error

    async def wait_for_commits(self, entry: GroupEntry) -> None:
        """Wait until no commit of a group is in flight. Raises StorageError."""
        while entry.commits:
            await self.topic.settle(self.topic.partition_of(entry.group.group_id))
            await asyncio.sleep(0)

    async def _write_tombstones(self, entry: GroupEntry) -> None:
        """Append all tombstones before anything else of the group; apply them once durable."""
        group_id = entry.group.group_id
        batches = (*tombstone_batches(group_id, entry.offsets.places()), entry.tombstones())
        offsets = await asyncio.gather(*(self.append(entry, batch) for batch in batches))
        for batch, first_offset in zip(batches, offsets, strict=True):
            entry.offsets.apply(batch, first_offset)
            entry.note_stored(batch, first_offset)

    # Steps.

    def find(self, group_id: str) -> GroupEntry | ErrorCode | None:
        if self._is_stopping:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.table.find(group_id)

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
        entry = self.table.find(group_id)
        if not isinstance(entry, GroupEntry):
            return
        now_ms = self.table.now_ms()
        if isinstance(entry.group, ConsumerGroup) and entry.group.assigns_many():
            spawn(self._expire_many(entry, now_ms), "group deadline", among=self._writing)
        else:
            self.carry_out(entry, entry.group.expire(now_ms))

    async def _expire_many(self, entry: GroupEntry, now_ms: int) -> None:
        if await self.large_step(entry, lambda group: group.expire(now_ms)):
            # Its records do not fit, or its partition is not served: that may be different later.
            self._deadlines.set(entry.group.group_id, now_ms + RETRY_MS)

    def _start_sessions(self, entry: GroupEntry) -> None:
        """Start the sessions of a loaded group: `expire` gives one to each member that has none."""
        self.carry_out(entry, entry.group.expire(self.table.now_ms()))

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
            self._write(entry, outcome.records, prepared)
        if not entry.writes:
            self._send_held_answers(entry)

    def _with_downgrade(self, entry: GroupEntry, outcome: Outcome) -> Outcome:
        """Returns the outcome, extended by a downgrade if only classic members are left."""
        group = entry.group
        policy = self.table.consumer_settings.migration_policy
        if isinstance(group, Group) or not outcome.records or policy not in DOWNGRADES:
            return outcome
        if not may_downgrade(group) or group.members_count > self.table.settings.size_max:
            return outcome
        tombstones = entry.tombstones()
        entry.group = self.table.new_classic_group(group.group_id)
        further = downgrade(group, entry.group, now_ms=self.table.now_ms())
        return Outcome(
            answers=outcome.answers,
            records=(*outcome.records, *tombstones, *further.records),
            deadline_ms=further.deadline_ms,
            notes=(*outcome.notes, *further.notes),
        )

    def _write(
        self,
        entry: GroupEntry,
        records: Sequence[GroupRecord],
        prepared: PreparedBatch | None = None,
    ) -> None:
        try:
            if prepared is None:
                appended = self.append(entry, records)
            else:
                appended = self.topic.append_batch(prepared)[1]
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
        return self.topic.append(self.topic.partition_of(entry.group.group_id), records)

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
            entry.group = self.table.as_stored(entry)
            self._start_sessions(entry)
        self.forget_if_vacant(entry)

    def forget_if_vacant(self, entry: GroupEntry) -> None:
        """Forget a group without any state."""
        if entry.is_vacant:
            self.table.forget(entry)


def coordinator_of(
    topics: Topics,
    group_commit: GroupCommit,
    config: GroupConfig,
    *,
    clock: Clock,
    own_times: Mapping[str, GroupTimes],
    loading: Executor,
    assigning: Executor,
) -> GroupCoordinator:
    """Returns the coordinator of a broker's groups.

    Args:
        own_times: the times of groups with their own configuration.
        loading: the threads that load partitions.
        assigning: the thread for steps that take long.
    """
    topic = CoordinatorTopic(
        OFFSETS_TOPIC,
        topics,
        group_commit,
        clock,
        partitions_count=config.offsets_topic_num_partitions,
        segment_bytes=config.offsets_topic_segment_bytes,
        loading=loading,
    )
    settings = GroupSettings(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        size_max=config.group_max_size,
    )
    consumer_settings = ConsumerSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        size_max=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration_policy=config.group_consumer_migration_policy,
        own_times=own_times,
    )
    table = GroupTable(topic, settings, clock, consumer_settings=consumer_settings, topics=topics)
    return GroupCoordinator(topic, table, TombstoneHolds(table, topics), assigning=assigning)


async def _leave_answer(
    left: Awaitable[Left],
    leaving: Sequence[Leave],
    members: Mapping[LeaveKey, Leave],
    pace: Pace,
    *,
    is_consumer: bool = False,
) -> Left:
    """Returns the result for every member named in the request. If a member is named twice, a classic
    group reports the second one as unknown; a consumer group gives the same answer twice, like Kafka's.
    """
    codes = dict(zip(members, (await left).error_codes, strict=True))
    answered: list[ErrorCode] = []
    async for each in pace.paced(leaving):
        code = codes.get(each.key, ErrorCode.UNKNOWN_MEMBER_ID)
        answered.append(code)
        if code is ErrorCode.NONE and not is_consumer:
            del codes[each.key]
    return Left(error_codes=tuple(answered))


def _deliver(answers: Sequence[Answer]) -> None:
    for answer in answers:
        ticket = answer.ticket
        assert isinstance(ticket, asyncio.Future)
        # The client may have disconnected.
        if not ticket.done():
            ticket.set_result(answer.value)


def _as_error(answer: Answer, error_code: ErrorCode) -> Answer:
    return Answer(ticket=answer.ticket, value=error_answer(answer.value, error_code))
